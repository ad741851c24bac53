"""Biases that depend on head and distance alone: one row of numbers for each head, read along the diagonals."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from regard._cached import cached_attribute
from regard._errors import DTypeError, ShapeError, written
from regard._libraries import as_numpy, of_ml_dtypes
from regard._types import Array, Geometry, IntArray, positions

from ._base import Bias, Table

_SPELLED = 16  # tables of up to so many numbers are spelled out in a repr
_MAX_HEADS = 1 << 16
_FARTHEST = 1 << 31
# What a bias keeps of the row that it was last asked for, of each of two dtypes: with it, a step of decoding costs
# what it adds. Where the row has grown, it grows by as much again, or by so many numbers.
MAX_ROW_BYTES = 1 << 24
_LEAST_ROOM = 64


class _Row(NamedTuple):
    """Numbers of the distances ``[first, last)``, of each head."""

    first: int
    last: int
    values: Array


@dataclass(frozen=True, init=False, eq=False, repr=False)
class DistanceBias(Bias):
    """A bias ``f(head, j - p)`` of query position p and key j."""

    table: Array  # numbers per head, the head axis first; one row serves every head

    def _hold(self, table: Array) -> None:
        table.flags.writeable = False
        object.__setattr__(self, "table", table)

    @property
    def positional(self) -> Literal[True]:
        return True

    @property
    def arrays(self) -> Literal[False]:
        return False

    @property
    def heads(self) -> int:
        """Heads that the bias tells apart; 1: none."""
        return int(self.table.shape[0])

    def _at(self, distance: IntArray, dtype: np.dtype[Any]) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold is infinite, as in an array
            return self.at(distance, dtype)

    @abstractmethod
    def at(self, distance: IntArray, dtype: np.dtype[Any]) -> Array:
        """Evaluate the formula: ``(heads, *distance.shape)``; distances may be beyond those of any call."""

    def check(self, geometry: Geometry) -> None:
        if self.heads not in (1, geometry.heads):
            raise ShapeError(
                f"{self!r} holds {self.heads} heads and the scores have {geometry.heads} (shape "
                f"{geometry.user_shape}): give one row per query head, or one for all"
            )

    def values(self, geometry: Geometry, rows: IntArray, keys: IntArray, dtype: npt.DTypeLike) -> Array:
        distance = keys - positions(geometry, rows)  # (*lead, 1, rows, keys)
        return np.moveaxis(self._at(distance[..., 0, :, :], np.dtype(dtype)), 0, -3)

    def lower(self, geometry: Geometry, dtype: npt.DTypeLike) -> list[Array | Table]:
        offset, before, dtype = geometry.q_offset, geometry.queries - 1, np.dtype(dtype)
        if not geometry.queries or not geometry.keys or 0 in geometry.lead:
            return [Table(np.zeros((self.heads, 0), dtype), (0,))]
        if isinstance(offset, int):
            return [Table(self._row(-offset - before, geometry.keys - offset, dtype), (before,))]
        offsets = np.broadcast_to(offset.array(), geometry.lead)
        starts, runs, used = np.zeros(geometry.lead, np.int64), [], 0
        for first, last, members in _runs(offsets, geometry):
            starts[members] = used - offsets[members] - first
            runs.append(self._row(first, last, dtype))
            used += last - first
        values = runs[0] if len(runs) == 1 else np.concatenate(runs, axis=1)
        return [Table(values, tuple(starts.ravel().tolist()))]

    def _row(self, first: int, last: int, dtype: np.dtype[Any]) -> Array:
        """Give the numbers of the distances ``[first, last)``, from those that are kept if these are among them."""
        kept = self._rows.get(dtype)
        if kept is None or first < kept.first or last > kept.last:
            kept = self._longer(kept, first, last, dtype)
        return kept.values[:, first - kept.first : last - kept.first]

    def _longer(self, kept: _Row | None, first: int, last: int, dtype: np.dtype[Any]) -> _Row:
        """Compute a row, with as much again where it has grown, and keep it if it is not too large."""
        most, low, high = MAX_ROW_BYTES // (self.heads * dtype.itemsize), first, last
        if kept is not None and first <= kept.last and last >= kept.first:
            room = max(0, min(max(last - first, _LEAST_ROOM), (most - (last - first)) // 2))
            low = first - room if first < kept.first else first
            high = last + room if last > kept.last else last
            if max(high, kept.last) - min(low, kept.first) <= most:
                low, high = min(low, kept.first), max(high, kept.last)
        # Neighbours in a row are read as vectors; a look-up in a table may give them apart. Calls and threads share it.
        values = np.ascontiguousarray(self._at(np.arange(low, high), dtype))
        values.flags.writeable = False
        row = _Row(low, high, values)
        if high - low <= most:
            self._rows[dtype] = row
        return row

    @cached_attribute
    def _rows(self) -> dict[np.dtype[Any], _Row]:
        return {}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_rows"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.table.flags.writeable = False  # NumPy's pickle forgets it

    def _key(self) -> tuple[Any, ...]:
        return self.table.shape, self.table.tobytes()


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Alibi(DistanceBias):
    r"""Attention with linear biases: :math:`-m_h\,|p - j|`.

    Under a causal mask this is :math:`m_h (j - p)`, as in the paper.

    Parameters
    ----------
    slopes
        float, shape ``(Hq,)``: :math:`m_h`, finite; the paper's are positive. Or the number of heads, for those of the
        paper: the geometric sequence :math:`2^{-8/n}, 2^{-16/n}, …` for n heads, n a power of two; else those of the
        power below it, and every other one of twice that power.

    Raises
    ------
    ShapeError, DTypeError
        If the slopes are no finite floats of that shape, or the number of heads is out of range; and, with the scores
        known, if there is not one for each query head.

    References
    ----------
    Press, Smith, Lewis 2022 (arXiv 2108.12409), section 3.

    Examples
    --------
    >>> Alibi(8).slopes[:3]
    array([0.5  , 0.25 , 0.125])
    >>> Alibi(2).materialize(1, 3, q_offset=2, heads=2)[:, 0]
    array([[-0.125     , -0.0625    ,  0.        ],
           [-0.0078125 , -0.00390625,  0.        ]], dtype=float32)
    """

    def __init__(self, slopes: npt.ArrayLike) -> None:
        if isinstance(slopes, int | np.integer) and not isinstance(slopes, bool):
            if not 1 <= slopes <= _MAX_HEADS:
                raise ShapeError(
                    f"Alibi({written(slopes)}): give a number of heads, 1 to {_MAX_HEADS}, or their slopes"
                )
            slopes = _paper_slopes(int(slopes))
        held = _floats("Alibi", "slopes", slopes, "(Hq,)", 1)
        if not (np.abs(held) <= np.finfo(np.float32).max).all():
            raise ShapeError(f"Alibi: slopes are {held.tolist()}; they must be finite in float32; a mask hides keys")
        self._hold(held)

    @property
    def slopes(self) -> Array:
        """One per head."""
        return self.table

    def at(self, distance: IntArray, dtype: np.dtype[Any]) -> Array:
        product: Array = np.multiply.outer(self.table.astype(dtype), (-np.abs(distance)).astype(dtype))
        return product

    def __repr__(self) -> str:
        return f"Alibi({_spelled(self.table)})"


@dataclass(frozen=True, init=False, eq=False, repr=False)
class RelativeBias(DistanceBias):
    """A learned number for each head and distance j − p; distances beyond the table take its ends.

    Parameters
    ----------
    table
        float, shape ``(Hq, 2 * R + 1)`` or ``(2 * R + 1,)`` for all heads: the bias at distances −R … R.

    Raises
    ------
    ShapeError, DTypeError
        If the table holds no floats, or has another shape; and, with the scores known, if the heads are not theirs.

    References
    ----------
    Shaw, Uszkoreit, Vaswani 2018 (arXiv 1803.02155), whose clipping this is, for a bias.

    Examples
    --------
    >>> RelativeBias([-1.0, 0.0, 5.0]).materialize(2, 4)
    array([[ 0.,  5.,  5.,  5.],
           [-1.,  0.,  5.,  5.]], dtype=float32)
    """

    def __init__(self, table: npt.ArrayLike) -> None:
        held = _floats("RelativeBias", "table", table, "(Hq, 2 * R + 1) or (2 * R + 1,)", 1, 2)
        held = held.reshape(-1, held.shape[-1])
        if held.shape[1] % 2 == 0:
            raise ShapeError(
                f"RelativeBias: the table has {held.shape[1]} distances; it holds an odd number of them, -R ... R"
            )
        self._hold(held)

    def at(self, distance: IntArray, dtype: np.dtype[Any]) -> Array:
        reach = self.table.shape[1] // 2
        return self.table.astype(dtype)[:, np.clip(distance, -reach, reach) + reach]

    def __repr__(self) -> str:
        return f"RelativeBias({_spelled(self.table)})"


@dataclass(frozen=True, init=False, eq=False, repr=False)
class T5Bias(DistanceBias):
    r"""The bias of T5: a learned number for each head and bucket of distances.

    Of the buckets for one direction, half hold one distance each, and the others grow as its logarithm up to
    ``max_distance``; what is farther is in the last.

    Parameters
    ----------
    table
        float, shape ``(buckets, Hq)``: the weight of T5's embedding ``relative_attention_bias``.
    bidirectional
        Half of the buckets are for keys after the query (an encoder); else those share bucket 0 (a decoder).
    max_distance
        From here on, everything is in the last bucket.

    Raises
    ------
    ShapeError, DTypeError
        If the table holds no floats, has another shape, or has buckets that cannot be halved so; if ``bidirectional``
        is no bool, or ``max_distance`` is not beyond the buckets of one distance each; and, with the scores known, if
        the heads are not the query's.

    Notes
    -----
    Logarithms are taken in float32, as T5's code does: buckets at whose edge it rounds are the same.

    References
    ----------
    Raffel et al. 2020 (arXiv 1910.10683), section 2.1.

    Examples
    --------
    >>> bias = T5Bias(np.arange(8.0)[:, None], bidirectional=False, max_distance=16)
    >>> bias.materialize(1, 12, q_offset=10)
    array([[6., 6., 6., 5., 5., 4., 4., 3., 2., 1., 0., 0.]], dtype=float32)
    """

    bidirectional: bool
    max_distance: int

    def __init__(self, table: npt.ArrayLike, *, bidirectional: bool, max_distance: int = 128) -> None:
        held = np.ascontiguousarray(_floats("T5Bias", "table", table, "(buckets, Hq)", 2).T)
        least = 4 if bidirectional else 2
        if held.shape[1] < least or held.shape[1] % least:
            raise ShapeError(f"T5Bias: the table has {held.shape[1]} buckets; they must be a multiple of {least}")
        exact, whole = held.shape[1] // least, isinstance(max_distance, int | np.integer)
        if not whole or isinstance(max_distance, bool) or not exact < max_distance < _FARTHEST:
            raise ShapeError(
                f"T5Bias: max_distance is {written(max_distance)}; it must be an integer above {exact}, for so many "
                "distances have a bucket of their own, and below 2**31"
            )
        if not isinstance(bidirectional, bool | np.bool_):
            raise ShapeError(
                f"T5Bias: bidirectional is {written(bidirectional)}; it is True (encoder) or False (decoder)"
            )
        self._hold(held)
        object.__setattr__(self, "bidirectional", bool(bidirectional))
        object.__setattr__(self, "max_distance", int(max_distance))

    def at(self, distance: IntArray, dtype: np.dtype[Any]) -> Array:
        return self.table.astype(dtype)[:, self._bucket(distance)]

    def _bucket(self, distance: IntArray) -> IntArray:
        buckets = self.table.shape[1] // (2 if self.bidirectional else 1)
        away = np.abs(distance) if self.bidirectional else np.maximum(-distance, 0)
        exact = buckets // 2
        ratio = np.maximum(away, exact).astype(np.float32) / np.float32(exact)
        growth = np.log(ratio) / np.float32(math.log(self.max_distance / exact)) * np.float32(buckets - exact)
        far = np.minimum(exact + growth.astype(np.int64), buckets - 1)
        return np.where(away < exact, away, far) + np.where(self.bidirectional & (distance > 0), buckets, 0)

    def _key(self) -> tuple[Any, ...]:
        return *super()._key(), self.bidirectional, self.max_distance

    def __repr__(self) -> str:
        shape = self.table.shape[::-1]
        return f"T5Bias(<{shape}>, bidirectional={self.bidirectional}, max_distance={self.max_distance})"


def _runs(offsets: IntArray, geometry: Geometry) -> Iterator[tuple[int, int, Any]]:
    """Cut the distances that occur into runs ``[first, last)``, with the batch entries whose distances each holds.

    Entries at nearby positions share a run; the runs together are no longer than the entries apart, nor than the
    way from the first position to the last.
    """
    reach = geometry.queries + geometry.keys - 1
    first = np.unique(-offsets - (geometry.queries - 1))  # of each entry, ascending
    begins = np.flatnonzero(np.diff(first, prepend=first[:1] - reach - 1) > reach)
    for begin, end in zip(begins, [*begins[1:], len(first)], strict=True):
        low, high = int(first[begin]), int(first[end - 1])
        mine = -offsets - (geometry.queries - 1)
        yield low, high + reach, (mine >= low) & (mine <= high)


def _paper_slopes(heads: int) -> Array:
    power = 2 ** (heads.bit_length() - 1)
    slopes = 2.0 ** (-8 / power * np.arange(1, power + 1))
    between = 2.0 ** (-4 / power * np.arange(1, 2 * (heads - power), 2))
    return np.concatenate([slopes, between])


def _floats(leaf: str, name: str, given: Any, shape: str, *ranks: int) -> Array:
    """Copy numbers of one of the ``ranks`` as float64, none of their axes empty."""
    array = as_numpy(name, given)
    if array.dtype.kind not in "iuf" and not of_ml_dtypes(array.dtype):
        raise DTypeError(f"{leaf}: {name} is of dtype {array.dtype}; it holds floats, of shape {shape}")
    if array.ndim not in ranks or not array.size:
        raise ShapeError(f"{leaf}: {name} has shape {array.shape}; it has shape {shape}")
    return array.astype(np.float64)


def _spelled(table: Array) -> str:
    return repr(table.tolist()) if table.size <= _SPELLED else f"<{table.shape}>"
