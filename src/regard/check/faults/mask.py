"""Faults of masks: how hidden pairs are taken out, and which pairs are hidden."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard._types import Array, BoolArray
from regard.check.answers._fault import Group, Steps
from regard.check.answers._oracle import RIGHT, distance

GROUP = Group(
    "mask",
    "Hidden keys take part: padding and later tokens leak into the result, and training finds out before you do.",
)
BEFORE = "set hidden scores to -inf before the softmax: np.where(keep, scores, -np.inf)"
FILL_WHY = (
    "Right while the visible scores are far above the number; below it hidden keys win, and a row without keys is the "
    "mean of all values."
)


def _fill(number: float) -> Steps:
    return {"hide": lambda m, case, s, keep: np.where(keep, s, number)}


def _added(number: float) -> Steps:
    return {"hide": lambda m, case, s, keep: s + np.where(keep, 0, number)}


def _picture(change: Any) -> Steps:
    """Replace which pairs the mask names."""
    return {"mask": lambda m, case, mask: change(mask)}


def _late(m: Any, case: Any, s: Array, keep: BoolArray) -> Array:
    return np.where(keep, RIGHT.normalise(case, s), 0)


def _late_renormalised(guard: bool) -> Steps:
    """Set a row to 0, or to NaN, where all that is left has underflowed."""

    def weights(m: Any, case: Any, s: Array, keep: BoolArray) -> Array:
        P = np.where(keep, RIGHT.normalise(case, s), 0)
        total = P.sum(axis=-1, keepdims=True)
        lost = keep.any(axis=-1, keepdims=True) & (total == 0)
        W = np.where(total == 0, 0, P / np.where(total == 0, 1, total))
        return np.asarray(np.where(lost, 0.0 if guard else np.nan, W))

    return {"weights": weights, "hide": _as_is}


def _as_is(m: Any, case: Any, s: Array, keep: BoolArray) -> Array:
    return s


GROUP.add("MASK_IGNORED", "the mask is ignored", BEFORE, {"": _picture(np.ones_like)})
GROUP.add("MASK_INVERTED", "True hides and False shows", "invert the mask: ~mask", {"": _picture(np.logical_not)})
GROUP.add(
    "MASK_AFTER_SOFTMAX",
    "hidden weights are set to 0 after the softmax: the others do not sum to 1",
    BEFORE,
    {"": {"hide": _as_is, "weights": _late}},
)
GROUP.add(
    "MASK_AFTER_RENORM",
    "hidden weights are set to 0 after the softmax and the others divided by their sum: lost when a hidden score is "
    "much larger",
    BEFORE,
    {"NaN": _late_renormalised(False), "guarded": _late_renormalised(True)},
)
GROUP.add(
    "MASK_MULTIPLICATIVE",
    "hidden scores are multiplied by 0: they count as score 0, not as hidden",
    BEFORE,
    {"written over": _fill(0.0), "multiplied": {"hide": lambda m, case, s, keep: s * keep}},
    also=("MASK_FILL_TINY",),
)
GROUP.add(
    "MASK_FILL_SMALL",
    "hidden scores are set to a number that is not small enough",
    BEFORE,
    {
        f"{n}{how}": make(float(n))
        for n in (-1, -10, -50, -100, -1000)
        for how, make in (("", _fill), (" added", _added))
    },
)
GROUP.add("MASK_FILL_1E4", "hidden scores are set to -1e4", BEFORE, {"": _fill(-1e4)}, why=FILL_WHY)
GROUP.add("MASK_FILL_1E9", "hidden scores are set to -1e9", BEFORE, {"": _fill(-1e9)}, why=FILL_WHY, edge=True)
GROUP.add(
    "MASK_ADD_FILL",
    "a large negative number is added to hidden scores",
    BEFORE,
    {
        "-1e9": _added(-1e9),
        "-1e4": _added(-1e4),
        "-1e9 in float32": {"hide": lambda m, case, s, keep: _absorbed(s, keep)},
    },
    why="A row without keys has weights, those of its own scores or the mean; NaN in a hidden key leaks.",
    edge=True,
)
GROUP.add(
    "MASK_BOOL_ADDED",
    "the bool mask is added to the scores as 0 and 1",
    BEFORE,
    {"": {"mask": lambda m, case, mask: np.ones_like(mask), "shape": lambda m, case, s: _with_ones(case, s)}},
)
GROUP.add(
    "MASK_TRANSPOSED",
    "queries and keys of the mask are swapped",
    "lay the mask out as (queries, keys)",
    {"": _picture(lambda mask: mask.swapaxes(-1, -2))},
)
GROUP.add(
    "MASK_ON_QUERIES",
    "a mask of keys empties rows of queries",
    "lay a mask of keys along the last axis: mask[:, None, None, :]",
    {"": {"mask": lambda m, case, mask: _on_queries(case, mask)}},
)
GROUP.add(
    "MASK_BATCH0",
    "every batch entry gets the first one's mask",
    "index the mask by its batch axis",
    {"": _picture(lambda mask: mask[:1])},
)
GROUP.add(
    "MASK_HEAD0",
    "every head gets the first one's mask",
    "index the mask by its head axis",
    {"": _picture(lambda mask: mask[:, :1])},
)
GROUP.add(
    "MASK_BATCH_AS_HEAD",
    "the batch axis of the mask is laid over the heads",
    "give the mask all four axes: mask[:, None, None, :]",
    {"": _picture(lambda mask: mask.swapaxes(0, 1))},
)
GROUP.add(
    "PAD_SIDE",
    "padding is taken to be on one side: positions are shifted by it",
    "take positions from the array, and let the mask alone say which keys are hidden",
    {
        "a mask of keys counts only how many it keeps, at the front": _picture(lambda mask: _counted(mask, False)),
        "a mask of keys counts only how many it keeps, at the end": _picture(lambda mask: _counted(mask, True)),
        "causal counts keys from the first kept one": {"causal": lambda m, case, q, k: _shifted(case, q, k, 1)},
        "causal counts queries from the first kept key": {"causal": lambda m, case, q, k: _shifted(case, q, k, -1)},
    },
    why="Batches for generation are padded on the left, those for training on the right.",
)
GROUP.add(
    "MASK_DROPPED_IF_CAUSAL",
    "with causal the mask is ignored",
    "combine both: keep = mask & causal",
    {"": {"mask": lambda m, case, mask: np.ones_like(mask) if case.causal else mask}},
)
GROUP.add(
    "EMPTY_ROW_NAN",
    "a row without keys is NaN",
    "where a row keeps no key, return 0: NaN spreads to every gradient",
    {"": {"empty": lambda m, case, P, dead: np.where(dead, np.nan, P)}},
    why="Padding rows are common; one NaN row makes every shared weight's gradient NaN, even if its output is unused.",
    edge=True,
)
GROUP.add(
    "EMPTY_ROW_UNIFORM",
    "a row without keys is the mean of all values, hidden ones too",
    "where a row keeps no key, return 0",
    {"": {"empty": lambda m, case, P, dead: np.where(dead, 1 / P.shape[-1], P)}},
    why="The row shows what the mask hides.",
    edge=True,
)
GROUP.add(
    "EMPTY_ROW_FIRST_V",
    "a row without keys is the first value",
    "where a row keeps no key, return 0",
    {"": {"empty": lambda m, case, P, dead: np.where(dead, np.arange(P.shape[-1]) == 0, P)}},
    why="The row shows what the mask hides.",
    edge=True,
)
GROUP.add(
    "EMPTY_ROW_ZERO",
    "a row without keys is 0, where NaN was declared",
    "declare empty_row='zero'",
    {"": {"empty": lambda m, case, P, dead: np.where(dead, 0, P)}},
    why="It is what regard does too.",
    edge=True,
)
GROUP.add(
    "NAN_MASKED_V",
    "NaN or Inf in a hidden value spoils the output: 0 · NaN is NaN",
    "leave hidden values out of the product, or clean the padding before the call",
    {"": {"combine": lambda m, case, P, v, keep: P @ v}},
    why="Padding that was never written may hold NaN.",
    edge=True,
)
GROUP.add(
    "NAN_MASKED_K",
    "NaN in a hidden key spoils its scores: -inf is added to them, not written over them",
    BEFORE,
    {"": _added(-np.inf)},
    why="Padding that was never written may hold NaN.",
    edge=True,
)


def _counted(mask: Array, at_the_end: bool) -> Array:
    if mask.shape[2] > 1:
        return mask
    keep: Array = np.arange(mask.shape[-1]) < mask.sum(axis=-1, keepdims=True)
    return keep[..., ::-1] if at_the_end else keep


def _shifted(case: Any, queries: int, keys: int, sign: int) -> BoolArray:
    """Move the causal rule by the number of hidden keys in front."""
    if case.mask is None or case.mask.shape[2] > 1:
        return RIGHT.causal(case, queries, keys)
    return np.asarray(distance(case, queries, keys) <= sign * case.mask.argmax(axis=-1)[..., None])


def _absorbed(s: Array, keep: BoolArray) -> Array:
    """In float32 a score next to -1e9 has no digits left."""
    return np.where(keep, s, (s.astype(np.float32) + np.float32(-1e9)).astype(float))


def _with_ones(case: Any, s: Array) -> Array:
    s = RIGHT.shape(case, s)
    return s if case.mask is None else s + case.mask


def _on_queries(case: Any, mask: Array) -> Array:
    if mask.shape[2] == 1:
        return np.asarray(mask.swapaxes(-1, -2)[..., : case.query.shape[2], :])
    return mask
