"""What ONNX says in ranks, lengths and flags, as one mask, one bias and the position of query 0."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from regard._arrays import as_input
from regard._errors import DTypeError, ShapeError, UnsupportedError
from regard._libraries import as_numpy
from regard._types import FLOAT_DTYPES, Array
from regard.masks import Causal, Dense, Full, KeyLengths, Mask, Window

from ._attributes import LENGTHS_SINCE, Attributes, require_opset
from ._inputs import Inputs


@dataclass(frozen=True, eq=False)
class Laid:
    """What lies over the scores of the first ``keys`` keys; those behind them are masked for every query."""

    mask: Mask
    bias: Array | None
    q_offset: Any
    keys: int


def lay(attn_mask: Any, nonpad_kv_seqlen: Any, inputs: Inputs, attributes: Attributes) -> Laid:
    """Collect everything that masks or is added."""
    queries, keys = inputs.scores_shape[2:]
    masks: list[Mask] = []
    bias = None
    q_offset: Any = inputs.past or 0
    if attn_mask is not None:
        overlay = _overlay(attn_mask, inputs.scores_shape, attributes.opset)
        if attributes.opset >= LENGTHS_SINCE:
            keys = overlay.shape[3]
        if overlay.dtype == bool:
            masks.append(Dense(overlay))
        else:
            bias = overlay
    if attributes.causal:
        masks.append(Causal())
    if attributes.left is not None or attributes.right is not None:
        masks.append(Window(left=attributes.left, right=attributes.right))
    if nonpad_kv_seqlen is not None:
        lengths = _lengths(nonpad_kv_seqlen, inputs, attributes)
        masks.append(KeyLengths(np.minimum(lengths, keys)))
        q_offset = lengths - queries
    return Laid(reduce(operator.and_, masks) if masks else Full(), bias, q_offset, keys)


def _overlay(attn_mask: Any, scores: tuple[int, ...], opset: int) -> Array:
    """View a mask or bias of rank 1 to 4 with four axes, matched from the right."""
    array = as_input("attn_mask", attn_mask)
    if array.dtype != bool and array.dtype.name not in FLOAT_DTYPES:
        raise DTypeError(
            f"attn_mask is {array.dtype}; it is bool (True = may attend) or float (added to the scores): "
            "for a mask of 0 and 1 pass attn_mask.astype(bool)"
        )
    fits = 1 <= array.ndim <= 4 and all(
        size in (1, full) for size, full in zip(array.shape[-2::-1], scores[-2::-1], strict=False)
    )
    if not fits or array.shape[-1] > scores[-1]:
        raise ShapeError(
            f"attn_mask has shape {array.shape} and the scores have {scores}, (B, Hq, L, S); it has 1 to 4 axes, "
            f"matched from the right, each 1 or full{_way(array.shape, scores)}"
        )
    if array.shape[-1] not in (1, scores[-1]):
        what = f"an attn_mask of {array.shape[-1]} keys for {scores[-1]}"
        require_opset(what, opset, LENGTHS_SINCE, "fill it up with False (-inf)")
    return array[(None,) * (4 - array.ndim)]


def _way(shape: tuple[int, ...], scores: tuple[int, ...]) -> str:
    batch, _, queries, keys = scores
    if len(shape) == 3 and shape[0] == batch and shape[1] in (1, queries):
        return ": axis 0 of three is heads; for one mask per batch entry write attn_mask[:, None]"
    if shape == (batch, keys):
        return ": for keys per batch entry write attn_mask[:, None, None, :]"
    return ""


def _lengths(nonpad_kv_seqlen: Any, inputs: Inputs, attributes: Attributes) -> Array:
    require_opset("nonpad_kv_seqlen", attributes.opset, LENGTHS_SINCE, "mask the padding with attn_mask")
    batch, _, _, keys = inputs.scores_shape
    if inputs.past is not None:
        raise UnsupportedError(
            "nonpad_kv_seqlen and past_key are both given, and they are two ways to keep a cache: with past_key the "
            "operator joins it to K, with nonpad_kv_seqlen K is the whole cache; leave one out"
        )
    lengths = np.asarray(as_numpy("nonpad_kv_seqlen", nonpad_kv_seqlen))
    if lengths.shape != (batch,) or lengths.dtype.kind not in "iu":
        raise ShapeError(
            f"nonpad_kv_seqlen is {lengths.dtype} of shape {lengths.shape}; it holds an integer per batch entry, "
            f"shape ({batch},)"
        )
    if batch and not 0 <= int(lengths.min()) <= int(lengths.max()) <= keys:
        raise ShapeError(
            f"nonpad_kv_seqlen reaches from {lengths.min()} to {lengths.max()}, and K has {keys} keys: "
            f"lengths are 0 to {keys}"
        )
    return lengths.astype(np.int64)
