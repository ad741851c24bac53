"""Pictures of masks, as text and as SVG: which pairs are kept, and what becomes of each tile."""

from __future__ import annotations

import numpy as np

from regard._fit import as_size
from regard._types import Geometry, IntArray

from ._arguments import frozen
from ._expression import Expression
from ._grid import Grid, borders_of, gather, judge
from ._lower import lower
from ._svg import render

# Cells of a picture in either direction: more can neither be told apart nor fit a terminal.
MAX_CELLS = 64


class Picture(Grid):
    """A mask drawn in text and as SVG."""

    @property
    def svg(self) -> str:
        """The picture as one self-contained SVG element."""
        return render(self)

    def __str__(self) -> str:
        signs, between = ("·?■", " ") if self.pairs else ("·▒█", "")
        lines = [between.join(signs[verdict] for verdict in row) for row in self.verdicts]
        legend = "■ kept  · not kept" if self.pairs else f"█ full  ▒ partial  · empty, {self.scale()}"
        return "\n".join([self.title(), *lines, legend, f"{self.share()}; {self.tally()}"])

    __repr__ = __str__

    def _repr_svg_(self) -> str:
        return self.svg


def draw(
    mask: Expression, geometry: Geometry, head: int, tile: tuple[int, int], entry: tuple[int, ...] = ()
) -> Picture:
    """Draw a checked mask for one of the heads of a batch entry, whose offset is the geometry's."""
    at = (*entry, head)
    tile = as_size("block_rows", tile[0], least=1), as_size("tile_keys", tile[1], least=1)
    queries, keys = geometry.queries, geometry.keys
    rows, columns = borders_of(queries, tile[0]), borders_of(keys, tile[1])
    if max(queries, keys) <= MAX_CELLS:
        cell = 1, 1
        kept, tally = _by_pairs(mask, geometry, at, rows, columns)
    else:
        down, across = (-(-(len(borders) - 1) // MAX_CELLS) or 1 for borders in (rows, columns))
        cell = down * tile[0], across * tile[1]
        kept, tally = _by_tiles(mask, geometry, at, rows, columns, (down, across))
    empty, partial, full = map(int, tally)
    return Picture(mask, geometry, entry, head, tile, full, partial, empty, cell, frozen(kept))


def _by_pairs(
    mask: Expression, geometry: Geometry, at: tuple[int, ...], rows: IntArray, columns: IntArray
) -> tuple[IntArray, IntArray]:
    kept = np.zeros((geometry.queries, geometry.keys), np.int64)
    for i in range(geometry.queries):
        kept[i] = _count(mask, geometry, at, slice(i, i + 1), np.arange(geometry.keys + 1))
    return kept, _tally(gather(kept, rows, columns), rows, columns)


def _by_tiles(
    mask: Expression,
    geometry: Geometry,
    at: tuple[int, ...],
    rows: IntArray,
    columns: IntArray,
    cell: tuple[int, int],
) -> tuple[IntArray, IntArray]:
    """Count row by row of tiles, ``cell`` of them to a cell: the grid of all tiles is never held."""
    down, across = cell
    kept = np.zeros((-(-(len(rows) - 1) // down), -(-(len(columns) - 1) // across)), np.int64)
    tally = np.zeros(3, np.int64)
    for k in range(len(rows) - 1):
        tiles = _count(mask, geometry, at, slice(int(rows[k]), int(rows[k + 1])), columns)
        tally += _tally(tiles[None], rows[k : k + 2], columns)
        kept[k // down] += np.add.reduceat(tiles, np.arange(0, len(tiles), across))
    return kept, tally


def _tally(kept: IntArray, rows: IntArray, columns: IntArray) -> IntArray:
    """Count empty, partial and full cells."""
    return np.bincount(judge(kept, rows, columns).ravel(), minlength=3)


def _count(mask: Expression, geometry: Geometry, at: tuple[int, ...], rows: slice, borders: IntArray) -> IntArray:
    """Count the pairs that rows of a batch entry and head keep between borders of keys, ``(len(borders) - 1,)``."""
    total = np.zeros(len(borders) - 1, np.int64)
    for band in lower(mask, geometry, rows):
        height = band.rows.stop - band.rows.start
        if band.data is None:
            edges = np.array(band.ranges if band.kind == "row" else (0, geometry.keys), np.int64)
            total += height * np.diff(_above(edges[::2], borders) - _above(edges[1::2], borders))
            continue
        data = band.data[tuple(i if size > 1 else 0 for i, size in zip(at, band.data.shape, strict=False))]
        if band.kind == "spans":
            data = np.broadcast_to(data, (height, *data.shape[-2:]))
            total += np.diff(_above(data[..., 0], borders) - _above(data[..., 1], borders))
        else:
            if band.kind == "bits":
                data = np.unpackbits(data, axis=-1, count=geometry.keys, bitorder="little")
            kept = np.broadcast_to(data, (height, geometry.keys)).sum(axis=0, dtype=np.int64)
            total += np.add.reduceat(kept, borders[:-1])
    return total


def _above(edges: IntArray, borders: IntArray) -> IntArray:
    """For each border, the sum of ``border - edge`` over the edges before it: keys of ranges that begin there."""
    ordered = np.sort(edges, axis=None)
    before = np.searchsorted(ordered, borders)
    total: IntArray = before * borders - np.append(0, np.cumsum(ordered))[before]
    return total
