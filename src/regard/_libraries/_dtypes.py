"""Dtypes by any library's name for them, as NumPy's."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import numpy as np

from regard._errors import UnsupportedError
from regard._types import FLOAT_DTYPES


@lru_cache(maxsize=1)
def bfloat16() -> np.dtype[Any]:
    """Return the dtype that NumPy has no name for before ml_dtypes is imported."""
    import ml_dtypes  # takes as long as regard itself, and most calls never need it

    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def is_torch_dtype(given: object) -> bool:
    """Whether this is a dtype of torch's, which NumPy does not know."""
    return isinstance(given, getattr(sys.modules.get("torch"), "dtype", ()))  # missing from a torch half imported


def as_dtype(given: Any) -> np.dtype[Any]:
    """Return the dtype in NumPy's terms; TypeError if there is none, as for quantized ones of torch's."""
    dtype: np.dtype[Any]
    if not is_torch_dtype(given):
        try:
            dtype = np.dtype(given)
        except (ValueError, SyntaxError):  # of digits, say, that NumPy would read or write out
            raise TypeError("it is no dtype") from None
        return dtype
    bfloat16()  # from then on NumPy knows that name, and those of the float8
    dtype = np.dtype(str(given).removeprefix("torch."))
    return dtype


def of_ml_dtypes(dtype: np.dtype[Any]) -> bool:
    """Whether this is a dtype of ml_dtypes, such as bfloat16: of kind V, as raw bytes and records are."""
    return dtype.kind == "V" and not issubclass(dtype.type, np.void)


def require_giveable(library: str, dtype: np.dtype[Any]) -> None:
    """Raise UnsupportedError unless ``library`` has the floating-point dtype of a result."""
    if dtype.char not in "efd" and dtype.name not in FLOAT_DTYPES:  # asking for a name takes microseconds
        raise UnsupportedError(f"{library} has no dtype {dtype}: pass NumPy arrays, and the result is one, too")
