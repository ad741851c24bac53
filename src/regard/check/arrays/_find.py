"""Which library a function is written in."""

from __future__ import annotations

import sys
from typing import Any

from regard._errors import written

from ._base import Arrays
from ._jax import JAX
from ._numpy import NUMPY
from ._torch import TORCH

_ALL: dict[str, Arrays] = {library.name: library for library in (NUMPY, TORCH, JAX)}
NAMES = tuple(_ALL)
# An attribute that is there once a library is usable: another thread may be just importing it.
_SIGN = {"torch": "Tensor", "jax": "Array"}


def loaded() -> list[Arrays]:
    """Libraries that a function of this process may be written in, NumPy first."""
    return [library for name, library in _ALL.items() if _is_loaded(name)]


def named(name: str) -> Arrays:
    """Return a library by its name.

    Raises
    ------
    ValueError
        There is none of that name, or it is not imported.
    """
    if name not in NAMES:
        raise ValueError(f"library is {written(name)}; check knows {', '.join(NAMES)}: declare one, or leave it out")
    if not _is_loaded(name):
        raise ValueError(f"library is {name!r}, which is not imported: import it, as the function's module does")
    return _ALL[name]


def whose(value: Any) -> Arrays | None:
    """Return the library of a result, if it is an array of one of them."""
    return next((library for library in loaded() if library.is_array(value)), None)


def _is_loaded(name: str) -> bool:
    return name == "numpy" or hasattr(sys.modules.get(name), _SIGN[name])
