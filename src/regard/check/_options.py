"""What may be declared to check: each option is refused with what it is, what it may be, and the way out."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from regard._errors import written
from regard._types import FLOAT_DTYPES, as_int

from .report._names import by_name

_WORDS = {
    "mask": ("keep", "drop", "additive"),
    "causal": ("bottom-right", "top-left"),
    "window": ("total", "left-inclusive"),
    "memory": ("linear",),
    "empty_row": ("zero", "nan", "any"),
    "dtype": FLOAT_DTYPES,
}
_SUPPORTS = ("mask", "causal", "scale", "bias", "alibi", "softcap", "window", "dropout", "gqa", "gradients")


def as_function(fn: Any) -> Any:
    """Refuse what cannot be called.

    Raises
    ------
    TypeError
        It is no function; a text such as "file.py:function" is for the command, and for `check_apart`.
    """
    if callable(fn) and not isinstance(fn, type):
        return fn
    meant = {str: 'regard.check.check_apart("file.py:function") takes a text', type: "make an instance first"}
    hint = next((said for kind, said in meant.items() if isinstance(fn, kind)), "pass a function of query, key, value")
    raise TypeError(f"fn is {written(fn)}, which is no function: {hint}")


def as_vjp(vjp: Any) -> Any:
    """Refuse a way back that cannot be called.

    Raises
    ------
    TypeError
        It is no function.
    """
    if vjp is None or callable(vjp):
        return vjp
    raise TypeError(
        f"vjp is {written(vjp)}, which is no function: pass vjp(grad_out, query, key, value), or leave it out"
    )


def as_word(name: str, value: Any, *, optional: bool = True) -> Any:
    """Refuse a word that is not known."""
    if name == "dtype":
        value = _dtype_name(value)
    if (value is None and optional) or (isinstance(value, str) and value in _WORDS[name]):
        return value
    way = ": declare one, or leave it out" if optional else ": pass one of them"
    raise ValueError(f"{name} is {written(value)}; check knows {', '.join(_WORDS[name])}{way}")


def _dtype_name(value: Any) -> Any:
    try:
        return np.dtype(value).name
    except (TypeError, ValueError, SyntaxError):
        return value


def as_supports(value: Iterable[str] | None) -> frozenset[str] | None:
    """Refuse options that check does not ask about."""
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"supports is {written(value)}; it is a set of options, such as {{'mask', 'causal'}}")
    given = list(value)
    for option in given:
        if option not in _SUPPORTS:
            raise ValueError(f"supports has {written(option)}; check asks about {', '.join(_SUPPORTS)}: take it out")
    return frozenset(given)


def as_expected(value: Mapping[str, str] | None) -> dict[str, str]:
    """Return reasons by the names that findings have; refuse names that no finding has."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(
            f"expected is {written(value)}; it is a mapping of names to reasons, such as {{'NO_MAX': 'known'}}"
        )
    known = by_name()
    for name in value:
        if name not in known:
            near = difflib.get_close_matches(written(name).strip("'").upper(), known, 1)
            hint = f"did you mean {near[0]}?" if near else "regard check --list names them"
            raise ValueError(f"expected has {written(name)}, which no finding is called; {hint}")
    for name, reason in value.items():
        if not isinstance(reason, str) or not reason.strip():
            raise TypeError(
                f"expected has {written(name)}: {written(reason)}, which is no reason; write in words "
                "why it is as it is"
            )
    return {known[name].name: reason for name, reason in value.items()}


def as_seed(value: Any) -> int:
    """Refuse a seed that is no natural number."""
    seed = as_int(value)
    if seed is None or seed < 0:
        raise ValueError(f"seed is {written(value)}; it is a whole number from 0 on")
    return seed


def as_budget(value: Any) -> float:
    """Refuse a budget that is no number of seconds."""
    try:
        seconds = float(value) if isinstance(value, int | float | np.number) else math.nan
    except OverflowError:  # an integer beyond every float
        seconds = math.inf if value > 0 else -math.inf
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"budget_s is {written(value)}; it is a number of seconds from 0 on")
    return seconds
