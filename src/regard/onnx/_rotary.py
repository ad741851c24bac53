"""The operator RotaryEmbedding: its caches and layouts around `regard.positions.rotate`."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard._arrays import Intake
from regard._errors import ShapeError, UnsupportedError, written
from regard._libraries import as_numpy
from regard._types import Array
from regard.layers import merge_heads
from regard.positions import rotate

from ._attributes import as_integer
from ._inputs import to_heads


def rotary_embedding(
    X: Any,
    cos_cache: Any,
    sin_cache: Any,
    position_ids: Any = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = 0,
    rotary_embedding_dim: int = 0,
) -> Any:
    """Compute the ONNX operator RotaryEmbedding of opset 23 with `regard.positions.rotate`.

    Parameters
    ----------
    X : array, shape ``(B, H, L, D)``, or ``(B, L, H * D)`` with `num_heads`
        NumPy array, torch tensor or JAX array, as are the caches: float64, float32, float16 or bfloat16.
    cos_cache, sin_cache : float arrays, shape ``(positions, r / 2)``, or ``(B, L, r / 2)`` without `position_ids`
        r is `rotary_embedding_dim`, or D.
    position_ids : int array (of any library), shape ``(B, L)``, optional
        Row of the caches for each token.
    interleaved : 0 or 1
        1: features 2c and 2c + 1 are a pair; 0: features c and c + r / 2.
    num_heads : int or None
        Needed for 3-D inputs; with 4-D ones 0 or None, or their own number.
    rotary_embedding_dim : int
        How many features are turned, the rest is copied; 0 for all.

    Returns
    -------
    array, library, shape and dtype of ``X``
        Computed in float32 (float64 for float64) and rounded once.

    Raises
    ------
    ShapeError, DTypeError, UnsupportedError
        All are `regard.RegardError`; each message gives the fact, the values and the way out.

    Examples
    --------
    >>> import numpy as np, regard.onnx
    >>> X = np.array([[[[1, 0, 1, 0], [1, 0, 1, 0]]]], np.float32)
    >>> cos, sin = np.array([[1, 1], [0, 1]], np.float32), np.array([[0, 0], [1, 0]], np.float32)
    >>> regard.onnx.rotary_embedding(X, cos, sin, np.array([[0, 1]]))[0, 0]
    array([[ 1.,  0.,  1.,  0.],
           [-1.,  0.,  1.,  0.]], dtype=float32)
    """
    intake = Intake()
    X = intake("X", X)
    pairs_adjoin = bool(as_integer("interleaved", interleaved, "0 or 1", (0, 1)))
    if X.ndim not in (3, 4):
        raise ShapeError(f"X has shape {X.shape}; it is 4-D (B, H, L, D), or 3-D (B, L, H * D)")
    heads = to_heads("X", X, num_heads or None, "num_heads") if X.ndim == 3 else X
    if num_heads and num_heads != heads.shape[1]:
        raise ShapeError(
            f"num_heads is {written(num_heads)} and X has {heads.shape[1]} heads (shape {X.shape}): leave it out"
        )
    batch, _, length, width = heads.shape
    pairs = _pairs(rotary_embedding_dim, width)
    cos, sin = (
        _rows(name, intake(name, cache), position_ids, (batch, length, pairs))
        for name, cache in (("cos_cache", cos_cache), ("sin_cache", sin_cache))
    )
    turned = rotate(heads, cos, sin, interleaved=pairs_adjoin)
    return intake.library.give(turned if X.ndim == 4 else merge_heads(turned))


def _pairs(rotary_embedding_dim: Any, width: int) -> int:
    features = as_integer("rotary_embedding_dim", rotary_embedding_dim, "a number of features, or 0 for all") or width
    if features % 2 or not 0 <= features <= width:
        raise ShapeError(
            f"{features} features of heads of size {width} are to be turned: pass an even rotary_embedding_dim, "
            f"{width - width % 2} at most"
        )
    return features // 2


def _rows(name: str, table: Array, position_ids: Any, shape: tuple[int, int, int]) -> Array:
    """Return one row of the cache per token, ``(B, L, r / 2)``."""
    if position_ids is None:
        if table.shape != shape:
            raise ShapeError(
                f"{name} has shape {table.shape}; without position_ids it is (B, L, r / 2) = {shape}: pass that, or "
                f"position_ids and a cache of {shape[2]} columns"
            )
        return table
    ids = np.asarray(as_numpy("position_ids", position_ids))
    if table.ndim != 2 or table.shape[1] != shape[2]:
        raise ShapeError(
            f"{name} has shape {table.shape}; with position_ids it is (positions, r / 2), with r / 2 = {shape[2]}"
        )
    if ids.shape != shape[:2] or ids.dtype.kind not in "iu":
        raise ShapeError(f"position_ids is {ids.dtype} of shape {ids.shape}; it holds integers, shape {shape[:2]}")
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < len(table):
        raise UnsupportedError(
            f"position_ids reach from {ids.min()} to {ids.max()}, and {name} has {len(table)} rows: "
            f"positions are 0 to {len(table) - 1}"
        )
    rows: Array = table[ids]
    return rows
