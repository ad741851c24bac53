"""What is to be computed: a call, read and then checked."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from regard._arrays import HasShapeAndDType, require_float
from regard._errors import DTypeError, MaskError, ShapeError, UnsupportedError
from regard._types import Geometry, Offsets
from regard.biases import Bias, DenseBias, as_bias
from regard.masks import Mask

from .options import FULL, as_mask, as_offset, as_scale, as_softcap, refuse_unknown, resolve_offset
from .shapes import (
    Shape,
    as_shape,
    broadcast_lead,
    check_heads,
    check_lengths,
    check_ranks,
    check_sinks,
    check_widths,
)

# Positions, one per batch entry, of a problem that is kept.
MAX_KEPT_POSITIONS = 1 << 10
# The least cap of scores in float32: a smaller one would be 0 there. What either leaves of a score is nothing.
_LEAST_SOFTCAP = 2.0**-149


class Problem(NamedTuple):
    """A checked call, free of arrays but for those that the mask holds.

    ``softcap`` is 0 where there is none; ``bias`` and ``sinks`` tell whether the call has one.
    """

    geometry: Geometry
    mask: Mask
    kv_heads: int
    d: int
    dv: int
    dtype: str
    scale: float
    softcap: float
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

    def user_shape(self, *last: int) -> tuple[int, ...]:
        """Shape ``(..., heads, *last)`` as the user sees it: without the head axis for 2-D inputs."""
        g = self.geometry
        return ((*g.lead, g.heads) if g.rank > 2 else ()) + last


class Asked(NamedTuple):
    """A call as it was read: each part is what it may be, and whether they fit together is not known yet.

    Equal ones are one problem, and so to a cache 1 and True are one, 11 and 11.0: what each may be was checked before.
    """

    query: Shape
    key: Shape
    value: Shape
    mask: Mask
    q_offset: int | str | Offsets | None
    dtypes: tuple[np.dtype[Any], np.dtype[Any], np.dtype[Any]]
    positional_bias: bool | None  # None: no bias
    sinks: Shape | None
    scale: float | None
    softcap: float

    @property
    def form(self) -> tuple[Any, ...]:
        """All but the mask, positions, and the number of keys."""
        key, value = self.key, self.value
        values = None if value == key else (len(value), value[:-2], value[-1:])
        return self.query, len(key), key[:-2], key[-1:], values, self[5:]

    @property
    def lasting(self) -> bool:
        """Whether equal masks and positions stay so, and are small enough to be kept by a cache."""
        offset = self.q_offset
        return self.mask.cacheable and (type(offset) is not Offsets or len(offset.values) <= MAX_KEPT_POSITIONS)

    def problem(self) -> Problem:
        """Check whether the parts fit together."""
        query, key, value, scale = self.query, self.key, self.value, self.scale
        dtype = _check_dtypes(*self.dtypes)
        check_ranks(query, key, value)
        lead = broadcast_lead(query, key, value)
        heads, kv_heads = check_heads(query, key, value)
        check_widths(query, key, value)
        check_lengths(query, key, value, lead, heads)
        d = query[-1]
        if scale is None:
            if d == 0:
                raise ShapeError(f"query has head size 0 (shape {query}), so 1/sqrt(D) has no value: pass scale=")
            scale = 1 / math.sqrt(d)
        geometry = self.geometry_like(lead, heads, max(len(query), len(key), len(value)), key[-2])
        if self.sinks is not None:
            check_sinks(self.sinks, lead, heads)
        softcap = max(self.softcap, _LEAST_SOFTCAP) if self.softcap and dtype != "float64" else self.softcap
        return Problem(
            geometry, self.mask, kv_heads, d, value[-1], dtype, scale, softcap, self.positional_bias is not None,
            self.sinks is not None, (key[:-2], value[:-2]),
        )  # fmt: skip

    def geometry_like(self, lead: Shape, heads: int, rank: int, most_keys: int) -> Geometry:
        """Check what may differ from a checked call of an equal form, whose heads may have up to ``most_keys``."""
        queries, keys, mask = self.query[-2], self.key[-2], self.mask
        if keys != self.value[-2] or keys > most_keys:
            check_lengths(self.query, self.key, self.value, lead, heads)
        offset = resolve_offset(self.q_offset, mask, "the bias" if self.positional_bias else None, lead, queries, keys)
        geometry = tuple.__new__(Geometry, (lead, heads, queries, keys, offset, rank))  # as Geometry(...), and faster
        if not mask.fits_all:
            mask.check(geometry)
        return geometry


class Described(NamedTuple):
    """What a problem needs to know of an array that has no memory here."""

    shape: Shape
    dtype: np.dtype[Any]


def read(
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
) -> tuple[Asked, Bias | None]:
    """Read a call of NumPy's arrays, or of `Described`; its bias is yet to be checked with the problem's geometry."""
    if unknown:
        refuse_unknown(unknown)
    if dropout is not None:
        raise UnsupportedError(
            "dropout= is not supported by this version of regard; leave it out, as one does outside of training"
        )
    added = None if bias is None else _checked_bias(bias)
    parts = (
        query.shape,
        key.shape,
        value.shape,
        FULL if mask is None else as_mask(mask),
        None if q_offset is None else as_offset(q_offset),
        (query.dtype, key.dtype, value.dtype),
        None if added is None else added.positional,
        None if sinks is None else _sinks_shape(sinks),
        None if scale is None else as_scale(scale),
        0.0 if softcap is None else as_softcap(softcap),
    )
    return tuple.__new__(Asked, parts), added  # in half the time of Asked(...)


def make_problem(query: HasShapeAndDType, key: HasShapeAndDType, value: HasShapeAndDType, **options: Any) -> Problem:
    """Read and check a call, whose options are those of `read`."""
    arrays = _described("query", query), _described("key", key), _described("value", value)
    asked, bias = read(*arrays, **options)
    problem = asked.problem()
    if bias is not None:
        bias.check(problem.geometry)
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


def _check_dtypes(query: np.dtype[Any], key: np.dtype[Any], value: np.dtype[Any]) -> str:
    if not query is key is value:
        dtypes = {"query": query, "key": key, "value": value}
        for name, dtype in dtypes.items():
            require_float(name, dtype)
        if len(set(dtypes.values())) > 1:
            found = ", ".join(f"{name} is {dtype}" for name, dtype in dtypes.items())
            lists = " (lists of numbers are read as float64)" if np.dtype(np.float64) in dtypes.values() else ""
            raise DTypeError(f"query, key and value must have one dtype, and {found}{lists}: cast them to one")
    return _name(require_float("query", query))


@lru_cache(maxsize=16)
def _name(dtype: np.dtype[Any]) -> str:
    return dtype.name
