"""Biases written on the command line: what is read, and what is refused at which column."""

import numpy as np
import pytest

import regard as rg
from regard.cli._bias import LEAVES, parse_bias


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Alibi(8)", rg.Alibi(8)),
        ("Alibi([0.5, 2.5e-1, -1])", rg.Alibi([0.5, 0.25, -1])),
        ("  rg.Alibi(4)\n + biases.RelativeBias([1, -0.5, 0]) # why", rg.Alibi(4) + rg.RelativeBias([1, -0.5, 0])),
        ("RelativeBias([[1, 2, 3], [4, 5, 6]])", rg.RelativeBias([[1, 2, 3], [4, 5, 6]])),
        (
            "T5Bias([[0], [1], [2], [3]], bidirectional=False, max_distance=9)",
            rg.T5Bias([[0], [1], [2], [3]], bidirectional=False, max_distance=9),
        ),
    ],
)
def test_an_expression_is_what_python_makes_of_it(text, same):
    assert parse_bias(text) == same


def test_every_leaf_is_known():
    leaves = {name for name in vars(rg.biases) if isinstance(getattr(rg.biases, name), type)} - {"Bias", "Table"}
    assert leaves == set(LEAVES)


def test_arrays_from_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save("bias.npy", table)
    bias = parse_bias("DenseBias('bias.npy') + Alibi([1])")
    assert (bias.materialize(3, 4) == table + rg.Alibi([1]).materialize(3, 4)).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--bias, column 1: not an expression"),
        ("Alibi", r"--bias, column 1: Alibi needs parentheses: Alibi\(...\)"),
        ("Alibi(8) + alibi(8)", r"column 12: there is no bias alibi: did you mean Alibi\?"),
        ("xyz()", "column 1: there is no bias xyz: biases are Alibi, RelativeBias, T5Bias, DenseBias$"),
        ("nonsense", "column 1: nonsense is no bias: it is a shape such as 30,30, the name of an .npy file, or"),
        ("Alibi(8) & Alibi(8)", r"is no bias: biases are Alibi, RelativeBias, T5Bias, DenseBias under \+$"),
        ("Alibi(8) + 3", "column 12: 3 is no bias: a number or a string"),
        ("Alibi(8) + bias.npy", r"column 12: a file of numbers is DenseBias\('bias.npy'\)"),
        ("-Alibi(8)", r"column 1: -Alibi\(8\) is no bias"),
        ("lambda d: -d", "functions are no biases"),
        ("Causal()", "column 1: there is no bias Causal"),
        ("Alibi(Alibi(8))", "column 1: "),
        ("Alibi(8j)", "column 7: 8j is no argument of a bias: those are numbers, True, False, None, lists, and"),
        ("Alibi(1 + 2)", "column 7: 1 is no bias"),
        ("Alibi(2 ** 99)", r"column 7: 2 \*\* 99 is no argument"),
        ("Alibi(99999999)", "column 7: integers go up to 1048576"),  # and no memory is taken for their slopes
        ("Alibi(0)", r"column 1: Alibi\(0\): give a number of heads"),
        ("Alibi(True)", "column 1: "),
        ("Alibi()", "column 1: .*missing 1 required positional argument: 'slopes'"),
        ("T5Bias([[1], [2]])", "column 1: .*bidirectional"),
        ("T5Bias('missing.npy', bidirectional=True)", "column 8: there is no file missing.npy"),
        ("RelativeBias([1, 2])", "column 1: .*holds an odd number of them"),
        ("__import__('os').system('touch x')", "column 1: there is no bias __import__"),
        ("+".join(["Alibi(1)"] * 300), "more than 100 operations"),
    ],
    ids=lambda value: ascii(value[:30]),
)
def test_anything_else_is_refused_with_its_column(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(rg.UnsupportedError, match=message) as raised:
        parse_bias(text)
    assert len(str(raised.value)) < 400
    assert not list(tmp_path.iterdir()), "something ran"
