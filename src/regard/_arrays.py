"""The user's arrays, taken as they are: nothing is copied, nothing is cast."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from regard._errors import DTypeError, UnsupportedError
from regard._types import Array

_OTHER_LIBRARIES = {"torch": ".numpy()", "jax": "np.asarray(...)", "jaxlib": "np.asarray(...)",
                    "tensorflow": ".numpy()", "cupy": ".get()"}  # fmt: skip


class HasShapeAndDType(Protocol):
    """All that a plan needs to know of an array."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...


def as_input(name: str, value: Any) -> Array:
    """Return ``value`` as a NumPy array without a copy; nested lists of numbers become float64.

    Raises
    ------
    UnsupportedError
        ``value`` is an array of another library.
    DTypeError
        ``value`` is not an array of numbers, is a masked array, or its bytes are not in this machine's order.
    """
    library = type(value).__module__.partition(".")[0]
    if library in _OTHER_LIBRARIES:
        raise UnsupportedError(
            f"{name} is a {library} array; this version of regard takes NumPy arrays: "
            f"pass {name}.detach(){_OTHER_LIBRARIES[library]}"
            if library == "torch"
            else f"{name} is a {library} array; this version of regard takes NumPy arrays: "
            f"convert it with {_OTHER_LIBRARIES[library]}"
        )
    if isinstance(value, np.ma.MaskedArray):
        raise DTypeError(
            f"{name} is a NumPy masked array, whose mask attention would ignore: "
            f"pass {name}.data and say what may be attended to with mask="
        )
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DTypeError(f"{name} is not an array of numbers: {error}") from None
    if array.dtype.kind in "iu" and isinstance(value, (list, tuple)):
        array = array.astype(np.float64)
    return array


def require_dtype(name: str, dtype: np.dtype[Any], allowed: tuple[np.dtype[Any], ...]) -> None:
    """Raise DTypeError unless ``dtype`` is one of ``allowed``, in native byte order."""
    if dtype in allowed and dtype.isnative:
        return
    wanted = " or ".join(str(d) for d in allowed)
    if not dtype.isnative and dtype.newbyteorder("=") in allowed:
        raise DTypeError(
            f"{name} has dtype {dtype.str!r}, whose byte order is not this machine's: "
            f"pass {name}.astype(np.{dtype.newbyteorder('=')})"
        )
    reason = "an integer dtype" if dtype.kind in "iub" else f"dtype {dtype}"
    detail = f"{name} has {reason} ({dtype}), " if dtype.kind in "iub" else f"{name} has {reason}, "
    raise DTypeError(
        f"{detail}and this version of regard computes {wanted} only: pass {name}.astype(np.{allowed[0]}); "
        f"regard.reference.attention computes any floating dtype in float64"
    )
