"""Row spans: for each query row, the sorted half-open ranges of keys that it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from regard._types import BoolArray, Geometry, IntArray

from ._evaluate import cut

# More ranges than this in a row cost a kernel more than the bits do.
MAX_SPANS = 8
# Pairs of a table that are looked at without a pause.
_PIECE = 1 << 22

# The edges of the ranges of one row, begin, end, begin, end, ..., in the normal form of `RowSpans`: one row is too
# short for NumPy.
Ranges: TypeAlias = tuple[int, ...]


@dataclass(eq=False, slots=True)
class RowSpans:
    """The kept keys of each row as ranges ``[begin, end)``, closed under ``& | ~``.

    Attributes
    ----------
    data
        int64, ``(..., rows, width, 2)``. In a row the ranges are sorted and never touch; slots that are not
        used are ``(keys, keys)`` and come last. Some row uses all ``width`` slots; ``width`` may be 0.
    keys
        Number of keys; all ranges lie in ``[0, keys]``.

    Examples
    --------
    >>> spans = RowSpans.from_ranges(np.array([0, 2]), np.array([3, 9]), keys=5)
    >>> spans.data.tolist()
    [[[0, 3]], [[2, 5]]]
    >>> (~spans).to_dense().astype(int)
    array([[0, 0, 0, 1, 1],
           [1, 1, 0, 0, 0]])
    """

    data: IntArray
    keys: int

    @classmethod
    def from_ranges(cls, begin: IntArray | int, end: IntArray | int, keys: int) -> RowSpans:
        """One range per row, clipped to ``[0, keys]``; empty where ``end <= begin``."""
        data = np.empty((*np.broadcast(begin, end).shape, 1, 2), np.int64)
        data[..., 0, 0], data[..., 0, 1] = begin, end
        # One range needs no sorting; np.clip takes several times as long as these two.
        np.minimum(np.maximum(data, 0, out=data), keys, out=data)
        used = data[..., 0, 0] < data[..., 0, 1]
        if not used.all():
            data[~used] = keys
        return cls(data if used.any() else data[..., :0, :], keys)

    @classmethod
    def between(cls, geometry: Geometry, begin: IntArray | int, end: IntArray | int) -> RowSpans:
        """One range per row, as `from_ranges`; two numbers are the range of every row."""
        if isinstance(begin, int) and isinstance(end, int):
            return OneRow(one_range(begin, end, geometry.keys), geometry.keys, len(geometry.lead) + 2)
        return cls.from_ranges(begin, end, geometry.keys)

    @classmethod
    def from_edges(cls, edges: IntArray, keys: int) -> RowSpans:
        """Bring sorted ranges, ``begin, end, ...`` in ``(..., rows, 2 * slots)``, to normal form.

        All lie in ``[0, keys]``; those with ``end <= begin`` are empty.
        """
        pairs = edges.reshape(*edges.shape[:-1], edges.shape[-1] // 2, 2)
        used = pairs[..., :1] < pairs[..., 1:]
        width = int(np.max(np.sum(used, axis=(-2, -1)), initial=0))
        # The used ranges are disjoint: sorting their edges keeps each pair together and sends the unused last.
        packed = np.sort(np.where(used, pairs, keys).reshape(edges.shape))[..., : 2 * width]
        return cls(packed.reshape(*edges.shape[:-1], width, 2), keys)

    @classmethod
    def joined(cls, parts: Sequence[RowSpans], axis: int) -> RowSpans:
        """Put sets one after the other along an axis of ``data``; the other axes before the ranges broadcast."""
        if len(parts) == 1:
            return parts[0]
        shapes = [part.data.shape for part in parts]
        shape = [*np.broadcast_shapes(*((*s[:axis], 1, *s[axis + 1 : -2]) for s in shapes)), 0, 2]
        shape[axis], shape[-2] = sum(s[axis] for s in shapes), max(part.width for part in parts)
        data = np.full(shape, parts[0].keys)
        ends = np.cumsum([s[axis] for s in shapes])
        for part, place in zip(parts, np.split(data, ends[:-1], axis), strict=True):
            place[..., : part.width, :] = part.data
        return cls(data, parts[0].keys)

    @property
    def width(self) -> int:
        """The largest number of ranges in any row."""
        width: int = self.data.shape[-2]
        return width

    @property
    def alike(self) -> bool:
        """Whether one row stands for all; never false for one row."""
        return bool(self.data.shape[-3] == 1)

    @property
    def edges(self) -> IntArray:
        """``begin, end, begin, end, ...`` of each row, ascending: ``(..., rows, 2 * width)``."""
        return self.data.reshape(*self.data.shape[:-2], 2 * self.width)

    def __and__(self, other: RowSpans) -> RowSpans:
        if self.width == other.width == 1:  # as in a causal window, at a tenth of the time
            begin, end = np.maximum(self.data, other.data)[..., 0, 0], np.minimum(self.data, other.data)[..., 0, 1]
            return RowSpans.from_ranges(begin, end, self.keys)
        return _overlap(self, other, depth=2)

    def __or__(self, other: RowSpans) -> RowSpans:
        return _overlap(self, other, depth=1)

    def __invert__(self) -> RowSpans:
        around = ((0, 0),) * (self.data.ndim - 2)
        return RowSpans.from_edges(np.pad(self.edges, (*around, (1, 1)), constant_values=(0, self.keys)), self.keys)

    def of_rows(self, rows: slice) -> RowSpans:
        """Take some rows; the width stays, though they may need less."""
        return self if self.alike else RowSpans(self.data[..., rows, :, :], self.keys)

    def anywhere(self, step: int) -> RowSpans:
        """One row that holds what any row keeps, its ranges rounded outwards to multiples of ``step``."""
        ranges = self.data.reshape(-1, 2)
        ranges = ranges[ranges[:, 0] < ranges[:, 1]]
        ranges = ranges[np.argsort(ranges[:, 0])]
        begin = ranges[:, 0] // step * step
        end = np.minimum(np.maximum.accumulate(-(-ranges[:, 1] // step) * step), self.keys)
        first = np.flatnonzero(begin > np.append(-1, end)[:-1])  # of each run of ranges that overlap or touch
        last = np.append(first, len(begin))[1:] - 1
        return RowSpans(np.stack([begin[first], end[last]], axis=-1)[None], self.keys)

    def is_full(self) -> bool:
        """Whether every row keeps every key; never true without keys."""
        return self.width == 1 and not self.data[..., 0].any() and bool((self.data[..., 1] == self.keys).all())

    def to_dense(self) -> BoolArray:
        """Spell the set out as bool, ``(..., rows, keys)``."""
        begin, end = self.data[..., 0, None], self.data[..., 1, None]
        keys = np.arange(self.keys)
        dense: BoolArray = np.any((begin <= keys) & (keys < end), axis=-2)
        return dense


class OneRow(RowSpans):
    """Ranges that all rows, heads and batch entries keep, in Python's integers.

    So are the spans of one query where positions are no array, as in every step of decoding.
    """

    __slots__ = ("axes", "ranges")

    def __init__(self, ranges: Ranges, keys: int, axes: int) -> None:
        self.ranges, self.keys = ranges, keys
        self.axes = axes  # of `data`, before the ranges

    @property
    def data(self) -> IntArray:  # type: ignore[override]
        return np.array(self.ranges, np.int64).reshape((1,) * self.axes + (self.width, 2))

    @property
    def width(self) -> int:
        return len(self.ranges) // 2

    @property
    def alike(self) -> bool:
        return True

    def is_full(self) -> bool:
        return self.ranges == (0, self.keys)

    def __and__(self, other: RowSpans) -> RowSpans:
        if not isinstance(other, OneRow):
            return super().__and__(other)
        return OneRow(both(self.ranges, other.ranges, self.keys), self.keys, self.axes)

    def __or__(self, other: RowSpans) -> RowSpans:
        if not isinstance(other, OneRow):
            return super().__or__(other)
        return OneRow(either(self.ranges, other.ranges, self.keys), self.keys, self.axes)

    def __invert__(self) -> RowSpans:
        return OneRow(outside(self.ranges, self.keys), self.keys, self.axes)


def one_range(begin: int, end: int, keys: int) -> Ranges:
    """Clip a range to ``[0, keys]``; none where ``end <= begin``."""
    begin, end = begin if begin > 0 else 0, end if end < keys else keys  # max() and min() take twice the time
    return (begin, end) if begin < end else ()


def both(a: Ranges, b: Ranges, keys: int) -> Ranges:
    """Keep what two rows of ``keys`` keys both keep."""
    if len(a) == len(b) == 2:  # as in a causal window: each step of decoding asks
        begin, end = a[0] if a[0] > b[0] else b[0], a[1] if a[1] < b[1] else b[1]
        return (begin, end) if begin < end else ()
    kept: list[int] = []
    i = j = 0
    while i < len(a) and j < len(b):
        kept += one_range(max(a[i], b[j]), min(a[i + 1], b[j + 1]), keys)
        if a[i + 1] < b[j + 1]:
            i += 2
        else:
            j += 2
    return tuple(kept)


def either(a: Ranges, b: Ranges, keys: int) -> Ranges:
    """Keep what one row or the other keeps."""
    if len(a) == len(b) == 2:  # as in a window beside the first keys: likewise
        (begin, end), (second, last) = (a, b) if a[0] <= b[0] else (b, a)
        return (begin, end, second, last) if end < second else (begin, max(end, last))
    return outside(both(outside(a, keys), outside(b, keys), keys), keys)


def outside(ranges: Ranges, keys: int) -> Ranges:
    """Keep what a row does not keep."""
    edges = (0, *ranges, keys)
    if edges[-2] == keys:
        edges = edges[:-2]
    return edges if edges[1:2] != (0,) else edges[2:]


def runs_of(table: BoolArray) -> IntArray | None:
    """Find the runs of True in each row of a table; None if a row has more than MAX_SPANS.

    Returns
    -------
    IntArray or None
        Edges ``(..., rows, 2 * runs)``; slots that are not used hold an empty range at 0.
    """
    *planes, keys = table.shape
    count, found = np.zeros(planes, np.int64), []
    # Piece by piece, so that Ctrl-C is heard in between.
    for piece in cut(slice(0, keys), max(64, _PIECE // max(1, count.size))):
        part, last = table[..., piece], piece.stop == keys
        width = part.shape[-1]
        turns = np.empty((*planes, width + last), np.bool_)
        np.not_equal(part[..., 1:], part[..., :-1], out=turns[..., 1:width])
        turns[..., 0] = part[..., 0] ^ table[..., piece.start - 1] if piece.start else part[..., 0]
        if last:
            turns[..., width] = part[..., -1]
        count += np.count_nonzero(turns, axis=-1)
        if count.max(initial=0) > 2 * MAX_SPANS:
            return None
        found.append((piece.start, *turns.reshape(count.size, width + last).nonzero()))
    runs = np.zeros((*planes, int(count.max(initial=0))), np.int64)
    if runs.size:
        at = np.concatenate([start + at for start, _, at in found])
        if len(found) > 1:
            at = at[np.argsort(np.concatenate([rows for _, rows, _ in found]), kind="stable")]
        runs[np.arange(runs.shape[-1]) < count[..., None]] = at
    return runs


def _overlap(a: RowSpans, b: RowSpans, depth: int) -> RowSpans:
    """Keep what at least ``depth`` of the two sets keep, by one sweep over the edges of both."""
    # The low bit marks an end. At one key the beginnings come first, so that ranges that touch are fused.
    marked = [2 * spans.edges + np.arange(2 * spans.width) % 2 for spans in (a, b)]
    rows = np.broadcast_shapes(*(edges.shape[:-1] for edges in marked))
    swept = np.sort(np.concatenate([np.broadcast_to(e, (*rows, e.shape[-1])) for e in marked], axis=-1))
    inside = np.cumsum(1 - 2 * (swept & 1), axis=-1) >= depth
    turns = np.diff(inside, axis=-1, prepend=False)
    return RowSpans.from_edges(np.sort(np.where(turns, swept >> 1, a.keys)), a.keys)
