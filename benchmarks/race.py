"""One problem: every contestant is held to the exact answer, then all are timed in turn."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager

import numpy as np
from threadpoolctl import threadpool_limits

import regard as rg
from benchmarks.goals import reached
from benchmarks.peers import PEERS
from benchmarks.rounds import interleave, spread

# Largest error of a row over its length, some ten times what right functions have here. Another mask, scale or head
# is a hundred times above.
LIMIT = {"float32": 3e-5, "float16": 1e-2, "bfloat16": 4e-2}


class WrongAnswerError(Exception):
    """A contestant whose answer is not that of the problem."""


@contextmanager
def pinned(threads):
    """This thread, and those that it starts, on the last so many of its processors."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[-threads:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def processors():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def error(got, exact, dtype):
    """Error against the exact answer; refuses what is no answer to it."""
    got = np.asarray(got).astype(np.float64)
    if got.shape != exact.shape:
        raise WrongAnswerError(f"its answer has shape {got.shape}, not {exact.shape}")
    off = got - exact
    if not np.isfinite(off).all():
        raise WrongAnswerError("its answer has Inf or NaN")
    row = float((np.linalg.norm(off, axis=-1) / np.linalg.norm(exact, axis=-1)).max())
    if row > LIMIT[dtype]:
        raise WrongAnswerError(f"a row of its answer is off by {row:.2g} of its length; {LIMIT[dtype]:.0e} is allowed")
    return {
        "max_abs_error": float(np.abs(off).max()),
        "worst_row_error": row,
        "relative_error": float(np.linalg.norm(off) / np.linalg.norm(exact)),
    }


class Line:
    """Who starts: calls of those that are right, and why the others are not there."""

    def __init__(self, problem, peers):
        self.problem, self.given = problem, problem.draw()
        self.calls, self.errors, self.absent, self.refused = {}, {}, {}, {}
        self.outside = {name: peer.outside for name, peer in peers.items()}
        self._exact = {}
        for name, peer in peers.items():
            if why := peer.absent() or peer.why_not(problem):
                self.absent[name] = why
                continue
            try:
                self._admit(name, peer)
            except WrongAnswerError as wrong:
                self.refused[name] = str(wrong)
            except Exception as failed:  # another library's, whatever it is, must not end the run
                first = next(iter(str(failed).splitlines()), "")
                self.refused[name] = f"{type(failed).__name__}: {first}"

    def _admit(self, name, peer):
        call = peer.prepare(self.problem, self.given)
        answer = call()
        asked = peer.answered(self.problem)
        self.errors[name] = {} if asked is None else error(peer.array(answer), self.exact(asked), self.problem.dtype)
        self.calls[name] = call

    def exact(self, problem):
        cover = problem.mask, problem.bias
        if cover not in self._exact:
            self._exact[cover] = problem.exact(self.given)
        return self._exact[cover]

    def rows(self, times):
        """What is known of each contestant."""
        base = np.array(times["regard"]) if "regard" in times else None
        rows = {}
        for name, own in times.items():
            told = spread(own)
            rows[name] = {"outside": self.outside[name], "rounds": len(own)}
            rows[name] |= {f"{key}_ms": value for key, value in told.items()}
            rows[name]["gflops"] = self.problem.flops / told["median"] / 1e6
            if base is not None:
                rows[name]["ratio"] = spread(np.array(own) / base)
            rows[name] |= self.errors[name]
            rows[name]["times_ms"] = own
        return rows


def entrants(problem):
    """Contestants of a problem by name: regard first."""
    return {name: PEERS[name] for name in ("regard", *problem.peers)}


def race(problem, rounds, *, peers=None, clock=time.perf_counter_ns, after_round=None):
    """Outcome of a problem, ready for the file."""
    outcome = {"reason": problem.reason, "threads": problem.threads, "load_before": load(), "contestants": {}}
    if problem.threads > processors():
        return outcome | {"skipped": f"it needs {problem.threads} processors; there are {processors()}"}
    settings = {"num_threads": problem.threads} | ({"target": problem.target} if problem.target else {})
    try:
        with pinned(problem.threads), threadpool_limits(problem.threads), rg.config(**settings):
            line = Line(problem, entrants(problem) if peers is None else peers)
            times = interleave(line.calls, rounds, clock, repeat=problem.repeat, after_round=after_round)
    except rg.UnsupportedError as refused:  # a target that this machine lacks
        return outcome | {"skipped": str(refused)}
    rows = line.rows(times)
    goals = reached(problem.goals, rows) if "regard" in rows else []
    return outcome | {
        "contestants": rows, "absent": line.absent, "refused": line.refused, "goals": goals, "load_after": load(),
    }  # fmt: skip


def load():
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
