"""Gradients of attention in float64 as a chain of small steps, so that a fault is this class with a step replaced.

`regard.reference.attention_backward` is the oracle of the library and reads like the formula; this one is cut where
people go wrong, as `regard.check.answers._oracle` is. The tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from regard._types import Array, BoolArray
from regard.check.answers._case import Case
from regard.check.answers._oracle import RIGHT

from ._layer import layer_gradients

# By what they belong to: "query", "key", "value", and "bias" of a case that has one; of a layer "x", "wq", "wk", ...
Gradients: TypeAlias = Mapping[str, Array]
SHORT = {"query": "dq", "key": "dk", "value": "dv", "bias": "dbias",
         "x": "dx", "wq": "dwq", "wk": "dwk", "wv": "dwv", "wo": "dwo"}  # fmt: skip


class Partial(dict[str, Array]):
    """Gradients without those that the way back says are none: ``cut`` names what these belong to."""

    def __init__(self, found: Gradients, cut: tuple[str, ...]) -> None:
        super().__init__(found)
        self.cut = cut


@dataclass(frozen=True, eq=False)
class Forward:
    """What the way back needs of the way there; each query head has a key and value head of its own.

    ``s`` are the scores as the softmax gets them, ``slope`` is the derivative of the softcap, 1 where there is none.
    """

    q: Array
    k: Array
    v: Array
    s: Array
    keep: BoolArray
    P: Array
    scale: float
    slope: Array


class GradientOracle:
    """The right gradients of a case. Each method is one decision."""

    def __call__(self, case: Case, grad_out: Array) -> Gradients:
        """Go back from the gradient of the output, ``(B, H, Sq, Dv)``, or ``(B, S, E)`` of a layer."""
        with np.errstate(all="ignore"):
            return layer_gradients(self.run, case, grad_out) if case.layer else self.run(case, grad_out)

    def run(self, case: Case, dO: Array) -> Gradients:
        """All steps of attention in order."""
        f = self.forward(case)
        dP = self.weights(case, f, dO)
        added = self.scores(case, f, dP, self.delta(case, f, dP))
        dS = self.uncap(case, f, added)
        found = {
            "query": self.query(case, f, dS),
            "key": self.gather(case, self.key(case, f, dS)),
            "value": self.gather(case, self.value(case, f, dO)),
        }
        if case.bias is not None:
            found["bias"] = self.bias(case, f, added, case.bias)
        return self.finish(case, found)

    def forward(self, case: Case) -> Forward:
        """Compute again what the output was made of."""
        q, k, v = RIGHT.operands(case)
        k, v = RIGHT.share(case, q, k, v)
        x = RIGHT.logits(case, q, k, v)
        slope = np.ones(()) if case.softcap is None else 1 - np.tanh(x / case.softcap) ** 2
        s = RIGHT.shape(case, x)
        keep = RIGHT.visible(case, s.shape[-2], s.shape[-1])
        P = self.probabilities(replace(case, nan_rows=False), s, keep)
        return Forward(q, k, v, s, keep, P, RIGHT.scale(case, q, k, v), slope)

    def probabilities(self, case: Case, s: Array, keep: BoolArray) -> Array:
        """Return the weights of the forward pass."""
        return RIGHT.weights(case, RIGHT.hide(case, s, keep), keep)

    # From the output to the scores.

    def weights(self, case: Case, f: Forward, dO: Array) -> Array:
        """Through O = P V to the weights."""
        return np.asarray(dO @ f.v.swapaxes(-1, -2))

    def delta(self, case: Case, f: Forward, dP: Array) -> Array:
        """Return what the sum of a row takes back: the mean of dP under the row's weights."""
        return np.asarray((f.P * dP).sum(axis=-1, keepdims=True))

    def scores(self, case: Case, f: Forward, dP: Array, delta: Array) -> Array:
        """Through the softmax."""
        return np.asarray(f.P * (dP - delta))

    def uncap(self, case: Case, f: Forward, dS: Array) -> Array:
        """Through the softcap."""
        return np.asarray(dS * f.slope)

    # To the operands.

    def query(self, case: Case, f: Forward, dS: Array) -> Array:
        """Each query gathers from the keys that it sees."""
        return np.asarray(self.query_scale(case, f) * (dS @ f.k))

    def key(self, case: Case, f: Forward, dS: Array) -> Array:
        """Each key gathers from the queries that see it."""
        return np.asarray(self.key_scale(case, f) * (dS.swapaxes(-1, -2) @ f.q))

    def query_scale(self, case: Case, f: Forward) -> float:
        """Factor on the way to the queries."""
        return f.scale

    def key_scale(self, case: Case, f: Forward) -> float:
        """Factor on the way to the keys."""
        return f.scale

    def value(self, case: Case, f: Forward, dO: Array) -> Array:
        """Each value gathers from the queries that see it."""
        return np.asarray(f.P.swapaxes(-1, -2) @ dO)

    def gather(self, case: Case, x: Array) -> Array:
        """Sum over the query heads that share a key and value head."""
        return np.asarray(members(case, x).sum(axis=2))

    def bias(self, case: Case, f: Forward, dS: Array, bias: Array) -> Array:
        """Sum over what shares an entry of the bias."""
        return np.asarray(dS.sum(axis=shared_axes(dS, bias), keepdims=True))

    def finish(self, case: Case, found: dict[str, Array]) -> Gradients:
        """Return them by name."""
        return found


def members(case: Case, x: Array) -> Array:
    """Split the query heads: ``(B, Hkv, group, S, D)``."""
    return x.reshape(x.shape[0], case.key.shape[1], -1, *x.shape[2:])


def shared_axes(dS: Array, bias: Array) -> tuple[int, ...]:
    """Axes along which a bias is broadcast over the scores."""
    return tuple(axis for axis, (n, full) in enumerate(zip(bias.shape, dS.shape, strict=True)) if n != full)


RIGHT_GRADIENTS = GradientOracle()
