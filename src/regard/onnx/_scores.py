"""The operator's fourth output before the softmax: quadratic by nature, and made only when asked for."""

from __future__ import annotations

import math

import numpy as np

from regard._types import Array, score_dtype

from ._attributes import Attributes
from ._mask import Laid


def scores_of_mode(attributes: Attributes, laid: Laid, query: Array, key: Array) -> Array:
    """Scores of all keys ``(B, Hq, L, S)``: scaled (mode 0), capped (1), or with bias and −inf where masked (2)."""
    scale = 1 / math.sqrt(query.shape[3]) if attributes.scale is None else attributes.scale
    with np.errstate(over="ignore", invalid="ignore"):  # what is infinite or NaN in the inputs is so in the scores
        scores = _products(query, key) * scale
        if attributes.mode >= 1 and attributes.softcap is not None:
            scores = attributes.softcap * np.tanh(scores / attributes.softcap)
    return _masked(scores, laid) if attributes.mode == 2 else scores


def widened(array: Array, keys: int, fill: float) -> Array:
    """Fill an array over the first keys up to all of them."""
    missing = keys - array.shape[-1]
    return np.pad(array, [(0, 0)] * 3 + [(0, missing)], constant_values=fill) if missing else array


def _products(query: Array, key: Array) -> Array:
    batch, heads, queries, d = query.shape
    kv_heads, keys = key.shape[1:3]
    dtype = score_dtype(query.dtype.name)
    grouped = query.astype(dtype, copy=False).reshape(batch, kv_heads, heads // max(kv_heads, 1), queries, d)
    products: Array = grouped @ key.astype(dtype, copy=False)[:, :, None].swapaxes(-1, -2)
    return products.reshape(batch, heads, queries, keys)


def _masked(scores: Array, laid: Laid) -> Array:
    batch, heads, queries, keys = scores.shape
    seen = scores[..., : laid.keys]
    kept = laid.mask.materialize(queries, laid.keys, q_offset=laid.q_offset, lead=(batch,), heads=heads)
    if laid.bias is not None:
        bias = laid.bias.astype(scores.dtype)
        kept = kept & (bias != -np.inf)
        with np.errstate(invalid="ignore"):
            seen = seen + bias
    return widened(np.where(kept, seen, -np.inf), keys, -np.inf)
