"""Each target object exports its table and nothing else, and has no weak symbol that a linker could share."""

import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[1] / "native"
FLAGS = {
    "scalar": [],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma"],
}
CXX = shutil.which("g++") or shutil.which("c++")


def symbols(source, tmp_path, *flags):
    out = tmp_path / "target.o"
    include = [f"-I{NATIVE / d}" for d in ("include", "core", "kernel")]
    subprocess.run([CXX, "-std=c++17", "-w", *include, *flags, "-c", str(source), "-o", str(out)], check=True)
    lines = subprocess.run(["nm", "-C", str(out)], capture_output=True, text=True, check=True).stdout.splitlines()
    kinds = [line.split(maxsplit=1 if line.startswith(" ") else 2)[-2:] for line in lines]
    return {kind: [name for k, name in kinds if k == kind] for kind, _ in kinds}


@pytest.mark.parametrize("optimise", ["-O0", "-O3"])
@pytest.mark.parametrize("target", FLAGS)
def test_one_symbol_per_target(target, optimise, tmp_path):
    found = symbols(NATIVE / "targets" / f"{target}.cc", tmp_path, optimise, *FLAGS[target])
    external = {name for kind, names in found.items() if kind.isupper() and kind != "U" for name in names}
    assert external == {f"regard::{target}::kTable"}
    assert not set(found) & {"w", "W", "v", "V", "u"}


def test_a_shared_inline_function_would_be_seen(tmp_path):
    source = tmp_path / "leak.cc"
    source.write_text(
        '#define REGARD_TARGET scalar\n#define REGARD_VEC "vec_scalar.inl"\n#include "kernel.inl"\n'
        "inline int shared(int x) { return x + 1; }\nint use(int x) { return shared(x); }\n"
    )
    assert "shared(int)" in symbols(source, tmp_path, "-O0")["W"]
