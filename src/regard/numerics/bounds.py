r"""How far a tiled kernel may be from exact attention.

With :math:`s = \text{scale}\,qk` and :math:`o = Pv`, an error :math:`\delta s` of the scores moves the output, to
first order, by :math:`\delta o_{ic} = \sum_j P_{ij}\,\delta s_{ij}\,(v_{jc} - o_{ic})`. A kernel that carries scores,
maximum, sum and output with unit roundoff u, in T tiles of B keys, has

.. math::
    |\delta s_{ij}| &\le c_d\,u\,a_{ij} + u\,(|s_{ij}| + |s_{ij} - m_i|) + 4u,
        \qquad a_{ij} = |\text{scale}| \sum_c |q_{ic}||k_{jc}| \\
    B_{ic} &= \sum_j P_{ij}\,|v_{jc} - o_{ic}|\,|\delta s_{ij}| + c_n u \sum_j P_{ij}|v_{jc}| + u|o_{ic}| + n\,\eta_i \\
    B^{L}_i &= \sum_j P_{ij}|\delta s_{ij}| + c_n u + u|L_i| \\
    B^{P}_{ij} &= P_{ij}\,(|\delta s_{ij}| + B^{L}_i) + \eta_i

:math:`c_n` counts B products of a tile, a rescale and an add per tile and one division, :math:`c_d` the D products of
a score: worst case :math:`c_d = D, c_n = B + 2T + 3`; for rounding errors of random sign their square roots
(Higham & Mary 2019). :math:`\eta` is what a weight flushed below :math:`e^{-87}` can lose, and the smallest number.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from regard._types import Array

_LOST_WEIGHT = math.exp(-87)


class Bounds(NamedTuple):
    """Largest admissible errors: ``out (..., Sq, Dv)``, ``lse (..., Sq)``, ``weights (..., Sq, Skv)``."""

    out: Array
    lse: Array
    weights: Array


def forward_bounds(
    query: Array,
    key: Array,
    value: Array,
    weights: Array,
    *,
    scale: float,
    tile_keys: int,
    dtype: type[np.floating[Any]] = np.float32,
    random_walk: bool = True,
) -> Bounds:
    """Evaluate the bound from exact weights, in float64.

    Parameters
    ----------
    query, key, value : array
        ``(..., Sq, D)``, ``(..., Skv, D)``, ``(..., Skv, Dv)``, leading axes equal or 1; finite.
    weights : array, shape ``(..., Sq, Skv)``
        Exact attention weights; 0 where masked.
    scale : float
        The factor of q · k.
    tile_keys : int
        B, keys of one tile.
    dtype : floating dtype
        What the kernel carries scores, sums and output in.
    random_walk : bool
        Constants for fixed-seed random data; False: for any data.

    Examples
    --------
    >>> import numpy as np
    >>> q, k, v = np.ones((1, 4)), np.ones((3, 4)), np.ones((3, 2))
    >>> bounds = forward_bounds(q, k, v, np.full((1, 3), 1 / 3), scale=0.5, tile_keys=96)
    >>> bounds.out.shape, bool(bounds.out.max() < 1e-6)
    ((1, 2), True)
    """
    q, k, v, P = (np.asarray(x, np.float64) for x in (query, key, value, weights))
    unit, tiny = float(np.finfo(dtype).eps) / 2, float(np.finfo(dtype).smallest_subnormal)
    keys, tiles = k.shape[-2], math.ceil(k.shape[-2] / tile_keys)
    c_d, c_n = q.shape[-1], min(tile_keys, keys) + 2 * tiles + 3
    if random_walk:
        c_d, c_n = math.sqrt(c_d), math.sqrt(c_n)
    s = scale * (q @ np.swapaxes(k, -1, -2))
    a = abs(scale) * (np.abs(q) @ np.swapaxes(np.abs(k), -1, -2))
    peak = np.max(np.where(P > 0, s, -np.inf), axis=-1, keepdims=True, initial=-np.inf)
    peak = np.where(np.isfinite(peak), peak, 0)
    moved = P * (c_d * unit * a + unit * (np.abs(s) + np.abs(s - peak)) + 4 * unit)  # P |δs|
    out = P @ v
    spread = np.empty(out.shape)
    for i in range(out.shape[-2]):  # row by row: |v - o_i| has the size of v
        spread[..., i, :] = np.einsum("...j,...jc->...c", moved[..., i, :], np.abs(v - out[..., i : i + 1, :]))
    lost = keys * (_LOST_WEIGHT * np.max(np.abs(v), axis=-2, keepdims=True, initial=0) + tiny)
    bound = spread + c_n * unit * (P @ np.abs(v)) + unit * np.abs(out) + lost
    with np.errstate(divide="ignore"):
        lse = peak[..., 0] + np.log(np.exp(np.where(P > 0, s - peak, -np.inf)).sum(axis=-1))
    lse_bound = moved.sum(axis=-1) + c_n * unit + unit * np.abs(np.where(np.isfinite(lse), lse, 0))
    return Bounds(bound, lse_bound, moved + P * lse_bound[..., None] + _LOST_WEIGHT)
