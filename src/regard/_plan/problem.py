"""What is to be computed: a call, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from regard._arrays import HasShapeAndDType, require_float
from regard._errors import DTypeError, MaskError, ShapeError, UnsupportedError
from regard._types import Geometry, Offsets
from regard.biases import Bias, DenseBias, as_bias
from regard.masks import Mask

from .options import as_mask, as_offset, as_scale, as_softcap, refuse_unknown, resolve_offset
from .shapes import Shape, as_shape, broadcast_lead, check_heads, check_ranks, check_sinks, check_size, check_widths

# Positions, one per batch entry, of a problem that is kept.
MAX_KEPT_POSITIONS = 1 << 10


@dataclass(frozen=True)
class Problem:
    """A checked call, free of arrays but for those that the mask holds.

    ``softcap`` is 0 where there is none; ``bias`` and ``sinks`` tell whether the call has one.
    """

    geometry: Geometry
    kv_heads: int
    d: int
    dv: int
    dtype: str
    scale: float
    softcap: float
    mask: Mask
    bias: bool
    sinks: bool
    kv_leads: tuple[Shape, Shape]  # axes of key and value before (S, D)

    @property
    def group(self) -> int:
        """Query heads that share one kv head."""
        return self.geometry.heads // self.kv_heads if self.kv_heads else 1

    @property
    def total_heads(self) -> int:
        """Query heads of all batch members."""
        return math.prod(self.geometry.lead) * self.geometry.heads

    @cached_property
    def lasting(self) -> bool:
        """Whether what is made from the problem may be kept and used for every equal one."""
        return _lasts(self.mask, self.geometry.q_offset)

    @cached_property
    def _hash(self) -> int:
        return hash(_values(self))

    # Asked at every call, and the same for good in this process: a pickle leaves it behind.
    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Problem], tuple[Any, ...]]:
        return Problem, _values(self)

    def user_shape(self, *last: int) -> tuple[int, ...]:
        """Shape ``(..., heads, *last)`` as the user sees it: without the head axis for 2-D inputs."""
        g = self.geometry
        return ((*g.lead, g.heads) if g.rank > 2 else ()) + last


_values = attrgetter(*(field.name for field in fields(Problem)))


class Described(NamedTuple):
    """What a problem needs to know of an array that has no memory here."""

    shape: Shape
    dtype: np.dtype[Any]


def make_problem(
    query: HasShapeAndDType,
    key: HasShapeAndDType,
    value: HasShapeAndDType,
    mask: Any = None,
    bias: Any = None,
    q_offset: Any = None,
    scale: Any = None,
    softcap: Any = None,
    sinks: HasShapeAndDType | None = None,
    dropout: Any = None,
    **unknown: Any,
) -> Problem:
    """Check a call; equal calls are checked once."""
    if unknown:
        refuse_unknown(unknown)
    if not type(query) is type(key) is type(value) is np.ndarray:
        query, key, value = _described("query", query), _described("key", key), _described("value", value)
    if dropout is not None:
        raise UnsupportedError(
            "dropout= is not supported by this version of regard; leave it out, as one does outside of training"
        )
    added = None if bias is None else _checked_bias(bias)
    asked, offset = as_mask(mask), as_offset(q_offset)
    parse = _parse_cached if _lasts(asked, offset) else _parse
    # Equal arguments are one to the cache, 1 and True, 11 and 11.0: what each may be was checked before.
    problem = parse(
        query.shape,
        key.shape,
        value.shape,
        query.dtype,
        key.dtype,
        value.dtype,
        None if added is None else added.positional,
        None if sinks is None else _sinks_shape(sinks),
        asked,
        offset,
        as_scale(scale),
        as_softcap(softcap),
    )
    if added is not None:
        added.check(problem.geometry)
    return problem


def _described(name: str, array: HasShapeAndDType) -> HasShapeAndDType:
    """Return NumPy's arrays as they are, and of others what is needed, in NumPy's terms."""
    if type(array) is np.ndarray:
        return array
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise DTypeError(
            f"{name} is of type {type(array).__name__}, without .shape and .dtype: pass an array, or an "
            "object that has both, such as np.broadcast_to(np.float32(0), shape)"
        )
    return Described(as_shape(name, array.shape), require_float(name, array.dtype))


def _checked_bias(bias: Any) -> Bias:
    added = as_bias(bias)
    for part in added.parts:
        if not isinstance(part, DenseBias):
            continue
        if part.array.dtype == bool:
            raise MaskError(
                "bias is a bool array, and a bias is float and is added: a bool array is a mask, pass mask="
            )
        require_float("bias", part.array.dtype)
    return added


def _sinks_shape(sinks: HasShapeAndDType) -> Shape:
    require_float("sinks", sinks.dtype)
    return as_shape("sinks", sinks.shape)


def _lasts(mask: Mask, q_offset: int | str | Offsets | None) -> bool:
    """Whether equal masks and positions stay so, and are small enough to be kept by a cache."""
    return mask.cacheable and not (isinstance(q_offset, Offsets) and len(q_offset.values) > MAX_KEPT_POSITIONS)


def _check_dtypes(dtypes: dict[str, np.dtype[Any]]) -> str:
    for name, dtype in dtypes.items():
        require_float(name, dtype)
    if len(set(dtypes.values())) > 1:
        found = ", ".join(f"{name} is {dtype}" for name, dtype in dtypes.items())
        raise DTypeError(f"query, key and value must have one dtype, and {found}: cast them to one")
    return _name(dtypes["query"])


@lru_cache(maxsize=16)
def _name(dtype: np.dtype[Any]) -> str:
    return dtype.name


def _parse(
    query: Shape,
    key: Shape,
    value: Shape,
    query_dtype: np.dtype[Any],
    key_dtype: np.dtype[Any],
    value_dtype: np.dtype[Any],
    positional_bias: bool | None,
    sinks: Shape | None,
    mask: Mask,
    q_offset: int | str | Offsets | None,
    scale: float | None,
    softcap: float,
) -> Problem:
    dtype = _check_dtypes({"query": query_dtype, "key": key_dtype, "value": value_dtype})
    check_ranks(query, key, value)
    lead = broadcast_lead(query, key, value)
    heads, kv_heads = check_heads(query, key, value)
    check_widths(query, key, value)
    (queries, d), (keys, dv) = query[-2:], value[-2:]
    check_size(lead, heads, queries, keys)
    if scale is None:
        if d == 0:
            raise ShapeError(f"query has head size 0 (shape {query}), so 1/sqrt(D) has no value: pass scale=")
        scale = 1 / math.sqrt(d)
    offset = resolve_offset(q_offset, mask, "the bias" if positional_bias else None, lead, queries, keys)
    geometry = Geometry(lead, heads, queries, keys, offset, max(len(query), len(key), len(value)))
    mask.check(geometry)
    if sinks is not None:
        check_sinks(sinks, lead, heads)
    return Problem(
        geometry, kv_heads, d, dv, dtype, scale, softcap, mask, positional_bias is not None, sinks is not None,
        (key[:-2], value[:-2]),
    )  # fmt: skip


_parse_cached = lru_cache(maxsize=256)(_parse)
