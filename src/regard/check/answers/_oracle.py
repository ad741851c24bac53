"""Attention in float64 as a chain of small steps, so that a fault is this class with a step replaced.

`regard.reference` is the oracle of the library and reads like the formula; this one is cut where people go wrong. The
tests hold the two together.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from regard._types import Array, BoolArray
from regard.biases import Alibi

from ._case import Case


class Oracle:
    """The right answer to a case. Each method is one decision."""

    def __call__(self, case: Case) -> Array:
        """Answer a case: ``(B, H, Sq, Dv)``, or ``(B, S, E)`` for a layer."""
        with np.errstate(all="ignore"):
            return self.run(case)

    def run(self, case: Case) -> Array:
        """All steps in order."""
        W, s, keep, (q, k, v) = self.attend(case)
        P = self.drop(case, W)
        return self.finish(case, self.combine(case, P, v, keep), (q, k, v), s, P)

    def attend(self, case: Case) -> tuple[Array, Array, BoolArray, tuple[Array, Array, Array]]:
        """Weights, the scores that they come from, which pairs are kept, and the operands."""
        q, k, v = self.operands(case)
        k, v = self.share(case, q, k, v)
        s = self.shape(case, self.logits(case, q, k, v))
        keep = self.visible(case, s.shape[-2], s.shape[-1])
        s = self.hide(case, s, keep)
        return self.weights(case, s, keep), s, keep, (q, k, v)

    # Operands and heads.

    def operands(self, case: Case) -> tuple[Array, Array, Array]:
        """Query, key and value with a head axis."""
        if not case.layer:
            return case.query, case.key, case.value
        q, k, v = (self.split(case, x) for x in self.project(case))
        return q, k, v

    def project(self, case: Case) -> tuple[Array, Array, Array]:
        """Multiply x by its three matrices."""
        assert case.layer
        return case.query @ case.layer.query, case.key @ case.layer.key, case.value @ case.layer.value

    def split(self, case: Case, x: Array) -> Array:
        """(B, S, H·D) to (B, H, S, D), heads side by side in the features."""
        assert case.layer
        return x.reshape(*x.shape[:2], case.layer.heads, -1).swapaxes(1, 2)

    def share(self, case: Case, q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        """Give each query head its key and value head: neighbours share one."""
        group = q.shape[1] // k.shape[1]
        return np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)

    # Scores.

    def scale(self, case: Case, q: Array, k: Array, v: Array) -> float:
        """Factor of q · k."""
        return case.scale if case.scale is not None else 1 / math.sqrt(q.shape[-1])

    def logits(self, case: Case, q: Array, k: Array, v: Array) -> Array:
        """Scaled q · k."""
        return self.product(case, q, k) * self.scale(case, q, k, v)

    def product(self, case: Case, q: Array, k: Array) -> Array:
        """Return q · k."""
        return np.asarray(q @ k.swapaxes(-1, -2))

    def shape(self, case: Case, s: Array) -> Array:
        """Cap, then add the biases."""
        if case.softcap is not None:
            s = self.cap(case, s, case.softcap)
        return self.biased(case, s)

    def biased(self, case: Case, s: Array) -> Array:
        """Add the biases."""
        if case.alibi is not None:
            s = self.slope(case, s, case.alibi)
        return s if case.bias is None else self.add(case, s, case.bias)

    def cap(self, case: Case, s: Array, c: float) -> Array:
        """Bend the scores into (−c, c)."""
        return c * np.tanh(s / c)

    def slope(self, case: Case, s: Array, slopes: Array) -> Array:
        """Subtract a slope of each head times the distance."""
        return np.asarray(s - slopes[:, None, None] * np.abs(distance(case, *s.shape[-2:])))

    def add(self, case: Case, s: Array, bias: Array) -> Array:
        """Add the bias."""
        return s + bias

    # Which pairs are kept, and what becomes of the others.

    def visible(self, case: Case, queries: int, keys: int) -> BoolArray:
        """All that a mask, a causal rule and a window leave."""
        keep = np.ones((queries, keys), bool)
        if case.causal:
            keep = keep & self.causal(case, queries, keys)
        if case.window is not None:
            keep = keep & self.window(case, queries, keys, case.window)
        return keep if case.mask is None else keep & self.mask(case, case.mask)

    def causal(self, case: Case, queries: int, keys: int) -> BoolArray:
        """No key after the query's own."""
        return distance(case, queries, keys) <= 0

    def window(self, case: Case, queries: int, keys: int, width: int) -> BoolArray:
        """Each query sees ``width`` keys up to its own; without causal what the case says of later ones."""
        return within(case, distance(case, queries, keys), lambda d: d > -width)

    def mask(self, case: Case, mask: Array) -> BoolArray:
        """Return the mask as given."""
        return mask

    def hide(self, case: Case, s: Array, keep: BoolArray) -> Array:
        """Take hidden pairs out before the softmax."""
        return np.where(keep, s, -np.inf)

    # Weights.

    def weights(self, case: Case, s: Array, keep: BoolArray) -> Array:
        """Softmax over the keys, and what a row without keys is."""
        dead = (s == -np.inf).all(axis=-1, keepdims=True)
        return self.empty(case, self.normalise(case, s), dead)

    def normalise(self, case: Case, s: Array) -> Array:
        """Softmax over the keys; a row without keys is NaN here."""
        peak = self.peak(case, s)
        e = np.exp(s - np.where(peak == -np.inf, 0, peak))
        return np.asarray(e / self.total(case, e))

    def lse(self, case: Case, s: Array) -> Array:
        """Return the logarithm of the sum of e^s of each row."""
        peak = s.max(axis=-1)
        base = np.where(np.isneginf(peak), 0, peak)
        return np.asarray(base + np.log(np.exp(s - base[..., None]).sum(axis=-1)))

    def peak(self, case: Case, s: Array) -> Array:
        """Return what is subtracted from the scores, so that none overflows."""
        return np.asarray(s.max(axis=-1, keepdims=True, initial=-np.inf))

    def total(self, case: Case, e: Array) -> Array:
        """Return what the exponentials are divided by."""
        return np.asarray(e.sum(axis=-1, keepdims=True))

    def empty(self, case: Case, P: Array, dead: BoolArray) -> Array:
        """Let a row without keys attend nowhere."""
        return np.where(dead, np.nan if case.nan_rows else 0, P)

    def drop(self, case: Case, P: Array) -> Array:
        """Drop weights at random, and raise the others so that the mean stays."""
        if case.dropout is None:
            return P
        return np.where(chance(P.shape) < case.dropout, 0, P / (1 - case.dropout))

    # Output.

    def combine(self, case: Case, P: Array, v: Array, keep: BoolArray) -> Array:
        """Weighted sum of the values that are seen: a NaN behind the mask is not part of it."""
        if np.isfinite(v).all():
            return np.asarray(P @ v)
        spoilt = np.broadcast_to(keep, P.shape).astype(float) @ (~np.isfinite(v)).astype(float)
        return np.where(spoilt > 0, np.nan, P @ np.where(np.isfinite(v), v, 0))

    def finish(self, case: Case, o: Array, operands: tuple[Array, Array, Array], s: Array, P: Array) -> Array:
        """Return the output, of a layer after its last matrix."""
        return self.merge(case, o) @ self.last(case) if case.layer else o

    def merge(self, case: Case, o: Array) -> Array:
        """(B, H, S, D) to (B, S, H·D)."""
        return o.swapaxes(1, 2).reshape(o.shape[0], o.shape[2], -1)

    def last(self, case: Case) -> Array:
        """Return the matrix after the heads."""
        assert case.layer
        return case.layer.out


def distance(case: Case, queries: int, keys: int) -> Array:
    """Key position minus query position."""
    return np.arange(keys) - (np.arange(queries)[:, None] + (0 if case.from_start else keys - queries))


def within(case: Case, d: Array, near: Callable[[Array], BoolArray]) -> BoolArray:
    """Apply a window's rule to distances, on the sides that a window has without causal."""
    keep = near(d)
    if not case.causal and case.sides == "both":
        keep = keep & near(-d)
    return keep & (d <= 0) if not case.causal and case.sides == "left" else keep


def paper_slopes(heads: int) -> Array:
    """Slopes of ALiBi for a number of heads (arXiv 2108.12409, section 3)."""
    return Alibi(heads).slopes


def chance(shape: tuple[int, ...]) -> Array:
    """Uniform numbers, the same at each call."""
    return np.random.default_rng(5).random(shape)


RIGHT = Oracle()
