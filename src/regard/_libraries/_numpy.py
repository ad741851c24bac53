"""NumPy, and with it every library that hands over CPU memory by DLPack."""

from __future__ import annotations

import sys
from typing import Any, Protocol

import numpy as np

from regard._errors import DTypeError, UnsupportedError
from regard._types import Array

# Devices by number in the DLPack protocol.
_DEVICES = {
    1: "cpu", 2: "cuda", 3: "cuda_host", 4: "opencl", 7: "vulkan", 8: "metal", 9: "vpi", 10: "rocm", 11: "rocm_host",
    12: "ext_dev", 13: "cuda_managed", 14: "oneapi", 15: "webgpu", 16: "hexagon", 17: "maia",
}  # fmt: skip
_READABLE = (1, 3, 11, 13)  # what np.from_dlpack takes: the CPU can read them
_COPIES = {"cupy": "{name}.get()"}


class Library(Protocol):
    """What regard asks of an array library; ``what`` is one of its arrays in words."""

    @property
    def what(self) -> str: ...

    def read(self, name: str, value: Any) -> Array:
        """View an array's memory, as it lies; raise UnsupportedError or DTypeError where that cannot be."""

    def target(self, out: Any, shape: tuple[int, ...]) -> Array:
        """View the array that a result of ``shape`` is to be written to, or raise UnsupportedError."""

    def wrote(self, out: Any) -> None:
        """Tell the library that ``out`` was written to."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return memory that `give` need not copy."""

    def give(self, array: Array) -> Any:
        """Return an array of this library that has the memory of ``array``, which nobody else writes to."""

    def dtype(self, dtype: np.dtype[Any]) -> Any:
        """Return this library's own name of a dtype."""


class NumPy:
    """NumPy arrays; and those of a library that regard does not know by name, whose results are NumPy arrays."""

    what = "NumPy array"

    def read(self, name: str, value: Any) -> Array:
        """View the memory; other libraries' by DLPack."""
        if isinstance(value, np.ndarray):
            _refuse_masked(name, value)
            return np.asarray(value)
        kind = type(value)
        library = kind.__module__.partition(".")[0]
        device, index = value.__dlpack_device__()
        if device not in _READABLE:
            copy = _COPIES.get(library, "a copy in the CPU's memory").format(name=name)
            raise UnsupportedError(
                f"{name} is a {library} array on device {_DEVICES.get(int(device), int(device))}:{index}, and regard "
                f"computes on the CPU: pass {copy}"
            )
        try:
            return np.from_dlpack(value)
        except MemoryError:
            raise
        except Exception as error:  # which one is the other library's choice
            raise UnsupportedError(
                f"{name} is of type {library}.{kind.__name__}, and NumPy cannot take its memory by DLPack ({error}): "
                f"pass it as a NumPy array"
            ) from None

    def target(self, out: Any, shape: tuple[int, ...]) -> Array:
        """View the array itself."""
        if not isinstance(out, np.ndarray):
            raise UnsupportedError(f"out is of type {type(out).__name__}; pass a NumPy array of shape {shape}")
        return self.read("out", out)

    def wrote(self, out: Any) -> None:
        """Nobody counts."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return a new array."""
        return np.empty(shape, dtype)

    def give(self, array: Array) -> Array:
        """Return the array itself."""
        return array

    def dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype itself."""
        return dtype


def _refuse_masked(name: str, value: Array) -> None:
    # Not imported here: that takes time, and a lock that a fork may copy. The name may be missing, as in _find.
    if isinstance(value, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        fill = False if value.dtype == bool else 0
        raise DTypeError(
            f"{name} is a NumPy masked array, whose own mask would be ignored: pass {name}.data, or "
            f"{name}.filled({fill}); which keys may be attended to is said by mask="
        )


NUMPY = NumPy()
