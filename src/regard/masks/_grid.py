"""What a picture of a mask shows: a grid of cells, the pairs that each keeps, and the tiles."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from regard._types import Geometry, IntArray

from ._expression import Expression

EMPTY, PARTIAL, FULL = 0, 1, 2


@dataclass(frozen=True, eq=False, repr=False)
class Grid:
    """A mask drawn on a grid of cells, each one pair, one tile, or several tiles.

    Attributes
    ----------
    mask, geometry, entry, head
        What was drawn; ``entry`` is the index of the batch entry along the leading axes of the geometry.
    tile
        Queries and keys of one tile.
    full, partial, empty
        Number of tiles that keep all of their pairs, some, and none.
    cell
        Queries and keys of one cell.
    kept
        Number of pairs that each cell keeps, int64 ``(rows, columns)``.
    """

    mask: Expression
    geometry: Geometry
    entry: tuple[int, ...]
    head: int
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

    def borders(self, rows: int, keys: int) -> tuple[IntArray, IntArray]:
        """Where cells of a size begin and the last ends, in queries and in keys."""
        return borders_of(self.geometry.queries, rows), borders_of(self.geometry.keys, keys)

    def title(self) -> str:
        """Say what is drawn."""
        return f"{self.mask!r}: {self.sizes()}"

    def sizes(self) -> str:
        """Say how large the scores are, where the queries stand, and which batch entry and head if that matters."""
        queries, keys, offset = self.geometry.queries, self.geometry.keys, self.geometry.q_offset
        where = f", the first at position {offset:,}" if offset else ""
        which = f", batch entry {', '.join(map(str, self.entry))}" if math.prod(self.geometry.lead) > 1 else ""
        which += "" if self.mask.heads is None and not self.head else f", head {self.head}"
        rows, columns = "query" if queries == 1 else "queries", "key" if keys == 1 else "keys"
        return f"{queries:,} {rows} down{where}, {keys:,} {columns} across{which}"

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


def gather(kept: IntArray, rows: IntArray, columns: IntArray) -> IntArray:
    """Add up the cells between borders, given as indices of cells."""
    total: IntArray = np.add.reduceat(np.add.reduceat(kept, rows[:-1], axis=0), columns[:-1], axis=1)
    return total


def judge(kept: IntArray, rows: IntArray, columns: IntArray) -> IntArray:
    """Tell empty, partial and full cells by the pairs that they keep and their borders."""
    full = kept == np.diff(rows)[:, None] * np.diff(columns)
    return np.where(kept == 0, EMPTY, np.where(full, FULL, PARTIAL))


def borders_of(size: int, step: int) -> IntArray:
    """``0, step, 2 step, ..., size``."""
    return np.append(np.arange(0, size, step), size)
