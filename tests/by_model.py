"""One head through native/tests/by_model.cc: the loops of a target over the model of its instruction, on AVX2."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np

NATIVE = Path(__file__).parents[1] / "native"
CXX = shutil.which("g++") or shutil.which("c++")
FLAGS = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-pthread", "-mavx2", "-mfma", "-mf16c", "-DREGARD_X86"]
EXACT = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]  # as CMakeLists.txt has them
CORE = ("attend", "chunks", "cover", "pool", "schedule", "workers")
SOURCES = ["tests/by_model.cc", *(f"core/{name}.cc" for name in CORE)]
DTYPES = {"float32": (0, np.float32), "float16": (2, np.float16), "bfloat16": (3, ml_dtypes.bfloat16)}


def as_dtype(arrays, name):
    return tuple(x.astype(DTYPES[name][1]) for x in arrays)


class Model:
    """A target by its model: `unit` is the macro that names the model's file."""

    def __init__(self, target, unit, directory):
        out = directory / f"{target}.so"
        given = [f"-DREGARD_TARGET={target}", '-DREGARD_VEC="vec_avx2.inl"', f'-D{unit}="{target}.inl"']
        include = [f"-I{NATIVE / d}" for d in ("include", "core", "kernel")]
        sources = [str(NATIVE / name) for name in SOURCES]
        subprocess.run([CXX, *FLAGS, *EXACT, *given, *include, *sources, "-o", str(out)], check=True)
        self.library = ctypes.CDLL(str(out))

    def __call__(self, q, k, v, keep, threads=1, scale=0.75):
        """Output, logsumexp, and the output before it is rounded."""
        (rows, d), (keys, dv) = q.shape, v.shape
        out, lse, state = np.empty((rows, dv), q.dtype), np.empty(rows, np.float32), np.empty((rows, dv), np.float32)
        arrays = [np.ascontiguousarray(x) for x in (q, k, v, np.broadcast_to(keep, (rows, keys)))]
        counts = [ctypes.c_int64(n) for n in (rows, keys)]
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in (*arrays, out, lse, state)]
        number = DTYPES[q.dtype.name][0]
        assert self.library.attend_by_model(number, threads, *counts, d, dv, ctypes.c_double(scale), *pointers) == 0
        return out, lse, state
