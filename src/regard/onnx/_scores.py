"""The operator's fourth output before the softmax: quadratic by nature, and made only when asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard import reference
from regard._types import Array, score_dtype

from ._attributes import Attributes
from ._mask import Laid


def scores_of_mode(attributes: Attributes, laid: Laid, query: Array, key: Array) -> Array:
    """Scores of all keys ``(B, Hq, L, S)``: scaled (mode 0), capped (1), or with bias and −inf where masked (2)."""
    options: dict[str, Any] = {"scale": attributes.scale, "precision": score_dtype(query.dtype.name).type}
    if attributes.mode >= 1:
        options["softcap"] = attributes.softcap
    if attributes.mode == 2:
        options |= {"mask": laid.mask, "bias": laid.bias, "q_offset": laid.q_offset}
        return widened(reference.scores(query, key[:, :, : laid.keys], **options), key.shape[2], -np.inf)
    scores: Array = reference.scores(query, key, **options)
    return scores


def widened(array: Array, keys: int, fill: float) -> Array:
    """Fill an array over the first keys up to all of them."""
    missing = keys - array.shape[-1]
    return np.pad(array, [(0, 0)] * 3 + [(0, missing)], constant_values=fill) if missing else array
