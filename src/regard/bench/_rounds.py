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

    The order is drawn anew in each round: what runs before a call leaves its caches behind. One round before is not
    counted. A call that took more than `patience_s` seconds in all is left out of further rounds, once it has three.
    Nothing runs for `rest_s` seconds before each: threads that wait for more work spin for a while, and would take a
    processor from whoever is next.
    """
    order, draw = list(calls), random.Random(seed)
    times: dict[str, list[float]] = {name: [] for name in calls}
    spent = dict.fromkeys(calls, 0.0)
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
                start = clock()
                for _ in range(repeat):
                    call()
                took = clock() - start
                spent[name] += took / 1e9
                if turn:
                    times[name].append(took / 1e6 / repeat)
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
