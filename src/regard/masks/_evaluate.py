"""Where a formula is evaluated: the blocks that keep temporaries small."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from regard._types import IntArray

# For one operand of the expression; keep() holds about one per level of nesting at a time.
MAX_CHUNK_PAIRS = 1 << 20
# For the spans of all planes; an operator's temporaries are some ten times what it makes.
MAX_PIECE_ROWS = 1 << 14
# So many rows share the ranges of keys outside of which nothing is evaluated: more rows, wider ranges.
BLOCK_ROWS = 64


def chunks(rows: slice, keys: slice, planes: int) -> Iterator[tuple[slice, slice]]:
    """Cut rows and keys into blocks of at most MAX_CHUNK_PAIRS pairs over all planes, or of one row by 8 keys.

    Blocks come row by row; keys are cut at multiples of 8 from their first only.
    """
    pairs = max(8, MAX_CHUNK_PAIRS // max(1, planes))
    width = max(1, min(keys.stop - keys.start, pairs // 8 * 8))
    for some in cut(rows, pairs // width):
        for j in range(keys.start, keys.stop, width):
            yield some, slice(j, min(j + width, keys.stop))


def cut(rows: slice, most: int) -> Iterator[slice]:
    """Cut rows into slices of at most so many."""
    for i in range(rows.start, rows.stop, most):
        yield slice(i, min(i + most, rows.stop))


def piece_rows(planes: int) -> int:
    """Tell of how many rows the spans are found at a time."""
    return max(1, MAX_PIECE_ROWS // max(1, planes))


def indices(of: slice) -> IntArray:
    """Spell out the indices of a slice that has both ends."""
    return np.arange(of.start, of.stop)
