"""Masks become data: bands of query rows, as row spans, as bits, or as a view of the user's own array."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from regard._errors import MaskError
from regard._types import Array, Geometry

from ._base import Mask, indices
from ._evaluate import chunks
from ._positions import Full
from ._spans import MAX_SPANS
from ._tables import Dense

BAND_ROWS = 1024
MAX_BAND_BYTES = 16 << 20
MIN_BAND_ROWS = 16


@dataclass(frozen=True, eq=False)
class Band:
    """What the query rows ``rows`` keep.

    Attributes
    ----------
    rows
        Half-open range of query indices.
    kind, data
        * ``"full"``: every row keeps every key; None.
        * ``"spans"``: int64 ``(*lead, heads, rows, width, 2)``, C-contiguous, in the normal form of
          `RowSpans`; the width is 0 if no row keeps a key.
        * ``"bits"``: uint8 ``(*lead, heads, rows, ceil(keys / 8))``, C-contiguous; key 8 c + b is bit b of
          byte c, and bits past the last key are 0.
        * ``"bytes"``: bool ``(*lead, heads, rows, keys)``, a view of the user's array with its strides.

        Lead and head axes have size 1 where nothing differs along them; so has the row axis of spans. In
        bytes every axis of size 1 of the user's array stays so.
    """

    rows: slice
    kind: Literal["full", "spans", "bits", "bytes"]
    data: Array | None


def lower(
    mask: Mask | None, geometry: Geometry, rows: slice | None = None, band_rows: int = BAND_ROWS
) -> Iterator[Band]:
    """Cut the query rows, all or ``rows``, into bands in order, without gaps; the mask was checked before."""
    if mask is None or geometry.keys == 0:  # without keys all masks are equal
        mask = Full()
    start, stop = (0, geometry.queries) if rows is None else (rows.start, rows.stop)
    if isinstance(mask, Full) and geometry.keys and start < stop:
        yield Band(slice(start, stop), "full", None)
        return
    while start < stop:
        band = _band(mask, geometry, slice(start, min(start + band_rows, stop)))
        yield band
        start = band.rows.stop


def _band(mask: Mask, geometry: Geometry, rows: slice) -> Band:
    if isinstance(mask, Dense):
        table = mask.table(geometry)
        return Band(rows, "bytes", table if table.shape[-2] == 1 else table[..., rows, :])
    one = mask.spans(geometry, slice(rows.start, rows.start + 1))
    if one is None:
        return _bits(mask, geometry, rows)
    rows = _shortened(rows, one.data.nbytes)
    spans = mask.spans(geometry, rows)
    if spans is None or spans.width > MAX_SPANS:
        return _bits(mask, geometry, rows)
    if spans.is_full():
        return Band(rows, "full", None)
    first = spans.data[..., :1, :, :]
    data = first if np.all(spans.data == first) else spans.data
    return Band(rows, "spans", np.ascontiguousarray(data))


def _shortened(rows: slice, row_bytes: int) -> slice:
    """Cut a band so that it stays small, all leading axes together."""
    most = max(MIN_BAND_ROWS, MAX_BAND_BYTES // max(1, row_bytes))
    return slice(rows.start, min(rows.stop, rows.start + most))


def _bits(mask: Mask, geometry: Geometry, rows: slice) -> Band:
    """Evaluate the mask block by block, and pack; the band is shortened to stay small."""
    # One pair tells along which leading axes the mask differs.
    planes = mask.keep(geometry, np.array([rows.start]), np.array([0])).shape[:-2]
    count, row_bytes = math.prod(planes), -(-geometry.keys // 8)
    rows = _shortened(rows, count * row_bytes)
    packed = np.empty((*planes, rows.stop - rows.start, row_bytes), np.uint8)
    for block, keys in chunks(rows, geometry.keys, count):
        kept = mask.keep(geometry, indices(block), indices(keys))
        if np.broadcast_shapes(kept.shape[:-2], planes) != planes:
            raise MaskError(
                f"{mask!r} tells batch entries or heads apart in rows {block.start} ... {block.stop - 1}, but not in "
                f"row {rows.start} alone; which axes a function's answer has must not depend on positions or keys"
            )
        kept = np.broadcast_to(kept, (*planes, block.stop - block.start, keys.stop - keys.start))
        at = slice(block.start - rows.start, block.stop - rows.start), slice(keys.start // 8, -(-keys.stop // 8))
        packed[(..., *at)] = np.packbits(kept, axis=-1, bitorder="little")
    return Band(rows, "bits", packed)
