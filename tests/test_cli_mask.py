"""Masks written on the command line: what is read, and what is refused at which column."""

import numpy as np
import pytest

import regard as rg
from regard.cli._mask import LEAVES, parse_mask


@pytest.mark.parametrize(
    "text",
    [
        "Full()",
        "Causal() & (Window(left=256) | Prefix(4))",
        "Causal() & Window(left=256) | Prefix(4)",
        "~Causal() & ~(Global(2) | Empty())",
        "KeyLengths([3, 5])",
        "Documents([7, 7, 9], [7, 9])",
        "Blocks([[True, False], [False, True]], (1, 2))",
        "KeyPadding([[False, True, True]])",
        "PerHead([Full(), Causal() & ~Window(left=1)])",
        "Chunked(64) & Dilated(2) & Window(left=0, right=3)",
        "Window()",
    ],
)
def test_an_expression_is_what_python_makes_of_it(text):
    names = {name: getattr(rg.masks, name) for name in LEAVES}
    assert parse_mask(text) == eval(text, names)
    assert repr(parse_mask(text)) == text


def test_every_leaf_is_known():
    leaves = {name for name in vars(rg.masks) if isinstance(getattr(rg.masks, name), type)} - {"Mask"}
    assert leaves == set(LEAVES)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("rg.Causal() & regard.Window(left=2)", rg.Causal() & rg.Window(left=2)),
        ("  Causal()\n  & masks.Full() # why", rg.Causal() & rg.Full()),
        ("((Causal()))", rg.Causal()),
        ("Window(left=None, right=0x10)", rg.Window(right=16)),
        ("Window(1, 2)", rg.Window(left=1, right=2)),
        ("KeyLengths(5)", rg.KeyLengths(5)),
    ],
)
def test_ways_to_write_it(text, same):
    assert parse_mask(text) == same


def test_arrays_from_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = np.tri(4, dtype=bool)
    np.save("mask.npy", table)
    np.save("ids.npy", np.array([1, 1, 2, 2]))
    mask = parse_mask("Dense('mask.npy') & Documents('ids.npy')")
    assert (mask.materialize(4, 4) == (table & rg.Documents([1, 1, 2, 2]).materialize(4, 4))).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1: not an expression"),
        ("Causal() &", r"column \d+: not an expression \(.*\)"),
        ("Causal() && Full()", "column 11: not an expression"),
        ("Causal", r"column 1: Causal needs parentheses: Causal\(\.\.\.\)"),
        ("Full() & rg.Causal", "column 10: Causal needs parentheses"),
        ("Full() & causal()", r"column 10: there is no mask causal: did you mean Causal\?"),
        ("Full() | Windw(3)", r"column 10: there is no mask Windw: did you mean Window\?"),
        ("xyz()", "column 1: there is no mask xyz: masks are Full, Empty, Causal,"),
        ("np.Causal()", "column 1: there is no mask np.Causal"),
        ("__import__('os').system('touch x')", r"column 1: there is no mask __import__\('os'\).system"),
        ("Full() & (lambda: Full())()", r"column 10: there is no mask lambda: Full\(\)"),
        ("Causal().__class__", "column 1: Causal.* is no mask"),
        ("Full().materialize(9, 9)", r"column 1: there is no mask Full\(\).materialize"),
        ("from_function(f)", "column 1: there is no mask from_function"),
        ("lambda b, h, p, j: p > j", "functions are masks in Python only"),
        ("Causal() and Full()", "column 1: .* is no mask: masks combine with & | ~, not and / or / not"),
        ("Full() & (not Causal())", "column 11: not Causal.* not and / or / not"),
        ("Full() ^ Causal()", r"column 1: Full\(\) \^ Causal\(\) is no mask: masks are Full"),
        ("-Causal()", r"column 1: -Causal\(\) is no mask"),
        ("Causal() & 3", "column 12: 3 is no mask: a number or a string"),
        ("'mask.npy'", r"column 1: 'mask.npy' is no mask: .* Dense\('FILE.npy'\)"),
        ("mask.npy", r"column 1: a file of bools is Dense\('mask.npy'\)"),
        ("[Full() for x in y]", "column 1: .* is no mask"),
        ("(x := Full())", "column 2: .* is no mask"),
        ("Full() if True else Empty()", "column 1: .* is no mask"),
        ("Full() < Empty()", r"column 1: .* write a mask, such as Causal\(\)"),
        ("Full(*[1])", r"column 6: \* and \*\* are not read"),
        ("Window(**{'left': 1})", r"column 8: \* and \*\* are not read"),
        ("Prefix(x)", "column 8: x is no argument of a mask: those are integers"),
        ("Prefix(1.5)", "column 8: 1.5 is no argument"),
        ("Prefix(1j)", "column 8: 1j is no argument"),
        ("Prefix(2 ** 99)", r"column 8: 2 \*\* 99 is no argument"),
        ("Prefix(99999999999999999999)", "column 8: integers go up to 9223372036854775807"),
        ("Prefix(0x" + "f" * 20_000 + ")", "column 8: integers go up to"),
        ("Full() & Prefix(" + "9" * 5000 + ")", "column 17: integers go up to 9223372036854775807"),
        ("Documents([1] * 4)", r"column 11: \[1\] \* 4 is no argument"),
        ("Dense(b'x')", "column 7: b'x' is no argument"),
        ("Dense(...)", r"column 7: \.\.\. is no argument"),
        ("Dense(f'{Full}')", "column 7: .* is no argument"),
        ("Full() | Dense('missing.npy')", "column 16: there is no file missing.npy"),
        ("Dense('/dev/zero')", "column 7: /dev/zero is a device"),
        (r"Dense('a\0b')", "column 7: there is no file"),
        (r"Dense('\d')", "column 7: there is no file"),
        ("Window(-1)", r"column 1: Window\(left=-1\): a bound is an integer number of keys"),
        ("Full() & Prefix(0)", r"column 10: Prefix\(0\): n is an integer, 1 or more"),
        ("Window(up=3)", "column 1: Window has no argument 'up'; it has left, right"),
        ("Window(1, 2, 3)", "column 1: .*positional arguments"),
        ("Window(left=1, left=2)", "column 16: left= was given twice"),
        ("Prefix()", "column 1: .*missing 1 required positional argument: 'n'"),
        ("Prefix(Causal())", r"column 1: Prefix\(Causal\(\)\): n is an integer"),
        ("PerHead([1])", "column 1: PerHead.* takes a list of masks"),
        ("Dense([[1, 0], [1]])", "column 1: .*inhomogeneous"),
        ("Dense([[1, 0], [1, 0]])", "column 1: a mask is bool"),
        ("  Window(x)", "column 10: x is no argument"),
        ("Full() |\nWindow(x)", "column 17: x is no argument"),
        ("KeyLengths(\u00e9) & x", "column 12: \u00e9 is no argument"),
        ("Full(\u00e9=1) & x", "column 1: .*keyword"),
        ("\udcff", "column 1: it holds characters that no expression has"),
        ("Full()\0", "column 1: |null bytes"),
        ("(" * 3000 + "Full()" + ")" * 3000, "column .*: (nested too deeply|not an expression)"),
        ("~" * 3000 + "Full()", "column .*: (nested too deeply|more than 100 operations)"),
        ("~" * 90_000 + "Full()", "column 1: nested too deeply"),
        ("~" * 101 + "Full()", "column 101: more than 100 operations one inside the other"),
        (" & ".join(["Full()"] * 300), "column 1: more than 100 operations"),
        ("Dense(" + "[" * 150 + "]" * 150 + ")", "column 106: .* is no argument"),
        ("Full()" + " " * 100_000, "--mask has 100,006 characters"),
    ],
    ids=lambda value: ascii(value[:30]),
)  # fmt: skip
def test_anything_else_is_refused_with_its_column(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(rg.MaskError, match=message) as raised:
        parse_mask(text)
    assert len(str(raised.value)) < 400
    assert not list(tmp_path.iterdir()), "something ran"


def test_columns_are_of_characters_and_not_of_bytes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("\u6f22\u00e9.npy", np.ones((2, 2), bool))
    with pytest.raises(rg.MaskError, match="column 19: x is no mask"):
        parse_mask("Dense('\u6f22\u00e9.npy') | x")


def test_as_deep_as_may_be():
    assert parse_mask("~" * 99 + "Full()").materialize(1, 1).item() is False
    assert len(parse_mask(f"KeyLengths({[1] * 30_000})").n) == 30_000
