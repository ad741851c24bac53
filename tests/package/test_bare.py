"""The wheel alone, without any extra: regard works, and the command says what it lacks."""

import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import regard as rg


def test_regard_is_the_installed_one():
    here = Path(rg.__file__).resolve()
    assert here.parent.parent == Path(sysconfig.get_path("platlib")).resolve()
    assert not [p for p in sys.path if (Path(p) / "regard").is_dir() and Path(p).resolve() != here.parent.parent]


def test_no_extra_is_installed():
    assert [name for name in ("typer", "rich", "safetensors", "onnx") if importlib.util.find_spec(name)] == []


def test_attention_runs():
    assert rg.attention(*[np.float32([[1]])] * 3, mask=rg.Causal()).tolist() == [[1]]


@pytest.mark.parametrize("argument", ["info", "--help"])
def test_the_command_tells_how_to_get_what_it_needs(argument):
    command = Path(sys.executable).parent / "regard"
    done = subprocess.run([command, argument], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr in {
        f"regard: the command needs {n}; run `pip install 'regard[cli]'`\n" for n in ("typer", "rich")
    }
