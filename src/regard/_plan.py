"""Parse once, then run: every check and every message of a call, and the frozen plan that engines follow."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from regard import _native, _runtime
from regard._arrays import HasShapeAndDType, require_dtype
from regard._errors import AlignmentError, DTypeError, MaskError, ShapeError, UnsupportedError
from regard._types import Geometry
from regard.masks import Dense, Full, KeyLengths, Mask

FLOAT32 = (np.dtype(np.float32),)
FLOATS = (np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.float16))
MAX_OFFSET = 2**62 - 1  # positions are int64, and windows add to them

# Options of the contract that this version does not compute yet, and what a caller can do meanwhile.
_LATER = {
    "bias": "a bias of 0 and -inf alone is a mask: pass mask=(bias == 0)",
    "softcap": "leave it out, or divide and tanh the scores in NumPy",
    "sinks": "multiply out by sigmoid(lse - sink), with lse from attention_forward",
    "dropout": "leave it out, as one does outside of training",
    "out": "copy the result: out[...] = attention(...)",
    "aux": "attention_forward gives .out, .lse, .state and .weights without it",
}


@dataclass(frozen=True)
class Problem:
    """What is to be computed: checked, and free of arrays but for those that the mask holds."""

    geometry: Geometry
    kv_heads: int
    d: int
    dv: int
    scale: float
    mask: Mask

    @property
    def group(self) -> int:
        """Query heads that share one kv head."""
        return self.geometry.heads // self.kv_heads if self.kv_heads else 1

    @property
    def total_heads(self) -> int:
        """Query heads of all batch members."""
        return math.prod(self.geometry.lead) * self.geometry.heads

    def user_shape(self, *last: int) -> tuple[int, ...]:
        """Shape ``(..., heads, *last)`` as the user sees it: without the head axis for 2-D inputs."""
        g = self.geometry
        return ((*g.lead, g.heads) if g.rank > 2 else ()) + last


@dataclass(frozen=True)
class Tiles:
    """Tiles of one call, a tile being ``block_rows`` query rows by ``tile_keys`` keys.

    ``visited`` of them were or will be computed, ``partial`` of these with a mask, and ``skipped`` never touched.
    """

    visited: int
    partial: int
    skipped: int


@dataclass(frozen=True)
class Plan:
    """How a problem will be computed, and with what.

    Attributes
    ----------
    problem
        Geometry, head sizes, scale and mask.
    target, why
        Instruction set of the native engine, and the reason for it.
    threads, block_rows, tile_keys
        Threads at most; query rows of one task; keys of one tile.
    scratch_bytes
        Working memory of one thread. Nothing else is allocated but the output and one band of lowered mask.
    tiles
        What became of the tiles; None where nobody asked for the count.
    """

    problem: Problem
    target: str
    why: str
    threads: int
    block_rows: int
    tile_keys: int
    scratch_bytes: int
    tiles: Tiles | None = None

    def __str__(self) -> str:
        p, g = self.problem, self.problem.geometry
        lines = [
            f"scores      {g.user_shape}, {p.kv_heads} kv heads, D {p.d}, Dv {p.dv}, scale {p.scale:.6g}",
            f"mask        {p.mask!r}, q_offset {g.q_offset}",
            f"engine      native tiles, {self.target} ({self.why})",
            f"threads     {self.threads}, {self.scratch_bytes:,} bytes of scratch each",
        ]
        if self.tiles is not None:
            t = self.tiles
            lines.append(
                f"tiles       {self.block_rows} x {self.tile_keys}: {t.visited} visited "
                f"({t.partial} of them partial), {t.skipped} skipped"
            )
        return "\n".join(lines)


def make_problem(
    query: HasShapeAndDType,
    key: HasShapeAndDType,
    value: HasShapeAndDType,
    *,
    dtypes: tuple[np.dtype[Any], ...],
    mask: Any = None,
    q_offset: Any = None,
    scale: Any = None,
    **later: Any,
) -> Problem:
    """Check a call. ``dtypes`` are those that the engine takes, ``later`` the options that none takes yet."""
    for name, option in later.items():
        if option is not None:
            raise UnsupportedError(f"{name}= is not supported by this version of regard; {_LATER[name]}")
    named = {"query": query, "key": key, "value": value}
    for name, array in named.items():
        require_dtype(name, array.dtype, dtypes)
    if not query.dtype == key.dtype == value.dtype:
        found = ", ".join(f"{name} is {array.dtype}" for name, array in named.items())
        raise DTypeError(f"query, key and value must have one dtype, and {found}: cast them to one")
    shapes = (tuple(query.shape), tuple(key.shape), tuple(value.shape))
    asked = _as_mask(mask)
    parse = _parse_cached if asked.cacheable else _parse
    return parse(*shapes, asked, _as_offset(q_offset), _as_scale(scale))


def make_plan(problem: Problem) -> Plan:
    """Choose engine, threads and tiles for a checked problem."""
    target, why = _runtime.chosen()
    return Plan(problem, target, why, _runtime.num_threads(), *_kernel(target, problem.d, problem.dv))


_kernel = lru_cache(maxsize=256)(_native.kernel)


Shape = tuple[int, ...]


def _parse(
    query: Shape, key: Shape, value: Shape, mask: Mask, q_offset: int | str | None, scale: float | None
) -> Problem:
    _check_ranks(query, key, value)
    lead = _broadcast_lead(query, key, value)
    heads, kv_heads = _check_heads(query, key, value)
    (queries, d), (keys, dv) = query[-2:], value[-2:]
    if key[-1] != d:
        raise ShapeError(
            f"query has head size {d} and key has {key[-1]} (shapes {query} and {key}): "
            "the last axes must be equal, for scores are dot products"
        )
    if key[-2] != keys:
        raise ShapeError(
            f"key has {key[-2]} rows and value has {keys} (shapes {key} and {value}): there is one value per key"
        )
    if scale is None:
        if d == 0:
            raise ShapeError(f"query has head size 0 (shape {query}), so 1/sqrt(D) has no value: pass scale=")
        scale = 1 / math.sqrt(d)
    rank = max(len(query), len(key), len(value))
    offset = _resolve_offset(q_offset, mask, queries, keys)
    geometry = Geometry(lead, heads, queries, keys, offset, rank)
    mask.check(geometry)
    return Problem(geometry, kv_heads, d, dv, scale, mask)


_parse_cached = lru_cache(maxsize=256)(_parse)


def _check_ranks(query: Shape, key: Shape, value: Shape) -> None:
    for name, shape in (("query", query), ("key", key), ("value", value)):
        if len(shape) < 2:
            raise ShapeError(
                f"{name} has shape {shape}; it needs at least two axes, (S, D) for one head or (..., H, S, D)"
            )


def _broadcast_lead(query: Shape, key: Shape, value: Shape) -> Shape:
    try:
        return np.broadcast_shapes(query[:-3], key[:-3], value[:-3])
    except ValueError:
        raise ShapeError(
            f"the leading (batch) axes of query {query[:-3]}, key {key[:-3]} and value {value[:-3]} do not "
            "broadcast; axes are (..., heads, S, D), and each leading axis must be equal or 1"
        ) from None


def _check_heads(query: Shape, key: Shape, value: Shape) -> tuple[int, int]:
    heads, kv_heads, value_heads = ((1, *shape)[-3] if len(shape) == 2 else shape[-3] for shape in (query, key, value))
    if kv_heads != value_heads:
        raise ShapeError(
            f"key has {kv_heads} heads and value has {value_heads} (shapes {key} and {value}): make them equal"
        )
    if heads % kv_heads if kv_heads else heads:
        raise ShapeError(
            f"query has {heads} heads and key has {kv_heads}: grouped heads need a multiple, "
            f"{heads} % {kv_heads} == 0; query head h reads kv head h // (Hq // Hkv). "
            "If the axes are (B, S, H, D), pass x.swapaxes(-3, -2)"
        )
    return heads, kv_heads


def _resolve_offset(q_offset: int | str | None, mask: Mask, queries: int, keys: int) -> int:
    if q_offset is None:
        if queries == keys or not mask.positional:
            return 0
        raise AlignmentError(
            f"{mask!r} depends on positions, and {queries} queries can stand among {keys} keys in two ways: pass "
            f'q_offset="start" (query i at position i) or q_offset="end" (query i at position {keys - queries} + i: '
            "the last query at the last key, as when decoding with a cache)"
        )
    if q_offset == "start":
        return 0
    if q_offset == "end":
        if mask.positional and _has_lengths(mask):
            raise AlignmentError(
                f'q_offset="end" counts from the last of {keys} keys, but {mask!r} says that sequences end earlier: '
                "pass q_offset=lengths - Sq"
            )
        return keys - queries
    return int(q_offset)


def _has_lengths(mask: Mask) -> bool:
    return isinstance(mask, KeyLengths) or any(_has_lengths(part) for part in mask.parts)


def _as_mask(mask: Any) -> Mask:
    if mask is None:
        return Full()
    if isinstance(mask, Mask):
        return mask
    if isinstance(mask, (np.ndarray, list, tuple)):
        return Dense(np.asarray(mask))
    hint = " (causal attention is mask=rg.Causal())" if isinstance(mask, (bool, str)) else ""
    raise MaskError(
        f"mask is {mask!r} of type {type(mask).__name__}{hint}; it must be a bool array, True = may attend, "
        "or a mask such as rg.Causal() & rg.KeyLengths(lengths)"
    )


def _as_offset(q_offset: Any) -> int | str | None:
    if q_offset is None or (isinstance(q_offset, str) and q_offset in ("start", "end")):
        return q_offset
    if isinstance(q_offset, (np.ndarray, list, tuple)) and np.ndim(q_offset) > 0:
        raise UnsupportedError(
            "q_offset per batch is not supported by this version of regard; pass one int, or call once per offset"
        )
    try:
        offset = None if isinstance(q_offset, (bool, np.bool_)) else operator.index(q_offset)
    except TypeError:
        offset = None
    if offset is None or abs(offset) > MAX_OFFSET:
        raise AlignmentError(
            f"q_offset is {q_offset!r}; it must be an int below 2**62 (the position of query 0), "
            '"start" (0) or "end" (Skv - Sq)'
        )
    return offset


def _as_scale(scale: Any) -> float | None:
    if scale is None:
        return None
    try:
        number = float(scale)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(scale, (bool, np.bool_, str)) or not abs(number) <= float(np.finfo(np.float32).max):
        raise UnsupportedError(f"scale is {scale!r}; it must be one finite number within float32, by default 1/sqrt(D)")
    return number
