"""Whose array a value is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from regard._errors import DTypeError, UnsupportedError
from regard._types import Array

from ._jax import Jax
from ._numpy import NUMPY, Library
from ._torch import Torch

TORCH = Torch()
Maker: TypeAlias = Callable[[str, Any], "Library | None"]


def library_of(name: str, value: Any) -> Library | None:
    """Return the library of an array; None for what is no array: lists, numbers, masks.

    Raises
    ------
    UnsupportedError
        The array is a tracer of JAX or on another device of JAX's, or a tensor of TensorFlow's.
    """
    kind: Any = type(value)
    return NUMPY if kind is np.ndarray else maker_of(kind)(name, value)


def maker_of(kind: type) -> Maker:
    """Return what gives the library of each value of a type; it holds as long as no library is imported."""
    return _maker(kind, _tensor_types(), _jax_types())


def as_numpy(name: str, value: Any) -> Array:
    """View an array of any library as NumPy's, without a copy; anything else becomes a NumPy array as it is.

    Raises
    ------
    UnsupportedError, DTypeError
        As `Library.read`; and where nothing is to be made of ``value``, such as lists of different lengths.
    """
    if type(value) is np.ndarray:
        return value
    library = library_of(name, value)
    if library is not None:
        return library.read(name, value)
    try:
        return np.asarray(value)
    except MemoryError:
        raise
    except Exception as error:  # of a list's elements, whose own libraries raise what they like
        raise DTypeError(f"{name} is not an array of numbers: {error}") from None


# A name may be missing: of a library that another thread is just importing, and of a folder that is called like one.
def _tensor_types() -> tuple[type, ...]:
    return _found(sys.modules.get("torch"), "Tensor")


def _jax_types() -> tuple[type, ...]:
    jax = sys.modules.get("jax")
    return _found(jax, "Array") + _found(getattr(jax, "core", None), "Tracer")


def _found(module: object, name: str) -> tuple[type, ...]:
    kind = getattr(module, name, None)
    return () if kind is None else (kind,)


# What decides is all in the arguments, so that no answer grows old while libraries are imported.
@lru_cache(maxsize=256)
def _maker(kind: type, tensors: tuple[type, ...], jaxs: tuple[type, ...]) -> Maker:
    """Return what makes the library of each value of a type."""
    if issubclass(kind, np.ndarray):
        return lambda name, value: NUMPY
    if issubclass(kind, tensors):
        return lambda name, value: TORCH
    if issubclass(kind, jaxs):
        return Jax.of
    if kind.__module__.partition(".")[0] == "tensorflow":
        return _refuse_tensorflow
    found_by_dlpack = NUMPY if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__") else None
    return lambda name, value: found_by_dlpack


def _refuse_tensorflow(name: str, value: Any) -> None:
    # It would be read, and the gradient that a tape expects would be missing without a word.
    raise UnsupportedError(f"{name} is a tensorflow array: pass {name}.numpy(), and the result is a NumPy array")
