"""The attention function: what a model's layer says, as one call of regard's attention."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from regard import _engine
from regard._arrays import Operands
from regard._attention.forward import attention_forward
from regard._errors import MaskError, ShapeError, UnsupportedError
from regard._plan import read
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
    _refuse(dropout, others)
    (batch, heads, queries, _), (key_batch, _, keys, _) = query.shape, key.shape
    overlay = _overlay(module, attention_mask, is_causal, (max(batch, key_batch), heads, queries, keys))
    bias = overlay.bias
    if position_bias is not None:
        bias = DenseBias(position_bias) if bias is None else DenseBias(position_bias) + bias
    options = {
        "mask": overlay.mask, "bias": bias, "q_offset": overlay.q_offset, "scale": scaling, "softcap": softcap,
        "sinks": s_aux,
    }  # fmt: skip
    if not _wants_weights(others):
        return _by_token(query, key, value, **options), None
    result = attention_forward(query, key, value, **options)
    return result.out.transpose(1, 2).contiguous(), result.weights[...].to(query.dtype)


def _by_token(query: Any, key: Any, value: Any, bias: Bias | None, sinks: Any, **options: Any) -> Any:
    """Compute attention into (batch, queries, heads, Dv): an ``out=`` would be a tensor, made and checked each time."""
    operands = Operands.of(query, key, value, bias, sinks)
    call = _engine.prepare(
        *read(operands.query, operands.key, operands.value, bias=operands.bias, sinks=operands.sinks, **options)
    )
    batch, heads, queries, width = call.out_shape
    out = operands.library.empty((batch, queries, heads, width), operands.query.dtype)
    call.run(operands, out.swapaxes(1, 2))
    return operands.library.give(out)


def _wants_weights(others: dict[str, Any]) -> bool:
    """Whether somebody asked the model for its attentions; some models do not pass it on, but collect what is made."""
    collector = _collector()
    collected = (collector and collector.get()) or ()
    return bool(others.get("output_attentions")) or any("attentions" in name for name in collected)


@cache
def _collector() -> Any:
    """Return the variable that holds what is collected in this context; None where transformers has none."""
    from transformers.utils import output_capturing

    return getattr(output_capturing, "_active_collector", None)


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
    laid = mask.laid if isinstance(mask, mask_tensor()) else None
    if laid is not None and mask.dense is None and laid.fits(scores):
        return _Overlay(laid.mask, None, laid.q_offset)
    if not hasattr(mask, "shape") or not hasattr(mask, "dtype"):
        raise MaskError(
            f"attention_mask is of type {type(mask).__name__}, which belongs to another attention: pass a "
            "2-D tensor of 0 and 1, a 4-D bool or float tensor, or None"
        )
    shape = tuple(mask.shape)
    fits = len(shape) == 4 and all(size in (1, full) for size, full in zip(shape, scores, strict=True))
    if not fits or (laid is not None and not laid.fits(scores)):
        raise ShapeError(
            f"attention_mask has shape {shape} and the scores are (batch, heads, queries, keys) = {scores}: the mask "
            "has four axes, each 1 or full"
        )
    if laid is not None:
        mask = mask.dense
    if str(mask.dtype) == "torch.bool":
        return _Overlay(mask, None, 0)
    if mask.dtype.is_floating_point:
        return _Overlay(Full(), DenseBias(mask), 0)
    raise MaskError(
        f"attention_mask has shape {tuple(mask.shape)} and dtype {mask.dtype}: for each pair it is bool, True = may "
        "attend, or float, added to the scores; for 0 and 1 pass mask.bool()"
    )
