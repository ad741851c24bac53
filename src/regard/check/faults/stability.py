"""Faults of the maximum that is subtracted before exp."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard._types import Array
from regard.check.answers._fault import Group

GROUP = Group(
    "stability",
    "exp overflows above 88.7 in float32 (11.1 in float16) and is 0 below -103. Trained models do reach such scores, "
    "in a few rows: the output is then NaN, or 0, without a word.",
)
ROWS_OWN = "subtract from each row of scores that row's own maximum"


def _peak(function: Any) -> dict[str, Any]:
    return {"peak": lambda m, case, s: np.broadcast_to(function(s), (*s.shape[:-1], 1))}


def _quiet(steps: dict[str, Any]) -> dict[str, Any]:
    """Do the same, where a sum of 0 is guarded against, so that the row is 0 and not NaN."""
    return {**steps, "total": lambda m, case, e: np.maximum(e.sum(axis=-1, keepdims=True), 1e-300)}


def _wrong_axis(m: Any, case: Any, s: Array) -> Array:
    s = np.where(np.isneginf(s), -1e30, s)
    e = np.exp(s - s.max(axis=-2, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def _global(axes: Any) -> Any:
    return lambda s: s.max(axis=axes, keepdims=True)


GROUP.add(
    "NO_MAX",
    "exp is taken of the scores as they are, without subtracting the maximum",
    ROWS_OWN,
    {
        "": _peak(lambda s: 0.0),
        "a sum of 0 guarded": _quiet(_peak(lambda s: 0.0)),
        "the mean is subtracted": _peak(lambda s: s.mean(axis=-1, keepdims=True)),
    },
)
GROUP.add(
    "MAX_GLOBAL",
    "one maximum serves many rows: rows far below it are lost",
    ROWS_OWN,
    {
        "of everything": _peak(_global(None)),
        "of each head": _peak(_global((-2, -1))),
        "of everything, a sum of 0 guarded": _quiet(_peak(_global(None))),
        "of each head, a sum of 0 guarded": _quiet(_peak(_global((-2, -1)))),
    },
)
GROUP.add(
    "MAX_INIT_ZERO",
    "the running maximum starts at 0: rows with only very negative scores are lost",
    "start the maximum at -inf",
    {
        "": _peak(lambda s: np.maximum(s.max(axis=-1, keepdims=True), 0)),
        "a sum of 0 guarded": _quiet(_peak(lambda s: np.maximum(s.max(axis=-1, keepdims=True), 0))),
    },
)
GROUP.add(
    "MAX_INIT_FINITE",
    "the running maximum starts at a finite number, such as -1e4: rows below it are lost",
    "start the maximum at -inf",
    {
        "-1e4": _peak(lambda s: np.maximum(s.max(axis=-1, keepdims=True), -1e4)),
        "-1e4, a sum of 0 guarded": _quiet(_peak(lambda s: np.maximum(s.max(axis=-1, keepdims=True), -1e4))),
    },
)
GROUP.add(
    "MAX_WRONG_AXIS",
    "the maximum is taken over the queries: the shift does not cancel in the softmax",
    ROWS_OWN,
    normalise=_wrong_axis,
)
GROUP.add(
    "CLAMPED_LOGITS",
    "scores are clamped, here to [-50, 50], before exp",
    ROWS_OWN,
    {
        str(c): {"normalise": lambda m, case, s, c=c: _clamped(s, c)}
        for c in (10, 20, 50, 80, 88)
    },
)  # fmt: skip


def _clamped(s: Array, c: float) -> Array:
    e = np.where(np.isneginf(s), 0, np.exp(np.clip(s, -c, c)))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))
