"""Faults of the factor before the softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from regard._types import Array
from regard.check.answers._fault import Group
from regard.check.answers._oracle import RIGHT

GROUP = Group(
    "scale",
    "The factor decides how sharp the weights are: too large and the softmax saturates and passes no gradient, too "
    "small and every query gets nearly the mean of the values. Weights trained with one factor are wrong with another.",
)
MEND = "multiply q · k by 1 / sqrt(q.shape[-1]), once"


def _factor(name: str, does: str, of: Any, mend: str = MEND, also: tuple[str, ...] = ()) -> None:
    """Add a fault whose default factor is a function of q, k and v; a scale that is given is respected."""

    def scale(m: Any, case: Any, q: Array, k: Array, v: Array) -> float:
        return float(of(q, k, v) if case.scale is None else case.scale)

    GROUP.add(name, does, mend, scale=scale, also=also)


def _times(name: str, does: str, factor: Any, mend: str = MEND) -> None:
    """Add a fault that multiplies whatever the factor is, given or not."""

    def logits(m: Any, case: Any, q: Array, k: Array, v: Array) -> Array:
        return np.asarray(m.product(case, q, k) * m.scale(case, q, k, v) * factor(q, k, v))

    GROUP.add(name, does, mend, logits=logits)


def _own(case: Any, q: Array) -> float:
    return float(case.scale if case.scale is not None else 1 / math.sqrt(q.shape[-1]))


def _unit(x: Array) -> Array:
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))


_factor("SCALE_MISSING", "the scores are q · k, without a factor", lambda q, k, v: 1.0)
_factor("SCALE_1_OVER_D", "the factor is 1/d: the root is missing", lambda q, k, v: 1 / q.shape[-1])
GROUP.add(
    "SCALE_TWICE",
    "the factor is applied twice",
    "scale q or the product, not both",
    scale=lambda m, case, q, k, v: _own(case, q) ** 2,
)
_factor(
    "SCALE_D_MODEL",
    "the factor is 1/sqrt(heads · d), of the model's width and not of a head's",
    lambda q, k, v: 1 / math.sqrt(q.shape[1] * q.shape[-1]),
    also=("MHA_SCALE_DMODEL",),
)
_factor("SCALE_TIMES_SQRT_D", "q · k is multiplied by sqrt(d), not divided", lambda q, k, v: math.sqrt(q.shape[-1]))
_factor("SCALE_SQRT_NK", "the factor is 1/sqrt(number of keys)", lambda q, k, v: 1 / math.sqrt(k.shape[-2]))
_factor("SCALE_SQRT_NQ", "the factor is 1/sqrt(number of queries)", lambda q, k, v: 1 / math.sqrt(q.shape[-2]))
_factor("SCALE_SQRT_DV", "the factor is 1/sqrt(width of the values)", lambda q, k, v: 1 / math.sqrt(v.shape[-1]))
_factor("SCALE_SQRT_HEADS", "the factor is 1/sqrt(heads): the wrong axis was read", lambda q, k, v: q.shape[1] ** -0.5)
_factor("SCALE_INT_SQRT", "sqrt(d) is rounded down to an integer", lambda q, k, v: 1 / int(math.sqrt(q.shape[-1])))
_factor("SCALE_2SQRT", "the factor is 1/2, which is right for d = 4 only", lambda q, k, v: 0.5)
_factor("SCALE_D_QUARTER", "only one of q and k is scaled by d^(-1/4)", lambda q, k, v: q.shape[-1] ** -0.25)
_factor("SCALE_HALF_D", "the factor is 1/sqrt(d/2) · sqrt(2) = 2/sqrt(d)", lambda q, k, v: 2 / math.sqrt(q.shape[-1]))
_times(
    "EXP2_NO_LOG2E",
    "2^s stands for e^s: the factor log2(e) is missing",
    lambda q, k, v: math.log(2),
    "multiply the scores by log2(e) before exp2",
)
_times(
    "LOG2E_TWICE",
    "the factor log2(e) is applied twice, or before exp",
    lambda q, k, v: math.log2(math.e),
    "multiply by log2(e) once, and only before exp2",
)
GROUP.add(
    "SCALE_ARG_IGNORED",
    "the argument scale is ignored",
    "use the given scale in place of 1/sqrt(d)",
    scale=lambda m, case, q, k, v: q.shape[-1] ** -0.5,
)
GROUP.add(
    "SCALE_ARG_TIMES_DEFAULT",
    "the argument scale is multiplied with 1/sqrt(d)",
    "use the given scale in place of 1/sqrt(d)",
    scale=lambda m, case, q, k, v: (1 if case.scale is None else case.scale) / math.sqrt(q.shape[-1]),
)
GROUP.add(
    "SCALE_AFTER_SOFTMAX",
    "the weights are scaled, the scores are not",
    "scale the scores before the softmax",
    scale=lambda m, case, q, k, v: 1.0,
    drop=lambda m, case, P: RIGHT.drop(case, P) * _own(case, m.operands(case)[0]),
)
GROUP.add(
    "VALUES_SCALED",
    "the output is scaled as well: its rows sum to 1/sqrt(d)",
    "scale q or k, never v or the output",
    drop=lambda m, case, P: RIGHT.drop(case, P) * _own(case, m.operands(case)[0]),
)
GROUP.add(
    "QK_NORMALISED",
    "q and k are divided by their norms: the scores are cosines",
    "leave q and k as they are, or offer the normalisation as an option",
    product=lambda m, case, q, k: _unit(q) @ _unit(k).swapaxes(-1, -2),
)
