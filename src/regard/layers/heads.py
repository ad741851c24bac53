"""From the width of a model to its heads, and back."""

from __future__ import annotations

from typing import Any

from regard._arrays import as_input
from regard._errors import ShapeError
from regard._fit import as_size


def split_heads(x: Any, heads: int) -> Any:
    """Cut the last axis into heads: ``(..., S, heads * D)`` to ``(..., heads, S, D)``, a view.

    Head h of a token is its numbers ``h * D ... (h + 1) * D - 1``.

    Parameters
    ----------
    x : array, shape ``(..., S, heads * D)``
        Any dtype and strides; nothing is copied. A torch tensor gives a torch tensor, a JAX array a JAX array.
    heads : int
        1 or more; it divides the last axis.

    Returns
    -------
    array, shape ``(..., heads, S, D)``
        Of x's library and dtype, the same memory.

    Raises
    ------
    ShapeError
        ``x`` has fewer than two axes, or its width is not a multiple of ``heads``.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> x = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]])      # three tokens
    >>> rg.split_heads(x, 2)[0]                                          # head 0 of each
    array([[ 1,  2],
           [ 5,  6],
           [ 9, 10]])
    """
    x, heads = _as_array(x), as_size("heads", heads, 1)
    shape = tuple(x.shape)
    if len(shape) < 2:
        raise ShapeError(f"x has shape {shape}; it needs at least two axes, (..., S, heads * D)")
    *lead, tokens, width = shape
    if width % heads:
        raise ShapeError(
            f"a width of {width} is not a multiple of {heads} heads (x has shape {shape}, {width} % {heads} = "
            f"{width % heads}): the last axis is heads * D"
        )
    # [split]
    parts = x.reshape(*lead, tokens, heads, width // heads)
    return parts.swapaxes(-2, -3)  # to (..., heads, tokens, D)
    # [/split]


def merge_heads(x: Any) -> Any:
    """Put the heads side by side: ``(..., heads, S, D)`` to ``(..., S, heads * D)``, the inverse of `split_heads`.

    Parameters
    ----------
    x : array, shape ``(..., heads, S, D)``
        Any dtype and strides, of NumPy, torch or JAX.

    Returns
    -------
    array, shape ``(..., S, heads * D)``
        Of x's library and dtype. A view if the heads of a token lie side by side in memory, as those of `split_heads`
        do; else a copy.

    Raises
    ------
    ShapeError
        ``x`` has fewer than three axes.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> x = np.arange(24.0).reshape(2, 3, 4)
    >>> np.array_equal(rg.merge_heads(rg.split_heads(x, 2)), x)
    True
    """
    x = _as_array(x)
    shape = tuple(x.shape)
    if len(shape) < 3:
        raise ShapeError(f"x has shape {shape}; it needs at least three axes, (..., heads, S, D)")
    *lead, heads, tokens, size = shape
    # [merge]
    parts = x.swapaxes(-2, -3)  # to (..., tokens, heads, D)
    return parts.reshape(*lead, tokens, heads * size)
    # [/merge]


def _as_array(x: Any) -> Any:
    """Take an array of any library, for all can do what is done here; lists become NumPy's."""
    return x if hasattr(x, "swapaxes") else as_input("x", x)
