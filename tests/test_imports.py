"""In a fresh interpreter: importing regard imports NumPy and the standard library, and nothing else."""

import subprocess
import sys
from pathlib import Path

import regard as rg

EXTRAS = [
    "torch", "jax", "ml_dtypes", "typer", "rich", "safetensors", "tokenizers", "onnx", "transformers", "matplotlib",
]  # fmt: skip


def loaded(code):
    """Which of EXTRAS are in sys.modules after ``code``, in a new interpreter."""
    script = f"{code}\nimport sys\nprint(*[m for m in {EXTRAS} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_import_loads_no_extra():
    assert loaded("import regard; regard.plan; regard.reference.attention") == []


def test_numpy_arrays_load_no_other_library():
    script = "import numpy as np, regard; x = np.ones((1, 2, 3), {}); regard.attention_forward(x, x, x).weights[0]"
    assert loaded(script.format("np.float32")) == loaded(script.format("np.float16")) == []


def test_this_test_can_fail():
    assert loaded("import regard, rich") == ["rich"]


def test_public_names():
    public = {name for name in vars(rg) if not name.startswith("_")}
    packages = {
        "bench", "biases", "cli", "layers", "masks", "models", "numerics", "onnx", "positions", "state", "transformers",
        "viz",
    }  # seen once imported  # fmt: skip
    assert public - packages == {
        "Alibi", "AlignmentError", "AttentionState", "Aux", "Bias", "Blocks", "Causal", "Chunked", "DTypeError",
        "Dense", "DenseBias", "Dilated", "Documents", "Empty", "ForwardResult", "Full", "Global", "KeyLengths",
        "KeyPadding", "Mask", "MaskError", "MultiHeadAttention", "PerHead", "Prefix", "RegardError", "RelativeBias",
        "ShapeError", "T5Bias", "UnsupportedError", "Window", "attention", "attention_forward", "check", "config",
        "from_function", "merge_heads", "merge_states", "parametrize", "plan", "reference", "rotary_embedding",
        "sinusoidal_positions", "split_heads", "varlen_attention",
    }  # fmt: skip


def test_version_is_written_once_more_and_equal():
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert f'\nversion = "{rg.__version__}"\n' in text
