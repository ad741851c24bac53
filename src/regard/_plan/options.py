"""Options of a call: what each may be, and what to write where it is not."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from regard._arrays import is_masked_array
from regard._errors import AlignmentError, MaskError, UnsupportedError
from regard._libraries import as_numpy, library_of
from regard._types import Offsets
from regard.masks import Dense, Full, KeyLengths, Mask

MAX_OFFSET = 2**61  # positions are int64, and a window adds up to 2^62 to them
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
    "softmax_scale": "scale=",
    "sm_scale": "scale=",
    "logits_soft_cap": "softcap=",
    "s_aux": "sinks=",
    "enable_gqa": "nothing: grouped heads need no flag",
    "dropout_p": "nothing: dropout is not there yet",
    "need_weights": "attention_forward(...).weights",
    "return_attn_probs": "attention_forward(...).weights",
    "return_lse": "attention_forward(...).lse",
}


def refuse_unknown(unknown: dict[str, Any]) -> None:
    """Raise TypeError for arguments that do not exist, with ours where another library's name is known."""
    for name in unknown:
        if name in _PEERS:
            raise TypeError(f"{name}= is another library's argument; here write {_PEERS[name]}")
        known = "mask, bias, q_offset, scale, softcap, sinks, dropout"
        raise TypeError(f"there is no argument {name!r}; the options are {known}")


def as_mask(mask: Any) -> Mask:
    """Return the mask that is meant; a bool array becomes `Dense`."""
    if mask is None:
        return Full()
    if isinstance(mask, Mask):
        return mask
    if is_masked_array(mask):
        raise MaskError("the mask is a NumPy masked array, whose own mask would be ignored: pass mask.filled(False)")
    if isinstance(mask, list | tuple):
        return Dense(_bools(mask))
    if library_of("mask", mask) is not None:
        return Dense(as_numpy("mask", mask))
    hint = " (causal attention is mask=rg.Causal())" if isinstance(mask, bool | str) else ""
    if isinstance(mask, type) and issubclass(mask, Mask):
        hint = f" (a class: write {mask.__name__}(...), with parentheses)"
    raise MaskError(
        f"mask is {mask!r} of type {type(mask).__name__}{hint}; it must be a bool array, True = may attend, "
        "or a mask such as rg.Causal() & rg.KeyLengths(lengths)"
    )


def _bools(mask: Any) -> Any:
    try:
        return np.asarray(mask)
    except ValueError as error:
        raise MaskError(f"the mask is not an array: {error}") from None


def as_offset(q_offset: Any) -> int | str | Offsets | None:
    """Return q_offset as an int, "start", "end", `Offsets` or None."""
    if q_offset is None or (isinstance(q_offset, str) and q_offset in ("start", "end")):
        return q_offset
    given = np.asarray(as_numpy("q_offset", q_offset))
    if given.ndim and given.dtype.kind in "iu":
        if given.size and not -MAX_OFFSET <= int(given.min()) <= int(given.max()) <= MAX_OFFSET:
            raise AlignmentError(f"q_offset reaches from {given.min()} to {given.max()}; positions are at most 2**61")
        return Offsets(given.shape, tuple(given.ravel().tolist()))
    try:
        offset = None if isinstance(q_offset, bool | np.bool_) else operator.index(q_offset)
    except TypeError:
        offset = None
    if offset is None or abs(offset) > MAX_OFFSET:
        raise AlignmentError(
            f"q_offset is {q_offset!r}; it must be an int up to 2**61 (the position of query 0), ints per batch, "
            '"start" (0) or "end" (Skv - Sq)'
        )
    return offset


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
    value = value if library_of(name, value) is None else as_numpy(name, value)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool | np.bool_ | str | bytes) or not abs(number) <= _FLOAT32_MAX:
        raise UnsupportedError(f"{name} is {value!r}; it must be one finite number within float32, {hint}")
    return number


def resolve_offset(
    q_offset: int | str | Offsets | None,
    mask: Mask,
    positional_bias: bool,
    lead: tuple[int, ...],
    queries: int,
    keys: int,
) -> int | Offsets:
    """Return the position of query 0, or raise AlignmentError where it is ambiguous or contradictory."""
    if q_offset is None:
        if queries == keys or not (mask.positional or positional_bias):
            return 0
        what = repr(mask) if mask.positional else "the bias"
        raise AlignmentError(
            f"{what} depends on positions, and {queries} queries can stand among {keys} keys in two ways: pass "
            f'q_offset="start" (query i at position i) or q_offset="end" (query i at position {keys - queries} + i: '
            "the last query at the last key, as when decoding with a cache)"
        )
    if q_offset == "start":
        return 0
    if q_offset == "end":
        if (mask.positional or positional_bias) and _has_lengths(mask):
            raise AlignmentError(
                f'q_offset="end" counts from the last of {keys} keys, but {mask!r} says that sequences end earlier: '
                "pass q_offset=lengths - Sq"
            )
        return keys - queries
    if isinstance(q_offset, Offsets):
        _check_offsets(q_offset, lead)
        return q_offset
    return int(q_offset)


def _check_offsets(offsets: Offsets, lead: tuple[int, ...]) -> None:
    try:
        fits = np.broadcast_shapes(offsets.shape, lead) == lead
    except ValueError:
        fits = False
    if not fits:
        raise AlignmentError(
            f"q_offset has shape {offsets.shape} and the leading (batch) axes are {lead}: give one int, or ints that "
            "broadcast against those axes"
        )


def _has_lengths(mask: Mask) -> bool:
    return isinstance(mask, KeyLengths) or any(_has_lengths(part) for part in mask.parts)
