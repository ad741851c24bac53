"""Where a formula is evaluated: the geometry that sizes alone make, and the blocks that keep temporaries small."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from regard._errors import AlignmentError, ShapeError
from regard._types import Geometry, IntArray, Offsets

from ._arguments import as_int, fits_lead

# For one operand of the expression; keep() holds about one per level of nesting at a time.
MAX_CHUNK_PAIRS = 1 << 20
# For the spans of all planes; an operator's temporaries are some ten times what it makes.
MAX_PIECE_ROWS = 1 << 14
# So many rows share the ranges of keys outside of which nothing is evaluated: more rows, wider ranges.
BLOCK_ROWS = 64
# Positions are int64, and their differences from keys must be, too.
_MAX_OFFSET = 2**62 - 1


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


def as_geometry(
    queries: int, keys: int, q_offset: int | npt.ArrayLike, lead: tuple[int, ...] = (), heads: int = 1
) -> Geometry:
    """Check sizes that a user gives where there are no arrays; without lead, one head has rank 2."""
    queries, keys, heads = as_size("queries", queries), as_size("keys", keys), as_size("heads", heads)
    lead = tuple(as_size("lead", size) for size in lead)
    rank = len(lead) + 3 if lead or heads != 1 else 2
    return Geometry(lead, heads, queries, keys, _as_offset(q_offset, lead), rank)


def as_size(name: str, value: object, least: int = 0) -> int:
    """Take an integer of at least ``least``."""
    size = as_int(value)
    if size is None or size < least:
        raise ShapeError(f"{name}: {value!r} is no size; it must be an integer, {least} or more")
    return size


def _as_offset(q_offset: object, lead: tuple[int, ...]) -> int | Offsets:
    given = np.asarray(q_offset)
    fits = given.dtype.kind in "iu" and fits_lead(given.shape, lead)
    if not fits or (given.size and not -_MAX_OFFSET <= int(given.min()) <= int(given.max()) <= _MAX_OFFSET):
        raise AlignmentError(
            f"q_offset is {q_offset!r}; it must be an int below 2**62, the position of query 0, or ints that broadcast "
            f"to the leading axes {lead}; for the last query at the last key write keys - queries"
        )
    return Offsets(given.shape, tuple(given.ravel().tolist())) if given.ndim else int(given)
