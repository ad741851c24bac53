"""A problem: shapes, mask and bias; its arrays, and its exact answer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from regard import reference
from regard._cached import cached_attribute
from regard._libraries import bfloat16
from regard._types import Array, IntArray

from ._covers import Added, dense

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
    with the exact answer, evenly spaced; 0 is all of them. `by_token` asks for a causal answer in as many calls as
    there are queries, the keys growing by one at each. `peers` and `goals` are for who runs it.
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
    by_token: bool = False
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

    @cached_attribute
    def flops(self) -> int:
        """Of both products, over the pairs that the mask keeps."""
        batch, heads, queries, size = self.query
        keys = self.key[2]
        pairs = batch * queries * keys if self.mask is None else self.mask.pairs(batch, queries, keys)
        return int(4 * heads * pairs * size)

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
            "bias": None if self.bias is None else repr(self.bias), "target": self.target, "by_token": self.by_token,
        }  # fmt: skip

    def own(self) -> dict[str, Any]:
        """Give regard's mask and bias, as options of its call."""
        covers = {"mask": self.mask, "bias": self.bias}
        return {name: cover.own() for name, cover in covers.items() if cover is not None}

    def spelled_out(self, cover: Any) -> Array | None:
        """Write the mask or bias out over all pairs, with axes of size 1 where all are alike; None stays None."""
        return None if cover is None else dense(cover, *self.lengths)

    def added(self) -> Array | None:
        """Write mask and bias out as one array to add to the scores, in the query's dtype; None if there is neither."""
        both = self.mask, self.bias
        return None if both == (None, None) else dense(Added(*both, DTYPES[self.dtype]), *self.lengths)

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
            bias = None if self.bias is None else self.bias.rows(some, keys)
            mask = None if self.mask is None else self.mask.rows(some, keys)
            parts.append(reference.attention(given.q[:, :, some], given.k, given.v, mask=mask, bias=bias))
        return np.concatenate(parts, axis=2)

    def token(self, keys: int) -> Problem:
        """Give the call of one query that sees so many keys."""
        query, key = ((*shape[:2], length, shape[3]) for shape, length in ((self.query, 1), (self.key, keys)))
        return replace(self, query=query, key=key, mask=None, by_token=False)

    def steps(self, given: Given) -> Iterator[tuple[Problem, Given]]:
        """Give the calls that it is made of, each with its arrays: itself, or with `by_token` one for each query."""
        if not self.by_token:
            yield self, given
            return
        for n in range(1, self.lengths[0] + 1):
            yield self.token(n), Given(given.q[:, :, n - 1 : n], given.k[:, :, :n], given.v[:, :, :n])
