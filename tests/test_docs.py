"""Every example in a docstring, and every block of Python in the README, is run; what may raise says so."""

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


# They raise nothing: values, what calls return, and the errors themselves.
QUIET = {"Aux", "ForwardResult", "Full", "Empty", "Causal", "Materialised", "Gradients", "Bounds", "AttentionOutputs"}
QUIET |= {"MultiHeadResult", "JoinedWeights"}


def public(name):
    """Functions and classes that a module has of its own or of its package, by name."""
    module = importlib.import_module(name)
    whole = hasattr(module, "__path__")
    for member, value in vars(module).items():
        home = getattr(value, "__module__", None) or ""
        of_it = home.startswith(name) if whole else home == name
        if of_it and callable(value) and not member.startswith("_"):
            yield member, value


MODULES_OF_USERS = ["regard", "regard.reference", "regard.onnx", "regard.positions", "regard.layers", "regard.numerics"]


@pytest.mark.parametrize("name", MODULES_OF_USERS)
def test_what_may_raise_says_what(name):
    found = dict(public(name))
    assert found
    for member, value in found.items():
        if member not in QUIET and not (isinstance(value, type) and issubclass(value, Exception)):
            assert re.search(r"^ *Raises\n *------$", value.__doc__, re.M), member
    if name == "regard":
        assert re.search("^ *Raises$", regard.MultiHeadAttention.forward.__doc__, re.M)


def test_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
