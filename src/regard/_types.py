"""The vocabulary that all layers share: the geometry of one score array.

Axes, in this order everywhere: leading axes ``...`` (batch), head ``h``, query ``i``, key ``j``, feature ``d``.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.int64]

# Dtypes that attention takes, in the order of the native DType (native/include/regard/view.h).
FLOAT_DTYPES = ("float32", "float64", "float16", "bfloat16")


def score_dtype(dtype: str) -> np.dtype[Any]:
    """Dtype of scores, maximum, sum and logsumexp for inputs of a dtype: float64 for float64, else float32."""
    return np.dtype(np.float64 if dtype == "float64" else np.float32)


@dataclass(frozen=True)
class Offsets:
    """Positions of query 0, one per batch entry: ``values`` in C order over ``shape``, which broadcasts to the lead."""

    shape: tuple[int, ...]
    values: tuple[int, ...]

    def array(self) -> IntArray:
        """Return them as int64 of that shape."""
        return np.array(self.values, np.int64).reshape(self.shape)


def as_int(value: Any) -> int | None:
    """Take an integer of any type but bool; None for anything else."""
    if type(value) is int:
        return value
    try:
        return None if isinstance(value, bool | np.bool_) else operator.index(value)  # NumPy 1 counts np.True_ as 1
    except TypeError:
        return None


class Geometry(NamedTuple):
    """Where the scores of one call live: ``(*lead, heads, queries, keys)``, query ``i`` at ``q_offset + i``.

    ``rank`` is the rank that the user sees: 2 for ``(S, D)`` arrays, which are one head with no head axis.
    """

    lead: tuple[int, ...]
    heads: int
    queries: int
    keys: int
    q_offset: int | Offsets = 0
    rank: int = 4

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the scores, head axis included: ``(*lead, heads, queries, keys)``."""
        return (*self.lead, self.heads, self.queries, self.keys)

    @property
    def user_shape(self) -> tuple[int, ...]:
        """Shape of the scores as the user would write it, ``(queries, keys)`` for 2-D inputs."""
        return self.shape[len(self.shape) - self.rank :]


def with_axes(values: Array, ndim: int) -> Array:
    """View an array with so many axes, the missing ones in front and of size 1."""
    return values[(None,) * (ndim - values.ndim)]


def sum_to(values: Array, shape: tuple[int, ...]) -> Array:
    """Sum over the axes along which an array of this shape was broadcast."""
    wide = (1,) * (values.ndim - len(shape)) + shape
    axes = tuple(axis for axis, (n, full) in enumerate(zip(wide, values.shape, strict=True)) if n != full)
    total: Array = values.sum(axis=axes, keepdims=True).reshape(shape)
    return total


def sum_groups(values: Array, groups: int, group: int) -> Array:
    """Sum over each group of heads, which lie along the third axis from the end."""
    total: Array = values.reshape(*values.shape[:-3], groups, group, *values.shape[-2:]).sum(axis=-3)
    return total


def positions(geometry: Geometry, rows: IntArray) -> IntArray:
    """Give the absolute positions of query indices, with all axes of the scores: ``(*lead, 1, rows, 1)``.

    Leading axes along which the offset does not differ have size 1.
    """
    offset = geometry.q_offset
    start = offset.array() if isinstance(offset, Offsets) else np.array(offset, np.int64)
    return with_axes(start[..., None, None, None], len(geometry.lead) + 3) + rows[:, None]
