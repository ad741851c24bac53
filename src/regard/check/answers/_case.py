"""Cases: problems to put to an attention function. Layout is always (batch, head, position, feature), in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard._types import FLOAT_DTYPES, Array

# Axes along which a mask may differ; each is a feature of its own, as in "mask_head".
MASK_AXES = ("batch", "head", "query")


@dataclass(frozen=True, eq=False)
class Layer:
    """Heads and square matrices of a whole multi-head layer, ``x @ matrix``; the operands of its case are x."""

    heads: int
    query: Array
    key: Array
    value: Array
    out: Array


@dataclass(frozen=True, eq=False)
class Case:
    """One call. Masks are bool, True = may attend; masks and biases have four axes, each 1 or full.

    ``window`` is the number of keys that a causal row may see, its own included. Two rules that may be declared:
    ``from_start``, that the first query stands at the first key (else the last at the last); ``nan_rows``, that a row
    without keys is NaN (else 0). ``sides`` is what a window means without causal: "open" to all later keys, "left",
    no later key, or "both", as many later as earlier ones. ``alibi`` holds a slope for each head. ``exact`` says that
    every score is exact in float32, although it is large.
    """

    name: str
    query: Array
    key: Array
    value: Array
    scale: float | None = None
    causal: bool = False
    mask: Array | None = None
    bias: Array | None = None
    alibi: Array | None = None
    softcap: float | None = None
    window: int | None = None
    dropout: float | None = None
    layer: Layer | None = None
    exact: bool = False
    from_start: bool = False
    nan_rows: bool = False
    sides: str = "open"

    @property
    def options(self) -> dict[str, Any]:
        """What is passed beside the operands."""
        names = ("scale", "mask", "bias", "alibi", "softcap", "window", "dropout")
        named = {name: getattr(self, name) for name in names}
        return {name: value for name, value in named.items() if value is not None} | (
            {"causal": True} if self.causal else {}
        )

    @property
    def features(self) -> frozenset[str]:
        """What a function must know to be asked this: its options, and what is unusual in its shapes."""
        found = {"layer" if self.layer else "attention", *self.options}
        if not self.layer and self.query.shape[1] != self.key.shape[1]:
            found.add("gqa")
        if not self.layer and self.query.shape[3] != self.value.shape[3]:
            found.add("value_width")
        if self.window is not None and not self.causal:
            found.add("window_alone")
        if self.mask is not None:
            found |= {f"mask_{axis}" for axis, n in zip(MASK_AXES, self.mask.shape, strict=False) if n > 1}
        return frozenset(found)

    def cast(self, dtype: str) -> Case:
        """Round every array to a dtype, and keep the rounded numbers in float64."""
        to = numpy_dtype(dtype)

        def rounded(x: Any, *names: str) -> dict[str, Any]:
            arrays = {name: getattr(x, name) for name in names}
            with np.errstate(over="ignore"):
                return {n: a.astype(to).astype(np.float64) for n, a in arrays.items() if a is not None}

        layer = self.layer
        if layer:
            layer = replace(layer, **rounded(layer, "query", "key", "value", "out"))
        return replace(self, layer=layer, **rounded(self, "query", "key", "value", "bias", "alibi"))


def numpy_dtype(name: str) -> np.dtype[Any]:
    """One of regard's float dtypes by name."""
    if name not in FLOAT_DTYPES:
        raise ValueError(f"dtype is {name!r}; check knows {', '.join(FLOAT_DTYPES)}: pass dtype='float32'")
    if name == "bfloat16":
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return dtype
    return np.dtype(name)
