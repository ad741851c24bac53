"""Pictures of masks, as text and as SVG: which pairs are kept, and what becomes of each tile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard._types import Geometry, IntArray

from ._arguments import frozen
from ._base import Mask
from ._evaluate import as_size
from ._lower import lower

# Cells of a picture in either direction: more can neither be told apart nor fit a terminal.
MAX_CELLS = 64
EMPTY, PARTIAL, FULL = 0, 1, 2


@dataclass(frozen=True, eq=False, repr=False)
class Picture:
    """A mask drawn on a grid of cells, each one pair, one tile, or several tiles.

    Attributes
    ----------
    mask, geometry
        What was drawn.
    tile
        Queries and keys of one tile.
    full, partial, empty
        Number of tiles that keep all of their pairs, some, and none.
    cell
        Queries and keys of one cell.
    kept
        Number of pairs that each cell keeps, int64 ``(rows, columns)``.
    """

    mask: Mask
    geometry: Geometry
    tile: tuple[int, int]
    full: int
    partial: int
    empty: int
    cell: tuple[int, int]
    kept: IntArray

    @property
    def pairs(self) -> bool:
        """Whether each cell is one pair."""
        return self.cell == (1, 1)

    @property
    def verdicts(self) -> IntArray:
        """For each cell 0 empty, 1 partial or 2 full."""
        return judge(self.kept, *self.borders(*self.cell))

    @property
    def svg(self) -> str:
        """The picture as one self-contained SVG element."""
        from ._svg import render  # draws a Picture, so it comes after it

        return render(self)

    def borders(self, rows: int, keys: int) -> tuple[IntArray, IntArray]:
        """Where cells of a size begin and the last ends, in queries and in keys."""
        return _borders(self.geometry.queries, rows), _borders(self.geometry.keys, keys)

    def title(self) -> str:
        """Say what is drawn."""
        return f"{self.mask!r}: {self.sizes()}"

    def sizes(self) -> str:
        """Say how large the scores are and where the queries stand."""
        queries, keys, offset = self.geometry.queries, self.geometry.keys, self.geometry.q_offset
        where = f", the first at position {offset:,}" if offset else ""
        rows, columns = "query" if queries == 1 else "queries", "key" if keys == 1 else "keys"
        return f"{queries:,} {rows} down{where}, {keys:,} {columns} across"

    def share(self) -> str:
        """Say how many pairs are kept."""
        return f"{int(self.kept.sum()):,} of {self.geometry.queries * self.geometry.keys:,} pairs kept"

    def tally(self) -> str:
        """Say what became of the tiles."""
        rows, keys = self.tile
        return f"tiles of {rows} x {keys}: {self.full:,} full, {self.partial:,} partial, {self.empty:,} empty"

    def scale(self) -> str:
        """Say how many tiles a cell is."""
        down, across = (cell // tile for cell, tile in zip(self.cell, self.tile, strict=True))
        return "1 tile to a cell" if down == across == 1 else f"{down} x {across} tiles to a cell"

    def __str__(self) -> str:
        signs, between = ("·?■", " ") if self.pairs else ("·▒█", "")
        lines = [between.join(signs[verdict] for verdict in row) for row in self.verdicts]
        legend = "■ kept  · not kept" if self.pairs else f"█ full  ▒ partial  · empty, {self.scale()}"
        return "\n".join([self.title(), *lines, legend, f"{self.share()}; {self.tally()}"])

    __repr__ = __str__

    def _repr_svg_(self) -> str:
        return self.svg


def draw(mask: Mask, geometry: Geometry, tile: tuple[int, int]) -> Picture:
    """Draw a checked mask for one head."""
    tile = as_size("block_rows", tile[0], least=1), as_size("tile_keys", tile[1], least=1)
    queries, keys = geometry.queries, geometry.keys
    rows, columns = _borders(queries, tile[0]), _borders(keys, tile[1])
    if max(queries, keys) <= MAX_CELLS:
        cell = 1, 1
        kept, tally = _by_pairs(mask, geometry, rows, columns)
    else:
        down, across = (-(-(len(borders) - 1) // MAX_CELLS) or 1 for borders in (rows, columns))
        cell = down * tile[0], across * tile[1]
        kept, tally = _by_tiles(mask, geometry, rows, columns, (down, across))
    empty, partial, full = map(int, tally)
    return Picture(mask, geometry, tile, full, partial, empty, cell, frozen(kept))


def gather(kept: IntArray, rows: IntArray, columns: IntArray) -> IntArray:
    """Add up the cells between borders, given as indices of cells."""
    total: IntArray = np.add.reduceat(np.add.reduceat(kept, rows[:-1], axis=0), columns[:-1], axis=1)
    return total


def judge(kept: IntArray, rows: IntArray, columns: IntArray) -> IntArray:
    """Tell empty, partial and full cells by the pairs that they keep and their borders."""
    full = kept == np.diff(rows)[:, None] * np.diff(columns)
    return np.where(kept == 0, EMPTY, np.where(full, FULL, PARTIAL))


def _by_pairs(mask: Mask, geometry: Geometry, rows: IntArray, columns: IntArray) -> tuple[IntArray, IntArray]:
    kept = np.zeros((geometry.queries, geometry.keys), np.int64)
    for i in range(geometry.queries):
        kept[i] = _count(mask, geometry, slice(i, i + 1), np.arange(geometry.keys + 1))
    return kept, _tally(gather(kept, rows, columns), rows, columns)


def _by_tiles(
    mask: Mask, geometry: Geometry, rows: IntArray, columns: IntArray, cell: tuple[int, int]
) -> tuple[IntArray, IntArray]:
    """Count row by row of tiles, ``cell`` of them to a cell: the grid of all tiles is never held."""
    down, across = cell
    kept = np.zeros((-(-(len(rows) - 1) // down), -(-(len(columns) - 1) // across)), np.int64)
    tally = np.zeros(3, np.int64)
    for k in range(len(rows) - 1):
        tiles = _count(mask, geometry, slice(int(rows[k]), int(rows[k + 1])), columns)
        tally += _tally(tiles[None], rows[k : k + 2], columns)
        kept[k // down] += np.add.reduceat(tiles, np.arange(0, len(tiles), across))
    return kept, tally


def _tally(kept: IntArray, rows: IntArray, columns: IntArray) -> IntArray:
    """Count empty, partial and full cells."""
    return np.bincount(judge(kept, rows, columns).ravel(), minlength=3)


def _count(mask: Mask, geometry: Geometry, rows: slice, borders: IntArray) -> IntArray:
    """Count the pairs that some rows of the only head keep between borders of keys, ``(len(borders) - 1,)``."""
    total = np.zeros(len(borders) - 1, np.int64)
    for band in lower(mask, geometry, rows):
        height = band.rows.stop - band.rows.start
        if band.data is None:
            total += height * np.diff(borders)
        elif band.kind == "spans":
            data = np.broadcast_to(band.data[0], (height, *band.data.shape[-2:]))
            total += np.diff(_above(data[..., 0], borders) - _above(data[..., 1], borders))
        else:
            table = band.data[0]
            if band.kind == "bits":
                table = np.unpackbits(table, axis=-1, count=geometry.keys, bitorder="little")
            kept = np.broadcast_to(table, (height, geometry.keys)).sum(axis=0, dtype=np.int64)
            total += np.add.reduceat(kept, borders[:-1])
    return total


def _above(edges: IntArray, borders: IntArray) -> IntArray:
    """For each border, the sum of ``border - edge`` over the edges before it: keys of ranges that begin there."""
    ordered = np.sort(edges, axis=None)
    before = np.searchsorted(ordered, borders)
    total: IntArray = before * borders - np.append(0, np.cumsum(ordered))[before]
    return total


def _borders(size: int, step: int) -> IntArray:
    """``0, step, 2 step, ..., size``."""
    return np.append(np.arange(0, size, step), size)
