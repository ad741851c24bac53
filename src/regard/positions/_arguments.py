"""What positions, sizes and numbers may be, and what to write where they are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from regard._arrays import as_input
from regard._errors import DTypeError, UnsupportedError, written
from regard._fit import as_finite

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


def finite(name: str, value: Any) -> float:
    """Return one finite float."""
    number = as_finite(value)
    if number is None:
        raise UnsupportedError(f"{name} is {written(value)}; it must be one finite number")
    return number
