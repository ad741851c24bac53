"""What counts as the right gradient, and what as a certain wrong one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from regard._types import Array
from regard.check.answers._tolerance import ALIKE, FAIL, UNIT, Refused

from ._bounds import gradient_bounds
from ._layer import layer_bounds
from ._oracle import RIGHT_GRADIENTS, Gradients, Partial
from ._probes import Probe

# Of gradients of float64, which may come from another formula, or from differences in the complex plane.
_FLOOR = 1e-9 / FAIL


@dataclass(frozen=True)
class GradientJudge:
    """The right gradients of a probe, and what may pass for them."""

    probe: Probe
    dtype: str
    right: Gradients
    bounds: Gradients

    @classmethod
    def of(cls, probe: Probe, dtype: str) -> GradientJudge:
        """Ask the oracle."""
        found = RIGHT_GRADIENTS(probe.case, probe.grad_out)
        right = {name: x for name, x in found.items() if name not in probe.without}
        bounds = layer_bounds(right, dtype) if probe.case.layer else gradient_bounds(probe, dtype)
        floor = _FLOOR if dtype == "float64" else 2 * UNIT[dtype] ** 2
        return cls(probe, dtype, right, {n: bounds[n] + floor * _size(x) for n, x in right.items()})

    def asked(self, got: Gradients) -> list[str]:
        """Names that are compared: a bias's gradient only if there is one, and none that is said to be none."""
        cut = got.cut if isinstance(got, Partial) else ()
        return [name for name in self.right if name not in cut and (name != "bias" or name in got)]

    def error(self, got: Gradients | Refused) -> float:
        """Worst error in bounds; inf for a refusal, a wrong shape, or NaN."""
        if isinstance(got, Refused):
            return math.inf
        return max(self.error_of(name, got.get(name)) for name in self.asked(got))

    def error_of(self, name: str, got: Array | None) -> float:
        """Worst error of one gradient, in bounds."""
        right = self.right[name]
        if got is None or got.shape != right.shape or not np.isfinite(got).all():
            return math.inf
        return float(np.max(np.abs(got - right) / np.maximum(self.bounds[name], 1e-300), initial=0))

    def passes(self, got: Gradients | Refused) -> bool:
        """Whether they are the right gradients."""
        return self.error(got) <= FAIL

    def wrong(self, got: Gradients) -> list[str]:
        """Names of the gradients that are not right."""
        return [name for name in self.asked(got) if not self.error_of(name, got.get(name)) <= FAIL]

    def alike(self, got: Gradients | Refused, model: Gradients | Refused) -> bool:
        """Whether they are certain wrong ones, and nearer to these than to the right ones where they are not right."""
        if isinstance(got, Refused) or isinstance(model, Refused):
            return isinstance(got, Refused) and isinstance(model, Refused)
        return all(name in got and self._alike(name, got[name], model[name]) for name in self.asked(got))

    def misfit(self, got: Gradients | Refused, model: Gradients | Refused) -> float:
        """How far gradients are from wrong ones of the same shapes, in units of what counts as alike."""
        if isinstance(got, Refused) or isinstance(model, Refused):
            return 0.0
        return max(self._misfit(name, got[name], model[name]) for name in self.asked(got))

    def _misfit(self, name: str, got: Array, model: Array) -> float:
        finite = np.isfinite(got)
        size = max(_size(model[np.isfinite(model)]), _size(self.right[name]))
        slack = 2 * FAIL * _size(self.bounds[name]) + ALIKE[self.dtype] * size
        return _size((got - model)[finite]) / max(slack, 1e-300)

    def _alike(self, name: str, got: Array, model: Array) -> bool:
        right = self.right[name]
        if got.shape != model.shape or not np.array_equal(np.isfinite(got), np.isfinite(model)):
            return False
        if self._misfit(name, got, model) > 1:
            return False
        if got.shape != right.shape or not np.isfinite(got).all():
            return True
        if self.error_of(name, got) <= FAIL:  # so must the wrong ones be right, or as near
            return _size(got - model) <= FAIL * _size(got - right) + _FLOOR * _size(right)
        return _size(got - model) <= _size(got - right) / FAIL


def _size(x: Array) -> float:
    return float(np.abs(x).max(initial=0))
