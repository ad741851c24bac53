"""Faults of dropout, seen in the statistics of many draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard._types import Array, BoolArray
from regard.check.answers._fault import Group
from regard.check.answers._oracle import RIGHT, chance

GROUP = Group(
    "dropout",
    "Training and inference see outputs of different size, or less noise than was asked for.",
)
INVERTED = "weights = np.where(rng.random(weights.shape) < p, 0, weights / (1 - p)), before they meet the values"


def _renormalised(m: Any, case: Any, P: Array) -> Array:
    if case.dropout is None:
        return P
    P = np.where(chance(P.shape) < case.dropout, 0, P)
    total = P.sum(axis=-1, keepdims=True)
    return np.asarray(P / np.where(total == 0, 1, total))


def _on_output(m: Any, case: Any, P: Array, v: Array, keep: BoolArray) -> Array:
    o = RIGHT.combine(case, P, v, keep)
    return o if case.dropout is None else np.where(chance(o.shape) < case.dropout, 0, o / (1 - case.dropout))


GROUP.add("DROPOUT_IGNORED", "nothing is dropped", INVERTED, drop=lambda m, case, P: P)
GROUP.add(
    "DROPOUT_NO_RESCALE",
    "the weights that stay are not divided by 1 - p",
    INVERTED,
    drop=lambda m, case, P: P if case.dropout is None else np.where(chance(P.shape) < case.dropout, 0, P),
)
GROUP.add("DROPOUT_RENORMALISED", "the weights that stay are made to sum to 1 again", INVERTED, drop=_renormalised)
GROUP.add(
    "DROPOUT_P_SWAPPED",
    "a share of 1 - p is dropped, not p",
    INVERTED,
    {
        "divided by p": {"drop": lambda m, case, P: _kept(case, P, 1)},
        "divided by 1 - p": {"drop": lambda m, case, P: _kept(case, P, 0)},
    },
)
for _name, _axis, _of in (("HEADS", 1, "head"), ("BATCH", 0, "batch entry")):
    GROUP.add(
        f"DROPOUT_SAME_ALL_{_name}",
        f"every {_of} drops the same pairs",
        "draw random numbers of the weights' whole shape",
        drop=lambda m, case, P, axis=_axis: _shared(case, P, axis),
        why="The noise is not averaged out: it is the same everywhere.",
    )
GROUP.add(
    "DROPOUT_ON_OUTPUT",
    "features of the output are dropped, not weights",
    INVERTED,
    drop=lambda m, case, P: P,
    combine=_on_output,
)


def _shared(case: Any, P: Array, axis: int) -> Array:
    if case.dropout is None:
        return P
    shape = tuple(1 if i == axis else n for i, n in enumerate(P.shape))
    return np.where(chance(shape) < case.dropout, 0, P / (1 - case.dropout))


def _kept(case: Any, P: Array, swapped: int) -> Array:
    if case.dropout is None:
        return P
    return np.where(chance(P.shape) < case.dropout, P / (case.dropout if swapped else 1 - case.dropout), 0)
