"""What is to be computed: a call, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from regard._arrays import HasShapeAndDType, require_float
from regard._errors import DTypeError, MaskError, ShapeError, UnsupportedError
from regard._types import Geometry, Offsets
from regard.biases import Bias, DenseBias, as_bias
from regard.masks import Mask

from .options import as_mask, as_offset, as_scale, as_softcap, refuse_unknown, resolve_offset
from .shapes import Shape, as_shape, broadcast_lead, check_heads, check_ranks, check_sinks, check_size, check_widths


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

    def user_shape(self, *last: int) -> tuple[int, ...]:
        """Shape ``(..., heads, *last)`` as the user sees it: without the head axis for 2-D inputs."""
        g = self.geometry
        return ((*g.lead, g.heads) if g.rank > 2 else ()) + last


def make_problem(
    query: HasShapeAndDType,
    key: HasShapeAndDType,
    value: HasShapeAndDType,
    *,
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
    refuse_unknown(unknown)
    for name, array in (("query", query), ("key", key), ("value", value)):
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise DTypeError(
                f"{name} is of type {type(array).__name__}, without .shape and .dtype: pass an array, or an "
                "object that has both, such as np.broadcast_to(np.float32(0), shape)"
            )
    if dropout is not None:
        raise UnsupportedError(
            "dropout= is not supported by this version of regard; leave it out, as one does outside of training"
        )
    added = None if bias is None else as_bias(bias)
    dtype = _check_dtypes(query, key, value, added, sinks)
    asked = as_mask(mask)
    parse = _parse_cached if asked.cacheable else _parse
    problem = parse(
        as_shape("query", query.shape),
        as_shape("key", key.shape),
        as_shape("value", value.shape),
        None if added is None else added.positional,
        None if sinks is None else as_shape("sinks", sinks.shape),
        dtype,
        asked,
        as_offset(q_offset),
        as_scale(scale),
        as_softcap(softcap),
    )
    if added is not None:
        added.check(problem.geometry)
    return problem


def _check_dtypes(
    query: HasShapeAndDType,
    key: HasShapeAndDType,
    value: HasShapeAndDType,
    bias: Bias | None,
    sinks: HasShapeAndDType | None,
) -> str:
    named = {"query": query, "key": key, "value": value}
    dtypes = {name: require_float(name, array.dtype) for name, array in named.items()}
    if len(set(dtypes.values())) > 1:
        found = ", ".join(f"{name} is {dtype}" for name, dtype in dtypes.items())
        raise DTypeError(f"query, key and value must have one dtype, and {found}: cast them to one")
    for part in () if bias is None else bias.parts:
        if not isinstance(part, DenseBias):
            continue
        if part.array.dtype == bool:
            raise MaskError(
                "bias is a bool array, and a bias is float and is added: a bool array is a mask, pass mask="
            )
        require_float("bias", part.array.dtype)
    if sinks is not None:
        require_float("sinks", sinks.dtype)
    return dtypes["query"].name


def _parse(
    query: Shape,
    key: Shape,
    value: Shape,
    positional_bias: bool | None,
    sinks: Shape | None,
    dtype: str,
    mask: Mask,
    q_offset: int | str | Offsets | None,
    scale: float | None,
    softcap: float,
) -> Problem:
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
