"""Times calls in turn, so that a change of clock or a noisy neighbour meets all of them."""

from __future__ import annotations

import gc
import random

import numpy as np


def interleave(calls, rounds, clock, *, repeat=1, after_round=None, seed=0):
    """Milliseconds of each call, by name and round; clock gives nanoseconds.

    The order is drawn anew in each round: what runs before a call leaves its caches behind. One round before is not
    counted.
    """
    order, draw = list(calls), random.Random(seed)
    times = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds + 1):
            draw.shuffle(order)
            for name in order:
                call = calls[name]
                start = clock()
                for _ in range(repeat):
                    call()
                took = (clock() - start) / 1e6 / repeat
                if turn:
                    times[name].append(took)
            if turn and after_round:
                after_round()
    finally:
        gc.enable()
    return times


def spread(numbers):
    """Median, the quartiles around it, and the ends."""
    low, median, high = np.quantile(numbers, (0.25, 0.5, 0.75))
    return {
        "median": float(median), "low": float(low), "high": float(high), "min": float(np.min(numbers)),
        "max": float(np.max(numbers)),
    }  # fmt: skip
