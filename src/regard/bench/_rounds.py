"""Times calls in turn, so that a change of clock or a noisy neighbour meets all of them."""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

# Who has this many rounds and no patience left is timed no more.
LEAST = 3
# What one contestant leaves to the next (evicted caches, a freed gigabyte whose pages the system must find again) was
# seen to cost up to 0.14 s. A call of more seconds than this would take minutes of a run to call twice.
TWICE_S = 0.5
# Quartiles further apart than this are of times that something else disturbed.
DISTURBED = 1.3


def interleave(
    calls: Mapping[str, Callable[[], Any]],
    rounds: int,
    clock: Callable[[], int],
    *,
    repeat: int = 1,
    patience_s: float = math.inf,
    after_round: Callable[[], object] | None = None,
    rest_s: float = 0.0,
    seed: int = 0,
) -> dict[str, list[float]]:
    """Milliseconds of each call, by name and round; clock gives nanoseconds.

    The order is drawn anew in each round. Right before it is timed each is called once untimed, so that what the one
    before it evicted or freed is not charged to it; all alike, but for who takes more than `TWICE_S` seconds by itself.
    One round before is not counted. A call that took more than `patience_s` seconds in all, timed or not, is left out
    of further rounds, once it has three. Nothing runs for `rest_s` seconds before each: threads that wait for more work
    spin for a while, and would take a processor from whoever is next.
    """
    order, draw = list(calls), random.Random(seed)
    times: dict[str, list[float]] = {name: [] for name in calls}
    spent, last_s = dict.fromkeys(calls, 0.0), dict.fromkeys(calls, math.inf)
    collected = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds + 1):
            draw.shuffle(order)
            for name in order:
                if spent[name] > patience_s and len(times[name]) >= LEAST:
                    continue
                call = calls[name]
                time.sleep(rest_s)
                begun = clock()
                if last_s[name] <= TWICE_S:
                    call()
                start = clock()
                for _ in range(repeat):
                    call()
                end = clock()
                spent[name] += (end - begun) / 1e9
                last_s[name] = (end - start) / 1e9 / repeat
                if turn:
                    times[name].append((end - start) / 1e6 / repeat)
            if turn and after_round:
                after_round()
    finally:
        if collected:
            gc.enable()
    return times


def spread(numbers: Iterable[float]) -> dict[str, float]:
    """Median, the quartiles around it, and the ends."""
    known = list(numbers)
    low, median, high = np.quantile(known, (0.25, 0.5, 0.75))
    return {
        "median": float(median), "low": float(low), "high": float(high), "min": float(np.min(known)),
        "max": float(np.max(known)),
    }  # fmt: skip


def disturbed(row: Mapping[str, Any]) -> bool:
    """Whether a contestant's middle half is so wide that its median says little."""
    return bool(row["high_ms"] > DISTURBED * row["low_ms"])
