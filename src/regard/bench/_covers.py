"""Masks and biases of problems: for regard, as formulas for others, and spelled out.

What is spelled out is written here from the definition, not taken from `regard.masks`, so that it judges that too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from regard import biases, masks
from regard._types import Array, BoolArray, IntArray


class Cover(Protocol):
    """What lies over the scores: `own` is regard's, `rows` spells out some rows of queries."""

    def own(self) -> Any:
        """Give what regard is asked with."""

    def rows(self, rows: IntArray, keys: int) -> Array:
        """Spell out the rows of these queries."""


class Ruled:
    """A mask with a rule on index arrays: what flex_attention wants."""

    def rule(self, i: Any, j: Any) -> Any:
        """Tell whether query i keeps key j."""
        raise NotImplementedError

    def rows(self, rows: IntArray, keys: int) -> BoolArray:
        """Spell out the rows of these queries."""
        kept = self.rule(rows[:, None], np.arange(keys))
        return np.asarray(np.broadcast_to(kept, (len(rows), keys)))

    def pairs(self, queries: int, keys: int) -> int:
        """Count what is kept, some rows at a time."""
        steps = (np.arange(i, min(i + 1024, queries)) for i in range(0, queries, 1024))
        return sum(int(np.count_nonzero(self.rows(step, keys))) for step in steps)


@dataclass(frozen=True)
class Causal(Ruled):
    """A query keeps the keys up to its own position."""

    def own(self) -> masks.Mask:
        """Give regard's."""
        return masks.Causal()

    def rule(self, i: Any, j: Any) -> Any:
        """Tell whether query i keeps key j."""
        return j <= i

    def pairs(self, queries: int, keys: int) -> int:
        """Count what is kept."""
        return int(np.minimum(np.arange(1, queries + 1), keys).sum())


@dataclass(frozen=True)
class Window(Ruled):
    """A query keeps so many keys, the last of which is at its own position."""

    size: int

    def own(self) -> masks.Mask:
        """Give regard's."""
        return masks.Window(left=self.size - 1, right=0)

    def rule(self, i: Any, j: Any) -> Any:
        """Tell whether query i keeps key j."""
        return (j <= i) & (j > i - self.size)

    def pairs(self, queries: int, keys: int) -> int:
        """Count what is kept."""
        ends = np.arange(1, queries + 1)
        return int((np.minimum(ends, keys) - np.clip(ends - self.size, 0, keys)).sum())


@dataclass(frozen=True)
class Lengths(Ruled):
    """Keys from n on are padding."""

    n: int

    def own(self) -> masks.Mask:
        """Give regard's."""
        return masks.KeyLengths(self.n)

    def rule(self, i: Any, j: Any) -> Any:
        """Tell whether query i keeps key j."""
        return j < self.n

    def pairs(self, queries: int, keys: int) -> int:
        """Count what is kept."""
        return queries * min(self.n, keys)


@dataclass(frozen=True)
class Random:
    """An array of the user's: each pair is kept with this probability."""

    keep: float
    queries: int
    keys: int

    def own(self) -> BoolArray:
        """Give the array."""
        return np.random.default_rng(7).random((self.queries, self.keys), dtype=np.float32) < self.keep

    def rows(self, rows: IntArray, keys: int) -> BoolArray:
        """Take the rows of these queries."""
        return np.asarray(self.own()[rows])

    def pairs(self, queries: int, keys: int) -> int:
        """Count what is kept."""
        return int(np.count_nonzero(self.own()))


@dataclass(frozen=True)
class Alibi:
    """-2^(-8 (h + 1) / heads) |i - j|, with a power of two of heads."""

    heads: int

    def own(self) -> biases.Bias:
        """Give regard's."""
        return biases.Alibi(self.heads)

    def rows(self, rows: IntArray, keys: int) -> Array:
        """Spell out the rows of these queries."""
        slopes = 2.0 ** (-8 * np.arange(1, self.heads + 1, dtype=np.float32) / self.heads)
        away = np.abs(rows[:, None] - np.arange(keys)).astype(np.float32)
        return np.asarray((-slopes)[:, None, None] * away)


def dense(cover: Cover, queries: int, keys: int) -> Array:
    """Spell out the whole."""
    return cover.rows(np.arange(queries), keys)
