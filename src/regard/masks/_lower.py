"""Masks become data: bands of query rows, as row spans, as bits, or as a view of the user's own array."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from regard._errors import MaskError
from regard._types import Array, BoolArray, Geometry

from ._evaluate import BLOCK_ROWS, chunks, cut, indices, piece_rows
from ._expression import Expression
from ._spans import MAX_SPANS, OneRow, Ranges, RowSpans

BAND_ROWS = 1 << 16  # a band is a native call, at whose end threads wait for each other
BITS_ROWS = 1024  # of a band of bits, which take more memory: a bit per key
MAX_BAND_BYTES = 16 << 20
# Ranges of keys to evaluate begin at its multiples; it is one of 8, the keys of a byte.
_STEP = 64

Cuts: TypeAlias = list[list[int]]


class Band(NamedTuple):
    """What the query rows ``rows`` keep.

    Attributes
    ----------
    rows
        Half-open range of query indices.
    kind, data
        * ``"full"``: every row keeps every key; None.
        * ``"row"``: every row of every head and batch entry keeps ``ranges``; None.
        * ``"spans"``: int64 ``(*lead, heads, rows, width, 2)``, C-contiguous, in the normal form of
          `RowSpans`; the width is 0 if no row keeps a key.
        * ``"bits"``: uint8 ``(*lead, heads, rows, ceil(keys / 8))``, C-contiguous; key 8 c + b is bit b of
          byte c, and bits past the last key are 0.
        * ``"bytes"``: bool ``(*lead, heads, rows, keys)``, a view of the user's array with its strides.

        Lead and head axes have size 1 where nothing differs along them; so has the row axis of spans. In
        bytes every axis of size 1 of the user's array stays so.
    """

    rows: slice
    kind: Literal["full", "row", "spans", "bits", "bytes"]
    data: Array | None
    ranges: Ranges = ()


def lower(
    mask: Expression, geometry: Geometry, rows: slice | None = None, band_rows: int = BAND_ROWS
) -> Iterator[Band]:
    """Cut the query rows, all or ``rows``, into bands in order, without gaps; the mask was checked before.

    A band has up to ``band_rows`` rows, of bits BITS_ROWS, or all of them if they agree; and up to MAX_BAND_BYTES of
    data, or one row.
    """
    start, stop = (0, geometry.queries) if rows is None else (rows.start, rows.stop)
    if start >= stop:
        return iter(())
    ranges = lower_row(mask, geometry, start, stop)
    if ranges is None:
        return _bands(mask, geometry, start, stop, band_rows)
    return iter((_of_ranges(slice(start, stop), ranges, geometry.keys),))


def lower_row(mask: Expression, geometry: Geometry, start: int, stop: int) -> Ranges | None:
    """Write down what all rows from start to stop keep, of all heads and batch entries, if that is plain to see."""
    offset, keys = geometry.q_offset, geometry.keys
    if not keys:
        return ()  # all masks are equal
    ranges = mask.row(offset + start if isinstance(offset, int) and stop - start == 1 else None, keys)
    return None if ranges is None or len(ranges) > 2 * MAX_SPANS else ranges


def _bands(mask: Expression, geometry: Geometry, start: int, stop: int, band_rows: int) -> Iterator[Band]:
    while start < stop:
        band = _band(mask, geometry, slice(start, stop), band_rows)
        yield band
        start = band.rows.stop


def _of_ranges(rows: slice, ranges: Ranges, keys: int) -> Band:
    return Band(rows, "full", None) if ranges == (0, keys) else Band(rows, "row", None, ranges)


def _band(mask: Expression, geometry: Geometry, rows: slice, band_rows: int) -> Band:
    """Lower the first of ``rows``."""
    # Two rows tell whether rows differ at all, and along which of the other axes.
    two = mask.spans(geometry, slice(rows.start, min(rows.start + 2, rows.stop)))
    if two is not None and two.width <= MAX_SPANS and two.alike:
        return _of_spans(rows, two)
    rows = slice(rows.start, min(rows.start + band_rows, rows.stop))
    if two is not None:
        return _closed(mask, geometry, rows, math.prod(two.data.shape[:-3])) or _bits(mask, geometry, rows)
    table = mask.table(geometry)
    if table is not None:
        return _of_table(table, geometry, rows)
    return _bits(mask, geometry, rows)


def _of_table(table: BoolArray, geometry: Geometry, rows: slice) -> Band:
    """View the user's array; but pack rows that several heads read, which is faster than that each of them does it."""
    if table.shape[-2] == 1:
        return Band(rows, "bytes", table)
    repeated = [size > 1 and not stride for size, stride in zip(table.shape[:-2], table.strides, strict=False)]
    table = table[tuple(slice(0, 1) if again else slice(None) for again in repeated)]
    planes = math.prod(table.shape[:-2])
    if table.shape[-1] != geometry.keys or planes == math.prod(geometry.shape[:-2]):
        return Band(rows, "bytes", table[..., rows, :])
    rows = _most_rows(rows, planes * -(-geometry.keys // 8))
    # What is packed has the order of the array.
    return Band(rows, "bits", np.ascontiguousarray(np.packbits(table[..., rows, :], axis=-1, bitorder="little")))


def _closed(mask: Expression, geometry: Geometry, rows: slice, planes: int) -> Band | None:
    """Find the spans piece by piece, up to a piece with too many in a row; None if that is the first."""
    pieces: list[RowSpans] = []
    at, width, step = rows.start, 1, piece_rows(planes)
    while at < rows.stop:
        end = min(at + (step if pieces else min(step, BITS_ROWS)), rows.stop)  # what is too wide becomes bits
        piece, _ = mask.bounds(geometry, slice(at, end))  # both are the spans
        width = max(width, piece.width)
        if pieces and (width > MAX_SPANS or (end - rows.start) * planes * width * 16 > MAX_BAND_BYTES):
            break
        if width > MAX_SPANS:
            return None
        pieces.append(piece)
        at = end
    return _of_spans(slice(rows.start, at), RowSpans.joined(pieces, axis=-3))


def _of_spans(rows: slice, spans: RowSpans) -> Band:
    if isinstance(spans, OneRow):
        return _of_ranges(rows, spans.ranges, spans.keys)
    if spans.is_full():
        return Band(rows, "full", None)
    data = spans.data
    if not spans.alike and np.all(data == data[..., :1, :, :]):
        data = data[..., :1, :, :]
    return Band(rows, "spans", data.copy())  # of its own, so that it keeps no larger array alive


def _most_rows(rows: slice, row_bytes: int) -> slice:
    """Take the first of them, as many as a band of bits has."""
    most = min(BITS_ROWS, max(1, MAX_BAND_BYTES // max(1, row_bytes)))
    return slice(rows.start, min(rows.stop, rows.start + most))


def _bits(mask: Expression, geometry: Geometry, rows: slice) -> Band:
    """Evaluate the mask block by block where its bounds leave it open, and pack."""
    # One pair tells along which leading axes the mask differs.
    planes = mask.keep(geometry, np.array([rows.start]), np.array([0])).shape[:-2]
    count, row_bytes = math.prod(planes), -(-geometry.keys // 8)
    rows = _most_rows(rows, count * row_bytes)
    packed = np.zeros((*planes, rows.stop - rows.start, row_bytes), np.uint8)
    for block, undecided, kept in _open(mask, geometry, rows, count):
        at = slice(block.start - rows.start, block.stop - rows.start)
        for begin, end in kept:
            packed[..., at, begin // 8 : -(-end // 8)] = 0xFF
        for begin, end in undecided:
            for some, keys in chunks(block, slice(begin, end), count):
                bits = _packed(mask, geometry, some, keys, planes, rows.start)
                at = slice(some.start - rows.start, some.stop - rows.start)
                packed[..., at, keys.start // 8 : -(-keys.stop // 8)] = bits
    if geometry.keys % 8:
        packed[..., -1] &= (1 << geometry.keys % 8) - 1
    return Band(rows, "bits", packed)


def _open(mask: Expression, geometry: Geometry, rows: slice, planes: int) -> Iterator[tuple[slice, Cuts, Cuts]]:
    """Find, block by block, the ranges of keys that must be evaluated, and those that all rows keep."""
    for piece in cut(rows, piece_rows(planes)):
        inner, outer = mask.bounds(geometry, piece)
        dropped = ~inner
        differ = not (dropped.alike and outer.alike)
        for block in cut(piece, BLOCK_ROWS) if differ else [piece]:
            at = slice(block.start - piece.start, block.stop - piece.start)
            some_drop, some_keep = dropped.of_rows(at).anywhere(_STEP), outer.of_rows(at).anywhere(_STEP)
            yield block, (some_drop & some_keep).data[0].tolist(), (~some_drop).data[0].tolist()


def _packed(
    mask: Expression, geometry: Geometry, rows: slice, keys: slice, planes: tuple[int, ...], first: int
) -> Array:
    """Evaluate some pairs of the band that begins at row ``first``, as bits."""
    kept = mask.keep(geometry, indices(rows), indices(keys))
    if np.broadcast_shapes(kept.shape[:-2], planes) != planes:
        raise MaskError(
            f"{mask!r} tells batch entries or heads apart in rows {rows.start} ... {rows.stop - 1}, but not in "
            f"row {first} alone; which axes a function's answer has must not depend on positions or keys"
        )
    kept = np.broadcast_to(kept, (*planes, rows.stop - rows.start, keys.stop - keys.start))
    return np.packbits(kept, axis=-1, bitorder="little")
