"""What CONTRIBUTING.md shows is true: its code runs, and the files and names that it sends to exist."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import regard as rg
from judges import assert_agrees

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def shown(name, module):
    """The class of that name, made by the page's code among the names of the module that it is to be written in."""
    (block,) = re.findall(rf"```python\n((?:(?!```)[^\n]*\n)*?class {name}\((?:(?!```)[^\n]*\n)*)```", TEXT)
    names = dict(vars(importlib.import_module(module)))
    exec(compile(block, "CONTRIBUTING.md", "exec"), names)
    return names[name]


def test_the_mask(target, normal):
    mask = shown("Doubled", "regard.masks._positions")()
    q, k, v = normal(2, 70, 8), normal(2, 200, 8), normal(2, 200, 5)
    want = np.arange(200) <= 2 * (np.arange(70)[:, None] + 30)
    np.testing.assert_array_equal(mask.materialize(70, 200, q_offset=30), want)
    for given in (mask, ~mask, mask & rg.Window(left=20)):
        assert_agrees(rg.attention_forward(q, k, v, mask=given, q_offset=30), q, k, v, mask=given, q_offset=30)
    with pytest.raises(rg.AlignmentError, match=r"Doubled\(\) depends on positions"):
        rg.attention(q, k, v, mask=mask)


def test_the_bias(target, normal):
    bias = shown("LogBias", "regard.biases._distance")([0.5, 2.0])
    q, k, v = normal(2, 70, 8), normal(2, 200, 8), normal(2, 200, 5)
    away = np.abs(np.arange(200) - np.arange(30, 100)[:, None])
    want = -np.array([0.5, 2.0])[:, None, None] * np.log1p(away)
    np.testing.assert_allclose(bias.materialize(70, 200, q_offset=30, heads=2), want, rtol=1e-6)
    assert_agrees(rg.attention_forward(q, k, v, bias=bias, q_offset=30), q, k, v, bias=bias, q_offset=30)
    assert bias == type(bias)([0.5, 2.0]) != type(bias)([0.5, 3.0])
    assert repr(bias + rg.Alibi([1.0])) == "LogBias([0.5, 2.0]) + Alibi([1.0])"


def found(name):
    """The files that a path in the text may mean: whole, or without the beginning that its neighbours have."""
    if "<" in name:
        name = name.replace("<name>", "avx2")
    return [path for folder in ("src", "native", "tests", "docs") for path in (ROOT / folder).rglob(Path(name).name)
            if str(path).endswith("/" + name)] + [path for path in [ROOT / name] if path.exists()]  # fmt: skip


def test_files_exist():
    named = set(re.findall(r"`([\w./<>]+\.(?:py|pyi|cc|h|inl|md|txt|toml))`", TEXT))
    assert len(named) > 30
    assert {name for name in named if not found(name)} == set()
    assert not found("masks/_nowhere.py")


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("src/regard/_plan/options.py", ["as_softcap", "refuse_unknown", "_OPTIONS", "_PEERS"]),
        ("src/regard/_engine.py", ["def score_map"]),
        ("src/regard/cli/_mask.py", ["LEAVES"]),
        ("src/regard/masks/_documents.py", ["(ArrayLeaf)"]),
        ("src/regard/masks/_heads.py", ["(Combined)"]),
        ("native/bind/module.cc", ["class ScoreMap", "softcap"]),
        ("native/include/regard/view.h", ["double softcap"]),
        ("native/kernel/shape.inl", ["void cap("]),
        ("native/kernel/attend.inl", ["cap<N, C>"]),
        ("tests/masks_random.py", ["OPEN", "CLOSED", "def keeps"]),
        ("tests/test_agree.py", ["def all_options"]),
        ("tests/test_biases.py", ["def every_bias"]),
    ],
)
def test_names_are_there(file, names):
    text = (ROOT / file).read_text()
    assert [name for name in names if name not in text] == []
