"""A problem: shapes, mask and bias; its arrays, and its exact answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from regard import reference
from regard._libraries import bfloat16
from regard._types import Array, IntArray

from ._covers import dense

DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": bfloat16(),
}


class Given(NamedTuple):
    """What every contestant of a problem is given."""

    q: Array
    k: Array
    v: Array


@dataclass(frozen=True)
class Problem:
    """What is asked of every contestant.

    Shapes are (batch, heads, length, head size). `repeat` calls are timed as one, where one alone is too short for the
    clock. `target` is an instruction set that regard is held to. `checked` is how many rows of each head are compared
    with the exact answer, evenly spaced; 0 is all of them. `peers` and `goals` are for who runs it.
    """

    name: str
    reason: str
    query: tuple[int, ...]
    key: tuple[int, ...]
    dtype: str = "float32"
    mask: Any = None
    bias: Any = None
    threads: int = 1
    target: str | None = None
    repeat: int = 1
    checked: int = 0
    peers: tuple[str, ...] = ()
    goals: tuple[Any, ...] = ()

    @property
    def group(self) -> int:
        """Query heads per kv head."""
        return self.query[1] // self.key[1]

    @property
    def lengths(self) -> tuple[int, int]:
        """Queries and keys."""
        return self.query[2], self.key[2]

    @cached_property
    def flops(self) -> int:
        """Of both products, over the pairs that the mask keeps."""
        queries, keys = self.lengths
        pairs = queries * keys if self.mask is None else self.mask.pairs(queries, keys)
        return int(4 * self.query[0] * self.query[1] * pairs * self.query[3])

    @property
    def bytes_of_kv(self) -> int:
        """Of keys and values."""
        return int(2 * math.prod(self.key) * DTYPES[self.dtype].itemsize)

    @property
    def facts(self) -> dict[str, Any]:
        """What of it belongs into the file of a run."""
        return {
            "query": list(self.query), "key": list(self.key), "dtype": self.dtype, "threads": self.threads,
            "mask": None if self.mask is None else repr(self.mask),
            "bias": None if self.bias is None else repr(self.bias), "target": self.target,
        }  # fmt: skip

    def spelled_out(self, cover: Any) -> Array | None:
        """Write the mask or bias out over all pairs; None stays None."""
        return None if cover is None else dense(cover, *self.lengths)

    @property
    def looked_at(self) -> IntArray:
        """Queries whose rows are compared with the exact answer."""
        queries = self.lengths[0]
        return np.unique(np.linspace(0, queries - 1, self.checked or queries).astype(np.int64))

    def draw(self, seed: int = 0) -> Given:
        """Random normal numbers. Zeros would be faster than any user's: clocks depend on the bits that change."""
        rng = np.random.default_rng(seed)
        shapes = self.query, self.key, self.key
        return Given(*(rng.standard_normal(shape, dtype=np.float32).astype(DTYPES[self.dtype]) for shape in shapes))

    def exact(self, given: Given) -> Array:
        """Compute it in float64 at the rows that are looked at, some at a time so that the scores fit."""
        keys, rows = self.lengths[1], self.looked_at
        step = max(1, 2**24 // (self.query[0] * self.query[1] * keys))
        parts = []
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            bias = None if self.bias is None else self.bias.rows(some, keys)[None]
            mask = None if self.mask is None else self.mask.rows(some, keys)
            parts.append(reference.attention(given.q[:, :, some], given.k, given.v, mask=mask, bias=bias))
        return np.concatenate(parts, axis=2)
