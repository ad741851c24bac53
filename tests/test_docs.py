"""Every example in a docstring, and every block of Python in the README, is run."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import regard

ROOT = Path(__file__).parents[1]
MODULES = [m.name for m in pkgutil.walk_packages(regard.__path__, "regard.") if "__main__" not in m.name]


@pytest.mark.parametrize("name", ["regard", *MODULES])
def test_docstrings(name):
    if name.endswith("_native"):
        return
    failures, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    assert failures == 0


def test_public_functions_have_an_example():
    import regard as rg

    for function in (
        rg.attention,
        rg.attention_forward,
        rg.plan,
        rg.config,
        rg.merge_states,
        rg.AttentionState,
        rg.varlen_attention,
        rg.Bias,
        rg.Alibi,
        rg.RelativeBias,
        rg.T5Bias,
        rg.DenseBias,
        rg.KeyPadding,
        rg.PerHead,
        rg.MultiHeadAttention,
        rg.rotary_embedding,
        rg.sinusoidal_positions,
        rg.check,
    ):
        assert ">>>" in function.__doc__, function.__name__


def test_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
