"""What the machine gives at most, in the same run: the loops of ceilings.cc, and NumPy's matrix product."""

from __future__ import annotations

import ctypes
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

import regard as rg
from regard import _runtime
from regard.bench import AMX, FMA, PAIRS, PAIRS_OF, interleave, spread

BUILT = Path(__file__).parents[1] / "build" / "bench"
NAMES = ("libregard_ceilings.so", "libregard_ceilings.dylib", "regard_ceilings.dll")
FLOPS = 2_000_000_000
READ_MIB = (1, 32, 512)
# Numbers in each step of the loops.
STEP = 64
ARGUMENTS = {
    "fma": (ctypes.c_int64,),
    "pairs": (ctypes.c_int64,),
    "exp": (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
    "read": (ctypes.c_void_p, ctypes.c_int64),
    "tiles": (ctypes.c_void_p, ctypes.c_int64),
}


@cache
def library():
    """The loops, or None where they are not built."""
    found = [BUILT / name for name in NAMES if (BUILT / name).exists()]
    return ctypes.CDLL(str(found[0])) if found else None


def absent():
    return "" if library() else "not built: `make bench` builds it"


def targets():
    """Instruction sets of this machine; the scalar one only where there is no other."""
    usable = [info.name for info in _runtime.describe() if info.usable and info.name not in _runtime.OPT_IN]
    return usable[1:] or usable


def loop(kind, target=None):
    """One loop of ceilings.cc for a target, by default the one in force."""
    found = getattr(library(), f"{kind}_{target or _runtime.chosen()[0]}")
    found.argtypes, found.restype = ARGUMENTS[kind], ctypes.c_float
    return found


def numbers(size):
    """So many negative numbers, rounded up to whole steps of the loops; exp of none is subnormal."""
    size = -(-size // STEP) * STEP
    return np.random.default_rng(1).uniform(-40, -0.01, size).astype(np.float32)


def cut(array, parts):
    """Views of the bytes of an array as float32, in so many parts of whole steps of the loops."""
    flat = array.reshape(-1).view(np.float32)
    ends = [flat.size // STEP * part // parts * STEP for part in range(parts + 1)]
    return [flat[begin:end] for begin, end in pairwise(ends)]


def tiles():
    """The loop of tile registers; None where this process cannot have them."""
    try:
        with rg.config(target="amx"):
            return loop("tiles")
    except rg.UnsupportedError:
        return None


def probes():
    """Name, unit, how many of the unit's billions one call does, and the call."""
    a, b = (np.random.default_rng(seed).standard_normal((1024, 1024), dtype=np.float32) for seed in (2, 3))
    yield "NumPy matmul 1024", "GFLOP/s", 2 * 1024**3 / 1e9, lambda: a @ b
    if absent():
        return
    near = numbers(4096)
    for target in targets():
        fma, exp = loop("fma", target), loop("exp", target)
        yield f"{FMA}, {target}", "GFLOP/s", FLOPS / 1e9, lambda fma=fma: fma(FLOPS)
        if target in PAIRS_OF:
            # Of as many operations as FMA's a call would be half as long.
            pairs = loop("pairs", target)
            yield f"{PAIRS}, {target}", "GFLOP/s", 2 * FLOPS / 1e9, lambda pairs=pairs: pairs(2 * FLOPS)
        yield (
            f"exp, {target}", "Gexp/s", near.size * 4096 / 1e9, lambda exp=exp: exp(near.ctypes.data, near.size, 4096)
        )  # fmt: skip
    if dot := tiles():
        # Normal numbers, cut off to bfloat16; an AMX call of as few operations as one of FMA would be too short.
        four, flops = np.random.default_rng(4).standard_normal(2048, np.float32).view(np.uint32) >> 16, 8 * FLOPS
        operands = four.astype(np.uint16)
        yield AMX, "GFLOP/s", flops / 1e9, lambda: dot(operands.ctypes.data, flops)
    read = loop("read")
    for mib in READ_MIB:
        buffer = numbers(mib * 2**18)
        times = -(-16 // mib)
        yield (
            f"reading {mib} MiB", "GB/s", times * buffer.nbytes / 1e9,
            lambda x=buffer, times=times: [read(x.ctypes.data, x.size) for _ in range(times)],
        )  # fmt: skip


def measure(rounds, clock):
    """Each ceiling with its spread, on one thread: pinned and limited by who calls."""
    with rg.config(num_threads=1):
        found = {name: (unit, billions, call) for name, unit, billions, call in probes()}
        times = interleave({name: call for name, (_, _, call) in found.items()}, rounds, clock)
    ceilings = {}
    for name, (unit, billions, _) in found.items():
        rates = [billions / (ms / 1e3) for ms in times[name]]
        ceilings[name] = {"unit": unit, **spread(rates)}
    return ceilings
