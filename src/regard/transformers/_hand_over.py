"""The mask function: transformers says which rules hold, and gets a tensor that carries a mask."""

from __future__ import annotations

from typing import Any

from regard._errors import MaskError, UnsupportedError

from ._laid import Laid, mask_tensor
from ._translate import Frame, translate


def hand_over(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Any = None,
    attention_mask: Any = None,
    use_vmap: bool = False,
    device: Any = "cpu",
    **unused: Any,
) -> Any:
    """Return the mask of one forward pass, with the arguments of transformers' own mask functions.

    Never None, though transformers allows it where a mask is causal or full: a mask that is there cannot be mistaken,
    and a causal one costs nothing here. What says what a mask could leave out (``local_size``,
    ``allow_is_causal_skip`` and the like) is not needed.
    """
    import torch
    from transformers import masking_utils as hf

    if torch.device(device).type != "cpu":
        raise UnsupportedError(f'the model is on device {device}, and regard computes on the CPU: model.to("cpu")')
    rule = hf.causal_mask_function if mask_function is None else mask_function
    first = int(q_offset)  # a static cache keeps it as a tensor
    padding = hf.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is not None:
        if padding.ndim != 2:
            raise MaskError(
                f"attention_mask has shape {tuple(padding.shape)}: it has a number for each token, (batch, keys), or "
                "one for each pair, (batch, heads or 1, queries, keys)"
            )
        if not padding.all():
            rule = hf.and_masks(rule, hf.padding_mask_function(padding))
    frame = Frame.of(batch_size, range(first, first + q_length), range(kv_offset, kv_offset + kv_length), use_vmap)
    mask = translate(rule, frame)
    return mask_tensor()(Laid(mask, first - kv_offset, batch_size, q_length, kv_length))
