"""The peak of one call's memory, in this process: ``python -m benchmarks.memory SERIES PEER LENGTH`` prints bytes.

What is counted begins with the query, key and value in place: what the contestant needs besides, a mask as an array
among it, and the output. Modules are loaded and threads started before, by a call of 16 keys.
"""

from __future__ import annotations

import ctypes
import resource
import sys

from benchmarks import growth
from benchmarks.peers import PEERS
from regard.bench import pinned


def peak():
    """The most bytes that this process ever had in memory, or since `forget_peak`."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    # Linux hands ru_maxrss down: it would begin at the peak of the process that started this one.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024


def forget_peak():
    """Begin again, where the system can; what was freed goes back to it, or a call would be given that for nothing."""
    if sys.platform == "linux":
        getattr(ctypes.CDLL(None), "malloc_trim", lambda kept: 0)(0)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")


def extra(peer, problem, before):
    """Bytes that a call takes beyond its inputs; the problem `before` loads what it needs."""
    peer.prepare(before, before.draw())()
    given = problem.draw()
    forget_peak()
    begun = peak()
    answer = peer.prepare(problem, given)()
    taken = peak() - begun
    del answer
    return taken


def main():
    name, peer, length = sys.argv[1:]
    series = next(series for series in growth.load("memory") if series.name == name)
    with pinned(1):
        print(extra(PEERS[peer], series.problem(int(length)), series.problem(growth.SHORTEST)))


if __name__ == "__main__":
    main()
