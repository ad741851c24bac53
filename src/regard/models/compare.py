"""Every head of a trace against the float64 reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard import reference

from .bert import Attended, Trace

# A weight's relative error is the absolute error of its score: a few roundings of 2^-24 · |score| each. Good
# for float32 and scores up to 20; outputs are compared in units of the head's largest |value|.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Comparison:
    """Largest differences over ``heads`` heads: of outputs, in units of max|value|, and of weights."""

    heads: int
    out: float
    weights: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether both are within the tolerance; NaN is not."""
        return self.out <= self.tolerance and self.weights <= self.tolerance


def against_reference(trace: Trace, tolerance: float = TOLERANCE) -> Comparison:
    """Compare the output and the weights of every head of every layer with `regard.reference`."""
    heads = sum(len(layer.query) for layer in trace.attention)
    out, weights = np.max([_differences(layer) for layer in trace.attention], axis=0)
    return Comparison(heads, float(out), float(weights), tolerance)


def _differences(layer: Attended) -> tuple[float, float]:
    expected = reference.attention_forward(layer.query, layer.key, layer.value)
    out = np.abs(layer.result.out - expected.out) / np.abs(layer.value).max((1, 2), keepdims=True)
    weights = np.abs(layer.result.weights[...] - expected.weights)
    return out.max(), weights.max()
