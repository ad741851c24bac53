"""JAX's arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import numpy as np

from regard._types import Array

from ._base import Pullback


class JaxArrays:
    """Functions of JAX arrays, which are immutable and have no strides."""

    name = "jax"
    writable = False
    patience = 10  # it compiles for each shape
    drawing = "jax.random.key(11)"

    @property
    def jax(self) -> ModuleType:
        """The module, which is loaded where a function of its arrays is."""
        return sys.modules["jax"]

    def send(self, x: Array) -> Any:
        """Return a new array; float64 stays float64, whatever the default is."""
        with self.calling("float64" if x.dtype.itemsize == 8 else "float32"):
            return self.jax.numpy.array(x)

    def read(self, x: Any) -> Array:
        """View the memory."""
        if x is None:
            raise TypeError("it returns None")
        return np.asarray(x)

    def is_array(self, x: Any) -> bool:
        """Whether a value is an array."""
        return isinstance(x, self.jax.Array)

    def calling(self, dtype: str) -> AbstractContextManager[Any]:
        """Let float64 be."""
        context: AbstractContextManager[Any] = self.jax.enable_x64(True) if dtype == "float64" else nullcontext()
        return context

    def random(self, seed: int) -> Any:
        """Return a key."""
        return self.jax.random.key(seed)

    def views(self, x: Any) -> dict[str, Any]:
        """There are none."""
        return {}

    def pull(self, fn: Callable[..., Any], operands: Sequence[Any]) -> tuple[Any, Pullback]:
        """Differentiate by `jax.vjp`."""
        out, back = self.jax.vjp(fn, *operands)
        return out, lambda grad: [self.read(x) for x in back(self.send(grad.astype(out.dtype)))]

    def threads(self, count: int) -> None:
        """XLA's pool is set when it starts."""

    def words(self, dtype: str) -> tuple[str, str, str]:
        """Arrays are made of NumPy's and read as NumPy's."""
        to = ", jax.numpy.bfloat16" if dtype == "bfloat16" else ""
        start = 'import jax\n\njax.config.update("jax_enable_x64", True)' if dtype == "float64" else "import jax"
        return start, f"jax.numpy.asarray(x{to})", "np.asarray(x)"


JAX = JaxArrays()
