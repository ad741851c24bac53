"""What is laid over the scores, and where these lie: which shapes and positions fit, and what to write for others."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from regard._errors import AlignmentError, DTypeError, ShapeError, UnsupportedError, written
from regard._libraries import as_numpy
from regard._types import Geometry, Offsets, as_int

MAX_SIZE = 2**63 - 1  # of an axis, in NumPy
MAX_OFFSET = 2**61  # positions are int64, and a window adds up to 2^62 to them


def misfit(what: str, shape: tuple[int, ...], geometry: Geometry) -> str | None:
    """Say why an array of ``shape`` cannot be laid over the scores, with the indexing to write; None if it can.

    It can if it has shape ``(Sq, Skv)`` or the rank of the scores, each axis 1 or full.
    """
    full = geometry.shape
    if len(shape) in (2, len(full)) and _fits(shape, full[-len(shape) :]):
        return None
    message = (
        f"the {what} has shape {shape} and the scores have shape {geometry.user_shape}; a {what} is "
        f"(Sq, Skv) = ({geometry.queries}, {geometry.keys}) or has the rank of the scores, each axis 1 or full"
    )
    ways = _indexings(what, shape, geometry.user_shape)
    return f"{message}: write {' or '.join(ways)}" if ways else message


def _fits(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    return all(size in (1, full) for size, full in zip(shape, target, strict=True))


def _indexings(what: str, shape: tuple[int, ...], target: tuple[int, ...]) -> list[str]:
    """List the ways to give an array its missing axes so that it fits, such as ``mask[:, None, None, :]``."""
    ways: dict[tuple[int, ...], str] = {}
    for kept in combinations(range(len(target)), len(shape)):
        if _fits(shape, tuple(target[axis] for axis in kept)):
            sizes = iter(shape)
            full = tuple(next(sizes) if axis in kept else 1 for axis in range(len(target)))
            index = ", ".join(":" if axis in kept else "None" for axis in range(len(target)))
            ways.setdefault(full, f"{what}[{index.removesuffix(', :, :')}]")
    return list(ways.values())


def fits_lead(shape: tuple[int, ...], lead: tuple[int, ...]) -> bool:
    """Whether values, one per batch entry, broadcast to the leading axes of the scores."""
    return len(shape) <= len(lead) and all(
        size in (1, full) for size, full in zip(reversed(shape), reversed(lead), strict=False)
    )


def as_size(name: str, value: object, least: int = 0) -> int:
    """Take an integer of at least ``least``."""
    size = as_int(value)
    if size is None or size < least:
        raise ShapeError(f"{name} is {written(value)}; it must be an integer, {least} or more")
    if size > MAX_SIZE:
        raise ShapeError(f"{name} is {written(value)}; sizes go up to 2**63 - 1")
    return size


def as_finite(value: Any) -> float | None:
    """Take a finite number of any type but bool and text; None for anything else."""
    try:
        number = math.nan if isinstance(value, bool | np.bool_ | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def as_flag(name: str, value: object) -> bool:
    """Return True or False; a text, say, would count as True."""
    if not isinstance(value, bool | np.bool_):
        raise UnsupportedError(f"{name} is {written(value)}; it is True or False")
    return bool(value)


def as_geometry(
    queries: int, keys: int, q_offset: int | npt.ArrayLike, lead: tuple[int, ...] = (), heads: int = 1
) -> Geometry:
    """Check sizes that a user gives where there are no arrays; without lead, one head has rank 2."""
    queries, keys, heads = as_size("queries", queries), as_size("keys", keys), as_size("heads", heads)
    if not isinstance(lead, tuple | list):
        raise ShapeError(
            f"lead is {written(lead)}; it must be a tuple, the sizes of the axes before heads: (2,) for one"
        )
    lead = tuple(as_size("lead", size) for size in lead)
    offset = as_offset(q_offset, "for the last query at the last key write keys - queries")
    check_offset(offset, lead)
    return Geometry(lead, heads, queries, keys, offset, len(lead) + 3 if lead or heads != 1 else 2)


def as_offset(q_offset: object, way: str) -> int | Offsets:
    """Take the position of query 0, or one per batch entry; ``way`` tells what else may be written."""
    try:
        given = np.asarray(q_offset) if isinstance(q_offset, int) else as_numpy("q_offset", q_offset)
    except DTypeError as error:
        raise AlignmentError(f"{error}; it holds positions, which are integers") from None
    if given.ndim and given.dtype.kind in "iu":
        if given.size and not -MAX_OFFSET <= int(given.min()) <= int(given.max()) <= MAX_OFFSET:
            raise AlignmentError(f"q_offset reaches from {given.min()} to {given.max()}; positions are at most 2**61")
        return Offsets(given.shape, tuple(given.ravel().tolist()))
    offset = None if given.ndim else as_int(given.item())
    if offset is None or abs(offset) > MAX_OFFSET:
        raise AlignmentError(
            f"q_offset is {written(q_offset)}; it must be an int up to 2**61, the position of query 0, or ints per "
            f"batch entry; {way}"
        )
    return offset


def check_offset(offset: int | Offsets, lead: tuple[int, ...]) -> None:
    """Raise AlignmentError unless offsets broadcast to the leading axes."""
    if isinstance(offset, Offsets) and not fits_lead(offset.shape, lead):
        raise AlignmentError(
            f"q_offset has shape {offset.shape} and the leading (batch) axes are {lead}: give one int, or ints that "
            "broadcast against those axes"
        )


def batch_of(lead: tuple[int, ...], offset: int | Offsets) -> tuple[int, ...]:
    """Leading axes of a mask and of the offsets together; where they do not fit, the mask's, for whose check it is."""
    shape = offset.shape if isinstance(offset, Offsets) else ()
    try:
        return np.broadcast_shapes(lead, shape)
    except ValueError:
        return lead


def entry_of(mask: str, batch: int, lead: tuple[int, ...]) -> tuple[int, ...]:
    """Index of a batch entry, counted in C order."""
    batch, entries = as_size("batch", batch), math.prod(lead)
    if batch >= entries:
        raise ShapeError(f"batch: there is no entry {batch} in {mask}, which is made for {entries}, from 0 on")
    return tuple(int(i) for i in np.unravel_index(batch, lead)) if lead else ()


def offset_at(offset: int | Offsets, entry: tuple[int, ...]) -> int:
    """Position of query 0 in one batch entry."""
    if not isinstance(offset, Offsets):
        return offset
    at = entry[len(entry) - len(offset.shape) :]
    return int(offset.array()[tuple(i if size > 1 else 0 for i, size in zip(at, offset.shape, strict=True))])
