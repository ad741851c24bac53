r"""How far right gradients may be from the exact ones.

The bound follows the steps of the chain. With u the unit roundoff of what is stored and w that of what is summed, to
first order,

.. math::
    |\delta P| &\le P\,(\varepsilon + \textstyle\sum_j P\varepsilon + (n + 3) w + u), \qquad
        |\delta dP| \le (d_v + 1) w\, |dO||V|^\top + u |dP| \\
    |\delta dS| &\le |\delta P|\,|dP - \delta| + P\,(|\delta dP| + |\delta\delta|) + 2u |dS|

and so on to dQ, dK and dV, where :math:`\varepsilon` bounds the errors of the scores. Every intermediate result may be
stored in the dtype of the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case
from regard.check.answers._tolerance import UNIT

from ._oracle import RIGHT_GRADIENTS, Forward, Gradients, members, shared_axes
from ._probes import Probe


@dataclass(frozen=True)
class Rounding:
    """Unit roundoff of what is stored, and of what is summed."""

    stored: float
    summed: float

    @classmethod
    def of(cls, dtype: str) -> Rounding:
        """Carry sums of 16-bit numbers in float32."""
        return cls(UNIT[dtype], UNIT["float64" if dtype == "float64" else "float32"])


def gradient_bounds(probe: Probe, dtype: str) -> Gradients:
    """How far right gradients of a dtype may be from the exact ones, to be multiplied by `FAIL`."""
    case, dO, r = probe.case, probe.grad_out, Rounding.of(dtype)
    with np.errstate(all="ignore"):
        f = RIGHT_GRADIENTS.forward(case)
        dP = RIGHT_GRADIENTS.weights(case, f, dO)
        delta = RIGHT_GRADIENTS.delta(case, f, dP)
        added = RIGHT_GRADIENTS.scores(case, f, dP, delta)
        moved_P = _of_weights(case, f, r)
        moved = _of_scores(f, dO, dP, delta, moved_P, r)
        bounds = _of_operands(case, f, dO, added, moved, moved_P, r)
        if case.bias is not None:
            axes = shared_axes(added, case.bias)
            bounds["bias"] = (moved + r.stored * np.abs(added)).sum(axis=axes, keepdims=True)
    return bounds


def _of_weights(case: Case, f: Forward, r: Rounding) -> Array:
    sizes = abs(f.scale) * (np.abs(f.q) @ np.abs(f.k).swapaxes(-1, -2))
    s = np.where(f.keep, f.s, 0)
    off = (f.q.shape[-1] + 6) * r.summed * (1 + sizes) + r.stored * (2 * sizes + 2 * np.abs(s))
    off = off + r.summed * np.abs(s - np.max(np.where(f.keep, f.s, -np.inf), axis=-1, keepdims=True, initial=-1e300))
    off = np.where(f.P > 0, off, 0)
    mean = (f.P * off).sum(axis=-1, keepdims=True)
    return np.asarray(f.P * (off + mean + (f.k.shape[-2] + 3) * r.summed + r.stored))


def _of_scores(f: Forward, dO: Array, dP: Array, delta: Array, moved_P: Array, r: Rounding) -> Array:
    sizes = np.abs(dO) @ np.abs(f.v).swapaxes(-1, -2)
    moved_dP = (f.v.shape[-1] + 1) * r.summed * sizes + r.stored * np.abs(dP)
    terms = f.P * np.abs(dP)
    moved_delta = moved_P * np.abs(dP) + f.P * moved_dP + (f.k.shape[-2] * r.summed + r.stored) * terms
    by_rows = (np.abs(dO) * np.abs(f.P @ f.v)).sum(axis=-1, keepdims=True)  # where delta is made of O and dO
    off = moved_delta.sum(axis=-1, keepdims=True) + (f.v.shape[-1] * r.summed + r.stored) * by_rows
    return np.asarray(moved_P * np.abs(dP - delta) + f.P * (moved_dP + off + 2 * r.stored * np.abs(dP - delta)))


def _of_operands(
    case: Case, f: Forward, dO: Array, added: Array, moved: Array, moved_P: Array, r: Rounding
) -> dict[str, Array]:
    dS = np.abs(added * f.slope)
    if case.softcap is not None:
        t = np.sqrt(1 - f.slope)
        sizes = abs(f.scale) * (np.abs(f.q) @ np.abs(f.k).swapaxes(-1, -2))
        bent = 2 * t * (f.slope * (3 * r.stored + 9 * r.summed) * sizes / case.softcap + 6 * r.summed + r.stored)
        moved = moved * f.slope + np.abs(added) * bent + r.stored * dS
    q, k = np.abs(f.q), np.abs(f.k)
    n, m, a = f.k.shape[-2], f.q.shape[-2], abs(f.scale)
    query = a * ((moved + (n * r.summed + 3 * r.stored) * dS) @ k)
    key = a * ((moved + (m * r.summed + 3 * r.stored) * dS).swapaxes(-1, -2) @ q)
    value = (moved_P + (m * r.summed + 2 * r.stored) * f.P).swapaxes(-1, -2) @ np.abs(dO)
    shared = {"key": a * (dS.swapaxes(-1, -2) @ q), "value": f.P.swapaxes(-1, -2) @ np.abs(dO)}
    group = f.q.shape[1] // case.key.shape[1]
    summed = {
        name: members(case, x + (group - 1) * r.stored * shared[name]).sum(axis=2)
        for name, x in (("key", key), ("value", value))
    }
    return {"query": query, **summed}
