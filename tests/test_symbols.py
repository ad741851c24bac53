"""Each target object exports its table and nothing else, and has no weak symbol that a linker could share."""

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from regard import _runtime

NATIVE = Path(__file__).parents[1] / "native"
AVX512 = ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma"]
BF16 = {"avx512_bf16": [*AVX512, "-mavx512bf16"]}
AMX = {"amx": [*AVX512, "-mamx-tile", "-mamx-bf16", "-fno-exceptions"]} if platform.system() == "Linux" else {}
FAMILIES = {
    "x86_64": {"scalar": [], "avx2": ["-mavx2", "-mfma", "-mf16c"], "avx512": AVX512, **BF16, **AMX},
    "aarch64": {"scalar": [], "neon": []},
}
MACHINE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
CXX = shutil.which("g++") or shutil.which("c++")
# Another family's objects are looked at where its compiler is, which is that of `make neon`.
COMPILERS = {family: CXX if family == MACHINE else shutil.which(f"{family}-linux-gnu-g++") for family in FAMILIES}
BUILDS = [(family, target) for family, targets in FAMILIES.items() if COMPILERS[family] for target in targets]


def symbols(compiler, source, tmp_path, *flags):
    out = tmp_path / "target.o"
    include = [f"-I{NATIVE / d}" for d in ("include", "core", "kernel")]
    subprocess.run([compiler, "-std=c++17", "-w", *include, *flags, "-c", str(source), "-o", str(out)], check=True)
    lines = subprocess.run(["nm", "-C", str(out)], capture_output=True, text=True, check=True).stdout.splitlines()
    kinds = [line.split(maxsplit=1 if line.startswith(" ") else 2)[-2:] for line in lines]
    return {kind: [name for k, name in kinds if k == kind] for kind, _ in kinds}


# By -O0 nothing is inlined, and all that could be shared is there. By -O3 a target takes a minute: one is enough.
@pytest.mark.parametrize(("family", "target", "optimise"), [*((*b, "-O0") for b in BUILDS), (MACHINE, "scalar", "-O3")])
def test_one_symbol_per_target(family, target, optimise, tmp_path):
    source = NATIVE / "targets" / f"{target}.cc"
    found = symbols(COMPILERS[family], source, tmp_path, optimise, *FAMILIES[family][target])
    external = {name for kind, names in found.items() if kind.isupper() and kind != "U" for name in names}
    assert external == {f"regard::{target}::kTable"}
    assert not set(found) & {"w", "W", "v", "V", "u"}


def test_a_shared_inline_function_would_be_seen(tmp_path):
    source = tmp_path / "leak.cc"
    source.write_text(
        '#define REGARD_TARGET scalar\n#define REGARD_VEC "vec_scalar.inl"\n#include "kernel.inl"\n'
        "inline int shared(int x) { return x + 1; }\nint use(int x) { return shared(x); }\n"
    )
    assert "shared(int)" in symbols(CXX, source, tmp_path, "-O0")["W"]


# Intrinsics of x86 and ARM, their types, and assembly.
INTRINSIC = re.compile(
    r"\b(_mm\d*_\w+|_tile_\w+|__m\d+\w*|v[a-z]+\d?q?(?:_\w+)?_[fsu](?:8|16|32|64)|\w+\dx\d\w*_t|__asm__)\b"
)
# Outside of the vector headers and those of pairs and tiles: a control register, what the processor has, a pause.
EXCEPTIONS = {
    "core/float_mode.h": {"_mm_getcsr", "_mm_setcsr", "__asm__"},
    "core/cpu.cc": {"__asm__"},
    "core/pool.cc": {"_mm_pause", "__asm__"},
}


def test_intrinsics_stand_in_the_vector_headers():
    found = {}
    for path in NATIVE.rglob("*.*"):
        if names := set(INTRINSIC.findall(re.sub(r"//.*", "", path.read_text()))):
            found[path.relative_to(NATIVE).as_posix()] = names
    headers = {f"kernel/{name}.inl" for name in ("vec_avx2", "vec_avx512", "vec_neon", "pairs", "amx")}
    assert headers <= found.keys()
    assert {name: names for name, names in found.items() if name not in headers} == EXCEPTIONS


def test_every_target_is_looked_at():
    assert {target for targets in FAMILIES.values() for target in targets} | {"amx"} == set(_runtime.TARGETS)
    compiled = [info.name for info in _runtime.describe() if info.compiled]
    assert compiled == list(FAMILIES.get(MACHINE, ["scalar"]))
