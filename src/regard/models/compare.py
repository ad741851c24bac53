"""Every head of a trace against the float64 reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard import reference
from regard.layers import MultiHeadResult
from regard.numerics import forward_bounds

from .bert import Trace

_TINY = 1e-30


@dataclass(frozen=True)
class Comparison:
    """Largest differences from the reference over all heads.

    Attributes
    ----------
    heads
        How many heads were compared.
    out, weights
        Largest absolute difference of outputs and of weights.
    out_share, weights_share
        Largest difference as a share of what `regard.numerics.forward_bounds` allows it, for any data; of weights
        above 1e-30.
    tiny_share
        The same of the weights up to 1e-30. One below e^-87 is flushed to 0 and then differs by all of itself,
        which is what the bound allows it: this share is near 1 wherever there is such a weight.
    """

    heads: int
    out: float
    weights: float
    out_share: float
    weights_share: float
    tiny_share: float

    @property
    def agrees(self) -> bool:
        """Whether every difference is within its bound; NaN is not."""
        return self.out_share <= 1 and self.weights_share <= 1 and self.tiny_share <= 1


def against_reference(trace: Trace) -> Comparison:
    """Compare the output and the weights of every head of every layer with `regard.reference`."""
    heads = sum(len(layer.query) for layer in trace.attention)
    largest = np.max([_differences(layer) for layer in trace.attention], axis=0)
    return Comparison(heads, *largest.tolist())


def _differences(layer: MultiHeadResult) -> tuple[float, float, float, float, float]:
    query, key, value, plan = layer.query, layer.key, layer.value, layer.attention.plan
    exact = reference.attention_forward(query, key, value)
    bounds = forward_bounds(
        query, key, value, exact.weights,
        scale=plan.problem.scale, tile_keys=plan.tile_keys, random_walk=False,
    )  # fmt: skip
    out, weights = np.abs(layer.heads - exact.out), np.abs(layer.weights[...] - exact.weights)
    share, tiny = weights / bounds.weights, exact.weights <= _TINY
    return (
        out.max(),
        weights.max(),
        (out / bounds.out).max(),
        share.max(initial=0, where=~tiny),
        share.max(initial=0, where=tiny),
    )
