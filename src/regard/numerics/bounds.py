r"""How far a tiled kernel may be from exact attention.

With :math:`s = \text{scale}\,qk` and :math:`o = Pv`, an error :math:`\delta s` of the scores moves the output, to
first order, by :math:`\delta o_{ic} = \sum_j P_{ij}\,\delta s_{ij}\,(v_{jc} - o_{ic})`. A kernel that carries scores,
maximum, sum and output with unit roundoff u, in T tiles of B keys, and stores its output with unit roundoff u_o, has

.. math::
    |\delta s_{ij}| &\le c_d\,(u\,a_{ij} + \epsilon\,|\text{scale}|)
        + u\,(2|s'_{ij}| + |s_{ij}| + |b_{ij}| + |s_{ij} - m_i|) + 4u
        \;[+\,6u\,|s'_{ij}|], \qquad a_{ij} = |\text{scale}| \sum_c |q_{ic}||k_{jc}| \\
    B_{ic} &= \sum_j P_{ij}\,|v_{jc} - o_{ic}|\,|\delta s_{ij}| + c_n u \sum_j P_{ij}|v_{jc}|
        + u_o|o_{ic}| + n\,\eta_i \\
    B^{L}_i &= \sum_j P_{ij}|\delta s_{ij}| + c_n u + u|L_i| \\
    B^{P}_{ij} &= P_{ij}\,(|\delta s_{ij}| + B^{L}_i) + \eta_i

where s' is the score before the bias b; the bracket is the softcap's tanh. Of several biases |b| is the sum of their
sizes, and each but the last adds u times the score that it makes. :math:`c_n` counts B products of a tile, a rescale
and an add per tile and one division, :math:`c_d` the D products of a score: worst case :math:`c_d = D, c_n = B + 2T +
3`; for rounding errors of random sign their square roots (Higham & Mary 2019). :math:`\epsilon`, half of the smallest
number, is what a step of q · k loses below the normal numbers, before the scale multiplies it. :math:`\eta` is what a
weight flushed below :math:`e^{-87}` (:math:`e^{-708}` in float64) can lose, and the smallest number. A sink multiplies
weights and output by :math:`\sigma(L - \text{sink})`, computed in float64. As :math:`(\ln \sigma)' = 1 - \sigma`, its
relative error is at most that of :math:`e^L`, what the difference was rounded by, :math:`2^{-53} |L - \text{sink}|`,
and two roundings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from regard._errors import DTypeError, written
from regard._fit import as_size
from regard._types import Array, score_dtype

# Unit roundoff and smallest number of the dtypes in which an output may be stored.
_STORED = {
    "float64": (2.0**-53, 2.0**-1074),
    "float32": (2.0**-24, 2.0**-149),
    "float16": (2.0**-11, 2.0**-24),
    "bfloat16": (2.0**-8, 2.0**-133),
}


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
    share: Array | None = None,
    scale: float,
    tile_keys: int,
    biases: Sequence[Array] = (),
    softcap: float = 0,
    dtype: str = "float32",
    weight_unit: float = 0,
    least_term: float = 0,
    random_walk: bool = True,
) -> Bounds:
    """Evaluate the bound from exact weights, in float64.

    Parameters
    ----------
    query, key, value : array
        ``(..., Sq, D)``, ``(..., Skv, D)``, ``(..., Skv, Dv)``, leading axes equal or 1; finite.
    weights : array, shape ``(..., Sq, Skv)``
        Exact attention weights without any sink; 0 where masked. Rows sum to 1.
    share : array, shape ``(..., Sq)``, optional
        What a sink leaves to the keys: sigmoid(lse − sink). Default 1.
    scale, softcap : float
        The factor of q · k, and the cap of the scores (0: none).
    biases : sequence of arrays
        What is added to the scores, one after the other, each broadcast against weights.
    tile_keys : int
        B, keys of one tile.
    dtype : str
        Dtype of inputs and output; scores, sums and logsumexp are float64 for float64, else float32.
    weight_unit : float
        Unit roundoff of a weight as it multiplies its value, where it is rounded for that: 2⁻⁸ for bfloat16 by AVX-512
        BF16 and AMX.
    least_term : float
        What is smaller counts as zero, of products of a weight and a value and of their sums: 2⁻¹²⁶ by these units.
    random_walk : bool
        Constants for fixed-seed random data; False: for any data.

    Raises
    ------
    ShapeError, DTypeError
        ``tile_keys`` is no integer above 0, or ``dtype`` none of those names.

    Examples
    --------
    >>> import numpy as np
    >>> q, k, v = np.ones((1, 4)), np.ones((3, 4)), np.ones((3, 2))
    >>> bounds = forward_bounds(q, k, v, np.full((1, 3), 1 / 3), scale=0.5, tile_keys=96)
    >>> bounds.out.shape, bool(bounds.out.max() < 1e-6)
    ((1, 2), True)
    """
    tile_keys = as_size("tile_keys", tile_keys, 1)
    if not isinstance(dtype, str) or dtype not in _STORED:
        raise DTypeError(
            f"dtype is {written(dtype)}; bounds are known for {', '.join(_STORED)}: pass one of these names"
        )
    q, k, v, P = (np.asarray(x, np.float64) for x in (query, key, value, weights))
    left = np.ones((1, 1)) if share is None else np.asarray(share, np.float64)[..., None]
    unit, least = _STORED[score_dtype(dtype).name]
    lost = math.exp(-708 if dtype == "float64" else -87)
    keys, tiles = k.shape[-2], math.ceil(k.shape[-2] / tile_keys)
    c_d, c_n = q.shape[-1], min(tile_keys, keys) + 2 * tiles + 3
    if random_walk:
        c_d, c_n = math.sqrt(c_d), math.sqrt(c_n)
    a = abs(scale) * (np.abs(q) @ np.swapaxes(np.abs(k), -1, -2))
    s, peak, moved = _scores(q, k, P, scale, biases, softcap, unit)
    moved = P * (moved + c_d * (unit * a + abs(scale) * least / 2))  # P |δs|
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.where(left < 1, np.abs(np.log(left) - np.log1p(-left)), 0)  # |L - sink|
        apart = np.where(left > 0, apart, 0)  # nothing is left to be wrong
        lse = peak[..., 0] + np.log(np.exp(np.where(P > 0, s - peak, -np.inf)).sum(axis=-1))
    lse_bound = moved.sum(axis=-1) + c_n * unit + unit * np.abs(np.where(np.isfinite(lse), lse, 0))
    relative = (lse_bound + 2 * unit)[..., None] + 2.0**-53 * apart  # of the sink's factor
    bound = left * (
        _spread(moved, P, v) + (c_n * unit + weight_unit) * (P @ np.abs(v)) + np.abs(P @ v) * relative * (1 - left)
    )
    stored_unit, tiny = _STORED[dtype]
    bound += stored_unit * (left * np.abs(P @ v) + bound)
    bound += 2 * keys * least_term  # weights are at least 1 in sum before the division
    bound += keys * lost * np.max(np.abs(v), axis=-2, keepdims=True, initial=0) + max(keys * unit * tiny, tiny)
    return Bounds(bound, lse_bound, left * (moved + P * (lse_bound[..., None] + relative)) + lost)


def _scores(
    q: Array, k: Array, P: Array, scale: float, biases: Sequence[Array], softcap: float, unit: float
) -> tuple[Array, Array, Array]:
    """Scores, their row maxima, and the part of |δs| that the shape of the score map makes."""
    s = scale * (q @ np.swapaxes(k, -1, -2))
    moved = unit * (2 * np.abs(s) + 4)  # of the scale itself, and of its product
    if softcap:
        s = softcap * np.tanh(s / softcap)
        moved += 6 * unit * np.abs(s)
    for number, bias in enumerate(biases):
        b = np.where(np.isfinite(bias), np.asarray(bias, np.float64), 0)
        moved = moved + unit * (np.abs(b) + (np.abs(s) if number else 0))
        s = s + b
    peak = np.max(np.where(P > 0, s, -np.inf), axis=-1, keepdims=True, initial=-np.inf)
    peak = np.where(np.isfinite(peak), peak, 0)
    return s, peak, moved + unit * (np.abs(s) + np.abs(s - peak))


def _spread(moved: Array, P: Array, v: Array) -> Array:
    """Σ_j moved_ij |v_jc − o_ic|, row by row: |v − o_i| has the size of v."""
    out = P @ v
    spread = np.empty(out.shape)
    for i in range(out.shape[-2]):
        spread[..., i, :] = np.einsum("...j,...jc->...c", moved[..., i, :], np.abs(v - out[..., i : i + 1, :]))
    return spread
