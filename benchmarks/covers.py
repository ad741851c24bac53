"""Masks and biases of the problems: for regard, as formulas for others, and spelled out.

What is spelled out is written here from the definition, not taken from regard, so that it judges regard's too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import regard as rg


@dataclass(frozen=True)
class Causal:
    """A query keeps the keys up to its own position."""

    def own(self):
        return rg.Causal()

    def dense(self, queries, keys):
        return np.tri(queries, keys, dtype=bool)

    def rule(self, i, j):
        return j <= i


@dataclass(frozen=True)
class Window:
    """A query keeps so many keys, the last of which is at its own position."""

    size: int

    def own(self):
        return rg.Window(left=self.size - 1, right=0)

    def dense(self, queries, keys):
        i, j = np.arange(queries)[:, None], np.arange(keys)
        return self.rule(i, j)

    def rule(self, i, j):
        return (j <= i) & (j > i - self.size)


@dataclass(frozen=True)
class Lengths:
    """Keys from n on are padding."""

    n: int

    def own(self):
        return rg.KeyLengths(self.n)

    def dense(self, queries, keys):
        return np.broadcast_to(np.arange(keys) < self.n, (queries, keys))

    def rule(self, i, j):
        return j < self.n


@dataclass(frozen=True)
class Random:
    """An array of the user's: each pair is kept with this probability."""

    keep: float
    queries: int
    keys: int

    def own(self):
        return self.dense(self.queries, self.keys)

    def dense(self, queries, keys):
        return np.random.default_rng(7).random((queries, keys), dtype=np.float32) < self.keep


@dataclass(frozen=True)
class Alibi:
    """-2^(-8 (h + 1) / heads) |i - j|, with a power of two of heads."""

    heads: int

    def own(self):
        return rg.Alibi(self.heads)

    def dense(self, queries, keys):
        slopes = 2.0 ** (-8 * np.arange(1, self.heads + 1, dtype=np.float32) / self.heads)
        away = np.abs(np.arange(queries)[:, None] - np.arange(keys)).astype(np.float32)
        return (-slopes)[:, None, None] * away


def as_mask(given, queries, keys):
    """A mask of what problems.toml says."""
    match given:
        case None:
            return None
        case "causal":
            return Causal()
        case {"window": size}:
            return Window(size)
        case {"lengths": n}:
            return Lengths(n)
        case {"random": keep}:
            return Random(keep, queries, keys)
    raise ValueError(f"mask = {given!r}; it is 'causal', or one of window, lengths and random with a number")


def as_bias(given, heads):
    """A bias of what problems.toml says."""
    if given not in (None, "alibi"):
        raise ValueError(f"bias = {given!r}; it is 'alibi'")
    return Alibi(heads) if given else None
