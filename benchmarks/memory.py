"""The peak of one call's memory, in this process: ``python -m benchmarks.memory SERIES PEER LENGTH`` prints bytes.

What is counted begins with the query, key and value in place: what the contestant needs besides, a mask as an array
among it, and the output. Modules are loaded and threads started before, by a call of 16 keys.
"""

from __future__ import annotations

import sys

from benchmarks import growth
from benchmarks.peak import forget_peak, peak
from benchmarks.peers import PEERS
from regard.bench import pinned


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
