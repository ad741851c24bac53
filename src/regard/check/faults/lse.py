"""Faults of a logsumexp that is returned beside the output."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard._types import Array
from regard.check.answers._fault import Group, Steps
from regard.check.answers._oracle import RIGHT

GROUP = Group(
    "lse",
    "Outputs over parts of the keys are merged by their logsumexps, and a backward pass computes the weights from it: "
    "the output alone is right, and what is made of it is wrong.",
)
NATURAL = "lse = max + log(sum of exp(s - max)), of the scaled scores, in natural logarithms"


def _of(function: Any) -> Steps:
    """Make it of the row's maximum, its sum and the scale."""

    def lse(m: Any, case: Any, s: Array) -> Array:
        peak = s.max(axis=-1)
        scale = RIGHT.scale(case, *RIGHT.operands(case))
        return np.asarray(function(peak, np.exp(s - peak[..., None]).sum(axis=-1), scale, s))

    return {"lse": lse}


def _unscaled(peak: Array, total: Array, scale: float, s: Array) -> Array:
    whole = s / scale
    top = whole.max(axis=-1)
    return np.asarray(top + np.log(np.exp(whole - top[..., None]).sum(axis=-1)))


GROUP.add(
    "LSE_BASE2",
    "the logsumexp is in base 2",
    NATURAL + "; multiply by ln 2",
    {
        "all of it": _of(lambda peak, total, scale, s: (peak + np.log(total)) / np.log(2)),
        "the logarithm of the sum only": _of(lambda peak, total, scale, s: peak + np.log2(total)),
    },
)
GROUP.add(
    "LSE_SIGN", "the logsumexp is negated", NATURAL, {"": _of(lambda peak, total, scale, s: -peak - np.log(total))}
)
GROUP.add(
    "LSE_NO_MAX",
    "the maximum is missing from the logsumexp",
    NATURAL,
    {
        "log of the sum": _of(lambda peak, total, scale, s: np.log(total)),
        "the maximum is subtracted": _of(lambda peak, total, scale, s: np.log(total) - peak),
    },
)
GROUP.add(
    "LSE_NO_LOG",
    "a part of the logsumexp is returned in its place",
    NATURAL,
    {
        "the sum": _of(lambda peak, total, scale, s: total),
        "the maximum": _of(lambda peak, total, scale, s: peak),
        "maximum and sum, without a logarithm": _of(lambda peak, total, scale, s: peak + total),
    },
)
GROUP.add(
    "LSE_SCALE",
    "the scale in the logsumexp is another than that of the scores",
    NATURAL,
    {
        "of q · k without the factor": _of(_unscaled),
        "the maximum is without the factor": _of(lambda peak, total, scale, s: peak / scale + np.log(total)),
        "multiplied by the factor": _of(lambda peak, total, scale, s: scale * (peak + np.log(total))),
    },
)
GROUP.add("LSE_WRONG", "what is returned beside the output has the shape of a logsumexp and is none", NATURAL, {})
