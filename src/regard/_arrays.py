"""The user's arrays, taken as they are: nothing is copied, nothing is cast."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from regard._errors import DTypeError, ShapeError, UnsupportedError
from regard._types import FLOAT_DTYPES, Array

_TO_NUMPY = {
    "torch": "{name}.detach().numpy()",
    "tensorflow": "{name}.numpy()",
    "cupy": "{name}.get()",
    "jax": "np.asarray({name})",
    "jaxlib": "np.asarray({name})",
}


class HasShapeAndDType(Protocol):
    """All that a plan needs to know of an array."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...


@dataclass(frozen=True, eq=False)
class Operands:
    """The arrays that a call reads."""

    query: Array
    key: Array
    value: Array
    bias: Array | None = None
    sinks: Array | None = None

    @classmethod
    def of(cls, query: Any, key: Any, value: Any, bias: Any = None, sinks: Any = None) -> Operands:
        """Take the user's arguments as NumPy arrays."""
        return cls(
            as_input("query", query),
            as_input("key", key),
            as_input("value", value),
            None if bias is None else as_input("bias", bias),
            None if sinks is None else as_input("sinks", sinks),
        )


def as_input(name: str, value: Any) -> Array:
    """Return ``value`` as a NumPy array without a copy; nested lists of numbers become float64.

    Raises
    ------
    UnsupportedError
        ``value`` is an array of another library.
    DTypeError
        ``value`` is not an array of numbers, or is a masked array.
    """
    if value is None:
        raise DTypeError(f"{name} is None; it must be an array of numbers")
    library = type(value).__module__.partition(".")[0]
    if library in _TO_NUMPY:
        raise UnsupportedError(
            f"{name} is a {library} array, and this version of regard takes NumPy arrays: "
            f"pass {_TO_NUMPY[library].format(name=name)}"
        )
    if is_masked_array(value):
        raise DTypeError(
            f"{name} is a NumPy masked array, whose mask attention would ignore: "
            f"pass {name}.data and say what may be attended to with mask="
        )
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DTypeError(f"{name} is not an array of numbers: {error}") from None
    if array.dtype.kind in "iu" and not isinstance(value, np.ndarray | np.generic):
        array = array.astype(np.float64)
    return array


def is_masked_array(value: object) -> bool:
    """Tell NumPy's masked arrays without importing numpy.ma, which takes time, and a lock that a fork may copy."""
    ma = sys.modules.get("numpy.ma")
    return ma is not None and isinstance(value, ma.MaskedArray)


def require_float(name: str, given: Any) -> np.dtype[Any]:
    """Return the dtype if it is one that attention computes, in this machine's byte order; else raise DTypeError."""
    try:
        dtype: np.dtype[Any] = np.dtype(given)
    except TypeError:
        raise DTypeError(f"{name} has dtype {given!r}, which is not a NumPy dtype: pass np.float32") from None
    if dtype.name in FLOAT_DTYPES and dtype.isnative:
        return dtype
    known = ", ".join(FLOAT_DTYPES)
    if dtype.name in FLOAT_DTYPES:
        raise DTypeError(
            f"{name} has dtype {dtype.str!r}, whose byte order is not this machine's: "
            f"pass {name}.astype(np.{dtype.name})"
        )
    if dtype.kind == "c":
        raise DTypeError(f"{name} is complex ({dtype}); attention is defined for real numbers: pass {name}.real")
    if dtype.kind not in "iubf":
        raise DTypeError(f"{name} is not an array of numbers: its dtype is {dtype}; attention computes {known}")
    kind = "the integer dtype " if dtype.kind in "iu" else "dtype "
    raise DTypeError(f"{name} has {kind}{dtype}; attention computes {known}: pass {name}.astype(np.float32)")


def check_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], operands: Operands) -> Array:
    """Return ``out`` if the result may be written to it.

    Raises
    ------
    ShapeError, DTypeError, UnsupportedError
        Its shape or dtype is not the result's; it is no array, not writable, or shares memory with an input.
    """
    if not isinstance(out, np.ndarray):
        raise UnsupportedError(f"out is of type {type(out).__name__}; pass a NumPy array of shape {shape}")
    if out.shape != shape:
        raise ShapeError(f"out has shape {out.shape} and the result has {shape}: pass np.empty({shape}, query.dtype)")
    if out.dtype != dtype:
        raise DTypeError(f"out has dtype {out.dtype} and the result has the query's, {dtype}: pass one of that dtype")
    if not out.flags.writeable:
        raise UnsupportedError("out is read-only: pass a writable array")
    for name, array in vars(operands).items():
        if array is not None and np.may_share_memory(out, array):
            raise UnsupportedError(f"out may share memory with {name}, which is read while out is written: pass a copy")
    return out
