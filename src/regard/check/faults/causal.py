"""Faults of the causal rule and of windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from regard._types import Array, BoolArray
from regard.check.answers._fault import Group, Steps
from regard.check.answers._oracle import RIGHT, distance, within

GROUP = Group(
    "causal",
    "A token that sees the next one learns to copy it: the loss is wonderful and the model useless. One that sees too "
    "little, or more of the past than the model was trained with, is merely worse.",
)
RULE = "query i of Sq keeps key j of Skv where j <= i + Skv - Sq"
WINDOW = "query at position p keeps the W keys p - W + 1 .. p"


def _rule(keep: Any) -> Steps:
    return {"causal": lambda m, case, queries, keys: keep(case, queries, keys)}


def _window(near: Any, from_start: bool = False) -> Steps:
    """Keep pairs by a rule for their distance and the width, on all sides that the window has."""

    def window(m: Any, case: Any, queries: int, keys: int, width: int) -> BoolArray:
        d = distance(replace(case, from_start=True) if from_start else case, queries, keys)
        return within(case, d, lambda d: near(d, width))

    return {"window": window}


def _from_end(case: Any, queries: int, keys: int) -> BoolArray:
    return RIGHT.causal(replace(case, from_start=False), queries, keys)


def _slope_from_end(m: Any, case: Any, s: Array, slopes: Array) -> Array:
    return RIGHT.slope(replace(case, from_start=False), s, slopes)


def _window_from_end(m: Any, case: Any, queries: int, keys: int, width: int) -> BoolArray:
    return RIGHT.window(replace(case, from_start=False), queries, keys, width)


GROUP.add("CAUSAL_IGNORED", "causal is ignored", RULE, {"": _rule(lambda case, q, k: np.ones((q, k), bool))})
GROUP.add(
    "CAUSAL_TRANSPOSED",
    "queries see their own and later keys, not earlier ones",
    RULE,
    {
        "": _rule(lambda case, q, k: distance(case, q, k) >= 0),
        "from the start": _rule(lambda case, q, k: distance(replace(case, from_start=True), q, k) >= 0),
    },
)
GROUP.add(
    "CAUSAL_INVERTED",
    "exactly what should be hidden is seen: later keys only",
    RULE,
    {"": _rule(lambda case, q, k: distance(case, q, k) > 0)},
)
GROUP.add(
    "CAUSAL_STRICT",
    "a query does not see its own key: off by one",
    RULE,
    {
        "": _rule(lambda case, q, k: distance(case, q, k) < 0),
        "from the start": _rule(lambda case, q, k: distance(replace(case, from_start=True), q, k) < 0),
    },
    why="The first token of a sequence sees nothing, and every other one misses the key that is most its own.",
)
GROUP.add(
    "CAUSAL_PLUS_ONE",
    "a query sees the next key: off by one",
    RULE,
    {
        "": _rule(lambda case, q, k: distance(case, q, k) <= 1),
        "from the start": _rule(lambda case, q, k: distance(replace(case, from_start=True), q, k) <= 1),
    },
)
GROUP.add(
    "CAUSAL_TOP_LEFT",
    "with more keys than queries the rule starts at the first key: the last query does not see the last keys",
    RULE + '; declare causal="top-left" if it is meant',
    {"": _rule(lambda case, q, k: distance(replace(case, from_start=True), q, k) <= 0)},
    why="Equal on squares, so that tests pass; decoding with a cache then sees only the first keys.",
)
GROUP.add(
    "CAUSAL_BOTTOM_RIGHT",
    "with more keys than queries the rule ends at the last key, where the first was declared",
    'query i keeps key j where j <= i; declare causal="bottom-right" if it is meant',
    {
        "": _rule(_from_end),
        "and so does the window": {**_rule(_from_end), "window": _window_from_end},
        "and so do the window and ALiBi": {**_rule(_from_end), "window": _window_from_end, "slope": _slope_from_end},
    },
)
GROUP.add(
    "CAUSAL_DROPPED_IF_MASK",
    "with a mask causal is ignored",
    "combine both: keep = mask & causal",
    {"": {"causal": lambda m, case, q, k: _unless_masked(case, q, k)}},
)
GROUP.add(
    "WINDOW_IGNORED", "the window is ignored", WINDOW, {"": {"window": lambda m, case, q, k, w: np.ones((q, k), bool)}}
)
GROUP.add(
    "WINDOW_PLUS_ONE",
    "the window holds one key too many",
    WINDOW + '; declare window="left-inclusive" if W keys beside its own are meant',
    {"": _window(lambda d, w: d >= -w)},
    why="A model sees one key more than it was trained with, and a cache of W keys does not hold all that a row reads.",
)
GROUP.add(
    "WINDOW_MINUS_ONE",
    "the window holds one key too few",
    WINDOW,
    {"": _window(lambda d, w: d > -w + 1)},
    why="A model misses the oldest key that it was trained with; with a window of 1 no key is left, not even its own.",
)
GROUP.add(
    "WINDOW_TWO_SIDED",
    "the window reaches as far to later keys as to earlier ones",
    WINDOW + ", and no later key",
    {"": {"causal": lambda m, case, q, k: _both_sides(case, q, k)}},
)
GROUP.add(
    "WINDOW_TOP_LEFT",
    "with more keys than queries the window counts from the first key",
    WINDOW + ", where p = i + Skv - Sq",
    {"": _window(lambda d, w: d > -w, from_start=True)},
)


def _unless_masked(case: Any, queries: int, keys: int) -> BoolArray:
    if case.mask is not None:
        return np.ones((queries, keys), bool)
    return RIGHT.causal(case, queries, keys)


def _both_sides(case: Any, queries: int, keys: int) -> BoolArray:
    if case.window is None:
        return RIGHT.causal(case, queries, keys)
    return np.asarray(distance(case, queries, keys) < case.window)
