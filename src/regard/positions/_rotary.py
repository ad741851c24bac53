"""Rotation of queries and keys by their positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from regard._arrays import as_input, require_float
from regard._errors import ShapeError, UnsupportedError
from regard._fit import as_flag, as_size, fits_lead
from regard._libraries import NUMPY, library_of
from regard._types import Array, score_dtype
from regard.positions._arguments import as_positions, finite
from regard.positions._frequencies import angles_of, as_frequencies


def rotary_embedding(
    x: Any,
    positions: Any = None,
    *,
    offset: Any = 0,
    base: float | None = None,
    frequencies: Any = None,
    dim: int | None = None,
    interleaved: bool = False,
    attention_factor: float = 1.0,
) -> Any:
    r"""Turn pairs of features by angles that grow with the position, so that q · k knows the distance.

    .. math:: \begin{pmatrix} a' \\ b' \end{pmatrix} =
              \begin{pmatrix} \cos p f_c & -\sin p f_c \\ \sin p f_c & \cos p f_c \end{pmatrix}
              \begin{pmatrix} a \\ b \end{pmatrix}, \qquad f_c = \text{base}^{-2c/\text{dim}}

    for pair c of a row at position p. The product of a query at position p and a key at r depends on p − r only.
    Queries and keys are turned, values are not.

    Parameters
    ----------
    x : array, shape ``(..., H, S, D)`` or ``(S, D)``
        Queries or keys: float64, float32, float16 or bfloat16 (ml_dtypes), any strides.
    positions : numbers, shape ``(S,)`` or ``(..., S)``, optional
        Position of each row, default 0, 1, 2 and so on; leading axes broadcast against those of x before H. Negative
        ones and fractions are allowed.
    offset : number, or numbers per batch, optional
        Added to the positions, as ``q_offset`` of `attention` is; numbers broadcast against the leading axes.
    base : float, optional
        Default 10000.
    frequencies : array, shape ``(dim / 2,)``, optional
        Radians per position of each pair, in place of the formula with ``base``: linear scaling, NTK, YaRN and Llama 3
        are other frequencies. See `regard.positions.rotary_frequencies`.
    dim : int, optional
        Turn the first ``dim`` features and copy the rest. Even; default D.
    interleaved : bool, optional
        False: pair c is features c and c + dim / 2 (Llama, GPT-NeoX). True: features 2c and 2c + 1 (RoFormer, GPT-J).
        A model was trained with one of the two; most are in halves, so that is the default here, and not in
        `regard.sinusoidal_positions`.
    attention_factor : float, optional
        Multiplies what is turned (YaRN).

    Returns
    -------
    array, shape and dtype of ``x``
        Computed in float32 (float64 for float64) and rounded once. The angle at position p is off by less than
        2⁻⁵¹ p (frequencies up to 1), which float32 does not see before position 10⁸. A row has the same bits whatever
        batch stands around it, and whatever the strides.

    Raises
    ------
    ShapeError, DTypeError, UnsupportedError
        All are `RegardError`; each message gives the fact, the values and the way out.

    References
    ----------
    Su et al. 2021 (arXiv 2104.09864), section 3.2, with the interleaved pairs.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> x = np.array([[1, 0, 1, 0]] * 3, np.float32)
    >>> turned = rg.rotary_embedding(x)
    >>> print(turned.round(6))
    [[ 1.        0.        1.        0.      ]
     [-0.301169  0.        1.381773  0.      ]
     [-1.325444  0.        0.493151  0.      ]]
    >>> print((turned @ turned.T).round(4))      # only the distance counts
    [[ 2.      1.0806 -0.8323]
     [ 1.0806  2.      1.0806]
     [-0.8323  1.0806  2.    ]]
    >>> np.array_equal(rg.rotary_embedding(x[2:], offset=2), turned[2:])
    True
    """
    rows = _as_rows(x)
    shape = rows.shape
    dim = _as_dim(dim, shape[-1])
    where = _row_positions(shape, positions, offset)
    angles = angles_of(where, as_frequencies(frequencies, base, dim))
    factor = _as_factor(attention_factor, score_dtype(rows.dtype.name))
    return rotate(x, factor * np.cos(angles), factor * np.sin(angles), interleaved=interleaved)


def rotate(x: Any, cos: Any, sin: Any, *, interleaved: bool = False) -> Any:
    """Turn pairs of features by angles whose cosines and sines are given: `regard.rotary_embedding` from tables.

    Parameters
    ----------
    x : array, shape ``(..., H, S, D)`` or ``(S, D)``
        float64, float32, float16 or bfloat16, any strides.
    cos, sin : float arrays, shape ``(S, r / 2)`` or ``(..., S, r / 2)``
        One number per row and pair; leading axes broadcast against those of x before H. The first r features of x are
        turned, the rest is copied. From a table over positions, take rows: ``table[position_ids]``.
    interleaved : bool, optional
        Which features are a pair, as for `regard.rotary_embedding`.

    Returns
    -------
    array, library, shape and dtype of ``x``

    Raises
    ------
    ShapeError, DTypeError
        Tables without a number for each row and pair, more pairs than x has, or one that is no float array.
    UnsupportedError
        An array that cannot be read, as for `regard.rotary_embedding`; or ``interleaved`` is not True or False.

    Examples
    --------
    >>> import numpy as np
    >>> from regard.positions import rotate
    >>> rotate(np.array([[3.0, 4.0, 5.0]]), cos=[[0.0]], sin=[[1.0]]).tolist()
    [[-4.0, 3.0, 5.0]]
    """
    library = library_of("x", x) or NUMPY
    x, interleaved = _as_rows(x), as_flag("interleaved", interleaved)
    # In the wide dtype, so that products with them are.
    cos, sin = (
        _over_rows(name, table, x.shape, score_dtype(x.dtype.name)) for name, table in (("cos", cos), ("sin", sin))
    )
    if cos.shape[-1] != sin.shape[-1]:
        raise ShapeError(f"cos has {cos.shape[-1]} pairs and sin has {sin.shape[-1]}: pass tables of equal shape")
    dim = 2 * cos.shape[-1]
    # [pairs]
    if interleaved:
        first, second = slice(0, dim, 2), slice(1, dim, 2)
    else:
        first, second = slice(0, dim // 2), slice(dim // 2, dim)
    # [/pairs]
    with np.errstate(all="ignore"):  # what is too large for float16 becomes inf, as the dtype says
        # [rotate]
        a, b, out = x[..., first], x[..., second], library.empty(x.shape, x.dtype)
        out[..., first] = a * cos - b * sin
        out[..., second] = a * sin + b * cos
        out[..., dim:] = x[..., dim:]
        # [/rotate]
    return library.give(out)


def _as_rows(x: Any) -> Array:
    given = as_input("x", x)
    require_float("x", given.dtype)
    if given.ndim < 2:
        raise ShapeError(f"x has shape {given.shape}; it needs at least two axes, (S, D), or (..., H, S, D)")
    return given


def _as_factor(value: Any, wide: np.dtype[Any]) -> float:
    factor, most = finite("attention_factor", value), float(np.finfo(wide).max)
    if abs(factor) > most:
        raise UnsupportedError(f"attention_factor is {factor}; {wide}, in which x is turned, goes up to {most:.3g}")
    return factor


def _as_dim(dim: int | None, features: int) -> int:
    """Return how many features are turned."""
    count = features if dim is None else as_size("dim", dim)
    if count > features:
        raise ShapeError(f"dim is {count} and x has {features} features: pass dim={features - features % 2} at most")
    if count % 2:
        said = f"x has {features} features" if dim is None else f"dim is {count}"
        raise ShapeError(f"{said}, and a rotation takes pairs: pass dim={count - 1} to turn so many and copy the rest")
    return count


def _row_positions(shape: tuple[int, ...], positions: Any, offset: Any) -> npt.NDArray[np.float64]:
    """Return the position of each row of x, ``(..., S)``; leading axes are those of the arguments, not expanded."""
    lead, rows = shape[:-3], shape[-2]
    where = as_positions("positions", np.arange(rows) if positions is None else positions)
    start = as_positions("offset", offset)
    if where.shape[-1:] != (rows,) or not fits_lead(where.shape[:-1], lead):
        raise ShapeError(
            f"positions has shape {where.shape} and x has shape {shape}, {rows} rows and leading (batch) axes {lead}: "
            f"pass shape ({rows},), or {(*lead, rows)} for other ones per batch"
        )
    if not fits_lead(start.shape, lead):
        raise ShapeError(
            f"offset has shape {start.shape} and the leading (batch) axes of x are {lead}: pass one number, or numbers "
            "that broadcast against those axes"
        )
    return where + start[..., None]


def _over_rows(name: str, table: Any, shape: tuple[int, ...], wide: np.dtype[Any]) -> Array:
    """Return cosines or sines in the dtype that is computed with, and with an axis for the heads."""
    given = as_input(name, table)
    require_float(name, given.dtype)
    lead, rows = shape[:-3], shape[-2]
    if given.ndim < 2 or given.shape[-2] != rows or not fits_lead(given.shape[:-2], lead):
        raise ShapeError(
            f"{name} has shape {given.shape} and x has shape {shape}: pass one row per row of x, shape ({rows}, r / 2) "
            f"or {(*lead, rows)} + (r / 2,); from a table over positions that is table[position_ids]"
        )
    if 2 * given.shape[-1] > shape[-1]:
        raise ShapeError(
            f"{name} has {given.shape[-1]} pairs and x has {shape[-1]} features: {shape[-1] // 2} pairs at most"
        )
    with np.errstate(over="ignore"):  # what is too large becomes inf, as the dtype says
        given = given.astype(wide, copy=False)
    return given if len(shape) == 2 else given[..., None, :, :]
