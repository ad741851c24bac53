"""The catalogue of faults of gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard._types import Array
from regard.check.answers._fault import Fault, Group, Steps, planted
from regard.check.answers._oracle import RIGHT

from ._oracle import RIGHT_GRADIENTS, Forward, GradientOracle, members, shared_axes

GROUP = Group(
    "gradients",
    "The output is right and training is not: losses fall slowly, or not at all, and no test of the output sees why.",
)
FACTOR = "dq = scale * ds @ k and dk = scale * ds.T @ q, once each: scale belongs to both products"
SOFTMAX = "ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True)), with the sum over the keys"
PRODUCTS = "dv = p.T @ do, dp = do @ v.T, dq = scale * ds @ k, dk = scale * ds.T @ q"
SUM = "sum over the query heads that share a key head: dk.reshape(B, Hkv, Hq // Hkv, S, D).sum(axis=2)"
BIAS = "the bias is added: its gradient is ds as it is, summed over the axes along which the bias was broadcast"


def _delta(change: Any) -> Steps:
    return {"delta": lambda m, case, f, dP: change(f.P, dP)}


def _scores(change: Any) -> Steps:
    return {"scores": lambda m, case, f, dP, delta: change(f.P, dP, delta)}


def _scales(query: float | None, key: float | None) -> Steps:
    """Powers of the scale; None: as it is right."""
    powers = {"query_scale": query, "key_scale": key}
    return {name: _power(power) for name, power in powers.items() if power is not None}


def _power(power: float) -> Any:
    return lambda m, case, f: f.scale**power


def _finish(change: Any) -> Steps:
    return {"finish": lambda m, case, found: {name: change(name, x) for name, x in found.items()}}


def _cut(*names: str) -> Steps:
    return _finish(lambda name, x: np.zeros_like(x) if name in names else x)


GROUP.add("DQ_NO_SCALE", "the gradient of the queries lacks the scale", FACTOR, {"": _scales(0, None)})
GROUP.add("DK_NO_SCALE", "the gradient of the keys lacks the scale", FACTOR, {"": _scales(None, 0)})
GROUP.add("BOTH_NO_SCALE", "the gradients of queries and keys lack the scale", FACTOR, {"": _scales(0, 0)})
GROUP.add("BOTH_TWICE", "the gradients of queries and keys have the scale twice", FACTOR, {"": _scales(2, 2)})
GROUP.add(
    "NO_DELTA",
    "the softmax is gone back through as if its sum were a constant: ds = p * dp",
    SOFTMAX,
    {"": _delta(lambda P, dP: np.zeros(()))},
)
GROUP.add(
    "DELTA_MEAN",
    "what the sum takes back is divided by the number of keys",
    SOFTMAX,
    {"": _delta(lambda P, dP: (P * dP).mean(axis=-1, keepdims=True))},
)
GROUP.add(
    "DELTA_UNWEIGHTED",
    "what the sum takes back does not count the keys by their weights",
    SOFTMAX,
    {
        "a plain sum": _delta(lambda P, dP: dP.sum(axis=-1, keepdims=True)),
        "a plain mean": _delta(lambda P, dP: dP.mean(axis=-1, keepdims=True)),
    },
)
GROUP.add(
    "DELTA_WRONG_AXIS",
    "what the sum takes back is summed over the queries",
    SOFTMAX,
    {"": _delta(lambda P, dP: (P * dP).sum(axis=-2, keepdims=True))},
)
GROUP.add(
    "JACOBIAN_DIAGONAL",
    "of the softmax's derivative only the diagonal is used: ds = p * (1 - p) * dp",
    SOFTMAX,
    {"": _scores(lambda P, dP, delta: P * (1 - P) * dP)},
)
GROUP.add(
    "NO_JACOBIAN",
    "the softmax is left out on the way back: ds = dp",
    SOFTMAX,
    {"": _scores(lambda P, dP, delta: dP), "but with the mask": _scores(lambda P, dP, delta: np.where(P > 0, dP, 0))},
)
GROUP.add(
    "P_SQUARED",
    "the weights are multiplied in twice",
    SOFTMAX,
    {"": _scores(lambda P, dP, delta: P * P * (dP - delta))},
)
GROUP.add(
    "MAX_NOT_DETACHED",
    "the maximum that is subtracted for safety gets a gradient, which reaches the largest score",
    SOFTMAX + ": the maximum cancels, and has no gradient",
    scores=lambda m, case, f, dP, delta: f.P * (dP - delta) - np.where(_is_largest(f), delta, 0),
)
GROUP.add(
    "JACOBIAN_SIGN",
    "the gradient of the scores has the wrong sign: queries and keys move away from what would help",
    SOFTMAX,
    {"": _scores(lambda P, dP, delta: P * (delta - dP))},
)
GROUP.add("NEGATED", "every gradient has the wrong sign", PRODUCTS, {"": _finish(lambda name, x: -x)})
GROUP.add(
    "DV_USES_P_NOT_PT",
    "the gradient of the values uses the weights, not their transpose",
    PRODUCTS,
    value=lambda m, case, f, dO: f.P @ dO,
)
GROUP.add(
    "DK_NO_TRANSPOSE",
    "the gradient of the keys uses ds, not its transpose",
    PRODUCTS,
    key=lambda m, case, f, dS: m.key_scale(case, f) * (dS @ f.q),
)
GROUP.add(
    "DQ_USES_Q",
    "the gradient of the queries is made with the queries, not the keys",
    PRODUCTS,
    query=lambda m, case, f, dS: m.query_scale(case, f) * (dS @ f.q),
)
GROUP.add(
    "DQ_DK_SWAPPED",
    "the gradients of queries and keys are returned in each other's place",
    "return dq, dk, dv in the order of the operands",
    finish=lambda m, case, found: {**found, "query": found["key"], "key": found["query"]},
)
GROUP.add(
    "DETACHED",
    "no gradient arrives: it is 0",
    "keep every operand in the chain: no detach, no copy into a constant, no stop_gradient",
    {
        "of queries and keys": _cut("query", "key"),
        "of anything before the softmax": _cut("query", "key", "bias"),
        "of the queries": _cut("query"),
        "of the keys": _cut("key"),
        "of the values": _cut("value"),
        "of the bias": _cut("bias"),
    },
)
GROUP.add(
    "GQA_MEAN",
    "where query heads share a key head, its gradient is their mean, not their sum",
    SUM,
    gather=lambda m, case, x: members(case, x).mean(axis=2),
)
GROUP.add(
    "GQA_LAST",
    "where query heads share a key head, its gradient is that of one of them: the others are written over",
    SUM,
    {
        "the last": {"gather": lambda m, case, x: members(case, x)[:, :, -1]},
        "the first": {"gather": lambda m, case, x: members(case, x)[:, :, 0]},
    },
)
GROUP.add(
    "MASK_NOT_IN_BACKWARD",
    "the mask is left out on the way back: hidden keys and values get a gradient",
    "make the weights with the mask again, or keep those of the forward pass",
    {
        "weights are normalised anew": {"probabilities": lambda m, case, s, keep: RIGHT.normalise(case, s)},
        "weights are made with the logsumexp of the forward pass": {
            "probabilities": lambda m, case, s, keep: _with_old_logsumexp(case, s, keep)
        },
    },
)
GROUP.add(
    "SOFTCAP_DERIVATIVE_MISSING",
    "the softcap is left out on the way back",
    "ds *= 1 - np.tanh(s / cap) ** 2, with the scores before the cap, before dq and dk",
    uncap=lambda m, case, f, dS: dS,
)
GROUP.add(
    "DBIAS_NOT_REDUCED",
    "the gradient of the bias has the shape of the scores, not of the bias",
    BIAS,
    bias=lambda m, case, f, dS, bias: dS,
)
GROUP.add(
    "DBIAS_MEAN",
    "the gradient of the bias is a mean over what shares an entry, not a sum",
    BIAS,
    bias=lambda m, case, f, dS, bias: dS.mean(axis=shared_axes(dS, bias), keepdims=True),
)
GROUP.add(
    "DBIAS_SCALED",
    "the gradient of the bias is multiplied by the scale",
    BIAS,
    bias=lambda m, case, f, dS, bias: f.scale * RIGHT_GRADIENTS.bias(case, f, dS, bias),
)


def _is_largest(f: Forward) -> Array:
    s = np.where(f.keep, f.s, -np.inf)
    return np.asarray(s == s.max(axis=-1, keepdims=True))


def _with_old_logsumexp(case: Any, s: Array, keep: Array) -> Array:
    hidden = RIGHT.hide(case, s, keep)
    peak = RIGHT.peak(case, hidden)
    return np.asarray(np.exp(s - peak) / np.exp(hidden - peak).sum(axis=-1, keepdims=True))


CATALOGUE: tuple[Fault, ...] = tuple(GROUP.faults)


def gradient_model(*steps: Steps) -> GradientOracle:
    """Return the oracle of gradients with the steps of one or more faults."""
    return planted(GradientOracle, *steps)
