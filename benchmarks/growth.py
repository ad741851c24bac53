"""Time and memory against length, head size or window, with fitted exponents: `growth`, `memory` of problems.toml."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.covers import as_mask
from benchmarks.peers import PEERS
from benchmarks.problems import read
from regard import bench
from regard.bench import Problem, interleave, pinned, spread

ROOT = Path(__file__).parents[1]
# At this length a call is its overhead.
SHORTEST = 16
ROUNDS, PATIENCE_S = 5, 10.0
# A first call of more seconds is the measure: a warm-up matters little there, and a second would take minutes.
ONCE_S = 5.0
# Times of so many overheads, and memory of so many bytes beyond that of the shortest call, are told from them.
FAR, FAR_BYTES = 20, 1 << 20
# What may grow, and where problems.toml has its steps; of the others it has one number each, if any.
ALONG = {"length": "lengths", "size": "sizes", "window": "windows"}
KEYS = {"name", "reason", "mask", "growth", "from", "peers", "length", "size", *ALONG.values()}


@dataclass(frozen=True)
class Series:
    """One problem at many lengths, head sizes or windows: the steps of what it goes `along`.

    `peers` says up to which each is asked; `growth` is the exponent of the formula.
    """

    name: str
    reason: str
    steps: tuple[int, ...]
    growth: float
    peers: dict[str, int]
    mask: object = None
    start: int = 0
    along: str = "length"
    length: int = 0
    size: int = 0

    def problem(self, step):
        at = {"length": self.length, "size": self.size} | {self.along: step}
        shape = 1, 1, at["length"], at["size"]
        mask = as_mask({"window": at["window"]} if "window" in at else self.mask, at["length"], at["length"])
        return Problem(f"{self.name}, {step}", self.reason, shape, shape, mask=mask, checked=64)

    def entrants(self, step):
        return {"regard": PEERS["regard"]} | {n: PEERS[n] for n, most in self.peers.items() if step <= most}

    @property
    def measured(self):
        """The steps, and before them what a call costs."""
        return (SHORTEST, *self.steps) if self.along == "length" else self.steps


def as_series(entry):
    """A Series of an entry of problems.toml; refuses what it does not know."""
    name = entry.get("name", "a series without a name")
    if unknown := entry.keys() - KEYS:
        raise ValueError(f"{name}: {', '.join(sorted(unknown))} unknown; an entry has {', '.join(sorted(KEYS))}")
    if missing := {"name", "reason", "growth", "peers"} - entry.keys():
        raise ValueError(f"{name} has no {', '.join(sorted(missing))}")
    grows = [along for along, steps in ALONG.items() if steps in entry]
    if len(grows) != 1:
        raise ValueError(f"{name} has {len(grows)} of {', '.join(ALONG.values())}: one of them is what grows")
    (along,) = grows
    if along == "window" and "mask" in entry:
        raise ValueError(f"{name} goes along its window and has a mask, which would be dropped")
    if lacking := {"length", "size"} - {along} - entry.keys():
        raise ValueError(f"{name} goes along its {along} and has no {', '.join(sorted(lacking))}")
    return Series(
        name, entry["reason"], tuple(entry[ALONG[along]]), entry["growth"], dict(entry["peers"]), entry.get("mask"),
        entry.get("from", 0), along, entry.get("length", 0), entry.get("size", 0),
    )  # fmt: skip


def load(kind):
    """The entries `growth` or `memory`."""
    return [as_series(entry) for entry in read()[kind]]


def fit(values, least, start=0):
    """The exponent of a power of the steps: least squares of the logarithms, where a value is at least `least`.

    None with fewer than three of them.
    """
    used = {n: value for n, value in values.items() if n >= start and value >= least}
    if len(used) < 3:
        return None
    slope = np.polyfit(np.log(list(used)), np.log(list(used.values())), 1)[0]
    return {"exponent": float(slope), "from": min(used), "to": max(used), "steps": len(used)}


def time_at(series, step, peers=None, clock=time.perf_counter_ns):
    """Times of each contestant at one step."""
    line = bench.Line(series.problem(step), series.entrants(step) if peers is None else peers, clock)
    rows = {name: {**spread([ms]), "rounds": 1} for name, ms in line.first_ms.items()}
    quick = {name: call for name, call in line.calls.items() if line.first_ms[name] < ONCE_S * 1e3}
    longest = max((line.first_ms[name] for name in quick), default=0)
    repeat = max(1, min(100, int(5 / max(longest, 1e-3))))
    for name, times in interleave(quick, ROUNDS, clock, repeat=repeat, patience_s=PATIENCE_S).items():
        rows[name] = {**spread(times), "rounds": len(times)}
    return rows, line.refused | line.absent


def measure(series, after_step=lambda: None, at=time_at):
    """Milliseconds by contestant and step, ready for the file, with the exponents that fit."""
    found, missing = {}, {}
    with pinned(1):
        for step in series.measured:
            rows, gone = at(series, step)
            missing |= gone
            for name, row in rows.items():
                found.setdefault(name, {})[step] = row
            after_step()
    fits = {}
    for name, rows in found.items():
        medians = {n: row["median"] for n, row in rows.items()}
        least = FAR * medians.get(SHORTEST, math.inf) if series.along == "length" else 0
        fits[name] = fit(medians, least, series.start)
    return told(series, found, missing, fits)


def measure_memory(series, after_step=lambda: None):
    """Bytes by contestant and length, each in a process of its own, with the exponents that fit."""
    found, missing = {}, {}
    for length in series.measured:
        for name, peer in series.entrants(length).items():
            if why := peer.absent() or peer.why_not(series.problem(length)):
                missing[name] = why
                continue
            found.setdefault(name, {})[length] = {"bytes": peak_of(series.name, name, length)}
        after_step()
    fits = {}
    for name, rows in found.items():
        beyond = {n: row["bytes"] - rows[SHORTEST]["bytes"] for n, row in rows.items()}
        fits[name] = fit(beyond, FAR_BYTES, series.start)
    return told(series, found, missing, fits)


def peak_of(series, peer, length):
    """Ask a new process (memory.py)."""
    command = [sys.executable, "-m", "benchmarks.memory", series, peer, str(length)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ, check=False)
    if done.returncode:
        raise RuntimeError(f"{peer} at {length} of {series}: {done.stderr.strip().splitlines()[-1:]}")
    return int(done.stdout)


def told(series, found, missing, fits):
    return {
        "reason": series.reason, "along": series.along, "length": series.length, "size": series.size,
        "growth": series.growth, "contestants": found, "fits": fits, "absent": missing,
    }  # fmt: skip
