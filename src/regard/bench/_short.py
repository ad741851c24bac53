"""The short version: five problems that take less than a minute, on any machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from regard._errors import UnsupportedError
from regard._runtime import processors

from ._bars import Bar, Group, number
from ._covers import Causal, Window
from ._machine import machine
from ._peers import Peer, Regard, Textbook
from ._problem import Problem
from ._race import load, pinned, race
from ._results import FORMAT
from ._rounds import TWICE_S, interleave, spread
from ._torch import Gqa, MaskArray, Sdpa

PROBLEMS = (
    Problem(
        "prefill float32 (1,8,1024,64)", "every query sees every key: the products are nearly all of the work",
        (1, 8, 1024, 64), (1, 8, 1024, 64), checked=256, peers=("NumPy textbook", "torch sdpa"),
    ),
    Problem(
        "causal float32 (1,8,1024,64)", "what decoders do with a prompt: half of the pairs",
        (1, 8, 1024, 64), (1, 8, 1024, 64), mask=Causal(), checked=256, peers=("NumPy textbook", "torch sdpa"),
    ),
    Problem(
        "window 256 of (1,2,4096,64)", "a mask that leaves six pairs of a hundred: what is skipped counts",
        (1, 2, 4096, 64), (1, 2, 4096, 64), mask=Window(256), checked=128,
        peers=("NumPy textbook", "torch sdpa, mask array"),
    ),
    Problem(
        "decode (1,32,1,128), 8192 keys, 8 kv heads", "one token: reading keys and values is all the time",
        (1, 32, 1, 128), (1, 8, 8192, 128), repeat=2, peers=("NumPy textbook", "torch sdpa, enable_gqa"),
    ),
    Problem("small (1,1,16,64)", "next to no work: what a call from Python costs",
            (1, 1, 16, 64), (1, 1, 16, 64), repeat=200, peers=("NumPy textbook", "torch sdpa")),
)  # fmt: skip
PEERS: dict[str, Peer] = {peer.name: peer for peer in (Regard(), Textbook(), Sdpa(), MaskArray(), Gqa())}
ROUNDS, MOST_ROUNDS, PATIENCE_S = 7, 1000, 5.0
LEAST_FLOPS = 1e6
MATMUL, READING = "NumPy matmul 1024", "NumPy reading 64 MiB"


def short(
    *,
    threads: int = 1,
    rounds: int = ROUNDS,
    problems: Iterable[Problem] = PROBLEMS,
    progress: Callable[[str, float], object] = lambda what, share: None,
) -> dict[str, Any]:
    """Time regard beside NumPy's textbook form, and torch where it is installed, in under a minute.

    Meanwhile every thread of this process is held to the last of its processors, as many as `threads`, where the system
    can do that; afterwards each may run again where it might before, and one that a library has started anywhere.

    Parameters
    ----------
    threads : int
        Of regard and of every other, pinned to as many processors.
    rounds : int
        How often each is timed, all in turn; a slow one is timed less often, three times at least.
    problems : iterable of Problem
        What is timed.
    progress : callable
        Called between rounds with the name of a problem and the share of all that is done.

    Returns
    -------
    dict
        What the file of ``make bench`` holds, too: machine, ceilings, and each contestant's times, error, and share of
        the nearer ceiling.

    Raises
    ------
    UnsupportedError
        More threads than this process has processors, or a number that is none of threads or rounds.

    Examples
    --------
    >>> from regard.bench import PROBLEMS, short
    >>> found = short(rounds=1, problems=PROBLEMS[-1:])
    >>> found["problems"]["small (1,1,16,64)"]["contestants"]["regard"]["rounds"]
    1
    """
    if not 1 <= threads <= processors():
        have = f"{processors()} processor{'s' if processors() > 1 else ''}"
        raise UnsupportedError(f"threads is {threads}; this process may use {have}: ask for 1 to {processors()}")
    if not 1 <= rounds <= MOST_ROUNDS:
        raise UnsupportedError(f"rounds is {rounds}; ask for 1 to {MOST_ROUNDS}")
    chosen = [replace(problem, threads=threads) for problem in problems]
    result: dict[str, Any] = {"format": FORMAT, "short": True, "machine": machine(), "rounds": rounds}
    result["twice_s"] = TWICE_S
    progress("ceilings", 0.0)
    with pinned(threads):
        result["ceilings"] = _ceilings(rounds)
    result["problems"] = {}
    for done, problem in enumerate(chosen):
        steps = iter(range(1, rounds + 1))

        def step(done: int = done, name: str = problem.name, steps: Any = steps) -> None:
            progress(name, (done + next(steps) / rounds) / len(chosen))

        progress(problem.name, done / len(chosen))
        peers = {name: PEERS[name] for name in ("regard", *problem.peers)}
        outcome = race(problem, rounds, peers, patience_s=PATIENCE_S, after_round=step)
        _add_shares(outcome, result["ceilings"])
        result["problems"][problem.name] = outcome
    result["machine"]["load_after"] = load()
    return result


def _ceilings(rounds: int) -> dict[str, Any]:
    """Measure what NumPy gives, which an installed user has: products of matrices, and with a tall one."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 1024, 1024), dtype=np.float32)
    tall, x = rng.standard_normal((1 << 14, 1 << 10), dtype=np.float32), np.ones(1 << 10, np.float32)
    units = {MATMUL: ("GFLOP/s", 2 * 1024**3 / 1e9), READING: ("GB/s", tall.nbytes / 1e9)}
    times = interleave({MATMUL: lambda: a @ b, READING: lambda: tall @ x}, rounds, time.perf_counter_ns)
    return {
        name: {"unit": unit, **spread(billions / (ms / 1e3) for ms in times[name])}
        for name, (unit, billions) in units.items()
    }


def _add_shares(outcome: dict[str, Any], ceilings: Mapping[str, Any]) -> None:
    """Say of each contestant which ceiling is nearer, and what share of it was reached: kept pairs, bytes read once.

    None where there is next to no work.
    """
    next_to_none = outcome.get("work", {}).get("flops", 0) < LEAST_FLOPS
    for row in outcome["contestants"].values():
        if next_to_none:
            row["ceiling"] = row["share"] = None
            continue
        reading = outcome["work"]["bytes"] / row["median_ms"] / 1e6
        shares = {MATMUL: row["gflops"] / ceilings[MATMUL]["median"], READING: reading / ceilings[READING]["median"]}
        row["ceiling"] = max(shares, key=shares.__getitem__)
        row["share"] = shares[row["ceiling"]]


def groups(problems: Mapping[str, Any]) -> list[Group]:
    """Make the problems of a result bars of the others' times over regard's."""
    found = []
    for name, outcome in problems.items():
        rows = outcome.get("contestants", {})
        aims = {goal["peer"]: goal for goal in outcome.get("goals", ()) if goal.get("peer")}
        drawn = [_as_bar(other, row, aims.get(other)) for other, row in rows.items() if other != "regard"]
        if "regard" in rows and drawn:
            found.append(Group(name, f"regard {number(rows['regard']['median_ms'])} ms", tuple(drawn)))
    return found


def _as_bar(name: str, row: Mapping[str, Any], goal: Mapping[str, Any] | None) -> Bar:
    ratio = row["ratio"]
    must, aim = (goal["must"], goal["goal"]) if goal else (None, None)
    if goal and goal["sign"] == "≤":  # regard's time over another's
        must, aim = (limit and 1 / limit for limit in (must, aim))
    low, high = ratio.get("low", ratio["median"]), ratio.get("high", ratio["median"])
    return Bar(name, ratio["median"], low, high, not row["outside"], must, aim)
