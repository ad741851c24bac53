"""Sinusoids of positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard._errors import DTypeError, ShapeError, written
from regard._fit import as_flag, as_size
from regard._libraries import as_dtype
from regard._types import FLOAT_DTYPES, Array
from regard.positions._arguments import as_positions
from regard.positions._frequencies import angles_of, as_frequencies


def sinusoidal_positions(
    positions: Any,
    dim: int,
    *,
    base: float | None = None,
    frequencies: Any = None,
    interleaved: bool = True,
    dtype: Any = np.float32,
) -> Array:
    r"""Sines and cosines of positions, to be added to embeddings.

    .. math:: e_{p,2c} = \sin p f_c, \qquad e_{p,2c+1} = \cos p f_c, \qquad f_c = \text{base}^{-2c/\text{dim}}

    Parameters
    ----------
    positions : numbers, any shape with at least one axis
        ``np.arange(n)`` for the first n, ``np.arange(n, n + 1)`` for the next. Negative ones and fractions are allowed.
    dim : int
        Features of the result. With an odd ``dim`` the last one is a sine without its cosine.
    base : float, optional
        Default 10000.
    frequencies : array, shape ``(ceil(dim / 2),)``, optional
        Radians per position of each pair, in place of the formula with ``base``.
    interleaved : bool, optional
        True: sine and cosine alternate, as in the paper; most rotations are in halves, so that
        `regard.rotary_embedding` has the other default. False: all sines, then all cosines; dim is even. With
        ``frequencies=base ** (-np.arange(dim // 2) / (dim // 2 - 1))`` this is the table of tensor2tensor, fairseq and
        Whisper.
    dtype : dtype, optional
        float32, float64, float16 or bfloat16, by NumPy's name, torch's or JAX's.

    Returns
    -------
    NumPy array, shape ``(*positions.shape, dim)``

    Raises
    ------
    ShapeError, DTypeError, UnsupportedError
        All are `RegardError`; each message gives the fact, the values and the way out.

    References
    ----------
    Vaswani et al. 2017 (arXiv 1706.03762), section 3.5.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> print(rg.sinusoidal_positions(np.arange(3), 4).round(6))
    [[ 0.        1.        0.        1.      ]
     [ 0.841471  0.540302  0.01      0.99995 ]
     [ 0.909297 -0.416147  0.019999  0.9998  ]]
    """
    dtype, interleaved = _as_dtype(dtype), as_flag("interleaved", interleaved)
    where, dim = as_positions("positions", positions), as_size("dim", dim)
    if where.ndim == 0:
        raise ShapeError(
            f"positions is the number {positions!r}: pass np.arange({positions!r}) for that many positions, or "
            f"[{positions!r}] for that one"
        )
    if dim % 2 and not interleaved:
        raise ShapeError(
            f"dim is {dim}, and a half of sines and one of cosines need an even one: pass dim={dim - 1} and append a "
            "feature (others append zeros), or interleaved=True"
        )
    angles = angles_of(where, as_frequencies(frequencies, base, dim))
    out = np.empty((*where.shape, dim), dtype)
    sines, cosines = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(dim // 2), slice(dim // 2, None))
    out[..., sines] = np.sin(angles)
    out[..., cosines] = np.cos(angles[..., : dim // 2])
    return out


def _as_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        given: np.dtype[Any] | None = as_dtype(dtype)
    except TypeError:
        given = None
    if given is None or given.name not in FLOAT_DTYPES or not given.isnative:
        raise DTypeError(
            f"dtype is {written(dtype)}; sinusoids come as {', '.join(FLOAT_DTYPES)}: pass dtype=np.float32"
        )
    return given
