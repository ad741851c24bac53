"""NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from regard._types import Array

from ._base import Pullback


class NumPyArrays:
    """Functions of NumPy arrays, and of whatever reads them."""

    name = "numpy"
    writable = True
    patience = 1
    drawing = "np.random.default_rng(11)"

    def send(self, x: Array) -> Array:
        """Copy."""
        return np.array(x, order="C")

    def read(self, x: Any) -> Array:
        """Return the array itself; what is none becomes one."""
        if x is None:
            raise TypeError("it returns None")
        return np.asarray(x)

    def is_array(self, x: Any) -> bool:
        """Whether a value is an array."""
        return isinstance(x, np.ndarray)

    def calling(self, dtype: str) -> AbstractContextManager[Any]:
        """Nothing is to be set."""
        return nullcontext()

    def random(self, seed: int) -> Any:
        """Return a generator."""
        return np.random.default_rng(seed)

    def views(self, x: Array) -> dict[str, Array]:
        """Return views whose strides are not the usual ones."""
        return {
            "every second feature of a wider array": spread(x),
            "a reversed view": np.ascontiguousarray(x[..., ::-1])[..., ::-1],
        }

    def pull(self, fn: Callable[..., Any], operands: Sequence[Any]) -> tuple[Any, Pullback]:
        """NumPy has no gradients."""
        raise TypeError("NumPy knows no gradients: pass vjp=")

    def threads(self, count: int) -> None:
        """Threads are BLAS's own business."""

    def words(self, dtype: str) -> tuple[str, str, str]:
        """Arrays are passed as they are."""
        return "", "", ""


def spread(x: Array) -> Array:
    """Return a view with these elements, each beside one that is not part of it."""
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


NUMPY = NumPyArrays()
