"""What this version does not do yet, asked of the library itself."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

import regard as rg

from ._draw import Table

# What the contract names, and a call that would need it.
_CALLS: dict[str, dict[str, Any]] = {
    "`bias=`, a float array": {"bias": np.zeros((4, 4), np.float32)},
    "`softcap=`": {"softcap": 30.0},
    "`sinks=`": {"sinks": np.zeros(1, np.float32)},
    "`dropout=`": {"dropout": 0.1},
    "`out=`": {"out": np.empty((4, 8), np.float32)},
}
_SETTINGS: dict[str, dict[str, Any]] = {
    "`config(precision=)`": {"precision": "float32"},
}
_NAMES = {
    "`Dropout`": "Dropout",
    "`attention_vjp`, gradients": "attention_vjp",
    "`MultiHeadAttention`, `split_heads`, `merge_heads`": "MultiHeadAttention",
    "`rotary_embedding`, `sinusoidal_positions`": "rotary_embedding",
    "biases as values: `Alibi`, `RelativeBias`, `T5Bias`": "Alibi",
    "`check`, for your own kernel": "check",
    "`explain`": "explain",
    "`diagnose`": "diagnose",
    "`linear_attention`": "linear_attention",
}
_MODULES = {
    "`regard.torch`, torch's own signatures": "torch",
    "`regard.jax`, JAX's own signature": "jax",
    "`regard.onnx`": "onnx",
    "`regard.transformers`": "transformers",
}


def missing() -> list[tuple[str, str]]:
    """List what is named by the contract and not there, each with what the library says."""
    out = []
    halves = ("float16", "bfloat16") if importlib.util.find_spec("ml_dtypes") else ("float16",)
    for dtype in ("float64", *halves):
        said = _refusal(lambda dtype=dtype: rg.plan(*(_Shape(dtype),) * 3))
        if said:
            out.append((f"{dtype} inputs to the engine", said))
    x = np.zeros((4, 8), np.float32)
    for name, options in _CALLS.items():
        said = _refusal(lambda options=options: rg.attention(x, x, x, **options))
        if said:
            out.append((name, said))
    for name, settings in _SETTINGS.items():
        said = _refusal(lambda settings=settings: rg.config(**settings))
        if said:
            out.append((name, said))
    batch = np.zeros((2, 1, 4, 8), np.float32)
    said = _refusal(lambda: rg.attention(batch, batch, batch, mask=rg.Causal(), q_offset=[0, 0]))
    if said:
        out.append(("`q_offset` per batch entry", said))
    out += [
        (name, "the name does not exist")
        for name, attribute in _NAMES.items()
        if not callable(getattr(rg, attribute, None))
    ]
    if not hasattr(rg.ForwardResult, "stats"):
        out.append(("`ForwardResult.stats`, statistics of rows", "the attribute does not exist"))
    out += [
        (name, "the module does not exist")
        for name, module in _MODULES.items()
        if importlib.util.find_spec(f"regard.{module}") is None
    ]
    return out


def table() -> Table:
    """Write `missing` as a table."""
    rows = [(name, said) for name, said in missing()] or [("nothing that this page promises", "")]
    return Table(["not there yet", "what the library says"], rows)


class _Shape:
    def __init__(self, dtype: str) -> None:
        self.shape = (4, 8)
        self.dtype: Any
        try:
            self.dtype = np.dtype(dtype)
        except TypeError:
            self.dtype = np.dtype(importlib.import_module("ml_dtypes").bfloat16)


def _refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except (rg.RegardError, TypeError, ImportError) as error:
        return str(error)
    return ""
