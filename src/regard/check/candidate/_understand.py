"""What kind of thing is to be checked: a function of query, key and value, a whole layer, or a module."""

from __future__ import annotations

from typing import Any

from regard.check.answers._layers import USUAL

from ._candidate import Candidate, Words
from ._guess import Declared, Known, guess
from ._guess_layer import guess_layer
from ._module import PlainModule, as_layer, is_module
from ._signature import read


def understand(fn: Any, declared: Declared, dtype: str) -> Known:
    """Find out what a function is and how it wants to be called, where that is not declared."""
    words = Words(causal=declared.causal or "bottom-right", window=declared.window or "total")
    module = as_layer(fn) if is_module(fn) else None
    if module is not None:
        return guess_layer(Candidate(module, module.signature, words, dtype), declared, module.size)
    signature = read(fn.forward if is_module(fn) else fn)
    fn = PlainModule(fn) if is_module(fn) else fn
    if signature.is_layer:
        return guess_layer(Candidate(fn, signature, words, dtype), declared, USUAL)
    return guess(Candidate(fn, signature.with_options(declared.supports or frozenset()), words, dtype), declared)
