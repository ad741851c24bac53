"""Faults of what turns scores into weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard._types import Array
from regard.check.answers._fault import Group

GROUP = Group(
    "normalisation",
    "The weights of a query are shares of one whole, over its keys. Without that the output is no mean of the values: "
    "its size depends on the number of keys, or on other queries.",
)
OVER_KEYS = "take the softmax over the last axis, the keys"


def _over(*axes: int) -> Any:
    def normalise(m: Any, case: Any, s: Array) -> Array:
        e = np.exp(s - s.max(axis=axes, keepdims=True))
        return np.asarray(e / e.sum(axis=axes, keepdims=True))

    return normalise


def _plain(function: Any) -> Any:
    """Weights by a function of the scores, hidden ones −inf."""
    return lambda m, case, s: function(s)


def _shifted(s: Array) -> tuple[Array, Array]:
    peak = s.max(axis=-1, keepdims=True)
    return np.exp(s - peak), peak


def _softmax(s: Array) -> Array:
    e, _ = _shifted(s)
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def _unnormalised(s: Array) -> Array:
    return np.exp(s)


def _plus_one(s: Array) -> Array:
    e, peak = _shifted(s)
    return np.asarray(e / (e.sum(axis=-1, keepdims=True) + np.exp(-peak)))


def _plus_one_late(s: Array) -> Array:
    e, _ = _shifted(s)
    return np.asarray(e / (e.sum(axis=-1, keepdims=True) + 1))


def _positive_part(s: Array) -> Array:
    return np.maximum(s, 0)


def _by_size(s: Array) -> Array:
    s = np.where(s == -np.inf, 0, s)
    return np.asarray(s / np.abs(s).sum(axis=-1, keepdims=True))


def _log_softmax(s: Array) -> Array:
    e, peak = _shifted(s)
    return np.where(s == -np.inf, 0, s - peak - np.log(e.sum(axis=-1, keepdims=True)))


def _largest(s: Array, k: int, cut: bool) -> Array:
    """Hide all but the k largest scores; equals of the last one stay, or are cut in the order of the keys."""
    if s.shape[-1] <= k:
        return s
    if not cut:
        return np.where(s >= np.partition(s, -k, axis=-1)[..., -k, None], s, -np.inf)
    rank = np.argsort(np.argsort(-s, axis=-1, kind="stable"), axis=-1)
    return np.where(rank < k, s, -np.inf)


def _hardest(s: Array) -> Array:
    best = s == s.max(axis=-1, keepdims=True)
    return np.asarray(best / best.sum(axis=-1, keepdims=True))


def _log_sums(s: Array) -> Array:
    e, peak = _shifted(s)
    return np.asarray((peak + np.log(e.sum(axis=-1, keepdims=True)))[..., 0])


for _name, _axes, _which in (
    ("SOFTMAX_OVER_QUERIES", (-2,), "the queries: columns sum to 1, rows do not"),
    ("SOFTMAX_OVER_HEADS", (1,), "the heads: the weights of one pair sum to 1 over the heads"),
    ("SOFTMAX_OVER_BATCH", (0,), "the batch: the weights of one pair sum to 1 over the batch"),
    ("SOFTMAX_FLATTENED", (-2, -1), "queries and keys at once: the whole matrix sums to 1"),
):
    GROUP.add(_name, f"the softmax runs over {_which}", OVER_KEYS, normalise=_over(*_axes))

GROUP.add(
    "NO_NORMALISATION",
    "the exponentials are not divided by their sum",
    "divide by the sum over the keys",
    {
        "of e^s": {"normalise": _plain(_unnormalised)},
        "of e^(s - max)": {"normalise": _plain(lambda s: _shifted(s)[0])},
    },
)
GROUP.add(
    "MEAN_NORM",
    "the exponentials are divided by the number of keys, not by their sum",
    "divide by the sum over the keys",
    {
        "of e^s": {"normalise": _plain(lambda s: np.exp(s) / s.shape[-1])},
        "of e^(s - max)": {"normalise": _plain(lambda s: _shifted(s)[0] / s.shape[-1])},
    },
)
GROUP.add(
    "SOFTMAX_PLUS_ONE",
    "the denominator has one more: e^s / (1 + sum of e^s)",
    "leave the 1 out, or offer it as a sink",
    normalise=_plain(_plus_one),
)
GROUP.add(
    "PLUS_ONE_AFTER_SHIFT",
    "1 is added to the sum after the maximum was subtracted, so that it depends on the maximum",
    "add exp(-max) where softmax-plus-one is meant, and nothing where it is not",
    normalise=_plain(_plus_one_late),
)
GROUP.add(
    "NORM_EPS",
    "a large epsilon (1e-3) is added to the sum: weights are too small",
    "the sum is at least 1 once the maximum is subtracted: leave the epsilon out",
    total=lambda m, case, e: e.sum(axis=-1, keepdims=True) + 1e-3,
)
GROUP.add(
    "SIGMOID",
    "each weight is a sigmoid of its score, not a share",
    OVER_KEYS,
    normalise=_plain(lambda s: 1 / (1 + np.exp(-s))),
)
GROUP.add("RELU", "each weight is the positive part of its score", OVER_KEYS, normalise=_plain(_positive_part))
GROUP.add("L1", "scores are divided by the sum of their sizes, without exp", OVER_KEYS, normalise=_plain(_by_size))
GROUP.add(
    "LOG_SOFTMAX",
    "the logarithms of the weights are used as weights",
    "use softmax, not log_softmax",
    normalise=_plain(_log_softmax),
)
GROUP.add(
    "SOFTMAX_TWICE",
    "softmax is applied to the weights again: they are nearly equal",
    "apply softmax once",
    normalise=lambda m, case, s: np.where(s == -np.inf, 0, _softmax(np.where(s == -np.inf, s, _softmax(s)))),
)
GROUP.add(
    "TOP_K_SILENT",
    "only the largest scores of a row have weight",
    "attend to all keys, or offer the number as an option",
    {
        f"the {k} largest{which}": {"normalise": lambda m, case, s, k=k, cut=cut: _softmax(_largest(s, k, cut))}
        for which, cut in (("", False), (", of equals the first", True))
        for k in (2, 3, 4, 5, 6, 8, 16, 32, 64, 128)
    },
    why="More weights are exactly 0 than the mask hides. Short sequences do not show it.",
)
GROUP.add("HARDMAX", "all weight goes to the largest score", "use softmax, not argmax", normalise=_plain(_hardest))
GROUP.add(
    "RETURNS_WEIGHTS",
    "the weights are returned, not the output",
    "multiply the weights with the values and return that",
    finish=lambda m, case, o, operands, s, P: P,
)
GROUP.add(
    "RETURNS_LSE",
    "the logsumexp of the scores is returned, not the output",
    "return the output",
    finish=lambda m, case, o, operands, s, P: _log_sums(s),
)
