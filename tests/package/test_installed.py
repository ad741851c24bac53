"""The wheel with the extra cli, as a user has it."""

import platform
import subprocess
import sys
from importlib import resources
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import regard as rg
from judges import assert_agrees
from regard import _native


def command(*arguments):
    done = subprocess.run([Path(sys.executable).parent / "regard", *arguments], capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("mask", [None, rg.Causal(), rg.Causal() & ~rg.Window(left=3), rg.Dense(np.eye(70, 90) == 0)])
def test_attention_agrees_with_the_reference(target, rng, dtype, mask):
    arrays = [rng.standard_normal((2, 4, n, 40)).astype(dtype) for n in (70, 90, 90)]
    options = {"mask": mask, "q_offset": 20}
    assert_agrees(rg.attention_forward(*arrays, **options), *arrays, **options)


def test_the_package_carries_its_types_and_its_page():
    folder = resources.files("regard")
    assert all((folder / name).is_file() for name in ("py.typed", "_native.pyi", "viz/assets/page.html"))


def test_the_module_is_abi3_from_python_3_12_on():
    assert (".abi3." in Path(_native.__file__).name) == (sys.version_info >= (3, 12) and sys.platform != "win32")


def test_info_names_what_runs():
    text = " ".join(command("info").split())
    assert f"regard {version('regard')}, NumPy {version('numpy')}, Python {platform.python_version()}" in text
    assert rg.__version__ == version("regard")


def test_help_names_the_commands():
    text = command("--help")
    assert all(name in text for name in ("info", "plan", "view"))
