"""Faults of linear biases (ALiBi): minus a slope of each head times the distance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from regard._types import Array
from regard.check.answers._fault import Group, Steps
from regard.check.answers._oracle import RIGHT, distance, paper_slopes

GROUP = Group(
    "alibi",
    "The model was trained with these biases and has no other positions: with others it does not know what is near.",
)
FORMULA = "scores - slopes[:, None, None] * abs(i + Skv - Sq - j), after the scale"


def _of(function: Any) -> Steps:
    """Add a function of slopes and distances (j - i) to the scores."""

    def slope(m: Any, case: Any, s: Array, slopes: Array) -> Array:
        return np.asarray(s + function(slopes[:, None, None], distance(case, *s.shape[-2:])))

    return {"slope": slope}


def _slopes(function: Any) -> Steps:
    return {"slope": lambda m, case, s, slopes: RIGHT.slope(case, s, function(slopes))}


def _before_scale(m: Any, case: Any, s: Array, slopes: Array) -> Array:
    scale = m.scale(case, *m.operands(case))
    return RIGHT.slope(case, s, scale * slopes)


def _from_start(m: Any, case: Any, s: Array, slopes: Array) -> Array:
    return RIGHT.slope(replace(case, from_start=not case.from_start), s, slopes)


GROUP.add("ALIBI_IGNORED", "the slopes are ignored", FORMULA, slope=lambda m, case, s, slopes: s)
GROUP.add(
    "ALIBI_SIGN", "far keys are favoured, not near ones: the sign is wrong", FORMULA,
    {"": _of(lambda slopes, d: slopes * abs(d)), "of the signed distance": _of(lambda slopes, d: -slopes * d)},
)  # fmt: skip
GROUP.add(
    "ALIBI_ABS",
    "the distance has a sign: later keys get a bonus, as large as the penalty of earlier ones",
    FORMULA + "; under a causal mask the sign does not show",
    {"": _of(lambda slopes, d: slopes * d)},
)
GROUP.add(
    "ALIBI_SLOPES",
    "the slopes are others than the right ones",
    "slopes of the paper are 2^(-8 h / H) for h = 1 .. H; slopes that are given are used as they are",
    {
        "the first head's for all": _slopes(lambda slopes: np.broadcast_to(slopes[:1], slopes.shape)),
        "heads in reverse": _slopes(lambda slopes: slopes[::-1]),
        "those of the paper, whatever is given": _slopes(lambda slopes: paper_slopes(len(slopes))),
        "heads counted from 0": _slopes(lambda slopes: slopes * 2 ** (8 / len(slopes))),
        "1/2, 1/4, 1/8, ...": _slopes(lambda slopes: 0.5 ** np.arange(1, len(slopes) + 1)),
        "1/H, 2/H, ..., 1": _slopes(lambda slopes: np.arange(1, len(slopes) + 1) / len(slopes)),
    },
)
GROUP.add("ALIBI_BEFORE_SCALE", "the biases are scaled with q · k", FORMULA, slope=_before_scale)
GROUP.add(
    "ALIBI_TOP_LEFT",
    "with more keys than queries distances are counted from the first key",
    FORMULA,
    slope=_from_start,
    why="Equal on squares, so that tests pass; decoding with a cache then takes the newest token for the oldest.",
)
