"""The attention function: what a model's layer says, as one call of regard's attention."""

from __future__ import annotations

from typing import Any, NamedTuple

from regard._attention.forward import attention, attention_forward
from regard._errors import MaskError, ShapeError, UnsupportedError
from regard.biases import Bias, DenseBias
from regard.masks import Causal, Full

from ._laid import mask_tensor

# Arguments that choose keys or change the softmax, and that regard does not know: they must not be ignored.
_REFUSED = ("indices", "block_indices", "sinks")


class _Overlay(NamedTuple):
    """What lies over the scores."""

    mask: Any
    bias: Bias | None
    q_offset: int


def attend(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    scaling: Any = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    position_bias: Any = None,
    softcap: float | None = None,
    s_aux: Any = None,
    **others: Any,
) -> tuple[Any, Any]:
    """Compute attention with the arguments of transformers' own attention functions.

    query is (batch, heads, queries, D), key and value have fewer heads where they are grouped. Returns the output,
    (batch, queries, heads, Dv) and contiguous, and the weights, or None where nobody asked for them.
    """
    import torch

    _refuse(dropout, others)
    scores = (max(query.shape[0], key.shape[0]), query.shape[1], query.shape[2], key.shape[2])
    overlay = _overlay(module, attention_mask, is_causal, scores)
    bias = overlay.bias
    if position_bias is not None:
        bias = DenseBias(position_bias) if bias is None else DenseBias(position_bias) + bias
    batch, heads, queries, _ = scores
    out = torch.empty((batch, queries, heads, value.shape[3]), dtype=query.dtype)
    options = {
        "mask": overlay.mask, "bias": bias, "q_offset": overlay.q_offset, "scale": scaling, "softcap": softcap,
        "sinks": s_aux, "out": out.transpose(1, 2),
    }  # fmt: skip
    if not _wants_weights(others):
        attention(query, key, value, **options)
        return out, None
    return out, attention_forward(query, key, value, **options).weights[...].to(query.dtype)


def _wants_weights(others: dict[str, Any]) -> bool:
    """Whether somebody asked the model for its attentions; some models do not pass it on, but collect what is made."""
    from transformers.utils import output_capturing

    collector = getattr(output_capturing, "_active_collector", None)
    collected = (collector and collector.get()) or ()
    return bool(others.get("output_attentions")) or any("attentions" in name for name in collected)


def _refuse(dropout: float, others: dict[str, Any]) -> None:
    if dropout:
        raise UnsupportedError(
            f"the model asks for dropout {dropout}, as it does in training, and regard's attention is for inference: "
            'call model.eval(), or train with model.set_attn_implementation("sdpa")'
        )
    for name in _REFUSED:
        if others.get(name) is not None:
            raise UnsupportedError(
                f"the model passes {name}= to its attention, which chooses keys or weighs them in a way that regard "
                'does not know: call model.set_attn_implementation("eager")'
            )


def _overlay(module: Any, mask: Any, is_causal: bool | None, scores: tuple[int, ...]) -> _Overlay:
    """Tell what kind of mask the model passes.

    Without one, ``is_causal`` holds, or else the layer's own; a single query then sees all keys, and query 0 stands at
    key 0 (a cache that is longer than what it holds is empty behind the queries).
    """
    if mask is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        return _Overlay(Causal() if causal and scores[2] > 1 else Full(), None, 0)
    if not hasattr(mask, "shape") or not hasattr(mask, "dtype"):
        raise MaskError(
            f"attention_mask is of type {type(mask).__name__}, which belongs to another attention: pass a "
            "2-D tensor of 0 and 1, a 4-D bool or float tensor, or None"
        )
    shape = tuple(mask.shape)
    fits = len(shape) == 4 and all(size in (1, full) for size, full in zip(shape, scores, strict=True))
    laid = mask.laid if isinstance(mask, mask_tensor()) else None
    # A rule of positions means something else where it is stretched.
    if not fits or (laid is not None and shape[2:] != scores[2:]):
        raise ShapeError(
            f"attention_mask has shape {shape} and the scores are (batch, heads, queries, keys) = {scores}: the mask "
            "has four axes, each 1 or full"
        )
    if laid is not None:
        if mask.dense is None:
            return _Overlay(laid.mask, None, laid.q_offset)
        mask = mask.dense
    if str(mask.dtype) == "torch.bool":
        return _Overlay(mask, None, 0)
    if mask.dtype.is_floating_point:
        return _Overlay(Full(), DenseBias(mask), 0)
    raise MaskError(
        f"attention_mask has shape {tuple(mask.shape)} and dtype {mask.dtype}: for each pair it is bool, True = may "
        "attend, or float, added to the scores; for 0 and 1 pass mask.bool()"
    )
