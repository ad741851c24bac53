"""The oracle and the lesson: attention in plain NumPy, to be read next to the formula.

`attention` materialises everything in float64 and evaluates the formula of each mask as it is written; what the
engine computes is compared with it. `online_attention` is the same in tiles with a running maximum and sum, in
O(n) memory: the idea of FlashAttention, for reading and as a yardstick, never a fallback.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard._arrays import as_input
from regard._plan import FLOATS, Problem, make_problem
from regard._types import Array, BoolArray
from regard.masks import Full


class Materialised(NamedTuple):
    """All that the definition names: output, natural logsumexp of each row, and the weights."""

    out: Array
    lse: Array
    weights: Array


def attention(query: Any, key: Any, value: Any, **options: Any) -> Array:
    """Attention in float64, materialised: O(Sq · Skv) memory, for tests and for reading.

    Signature, shapes and errors are those of `regard.attention`; any floating dtype is taken.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> k = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], float)
    >>> rg.reference.attention(k[2:], k, [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).round(6)
    array([[0.725931, 0.725931]])
    """
    return attention_forward(query, key, value, **options).out


def attention_forward(query: Any, key: Any, value: Any, **options: Any) -> Materialised:
    """Output, logsumexp and weights as `attention` computes them.

    A row that keeps no key has output 0, lse −inf and weights 0.
    """
    problem, Q, K, V = _prepare(query, key, value, options)
    keep = _keep(problem)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # Inf and NaN of the user's are answers
        S = problem.scale * (Q @ K.swapaxes(-1, -2))
        S = np.where(keep, S, -np.inf)  # before the softmax: a masked key takes no share
        m = S.max(axis=-1, keepdims=True, initial=-np.inf)
        empty = ~keep.any(axis=-1, keepdims=True)
        P = np.exp(S - np.where(empty, 0, m))  # the shift cancels in P / l; it prevents overflow
        P = np.where(keep, P, 0)
        l = P.sum(axis=-1, keepdims=True)  # noqa: E741 the lesson's name
        W = np.where(keep, P / np.where(empty, 1, l), 0)
        O = _weighted_sum(W, V, keep)  # noqa: E741
        lse = np.where(empty, -np.inf, m + np.log(l))
    g = problem.geometry
    return Materialised(
        O.reshape(problem.user_shape(g.queries, problem.dv)),
        lse.reshape(problem.user_shape(g.queries)),
        W.reshape(g.user_shape),
    )


def online_attention(
    query: Any, key: Any, value: Any, *, block_rows: int = 256, block_keys: int = 512, **options: Any
) -> Array:
    r"""Attention by tiles and online softmax, in the inputs' dtype and O(n) memory.

    For each row the tiles of keys are folded left to right into a running maximum m, sum l and output O:

    .. math:: m' = \max(m, \max_j s_j), \quad \alpha = e^{m - m'}, \quad l' = \alpha l + \sum_j e^{s_j - m'},
              \quad O' = \alpha O + \sum_j e^{s_j - m'} v_j

    and the output is O / l at the end. Without α, what was summed under the old maximum would keep its weight.

    References
    ----------
    Milakov & Gimelshein 2018 (arXiv 1805.02867), algorithm 3; Dao et al. 2022 (arXiv 2205.14135), algorithm 1.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> k = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], float)
    >>> rg.reference.online_attention(k[2:], k, k[:, :2], block_keys=1).round(6)
    array([[0.725931, 0.274069]])
    """
    problem, Q, K, V = _prepare(query, key, value, options, cast=False)
    g = problem.geometry
    out = np.empty((*g.lead, g.heads, g.queries, problem.dv), Q.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        for first in range(0, g.queries, block_rows):
            rows = np.arange(first, min(first + block_rows, g.queries))
            out[..., rows, :] = _fold_keys(problem, Q[..., rows, :], K, V, rows, block_keys)
    return out.reshape(problem.user_shape(g.queries, problem.dv))


def _fold_keys(problem: Problem, Q: Array, K: Array, V: Array, rows: Array, block_keys: int) -> Array:
    g = problem.geometry
    m = np.full((*g.lead, g.heads, len(rows), 1), -np.inf, Q.dtype)
    l = np.zeros_like(m)  # noqa: E741
    O = np.zeros((*m.shape[:-1], problem.dv), Q.dtype)  # noqa: E741
    seen = np.zeros(m.shape, bool)
    Q = Q * Q.dtype.type(problem.scale)
    for first in range(0, g.keys, block_keys):
        keys = np.arange(first, min(first + block_keys, g.keys))
        K_tile, V_tile = K[..., first : first + block_keys, :], V[..., first : first + block_keys, :]
        S = Q @ K_tile.swapaxes(-1, -2)
        keep = None if isinstance(problem.mask, Full) else problem.mask.keep(g, rows, keys)
        if keep is not None:
            S = np.where(keep, S, -np.inf)
        seen |= True if keep is None else keep.any(axis=-1, keepdims=True)
        m_new = np.maximum(m, S.max(axis=-1, keepdims=True))
        base = np.where(m_new == -np.inf, 0, m_new)  # nothing kept so far: -inf - -inf is NaN, from 0 it is weight 0
        alpha = np.exp(m - base)
        S -= base
        P = np.exp(S, out=S)
        l = alpha * l + P.sum(axis=-1, keepdims=True)  # noqa: E741
        O = alpha * O + (P @ V_tile if keep is None else _weighted_sum(P, V_tile, keep))  # noqa: E741
        m = m_new
    return np.where(seen, O / np.where(seen, l, 1), 0)


def _prepare(
    query: Any, key: Any, value: Any, options: dict[str, Any], cast: bool = True
) -> tuple[Problem, Array, Array, Array]:
    """Check the call; return q, k, v with all axes, each query head with the kv head that it reads."""
    arrays = (as_input("query", query), as_input("key", key), as_input("value", value))
    problem = make_problem(*arrays, dtypes=FLOATS, **options)
    Q, K, V = (array.astype(np.float64) if cast else array for array in arrays)
    Q, K, V = (array.reshape(1, *array.shape) if array.ndim == 2 else array for array in (Q, K, V))
    return problem, Q, np.repeat(K, problem.group, axis=-3), np.repeat(V, problem.group, axis=-3)


def _keep(problem: Problem) -> BoolArray:
    g = problem.geometry
    return np.broadcast_to(problem.mask.keep(g, np.arange(g.queries), np.arange(g.keys)), g.shape)


def _weighted_sum(P: Array, V: Array, keep: BoolArray) -> Array:
    """P · V in which a value that a row does not keep is not part of the row's sum, whatever it holds."""
    finite = np.isfinite(V)
    total: Array = P @ np.where(finite, V, 0)
    spoilt = ~finite.reshape(-1, *V.shape[-2:]).all(axis=(0, 2))
    for j in np.flatnonzero(spoilt):  # 0 · NaN is NaN: one by one
        v = np.where(finite[..., j, :], 0, V[..., j, :])[..., None, :]
        total = total + np.where(keep[..., j, None], P[..., j, None] * v, 0)
    return total
