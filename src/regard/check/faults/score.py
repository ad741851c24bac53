"""Faults of bias and softcap."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard._types import Array
from regard.check.answers._fault import Group
from regard.check.answers._oracle import RIGHT

GROUP = Group(
    "score",
    "Bias and softcap are part of the trained model: weights learned with them are wrong with anything else.",
)
ADD = "scores = scale * q · k, then softcap, then + bias"
CAP = "scores = c * tanh(scores / c), after the scale and before bias and mask"


def _cap(name: str, does: str, function: Any, also: tuple[str, ...] = ()) -> None:
    GROUP.add(name, does, CAP, cap=lambda m, case, s, c: function(s, c), also=also)


def _bias(name: str, does: str, change: Any, mend: str = ADD) -> None:
    GROUP.add(name, does, mend, add=lambda m, case, s, bias: s + change(bias))


def _own_scale(m: Any, case: Any) -> float:
    q, k, v = m.operands(case)
    return float(m.scale(case, q, k, v))


def _after_softmax(m: Any, case: Any, s: Array, keep: Array) -> Array:
    P = RIGHT.weights(case, s, keep)
    return P if case.bias is None else P + case.bias


def _bias_then_cap(m: Any, case: Any, s: Array) -> Array:
    s = m.biased(case, s)
    return s if case.softcap is None else np.asarray(m.cap(case, s, case.softcap))


_bias("BIAS_IGNORED", "the bias is ignored", lambda bias: 0 * bias)
_bias("BIAS_NEGATED", "the bias is subtracted", lambda bias: -bias)
_bias(
    "BIAS_TRANSPOSED",
    "queries and keys of the bias are swapped",
    lambda bias: bias.swapaxes(-1, -2),
    "lay the bias out as (queries, keys)",
)
_bias("BIAS_HEAD0", "every head gets the first one's bias", lambda bias: bias[:, :1], "index the bias by its head axis")
GROUP.add(
    "BIAS_BEFORE_SCALE",
    "the bias is added before the scale and scaled with it",
    ADD,
    add=lambda m, case, s, bias: s + bias * _own_scale(m, case),
)
GROUP.add(
    "BIAS_AFTER_SOFTMAX",
    "the bias is added to the weights",
    ADD,
    add=lambda m, case, s, bias: s,
    weights=_after_softmax,
)
_cap("SOFTCAP_IGNORED", "the softcap is ignored", lambda s, c: s, also=("SOFTCAP_DROPPED_BACKEND",))
_cap("SOFTCAP_CLIPPED", "scores are clipped to the cap", lambda s, c: np.clip(s, -c, c))
_cap("SOFTCAP_NO_DIV", "c · tanh(s): the division is missing", lambda s, c: c * np.tanh(s))
_cap("SOFTCAP_NO_MUL", "tanh(s / c): the factor c is missing", lambda s, c: np.tanh(s / c))
_cap("SOFTCAP_MULT", "s · tanh(s / c): the score in place of c", lambda s, c: s * np.tanh(s / c))
GROUP.add(
    "SOFTCAP_BEFORE_SCALE",
    "q · k is capped before it is scaled",
    CAP,
    cap=lambda m, case, s, c: _unscaled(m, case, s, c),
)
GROUP.add(
    "SOFTCAP_AFTER_MASK",
    "the cap is applied after the mask: a hidden score becomes -c, and is seen",
    CAP,
    shape=lambda m, case, s: m.biased(case, s),
    hide=lambda m, case, s, keep: _capped_mask(m, case, s, keep),
)
GROUP.add("SOFTCAP_AFTER_BIAS", "the cap is applied to the sum of score and bias", CAP, shape=_bias_then_cap)


def _unscaled(m: Any, case: Any, s: Array, c: float) -> Array:
    scale = _own_scale(m, case)
    return np.asarray(scale * c * np.tanh(s / scale / c))


def _capped_mask(m: Any, case: Any, s: Array, keep: Array) -> Array:
    s = np.where(keep, s, -np.inf)
    return s if case.softcap is None else np.asarray(m.cap(case, s, case.softcap))
