"""What a function's memory grows with, and whether its threads change its bits."""

from __future__ import annotations

import sys
import time
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from regard.check.answers._case import Case

from ._base import Behaviour, habit, same

# A function that would take longer is not asked what it takes: a loop in Python over queries and keys.
_PATIENCE_S = 2.0
# Where memory is declared to be linear: at this length 4-byte scores take 67 MB, more than libraries keep in store.
_LENGTH = 4096


@habit(
    "QUADRATIC_MEMORY",
    "memory grows with queries times keys, where it was declared linear",
    "At 32768 positions one head's scores take 4 GB; the contract of a tiled kernel is that they never exist.",
    "keep a running maximum, sum and output per query, and one tile of scores at a time",
    fault=True,
    wants="attention linear_memory",
)
def _quadratic(behaviour: Behaviour) -> str | None:
    behaviour.run(behaviour.call(_square(behaviour, 64)))
    call = behaviour.call(_square(behaviour, _LENGTH))
    lowest = _restart()
    behaviour.run(call)
    highest = _peak()
    if lowest is None or highest is None:
        return None
    size = (highest - lowest) / _LENGTH**2
    if size < behaviour.read(call)[0].itemsize * 0.75:
        return None
    return f"{_LENGTH} queries and keys raise the peak by {size:.1f} bytes for each pair of them"


@habit(
    "THREAD_DEPENDENT",
    "one thread and two give different bits",
    "Results cannot be repeated on another machine, or on this one when it is busy.",
    "split work over rows, whose sums are their own, or at places that do not depend on the number of threads",
    wants="attention",
)
def _threads(behaviour: Behaviour) -> str | None:
    results = []
    for count in (1, 2):
        threads = behaviour.candidate.arrays.threads(count)
        if threads is None:
            return None
        with threads:
            results.append(behaviour.answer(behaviour.call(_square(behaviour, 150))).copy())
    if same(*results):
        return None
    return f"they differ by {np.abs(results[0].astype(float) - results[1]).max():.3g}"


def bytes_per_pair(behaviour: Behaviour, length: int = 512) -> float | None:
    """Return the bytes that NumPy takes for each pair: what is left without all that grows with either length alone.

    None of a function that would take long.
    """
    longest = _PATIENCE_S / (2 * length / 64) ** 2
    if all(_seconds(behaviour, 64) > longest for _ in range(3)):  # once may be a wait for a processor that is taken
        return None
    single, double = (_traced(behaviour, n) for n in (length, 2 * length))
    return (double - 2 * single) / (2 * length**2)


def _seconds(behaviour: Behaviour, length: int) -> float:
    """Return what a call takes."""
    began = time.monotonic()
    behaviour.run(behaviour.call(_square(behaviour, length)))
    return time.monotonic() - began


def _traced(behaviour: Behaviour, length: int) -> int:
    """Return the most memory that NumPy's arrays take in a call."""
    call = behaviour.call(_square(behaviour, length))
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        behaviour.run(call)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not running:
            tracemalloc.stop()


def _square(behaviour: Behaviour, length: int) -> Case:
    """One head of a batch of one."""
    rng = np.random.default_rng(41)
    q, k, v = (rng.standard_normal((1, 1, length, 16)) for _ in range(3))
    return replace(behaviour.case, query=q, key=k, value=v)


def _restart() -> int | None:
    """Let the peak of this process's memory begin anew, where the system can; return it."""
    with suppress(OSError):  # it then counts from the highest so far
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int | None:
    """Return the highest memory of this process, in bytes; None on Windows."""
    try:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
    except OSError:
        if sys.platform == "win32":
            return None
        import resource

        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return size if sys.platform == "darwin" else 1024 * size
