"""What leaves are made from: integers and arrays, checked, copied and compared."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from regard._errors import MaskError
from regard._types import IntArray


def as_int(value: object) -> int | None:
    """Take an integer of any type but bool; None for anything else."""
    try:
        return None if isinstance(value, bool | np.bool_) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def positive(leaf: str, name: str, value: object, way: str) -> int:
    """Take the one integer of a leaf, 1 or more; ``way`` tells what to write for none of its effect."""
    number = as_int(value)
    if number is None or number < 1:
        raise MaskError(f"{leaf}({value!r}): {name} is an integer, 1 or more; {way}")
    return number


def as_int64(given: npt.NDArray[Any], refusal: str) -> IntArray:
    """Copy integers as read-only int64; raise ``refusal`` with what was given for anything else."""
    whole = given.dtype.kind in "iu" or not given.size
    if not whole or (given.dtype == np.uint64 and given.size and given.max() >= 2**63):
        raise MaskError(refusal)
    return frozen(given.astype(np.int64))


def frozen(copy: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make a copy of our own read-only."""
    copy.flags.writeable = False
    return copy


def fits_lead(shape: tuple[int, ...], lead: tuple[int, ...]) -> bool:
    """Whether values, one per batch entry, broadcast to the leading axes of the scores."""
    return len(shape) <= len(lead) and all(
        size in (1, full) for size, full in zip(reversed(shape), reversed(lead), strict=False)
    )
