"""Whose array a value is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np

from regard._errors import UnsupportedError
from regard._types import Array

from ._jax import Jax
from ._numpy import NUMPY, Library
from ._torch import Torch

TORCH = Torch()
_Maker: TypeAlias = Callable[[str, Any], "Library | None"]


def library_of(name: str, value: Any) -> Library | None:
    """Return the library of an array; None for what is no array: lists, numbers, masks.

    Raises
    ------
    UnsupportedError
        The array is a tracer of JAX or on another device of JAX's, or a tensor of TensorFlow's.
    """
    kind: Any = type(value)
    return NUMPY if kind is np.ndarray else _maker(kind)(name, value)


def as_numpy(name: str, value: Any) -> Array:
    """View an array of any library as NumPy's, without a copy; anything else becomes a NumPy array as it is."""
    if type(value) is np.ndarray:
        return value
    library = library_of(name, value)
    return np.asarray(value) if library is None else library.read(name, value)


@lru_cache(maxsize=256)
def _maker(kind: type) -> _Maker:
    """Return what makes the library of each value of a type."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if issubclass(kind, np.ndarray):
        return lambda name, value: NUMPY
    if torch is not None and issubclass(kind, getattr(torch, "Tensor", ())):
        return lambda name, value: TORCH
    if jax is not None and issubclass(kind, (jax.Array, jax.core.Tracer)):
        return partial(Jax.of, jax)
    if kind.__module__.partition(".")[0] == "tensorflow":
        return _refuse_tensorflow
    found_by_dlpack = NUMPY if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__") else None
    return lambda name, value: found_by_dlpack


def _refuse_tensorflow(name: str, value: Any) -> None:
    # It would be read, and the gradient that a tape expects would be missing without a word.
    raise UnsupportedError(f"{name} is a tensorflow array: pass {name}.numpy(), and the result is a NumPy array")
