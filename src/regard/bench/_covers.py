"""Masks and biases of problems: for regard, as formulas for others, and spelled out.

What is spelled out is written here from the definition, not taken from `regard.masks`, so that it judges that too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from regard import biases, masks
from regard._cached import cached_attribute
from regard._types import Array, BoolArray, IntArray

# Of a batch entry, a head, a query and a key.
Rule = Callable[[Any, Any, Any, Any], Any]
# Rows of queries that are spelled out at a time, so that what is made on the way stays small.
_STEP = 256


class Spelled(Protocol):
    """What can be spelled out over the scores: with their four axes, of size 1 where all are alike."""

    def rows(self, rows: IntArray, keys: int) -> Array:
        """Spell out the rows of these queries."""


class Cover(Spelled, Protocol):
    """What lies over the scores."""

    def own(self) -> Any:
        """Give what regard is asked with."""


class Ruled:
    """A mask with a rule on indices: what flex_attention wants."""

    def rule(self, array: Callable[[Any], Any] = np.asarray) -> Rule:
        """Give the function that tells what is kept; `array` makes the arrays that it looks into."""
        raise NotImplementedError

    def rows(self, rows: IntArray, keys: int) -> BoolArray:
        """Spell out the rows of these queries."""
        kept = self.rule()(0, 0, rows[:, None], np.arange(keys))
        return np.asarray(np.broadcast_to(kept, (len(rows), keys)))[None, None]


@dataclass(frozen=True)
class Causal(Ruled):
    """A query keeps the keys up to its own position."""

    def own(self) -> masks.Mask:
        """Give regard's."""
        return masks.Causal()

    def rule(self, array: Callable[[Any], Any] = np.asarray) -> Rule:
        """Give the function that tells what is kept."""
        return lambda b, h, i, j: j <= i

    def pairs(self, batch: int, queries: int, keys: int) -> int:
        """Count what is kept of one head."""
        return batch * int(np.minimum(np.arange(1, queries + 1), keys).sum())


@dataclass(frozen=True)
class Window(Ruled):
    """A query keeps so many keys, the last of which is at its own position."""

    size: int

    def own(self) -> masks.Mask:
        """Give regard's."""
        return masks.Window(left=self.size - 1, right=0)

    def rule(self, array: Callable[[Any], Any] = np.asarray) -> Rule:
        """Give the function that tells what is kept."""
        return lambda b, h, i, j: (j <= i) & (j > i - self.size)

    def pairs(self, batch: int, queries: int, keys: int) -> int:
        """Count what is kept of one head."""
        ends = np.arange(1, queries + 1)
        return batch * int((np.minimum(ends, keys) - np.clip(ends - self.size, 0, keys)).sum())


@dataclass(frozen=True)
class Lengths(Ruled):
    """Keys from a batch entry's length on are padding."""

    lengths: tuple[int, ...]

    def own(self) -> masks.Mask:
        """Give regard's."""
        return masks.KeyLengths(self.lengths)

    def rule(self, array: Callable[[Any], Any] = np.asarray) -> Rule:
        """Give the function that tells what is kept."""
        lengths = array(self.lengths)
        return lambda b, h, i, j: j < lengths[b]

    def rows(self, rows: IntArray, keys: int) -> BoolArray:
        """Spell out one row, since those of all queries are alike."""
        return np.asarray(np.arange(keys) < np.array(self.lengths)[:, None, None, None])

    def pairs(self, batch: int, queries: int, keys: int) -> int:
        """Count what is kept of one head."""
        return queries * sum(min(n, keys) for n in self.lengths)


@dataclass(frozen=True)
class Random:
    """An array of the user's: each pair is kept with this probability."""

    keep: float
    queries: int
    keys: int

    @cached_attribute
    def array(self) -> BoolArray:
        """Draw it, once."""
        return np.random.default_rng(7).random((self.queries, self.keys), dtype=np.float32) < self.keep

    def own(self) -> BoolArray:
        """Give the array."""
        return self.array

    def rows(self, rows: IntArray, keys: int) -> BoolArray:
        """Take the rows of these queries."""
        return self.array[None, None, rows]

    def pairs(self, batch: int, queries: int, keys: int) -> int:
        """Count what is kept of one head."""
        return batch * int(np.count_nonzero(self.array))


@dataclass(frozen=True)
class Alibi:
    """-2^(-8 (h + 1) / heads) |i - j|, with a power of two of heads."""

    heads: int

    def own(self) -> biases.Bias:
        """Give regard's."""
        return biases.Alibi(self.heads)

    def rule(self, array: Callable[[Any], Any] = np.asarray) -> Rule:
        """Give the function that tells the bias; `array` makes the array of slopes."""
        slopes = array(2.0 ** (-8 * np.arange(1, self.heads + 1, dtype=np.float32) / self.heads))
        return lambda b, h, i, j: -slopes[h] * abs(i - j)

    def rows(self, rows: IntArray, keys: int) -> Array:
        """Spell out the rows of these queries."""
        heads = np.arange(self.heads)[:, None, None]
        return np.asarray(self.rule()(0, heads, rows[:, None], np.arange(keys))).astype(np.float32)[None]


@dataclass(frozen=True)
class Added:
    """Bias and mask as one array to add, minus infinity where a pair is dropped: what others take."""

    mask: Cover | None
    bias: Cover | None
    dtype: np.dtype[Any]

    def rows(self, rows: IntArray, keys: int) -> Array:
        """Spell out the rows of these queries."""
        bias = np.float32(0) if self.bias is None else self.bias.rows(rows, keys)
        kept = np.True_ if self.mask is None else self.mask.rows(rows, keys)
        return np.where(kept, bias, np.float32(-np.inf)).astype(self.dtype)


def dense(cover: Spelled, queries: int, keys: int) -> Array:
    """Spell out the whole."""
    first = cover.rows(np.arange(min(queries, _STEP)), keys)
    if first.shape[2] in (1, queries):
        return first
    whole = np.empty((*first.shape[:2], queries, keys), first.dtype)
    for start in range(0, queries, _STEP):
        some = np.arange(start, min(start + _STEP, queries))
        whole[:, :, some[0] : some[-1] + 1] = cover.rows(some, keys)
    return whole
