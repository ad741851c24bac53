"""The user's arrays, taken as they are: nothing is copied, nothing is cast."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from regard._errors import DTypeError, ShapeError, UnsupportedError, written
from regard._libraries import (
    NUMPY,
    Library,
    Maker,
    as_dtype,
    as_numpy,
    is_torch_dtype,
    library_of,
    maker_of,
    of_ml_dtypes,
)
from regard._types import FLOAT_DTYPES, Array
from regard.biases import Bias, DenseBias, as_bias
from regard.masks import Dense, Mask


class HasShapeAndDType(Protocol):
    """All that a plan needs to know of an array."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...


class Operands(NamedTuple):
    """The arrays that a call reads, as NumPy sees them, and the library that they came from."""

    query: Array
    key: Array
    value: Array
    bias: Bias | None = None
    sinks: Array | None = None
    library: Library = NUMPY

    @classmethod
    def of(cls, query: Any, key: Any, value: Any, bias: Any = None, sinks: Any = None) -> Operands:
        """Take the user's arguments, all of one library; lists and numbers go with any.

        Raises
        ------
        UnsupportedError, DTypeError
            As `as_input`; and where the libraries differ.
        """
        plain = bias is None or (isinstance(bias, Bias) and not bias.arrays)
        if plain and sinks is None and type(query) is type(key) is type(value) is np.ndarray:
            # As the intake would, in a third of the time.
            return tuple.__new__(cls, (query, key, value, bias, None, NUMPY))
        intake = Intake()
        return cls(
            intake.floats("query", query),
            intake.floats("key", key),
            intake.floats("value", value),
            None if bias is None else as_bias(bias).with_arrays(partial(intake, "bias")),
            None if sinks is None else intake.floats("sinks", sinks),
            intake.library,
        )

    def arrays(self) -> list[tuple[str, Array]]:
        """Name each array of the user's."""
        named = [("query", self.query), ("key", self.key), ("value", self.value)]
        if self.bias is not None:
            named += [("bias", term.array) for term in self.bias.parts if isinstance(term, DenseBias)]
        return named if self.sinks is None else [*named, ("sinks", self.sinks)]


class Intake:
    """Takes the arrays of one call, one after the other, and sees that they are of one library."""

    __slots__ = ("_first", "_kind", "_maker", "library")

    def __init__(self) -> None:
        self.library: Library = NUMPY
        self._first = ""
        self._kind: type | None = None  # of the last array, and what gives the library of such
        self._maker: Maker

    def __call__(self, name: str, value: Any) -> Array:
        """Take one array, as `as_input`."""
        kind = type(value)
        if kind is not self._kind:
            self._kind, self._maker = kind, maker_of(kind)
        library = self._maker(name, value)
        if library is None:
            return as_input(name, value)
        if not self._first:
            self.library, self._first = library, name
        elif library is not self.library and library.what != self.library.what:
            raise UnsupportedError(
                f"{self._first} is a {self.library.what} and {name} is a {library.what}: the arrays of a call, and "
                f"its result, are of one library; convert {name} or {self._first}"
            )
        return as_input(name, value) if library is NUMPY else library.read(name, value)

    def floats(self, name: str, value: Any) -> Array:
        """Take one array; what is not of floats is refused by the name that its own library has for its dtype."""
        array = self(name, value)
        if self.library is not NUMPY and array.dtype.kind != "f" and not of_ml_dtypes(array.dtype):
            require_float(name, getattr(value, "dtype", array.dtype))
        return array


def as_input(name: str, value: Any) -> Array:
    """Return ``value`` as a NumPy array without a copy; nested lists of numbers become float64.

    Torch tensors, JAX arrays, and what any other library hands over by DLPack are viewed as they lie in CPU memory.

    Raises
    ------
    UnsupportedError
        ``value`` is on another device, has no elements to read (tracers of JAX, fake tensors), or requires grad.
    DTypeError
        ``value`` is not an array of numbers, or is a masked array.
    """
    if type(value) is np.ndarray:
        return value
    if value is None:
        raise DTypeError(f"{name} is None; it must be an array of numbers")
    array = as_numpy(name, value)
    if array.dtype.kind in "iu" and library_of(name, value) is None and not isinstance(value, np.generic):
        array = array.astype(np.float64)
    return array


def require_float(name: str, given: Any) -> np.dtype[Any]:
    """Return the dtype if it is one that attention computes, in this machine's byte order; else raise DTypeError."""
    try:
        dtype = as_dtype(given)
    except TypeError:
        raise DTypeError(f"{name} has dtype {written(given)}, which is not a NumPy dtype: pass np.float32") from None
    if dtype.char in "efd" and dtype.isnative:  # asking for a name takes microseconds
        return dtype
    if dtype.name in FLOAT_DTYPES and dtype.isnative:
        return dtype
    known = ", ".join(FLOAT_DTYPES)
    if dtype.name in FLOAT_DTYPES:
        raise DTypeError(
            f"{name} has dtype {dtype.str!r}, whose byte order is not this machine's: "
            f"pass {name}.astype(np.{dtype.name})"
        )
    cast = f"{name}.to(torch.float32)" if is_torch_dtype(given) else f"{name}.astype(np.float32)"
    if dtype.kind == "c":
        raise DTypeError(f"{name} is complex ({dtype}); attention is defined for real numbers: pass {name}.real")
    if dtype.kind not in "iubf" and not of_ml_dtypes(dtype):
        raise DTypeError(f"{name} is not an array of numbers: its dtype is {dtype}; attention computes {known}")
    kind = "the integer dtype " if dtype.kind in "iu" else "dtype "
    raise DTypeError(f"{name} has {kind}{dtype}; attention computes {known}: pass {cast}")


def check_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], operands: Operands, mask: Mask) -> Array:
    """Return ``out`` as a NumPy array of the same memory, if the result may be written to it.

    Raises
    ------
    ShapeError, DTypeError, UnsupportedError
        Its shape or dtype is not the result's; it is no array of the query's library, masked or not writable; or it
        shares memory with an input, or may do so with itself.
    """
    target = operands.library.target(out, shape)
    if target.shape != shape:
        raise ShapeError(f"out has shape {target.shape} and the result has {shape}: pass an empty array of that shape")
    if target.dtype != dtype:
        raise DTypeError(
            f"out has dtype {target.dtype} and the result has the query's, {dtype}: pass one of that dtype"
        )
    if not target.flags.writeable:
        raise UnsupportedError("out is read-only: pass a writable array")
    if _may_overlap(target):
        raise UnsupportedError(
            f"out has strides {target.strides}: rows that share memory would overwrite each other; pass one that was "
            "not expanded"
        )
    masks = [("mask", leaf.array) for leaf in mask.leaves if isinstance(leaf, Dense)]
    for name, array in operands.arrays() + masks:
        if np.may_share_memory(target, array):
            raise UnsupportedError(f"out may share memory with {name}, which is read while out is written: pass a copy")
    return target


def _may_overlap(array: Array) -> bool:
    """Tell whether elements may share memory: whether a step along an axis ends within what lies between two steps."""
    if array.flags.c_contiguous:  # as every empty one is
        return False
    extent = array.itemsize
    axes = zip(array.strides, array.shape, strict=True)
    for step, size in sorted((abs(step), size) for step, size in axes if size > 1):
        if step < extent:
            return True
        extent += step * (size - 1)
    return False
