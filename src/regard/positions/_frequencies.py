"""How fast features turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from regard._arrays import as_input
from regard._errors import DTypeError, ShapeError, UnsupportedError, written
from regard._fit import as_size
from regard.positions._arguments import finite

BASE = 10000.0


def rotary_frequencies(dim: int, *, base: float = BASE) -> npt.NDArray[np.float64]:
    r"""Radians per position of each pair, :math:`\text{base}^{-2c/\text{dim}}`, in float64: what scaled variants scale.

    Parameters
    ----------
    dim : int
        Features that are turned; an odd one has a frequency for its last feature too.
    base : float, optional
        At least 1.

    Returns
    -------
    array, shape ``(ceil(dim / 2),)``, float64

    Raises
    ------
    ShapeError
        ``dim`` is no integer, or negative.
    UnsupportedError
        ``base`` is below 1 or not finite.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> from regard.positions import rotary_frequencies
    >>> print(rotary_frequencies(6, base=1000.0).round(6))
    [1.   0.1  0.01]
    >>> x = np.ones((3, 6))
    >>> linear = rg.rotary_embedding(x, frequencies=rotary_frequencies(6) / 4)      # linear scaling by 4
    >>> np.array_equal(linear, rg.rotary_embedding(x, np.arange(3) / 4))
    True
    """
    given, dim, base = base, as_size("dim", dim), finite("base", base)
    if base < 1:
        raise UnsupportedError(
            f"base is {written(given)}; frequencies base ** (-2c / dim) fall from 1 for a base over 1: pass one as "
            f"{BASE:g}"
        )
    # [frequencies]
    return base ** (-np.arange(0, dim, 2) / dim)
    # [/frequencies]


def angles_of(where: npt.NDArray[np.float64], frequencies: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Multiply each position by each frequency; what float64 does not hold has no cosine, and is refused."""
    with np.errstate(over="ignore"):
        # [angles]
        angles = where[..., None] * frequencies
        # [/angles]
    if not np.isfinite(angles).all():
        raise UnsupportedError(
            f"a position of {np.abs(where).max():g} times a frequency of {np.abs(frequencies).max():g} is beyond "
            "float64: frequencies are radians per position, pass smaller ones"
        )
    return angles


def as_frequencies(frequencies: Any, base: float | None, dim: int) -> npt.NDArray[np.float64]:
    """Return one frequency per pair: those given, or those of the base."""
    if frequencies is None:
        return rotary_frequencies(dim, base=BASE if base is None else base)
    if base is not None:
        raise UnsupportedError(
            f"base={written(base)} and frequencies= both say how fast features turn: pass one of them; "
            f"rotary_frequencies({dim}, base={written(base)}) are those of the base"
        )
    given, pairs = as_input("frequencies", frequencies), (dim + 1) // 2
    if given.dtype.kind not in "iuf":
        raise DTypeError(f"frequencies has dtype {given.dtype}; they are radians per position: pass float64")
    if given.shape != (pairs,):
        raise ShapeError(
            f"frequencies has shape {given.shape} and {dim} features have {pairs} pairs: pass shape ({pairs},), or dim="
        )
    if not np.isfinite(given).all():
        raise UnsupportedError(f"frequencies has {(~np.isfinite(given)).sum()} entries that are not finite")
    return given.astype(np.float64)
