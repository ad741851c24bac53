"""In a fresh interpreter: importing regard imports NumPy and the standard library, and nothing else."""

import subprocess
import sys
from pathlib import Path

import regard as rg

EXTRAS = ["torch", "jax", "typer", "rich", "safetensors", "tokenizers", "onnx", "transformers", "matplotlib"]


def loaded(code):
    """Which of EXTRAS are in sys.modules after ``code``, in a new interpreter."""
    script = f"{code}\nimport sys\nprint(*[m for m in {EXTRAS} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_import_loads_no_extra():
    assert loaded("import regard; regard.plan; regard.reference.attention") == []


def test_this_test_can_fail():
    assert loaded("import regard, rich") == ["rich"]


def test_public_names():
    public = {name for name in vars(rg) if not name.startswith("_")}
    packages = {"masks", "numerics", "models", "viz", "cli", "state"}  # submodules, seen once imported
    assert public - packages == {
        "AlignmentError", "AttentionState", "Aux", "Blocks", "Causal", "Chunked", "DTypeError", "Dense", "Dilated",
        "Documents", "Empty", "ForwardResult", "Full", "Global", "KeyLengths", "Mask", "MaskError", "Prefix",
        "RegardError", "ShapeError", "UnsupportedError", "Window", "attention", "attention_forward", "config",
        "from_function", "merge_states", "plan", "reference",
    }  # fmt: skip


def test_version_is_written_once_more_and_equal():
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert f'\nversion = "{rg.__version__}"\n' in text
