"""Options of a call: what each may be, and what to write where it is not."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from regard import _errors, _fit
from regard._errors import AlignmentError, MaskError, UnsupportedError, written
from regard._libraries import as_numpy, library_of
from regard._types import Offsets
from regard.biases import Bias
from regard.masks import Dense, Full, Mask
from regard.masks._arguments import as_array

FULL = Full()
_FLOAT32_MAX = float(np.finfo(np.float32).max)


# Arguments of other libraries' attention, and how the same is said here.
_PEERS = {
    "is_causal": "mask=rg.Causal()",
    "causal": "mask=rg.Causal()",
    "use_causal_mask": "mask=rg.Causal()",
    "attn_mask": "mask= for a bool array (True = may attend), bias= for a float one",
    "attention_mask": "mask= for a bool array (True = may attend), bias= for a float one",
    "attn_bias": "bias=",
    "key_padding_mask": "mask=rg.KeyPadding.from_torch(key_padding_mask), or rg.KeyLengths(lengths)",
    "key_value_seq_lengths": "mask=rg.KeyLengths(lengths)",
    "window_size": "mask=rg.Window(left=...), bounds inclusive",
    "local_window_size": "mask=rg.Window(left=...), bounds inclusive",
    "sliding_window": "mask=rg.Window(left=...), bounds inclusive",
    "window": "mask=rg.Window(left=...), bounds inclusive",
    "lengths": "mask=rg.KeyLengths(lengths)",
    "softmax_scale": "scale=",
    "sm_scale": "scale=",
    "logits_soft_cap": "softcap=",
    "s_aux": "sinks=",
    "enable_gqa": "nothing: grouped heads need no flag",
    "dropout_p": "nothing: dropout is not there yet",
    "need_weights": "attention_forward(...).weights",
    "return_attn_probs": "attention_forward(...).weights",
    "return_lse": "attention_forward(...).lse",
    "alibi_slopes": "bias=rg.Alibi(slopes)",
    "position_bias": "bias=, an array or rg.T5Bias(table, bidirectional=...)",
    "cu_seqlens_q": "rg.varlen_attention(query, key, value, cu_seqlens_q, cu_seqlens_k)",
    "cu_seqlens_k": "rg.varlen_attention(query, key, value, cu_seqlens_q, cu_seqlens_k)",
    "past_key_value": "the joined keys and values, and q_offset= for where the queries stand",
}
_OPTIONS = ("mask", "bias", "q_offset", "scale", "softcap", "sinks")


def refuse_unknown(unknown: dict[str, Any]) -> None:
    """Raise TypeError for arguments that do not exist, with ours where another library's name is known."""
    _errors.refuse_unknown(unknown, _OPTIONS, "there is no argument", "the options are", _PEERS)


def refuse_positional(extra: tuple[Any, ...]) -> NoReturn:
    """Raise TypeError for more arguments than the three arrays, as torch takes its mask."""
    raise TypeError(
        f"query, key and value are passed by position, and {3 + len(extra)} arguments were given: name the others, "
        "mask= for a bool array (True = may attend) or a mask such as rg.Causal(), bias= for a float array"
    )


def as_mask(mask: Any) -> Mask:
    """Return the mask that is meant; a bool array becomes `Dense`."""
    if mask is None:
        return FULL
    if Mask in type(mask).__mro__:  # isinstance() of an abstract class is Python's, and takes three times as long
        known: Mask = mask
        return known
    if isinstance(mask, list | tuple) or library_of("mask", mask) is not None:
        return Dense(as_array("mask", mask))
    hint = " (causal attention is mask=rg.Causal())" if isinstance(mask, bool | str) else ""
    if isinstance(mask, type) and issubclass(mask, Mask):
        hint = f" (a class: write {mask.__name__}(...), with parentheses)"
    elif callable(mask):
        hint = " (a rule of your own is rg.from_function(f), f(b, h, p, j) on integer arrays)"
    elif isinstance(mask, Bias):
        hint = f" (numbers that are added to the scores: pass bias={mask!r})"
    raise MaskError(
        f"mask is {written(mask)} of type {type(mask).__name__}{hint}; it must be a bool array, True = may attend, "
        "or a mask such as rg.Causal() & rg.KeyLengths(lengths)"
    )


def as_offset(q_offset: Any) -> int | str | Offsets | None:
    """Return q_offset as an int, "start", "end", `Offsets` or None."""
    if q_offset is None or (isinstance(q_offset, str) and q_offset in ("start", "end")):
        return q_offset
    return _fit.as_offset(q_offset, 'or write "start" (0) or "end" (Skv - Sq)')


def as_scale(scale: Any) -> float | None:
    """Return scale as a finite float, or None."""
    return None if scale is None else _finite("scale", scale, "by default 1/sqrt(D)")


def as_softcap(softcap: Any) -> float:
    """Return softcap as a positive float; 0 for none."""
    if softcap is None:
        return 0.0
    number = _finite("softcap", softcap, "such as 50.0; for none leave it out")
    if number <= 0:
        raise UnsupportedError(
            f"softcap is {softcap!r}; softcap * tanh(s / softcap) needs one above 0: leave it out for none"
        )
    return number


def _finite(name: str, value: Any, hint: str) -> float:
    value = value if isinstance(value, float) or library_of(name, value) is None else as_numpy(name, value)
    number = _fit.as_finite(value)
    if number is None or abs(number) > _FLOAT32_MAX:
        raise UnsupportedError(f"{name} is {written(value)}; it must be one finite number within float32, {hint}")
    return number


def resolve_offset(
    q_offset: int | str | Offsets | None,
    mask: Mask,
    other: str | None,
    lead: tuple[int, ...],
    queries: int,
    keys: int,
) -> int | Offsets:
    """Return the position of query 0, or raise AlignmentError where it is ambiguous or contradictory.

    ``other`` names what depends on positions beside the mask, None for nothing.
    """
    if q_offset is None:
        if queries == keys or not (mask.positional or other is not None):
            return 0
        what = repr(mask) if mask.positional else other
        raise AlignmentError(
            f"{what} depends on positions, and {queries} queries can stand among {keys} keys in more than one way: "
            f'pass q_offset="start" (query i at position i), q_offset="end" (query i at position {keys - queries} + i: '
            "the last query at the last key, as when decoding with a cache), or the position of query 0, an int or "
            "ints per batch"
        )
    if q_offset == "start":
        return 0
    if q_offset == "end":
        if mask.ends_early and (mask.positional or other is not None):
            raise AlignmentError(
                f'q_offset="end" counts from the last of {keys} keys, but {mask!r} says that sequences end earlier: '
                "pass q_offset=lengths - Sq"
            )
        return keys - queries
    offset = q_offset if isinstance(q_offset, Offsets) else int(q_offset)
    _fit.check_offset(offset, lead)
    return offset
