"""JAX's arrays in CPU memory."""

from __future__ import annotations

import math
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from regard._errors import UnsupportedError
from regard._types import Array

from ._dtypes import require_giveable

ALIGNMENT = 64  # bytes; XLA copies what is not aligned to it


@dataclass(frozen=True)
class Jax:
    """JAX, which is loaded where one of its arrays is, and the number of the CPU device that results are put on."""

    number: int

    what = "JAX array"

    @property
    def jax(self) -> ModuleType:
        """The module; neither it nor the device is kept, so that results can be pickled."""
        return sys.modules["jax"]

    @property
    def device(self) -> Any:
        """The device; the first one in a process that has not so many."""
        devices = self.jax.devices("cpu")
        return next((device for device in devices if device.id == self.number), devices[0])

    @classmethod
    def of(cls, name: str, value: Any) -> Jax:
        """Return the library of an array.

        Raises
        ------
        UnsupportedError
            It is a tracer, which has no elements yet, or not in the memory of one CPU device.
        """
        if isinstance(value, sys.modules["jax"].core.Tracer):
            raise UnsupportedError(
                f"{name} is a JAX tracer ({type(value).__name__}): inside jax.jit, jax.grad and jax.vmap arrays have "
                "no numbers yet, and gradients of regard's attention do not exist: call it outside, or inside jit "
                "through jax.pure_callback with np.asarray of each argument"
            )
        return cls(_device(name, value).id)

    def read(self, name: str, value: Any) -> Array:
        """View an array's memory, read-only as JAX has it."""
        try:
            return np.asarray(value)
        except MemoryError:
            raise
        except Exception as error:  # random keys
            raise UnsupportedError(f"{name} is a JAX array that cannot be read: {error}") from None

    def target(self, out: Any, shape: tuple[int, ...]) -> Array:
        """Refuse: there is nothing to write to."""
        raise UnsupportedError(
            f"out is of type {type(out).__name__} and query is a JAX array, whose results are JAX arrays, which are "
            "immutable: leave out= away and use what is returned"
        )

    def wrote(self, out: Any) -> None:
        """Nothing is ever written to."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return a new array at an address that XLA takes as it is."""
        size = math.prod(shape) * dtype.itemsize
        memory = np.empty(size + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        return memory[start : start + size].view(dtype).reshape(shape)

    def give(self, array: Array) -> Any:
        """Return a JAX array of the same memory if that is aligned, else of a copy."""
        require_giveable("JAX", array.dtype)
        # A float64 query exists, so float64 is wanted, whatever the default is now.
        with self.jax.enable_x64(True) if array.dtype == np.float64 else nullcontext():
            return self.jax.device_put(array, self.device, may_alias=True)

    def dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype itself: JAX has NumPy's."""
        return dtype


def _device(name: str, value: Any) -> Any:
    """Return the CPU device that an array lies on."""
    if value.is_deleted():
        raise UnsupportedError(
            f"{name} is a JAX array that was deleted or donated: it has no elements to read; pass one that is in use"
        )
    device = value.device
    if not hasattr(device, "platform"):  # a sharding
        raise UnsupportedError(
            f"{name} is a JAX array spread over {len(value.devices())} devices, and attention reads one piece of "
            f'memory: pass jax.device_put({name}, jax.devices("cpu")[0])'
        )
    if device.platform != "cpu":
        raise UnsupportedError(
            f"{name} is a JAX array on device {device}, and regard computes on the CPU: pass "
            f'jax.device_put({name}, jax.devices("cpu")[0])'
        )
    return device
