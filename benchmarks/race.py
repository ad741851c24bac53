"""One problem with the contestants and the goals that problems.toml gives it."""

from __future__ import annotations

import time

from benchmarks.goals import reached
from benchmarks.peers import PEERS
from regard import bench

# Seconds in all after which a contestant is timed no more, once it has three rounds: JAX and ONNX Runtime may be twenty
# times slower than the others.
PATIENCE_S = 40.0


def entrants(problem):
    """Contestants of a problem by name: regard first."""
    return {name: PEERS[name] for name in ("regard", *problem.peers)}


def race(problem, rounds, *, peers=None, clock=time.perf_counter_ns, after_round=None):
    """Outcome of a problem, ready for the file; of one that is not run the goals are told too, as not raced."""
    peers = entrants(problem) if peers is None else peers
    outcome = bench.race(problem, rounds, peers, clock=clock, patience_s=PATIENCE_S, after_round=after_round)
    return outcome | {"goals": reached(problem.goals, outcome["contestants"])}
