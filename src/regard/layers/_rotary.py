"""Where queries and keys stand, for a layer that turns them by their positions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from regard._errors import ShapeError, UnsupportedError, written
from regard._plan.options import as_mask, as_offset, resolve_offset
from regard._plan.shapes import broadcast_lead
from regard._types import Array, IntArray

Rotary: TypeAlias = Callable[[Array, IntArray], Array]


def check_rotary(rotary: object) -> None:
    """Raise UnsupportedError for what cannot be called."""
    if rotary is not None and not callable(rotary):
        raise UnsupportedError(
            f"rotary is {written(rotary)}; it is a function rotary(x, positions), such as rg.rotary_embedding"
        )


def rotate(rotary: Rotary, q: Array, k: Array, mask: Any, q_offset: Any) -> tuple[Array, Array]:
    """Turn query i by position ``q_offset + i`` and key j by position j; both are ``(..., heads, S, D)``."""
    queries, keys = q.shape[-2], k.shape[-2]
    lead = broadcast_lead(q.shape, k.shape, k.shape)
    first = resolve_offset(as_offset(q_offset), as_mask(mask), "the layer's rotary", lead, queries, keys)
    start: int | IntArray = first if isinstance(first, int) else first.array()[..., None]
    if not isinstance(start, int):
        q = np.broadcast_to(q, (*lead, *q.shape[-3:]))  # one query may stand elsewhere in each sequence of keys
    return _turned(rotary, q, start + np.arange(queries)), _turned(rotary, k, np.arange(keys))


def _turned(rotary: Rotary, x: Array, positions: IntArray) -> Array:
    turned = rotary(x.copy(), positions)  # a copy: it may turn in place, and keys of no position need x as it was
    shape, dtype = getattr(turned, "shape", None), getattr(turned, "dtype", None)
    if shape != x.shape or dtype != x.dtype:
        raise ShapeError(
            f"rotary got {x.dtype} {x.shape} and positions {positions.shape}, and gave {dtype} {shape}: it must give "
            "an array of the shape and dtype that it gets"
        )
    return turned


def name_of(rotary: Rotary) -> str:
    """Name a function, with what `functools.partial` gave it, arrays as dots; an object as it names itself."""
    if isinstance(rotary, partial):
        given = [("", value) for value in rotary.args]
        given += [(f"{name}=", value) for name, value in rotary.keywords.items()]
        spelled = (f"{name}{'...' if np.ndim(value) else repr(value)}" for name, value in given)
        return f"{name_of(rotary.func)}({', '.join(spelled)})"
    return str(getattr(rotary, "__qualname__", None) or repr(rotary))
