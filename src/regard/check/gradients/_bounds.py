r"""How far right gradients may be from the exact ones.

The bound follows the steps of the chain, to first order. u is the unit roundoff of what is stored, which may be every
intermediate result, and w that of sums. Errors are of random sign: a sum of n products has :math:`\sqrt n\,w` of their
sizes, as in `regard.numerics.forward_bounds`, and errors of several terms add up to
:math:`\lVert e\rVert = \sqrt{\sum_j e_j^2}`. With x the scaled q · k, t = x/c under a softcap, s the score and m the
row's largest,

.. math::
    \chi &= \sqrt d\,w \textstyle\sum_c |\text{scale}\,q_c k_c| + u\,(2|x| + \lVert\text{scale}\,q_c k_c\rVert) \\
    \varepsilon &= \chi\;[+\,(6w + 2u)|s'|]\;[+\,u|s|] + u|s - m| + 4w + u \\
    |\delta P| &\le P\,(\varepsilon + \lVert P\varepsilon\rVert + \sqrt n\,w + 2u) \\
    |\delta dP| &\le \sqrt{d_v}\,w\,|dO||V|^\top + u\,|dP| \\
    |\delta\delta| &\le \lVert\delta P\,|dP| + P\,(\delta dP + \sqrt n\,w\,|dO||V|^\top + u\,|dP|)\rVert
        + u\,|dO|\cdot|O| \\
    |\delta dS| &\le \delta P\,|dP - \delta| + P\,(\delta dP + \delta\delta) + 2u\,|dS| \\
    |\delta dS'| &\le (1 - \tanh^2 t)\,\delta dS + |dS|\,\delta(1 - \tanh^2 t) + u\,|dS'| \\
    |\delta dQ| &\le |\text{scale}|\,(\delta dS' + (\sqrt n\,w + 3u)\,|dS'|)\,|K|, \qquad
        |\delta dV| \le (\delta P + (\sqrt{m}\,w + u)\,P)^\top|dO|

Of :math:`\chi`: the sum, its product with the scale, and each q, which may be scaled first, are stored. Of
:math:`\varepsilon`: 6w and 2u for a tanh, and for the product after it and what is stored of both (6w as in
`forward_bounds`); u|s| for a bias that is added; 4w + u for the exponential. Of P: its sum has n terms, and sum and
quotient are stored. Of δ: by P and dP, or by dO and O, which is stored. Of dS: a difference and a product. Of
:math:`1 - \tanh^2`, with t off by :math:`\delta t = (\chi + u|x|)/c`, it is
:math:`2|\tanh t|\,((1 - \tanh^2 t)\,\delta t + (6w + u)|\tanh t|) + 2u`, for the square and the difference. Of dQ, and
of dK over m queries: the sum, the scale and the product with it. g heads that share a key add
:math:`\sqrt{g - 1}\,u` of their sizes, and a bias that serves N scores has
:math:`\sum\delta dS + (\sqrt N\,w + u)\sum|dS|`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case
from regard.check.answers._tolerance import UNIT

from ._oracle import RIGHT_GRADIENTS, Forward, Gradients, members, shared_axes
from ._probes import Probe


@dataclass(frozen=True)
class Rounding:
    """Unit roundoff of what is stored, u, and of what is summed, w."""

    u: float
    w: float

    @classmethod
    def of(cls, dtype: str) -> Rounding:
        """Carry sums of 16-bit numbers in float32."""
        return cls(UNIT[dtype], UNIT["float64" if dtype == "float64" else "float32"])

    def sum_of(self, n: int) -> float:
        """Bound the rounding of a sum of n products, relative to the sum of their sizes."""
        return sqrt(n) * self.w


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
        bounds = _of_operands(case, f, dO, _uncapped(case, f, added, moved, r), np.abs(added * f.slope), moved_P, r)
        if case.bias is not None:
            axes = shared_axes(added, case.bias)
            terms = moved + (r.sum_of(added.size // case.bias.size) + r.u) * np.abs(added)
            bounds["bias"] = terms.sum(axis=axes, keepdims=True)
    return bounds


def _walk(errors: Array) -> Array:
    """Size of a sum over the keys of errors whose signs are random."""
    return np.asarray(np.sqrt((errors * errors).sum(axis=-1, keepdims=True)))


def _of_products(f: Forward, r: Rounding) -> Array:
    x, sizes = (np.abs(f.scale * (q @ k.swapaxes(-1, -2))) for q, k in ((f.q, f.k), (np.abs(f.q), np.abs(f.k))))
    terms = abs(f.scale) * np.sqrt(f.q**2 @ (f.k**2).swapaxes(-1, -2))
    return np.asarray(r.sum_of(f.q.shape[-1]) * sizes + r.u * (2 * x + terms))


def _of_weights(case: Case, f: Forward, r: Rounding) -> Array:
    s = np.where(f.keep, f.s, 0)
    off = _of_products(f, r) + 4 * r.w + r.u
    if case.softcap is not None:
        off = off + (6 * r.w + 2 * r.u) * case.softcap * np.sqrt(1 - f.slope)
    if case.bias is not None:
        off = off + r.u * np.abs(s)
    off = off + r.u * np.abs(s - np.max(np.where(f.keep, f.s, -np.inf), axis=-1, keepdims=True, initial=-1e300))
    off = np.where(f.P > 0, off, 0)
    mean = _walk(f.P * off)
    return np.asarray(f.P * (off + mean + r.sum_of(f.k.shape[-2]) + 2 * r.u))


def _of_scores(f: Forward, dO: Array, dP: Array, delta: Array, moved_P: Array, r: Rounding) -> Array:
    sizes = np.abs(dO) @ np.abs(f.v).swapaxes(-1, -2)
    moved_dP = r.sum_of(f.v.shape[-1]) * sizes + r.u * np.abs(dP)
    terms = r.sum_of(f.k.shape[-2]) * sizes + r.u * np.abs(dP)
    off = _walk(moved_P * np.abs(dP) + f.P * (moved_dP + terms))
    off = off + r.u * (np.abs(dO) * np.abs(f.P @ f.v)).sum(axis=-1, keepdims=True)
    return np.asarray(moved_P * np.abs(dP - delta) + f.P * (moved_dP + off + 2 * r.u * np.abs(dP - delta)))


def _uncapped(case: Case, f: Forward, added: Array, moved: Array, r: Rounding) -> Array:
    if case.softcap is None:
        return moved
    t, x = np.sqrt(1 - f.slope), np.abs(f.scale * (f.q @ f.k.swapaxes(-1, -2)))
    off = (_of_products(f, r) + r.u * x) / case.softcap
    bent = 2 * t * (f.slope * off + (6 * r.w + r.u) * t) + 2 * r.u
    return np.asarray(moved * f.slope + np.abs(added) * bent + r.u * np.abs(added * f.slope))


def _of_operands(
    case: Case, f: Forward, dO: Array, moved: Array, dS: Array, moved_P: Array, r: Rounding
) -> dict[str, Array]:
    q, k = np.abs(f.q), np.abs(f.k)
    n, m, a = r.sum_of(f.k.shape[-2]), r.sum_of(f.q.shape[-2]), abs(f.scale)
    query = a * ((moved + (n + 3 * r.u) * dS) @ k)
    key = a * ((moved + (m + 3 * r.u) * dS).swapaxes(-1, -2) @ q)
    value = (moved_P + (m + r.u) * f.P).swapaxes(-1, -2) @ np.abs(dO)
    shared = {"key": a * (dS.swapaxes(-1, -2) @ q), "value": f.P.swapaxes(-1, -2) @ np.abs(dO)}
    more = sqrt(f.q.shape[1] // case.key.shape[1] - 1) * r.u
    summed = {name: members(case, x + more * shared[name]).sum(axis=2) for name, x in (("key", key), ("value", value))}
    return {"query": query, **summed}
