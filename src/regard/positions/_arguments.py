"""What positions, sizes and numbers may be, and what to write where they are not."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from regard._arrays import as_input
from regard._errors import DTypeError, ShapeError, UnsupportedError

MAX_POSITION = 2**53  # beyond, float64 does not hold every integer


def as_positions(name: str, value: Any) -> npt.NDArray[np.float64]:
    """Return positions as float64, which holds them exactly."""
    given = as_input(name, value)
    if given.dtype.kind not in "iuf" or given.dtype == np.float16:
        raise DTypeError(
            f"{name} has dtype {given.dtype}; it is made of integers, float32 or float64 (float16 counts to 2048 only, "
            "bfloat16 to 256): pass integers, such as np.arange(S)"
        )
    where = given.astype(np.float64)
    if not (np.abs(where) <= MAX_POSITION).all():
        odd = where[~(np.abs(where) <= MAX_POSITION)][0]
        raise UnsupportedError(f"{name} has the entry {odd}; positions are finite and at most 2**53 in size")
    return where


def as_count(name: str, value: Any) -> int:
    """Return a number of features."""
    try:
        count = -1 if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        count = -1
    if count < 0:
        raise ShapeError(f"{name} is {value!r}; it is a number of features, an int from 0 on")
    return count


def finite(name: str, value: Any) -> float:
    """Return one finite float."""
    try:
        number = math.nan if isinstance(value, bool | np.bool_ | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UnsupportedError(f"{name} is {value!r}; it must be one finite number")
    return number


def fits(shape: tuple[int, ...], lead: tuple[int, ...]) -> bool:
    """Tell whether a shape broadcasts to the leading axes without expanding them."""
    try:
        return np.broadcast_shapes(shape, lead) == lead
    except ValueError:
        return False
