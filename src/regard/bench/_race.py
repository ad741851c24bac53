"""One problem: every contestant is held to the exact answer, then all are timed in turn."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from regard import _runtime
from regard._errors import UnsupportedError
from regard._runtime import processors
from regard._types import Array

from ._judge import RefusedError, error
from ._peers import ByToken, Call, Peer
from ._problem import Problem
from ._rounds import interleave, spread
from ._work import work

Clock = Callable[[], int]
# ONNX Runtime's threads were seen to spin for this long after a call, OpenBLAS's a third of it, others' a tenth.
REST_S = 0.1
# Above this load something else wants the processors.
QUIET = 0.5


def rest_s(threads: int) -> float:
    """Seconds between contestants: none where nobody has a second thread."""
    return REST_S if threads > 1 else 0.0


def load() -> float | None:
    """Give the system's average of processes that want to run, over a minute; None where it has none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def unquiet(machine: Mapping[str, Any]) -> str:
    """Say that a machine had other things to do before a run; empty where it was quiet, or does not tell."""
    before = machine.get("load_before")
    return f"not quiet: load {before:.1f}; the numbers mean little" if before is not None and before > QUIET else ""


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """So many threads of every library, on the last so many of this process' processors.

    Threads that are there are held to them too. One that is started meanwhile, such as a library's for its later calls,
    may run on all of the process' processors afterwards, as if it had been started before.
    """
    with threadpool_limits(threads), _runtime.config(num_threads=threads):
        if not hasattr(os, "sched_setaffinity"):
            yield
            return
        allowed, before = os.sched_getaffinity(0), _affinities()
        _hold(dict.fromkeys(before, frozenset(sorted(allowed)[-threads:])))
        try:
            yield
        finally:
            _hold({thread: before.get(thread, allowed) for thread in _affinities()})


def _affinities() -> dict[int, set[int]]:
    """Processors that each thread may use; only the calling one's where the system does not list them."""
    tasks = Path("/proc/self/task")
    threads = [int(task.name) for task in tasks.iterdir()] if tasks.exists() else [0]
    found = {}
    for thread in threads:
        with suppress(OSError):  # it has ended
            found[thread] = os.sched_getaffinity(thread)
    return found


def _hold(threads: Mapping[int, Set[int]]) -> None:
    for thread, held in threads.items():
        with suppress(OSError):
            os.sched_setaffinity(thread, held)


def obstacle(problem: Problem) -> str:
    """Say why this machine cannot run a problem: too few processors, or not its target; empty if it can."""
    if problem.threads > processors():
        return f"it needs {problem.threads} processors; there are {processors()}"
    try:
        _runtime.config(target=problem.target)
    except UnsupportedError as refused:
        return str(refused)
    return ""


class Line:
    """Who starts: calls of those that are right, and why the others are not there.

    The first call of each is timed, and its answer is what is looked at.
    """

    def __init__(self, problem: Problem, peers: Mapping[str, Peer], clock: Clock = time.perf_counter_ns) -> None:
        self.problem, self.given, self.clock = problem, problem.draw(), clock
        self.calls: dict[str, Call] = {}
        self.first_ms: dict[str, float] = {}
        self.errors: dict[str, dict[str, float]] = {}
        self.absent: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.outside = {name: peer.outside for name, peer in peers.items()}
        self._exact: dict[Any, Array] = {}
        for name, peer in peers.items():
            if why := peer.absent() or peer.why_not(problem):
                self.absent[name] = why
                continue
            try:
                self._admit(name, peer)
            except RefusedError as refused:
                self.refused[name] = str(refused)
            except Exception as failed:  # another library's, whatever it is, must not end the run
                first = next(iter(str(failed).splitlines()), "")
                self.refused[name] = f"{type(failed).__name__}: {first}"

    def _admit(self, name: str, peer: Peer) -> None:
        call = peer.prepare(self.problem, self.given)
        start = self.clock()
        answer = call()
        took = (self.clock() - start) / 1e6
        asked = peer.answered(self.problem)
        self.errors[name] = {} if asked is None else error(peer.array(answer), self.exact(asked), asked)
        self.calls[name], self.first_ms[name] = call, took

    def exact(self, problem: Problem) -> Array:
        """Compute the exact answer, once."""
        cover = problem.mask, problem.bias
        if cover not in self._exact:
            self._exact[cover] = problem.exact(self.given)
        return self._exact[cover]

    def rows(self, times: Mapping[str, list[float]], rounds: int) -> dict[str, dict[str, Any]]:
        """Tell what is known of each contestant; ratios are of rounds that it has in common with regard."""
        base = np.array(times.get("regard", ()))
        rows: dict[str, dict[str, Any]] = {}
        for name, own in times.items():
            told = spread(own)
            row: dict[str, Any] = {"outside": self.outside[name], "rounds": len(own), "stopped": len(own) < rounds}
            row |= {f"{key}_ms": value for key, value in told.items()}
            row["gflops"] = self.problem.flops / told["median"] / 1e6
            if both := min(len(own), len(base)):
                row["ratio"] = spread(np.array(own[:both]) / base[:both])
            rows[name] = row | self.errors[name] | {"times_ms": own}
        return rows


def race(
    problem: Problem,
    rounds: int,
    peers: Mapping[str, Peer],
    *,
    clock: Clock = time.perf_counter_ns,
    patience_s: float = math.inf,
    after_round: Callable[[], object] | None = None,
) -> dict[str, Any]:
    """Outcome of a problem, ready for the file.

    A contestant whose calls took more than `patience_s` seconds in all is not timed in further rounds. All are started
    before the process is pinned.
    """
    begun = time.perf_counter()
    if problem.by_token:
        peers = {name: ByToken(peer) for name, peer in peers.items()}
    outcome = {"reason": problem.reason, "problem": problem.facts, "load_before": load(), "contestants": {}}
    if why := obstacle(problem):
        return outcome | {"skipped": why}
    for peer in peers.values():
        with suppress(Exception):  # who cannot start cannot be prepared either, and is refused there
            peer.start()
    with pinned(problem.threads), _runtime.config(target=problem.target):
        line = Line(problem, peers, clock)
        times = interleave(
            line.calls, rounds, clock, repeat=problem.repeat, patience_s=patience_s, after_round=after_round,
            rest_s=rest_s(problem.threads),
        )  # fmt: skip
        counted = work(problem, line.given)
    return outcome | {
        "work": counted.facts, "contestants": line.rows(times, rounds), "absent": line.absent, "refused": line.refused,
        "load_after": load(), "took_s": time.perf_counter() - begun,
    }  # fmt: skip
