"""Shapes that must fit together, and the ways out where they do not."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import SupportsIndex

import numpy as np

from regard._errors import ShapeError, written
from regard._fit import MAX_SIZE
from regard._types import as_int

Shape = tuple[int, ...]


def as_shape(name: str, shape: Iterable[SupportsIndex]) -> Shape:
    """Return a shape of plain integers: 11.0 would be found in the cache as 11."""
    sizes = []
    for given in shape:
        size = as_int(given)
        if size is None or not 0 <= size <= MAX_SIZE:
            raise ShapeError(f"{name} has shape {written(shape)}; a shape is made of integers, 0 to 2**63 - 1")
        sizes.append(size)
    return tuple(sizes)


MAX_AXES = 32  # of NumPy 1
MAX_HEADS = 2**31  # offsets of all heads lie in memory
MAX_PAIRS = 2**62  # counted in 64 bits


def most_keys(total_heads: int, queries: int) -> int:
    """Tell how many keys `check_lengths` lets so many heads and queries have."""
    return MAX_PAIRS // max(1, total_heads * queries)


def check_lengths(query: Shape, key: Shape, value: Shape, lead: Shape, heads: int) -> None:
    """Raise ShapeError unless key and value have one length, or if there are more heads or scores than are counted."""
    queries, keys = query[-2], key[-2]
    if keys != value[-2]:
        raise ShapeError(
            f"key has {keys} rows and value has {value[-2]} (shapes {key} and {value}): there is one value per key"
        )
    total = math.prod(lead) * heads
    if total > MAX_HEADS or total * queries * keys > MAX_PAIRS:
        raise ShapeError(
            f"the scores have shape {(*lead, heads, queries, keys)}; up to 2**31 heads of all batch entries and 2**62 "
            "scores are computed in one call: split it"
        )


def check_ranks(query: Shape, key: Shape, value: Shape) -> None:
    """Raise ShapeError unless each has at least two axes, and no more than arrays have."""
    for name, shape in (("query", query), ("key", key), ("value", value)):
        if len(shape) < 2:
            raise ShapeError(
                f"{name} has shape {shape}; it needs at least two axes, (S, D) for one head or (..., H, S, D)"
            )
        if len(shape) > MAX_AXES:
            raise ShapeError(f"{name} has {len(shape)} axes; it may have {MAX_AXES}: join leading axes by reshape")


def broadcast_lead(query: Shape, key: Shape, value: Shape) -> Shape:
    """Return the common leading axes, those before (heads, S, D)."""
    if query[:-3] == key[:-3] == value[:-3]:
        return query[:-3]
    try:
        return np.broadcast_shapes(query[:-3], key[:-3], value[:-3])
    except ValueError:
        raise ShapeError(
            f"the leading (batch) axes of query {query[:-3]}, key {key[:-3]} and value {value[:-3]} do not "
            "broadcast; axes are (..., heads, S, D), and each leading axis must be equal or 1"
        ) from None


def check_heads(query: Shape, key: Shape, value: Shape) -> tuple[int, int]:
    """Return the numbers of query heads and kv heads."""
    (heads,), (kv_heads,), (value_heads,) = query[-3:-2] or (1,), key[-3:-2] or (1,), value[-3:-2] or (1,)
    if kv_heads != value_heads:
        raise ShapeError(
            f"key has {kv_heads} heads and value has {value_heads} (shapes {key} and {value}): make them equal"
        )
    if heads % kv_heads if kv_heads else heads:
        raise ShapeError(
            f"query has {heads} heads and key has {kv_heads}: grouped heads need a multiple, and {heads} is no "
            f"multiple of {kv_heads}; query head h reads kv head h // (Hq // Hkv). "
            "If the axes are (B, S, H, D), pass x.swapaxes(-3, -2)"
        )
    return heads, kv_heads


# A block of transposed queries is addressed with 32 bits.
MAX_WIDTH = 2**24


def check_widths(query: Shape, key: Shape, value: Shape) -> None:
    """Raise ShapeError unless query and key have one head size, and no head size is too large."""
    for name, shape in (("query", query), ("value", value)):
        if shape[-1] > MAX_WIDTH:
            raise ShapeError(f"{name} has head size {shape[-1]} (shape {shape}); head sizes go up to {MAX_WIDTH}")
    if key[-1] != query[-1]:
        raise ShapeError(
            f"query has head size {query[-1]} and key has {key[-1]} (shapes {query} and {key}): "
            "the last axes must be equal, for scores are dot products"
        )


def check_sinks(sinks: Shape, lead: Shape, heads: int) -> None:
    """Raise ShapeError unless sinks broadcast to one logit per query head."""
    try:
        fits = np.broadcast_shapes(sinks, (*lead, heads)) == (*lead, heads)
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"sinks has shape {sinks}; it holds a logit per query head and broadcasts to {(*lead, heads)}, "
            f"such as shape ({heads},)"
        )
