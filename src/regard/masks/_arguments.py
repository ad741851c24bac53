"""What leaves are made from: integers and arrays, checked, copied and compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from regard._errors import DTypeError, MaskError, written
from regard._libraries import as_numpy
from regard._types import Array, IntArray, as_int

# Stands for anything larger: beyond any difference of a position and a key, and a key + _FAR still fits int64.
_FAR = 2**62 + 2**61


def as_array(name: str, value: object) -> Array:
    """View an array of any library, or take lists; raise MaskError for what is no array, or one that is masked."""
    try:
        return as_numpy(name, value)
    except DTypeError as error:
        raise MaskError(str(error)) from None


def positive(leaf: str, name: str, value: object, way: str) -> int:
    """Take the one integer of a leaf, 1 or more; ``way`` tells what to write for none of its effect."""
    number = as_int(value)
    if number is None or number < 1:
        raise MaskError(f"{leaf}({written(value)}): {name} is an integer, 1 or more; {way}")
    return number


def reach(distance: int | None) -> int:
    """Return a distance as an integer that formulas may add to positions and keys; None is no bound."""
    return _FAR if distance is None else min(distance, _FAR)


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
