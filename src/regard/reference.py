"""The oracle and the lesson: attention in plain NumPy, to be read next to the formula.

`attention` materialises everything in float64 and evaluates the formula of each mask as it is written; what the
engine computes is compared with it. `attention_backward` follows the same formula backwards, by hand.
`online_attention` is the same in tiles with a running maximum and sum, in O(n) memory: the idea of FlashAttention, for
reading and as a yardstick, never a fallback.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard._arrays import Intake, Operands, require_float
from regard._errors import DTypeError, ShapeError
from regard._fit import as_size
from regard._plan import Problem, make_problem
from regard._types import Array, BoolArray, IntArray, score_dtype, sum_groups, sum_to
from regard.biases import Bias, DenseBias
from regard.masks import Full


class Materialised(NamedTuple):
    """All that the definition names: output, natural logsumexp of each row, and the weights."""

    out: Any
    lse: Any
    weights: Any


class Gradients(NamedTuple):
    """Gradients of a number that depends on the output, by what they belong to and in its shape; None where none was.

    The bias that is an array has one in the array's shape; a formula, or a sum, one in the shape of the scores.
    """

    query: Any
    key: Any
    value: Any
    bias: Any = None
    sinks: Any = None


def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    q_offset: Any = None,
    scale: Any = None,
    softcap: Any = None,
    sinks: Any = None,
    dropout: Any = None,
    **unknown: Any,
) -> Any:
    """Attention in float64, materialised: O(Sq · Skv) memory, for tests and for reading.

    Options and shapes are those of `regard.attention`, without ``out``. The result is float64, of the query's library.

    Raises
    ------
    RegardError, TypeError
        As `regard.attention`.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> k = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], float)
    >>> rg.reference.attention(k[2:], k, [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).round(6)
    array([[0.725931, 0.725931]])
    """
    return attention_forward(
        query, key, value, mask=mask, bias=bias, q_offset=q_offset, scale=scale, softcap=softcap, sinks=sinks,
        dropout=dropout, **unknown,
    ).out  # fmt: skip


def attention_forward(
    query: Any,
    key: Any,
    value: Any,
    *,
    bias: Any = None,
    sinks: Any = None,
    precision: type[np.floating[Any]] = np.float64,
    **options: Any,
) -> Materialised:
    """Output, logsumexp and weights as `attention` computes them.

    A row that keeps no key has output 0, lse −inf and weights 0. ``precision`` is what everything is computed in;
    ``np.longdouble`` makes an oracle for float64 kernels.

    Raises
    ------
    RegardError, TypeError
        As `attention`; and for a ``precision`` that is no float dtype.
    """
    given = Operands.of(query, key, value, bias, sinks)
    problem, Q, K, V, biases, sink = _prepare(given, options, np.dtype(precision))
    g = problem.geometry
    rows, keys = np.arange(g.queries), np.arange(g.keys)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # Inf and NaN of the user's are answers
        S, kept = _scores(problem, Q, K, biases, rows, keys)
        keep = np.broadcast_to(True if kept is None else kept, g.shape)
        W, lse = _softmax(S, keep, sink)
        # [output]
        O = _weighted_sum(W, V, keep)
        # [/output]
    give = given.library.give
    return Materialised(
        give(O.reshape(problem.user_shape(g.queries, problem.dv))),
        give(lse.reshape(problem.user_shape(g.queries))),
        give(W.reshape(g.user_shape)),
    )


def attention_backward(
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    q_offset: Any = None,
    scale: Any = None,
    softcap: Any = None,
    sinks: Any = None,
    dropout: Any = None,
    **unknown: Any,
) -> Gradients:
    r"""Gradients of attention in float64, materialised: for tests and for reading.

    With :math:`O = PV` and :math:`P = \operatorname{softmax}(S)`, what reaches the output goes back step by step:

    .. math::
        dV = P^\top dO, \quad dP = dO\, V^\top, \quad \delta_i = \sum_j P_{ij}\, dP_{ij}, \quad
        dS_{ij} = P_{ij}\,(dP_{ij} - \delta_i), \quad
        dQ = \text{scale}\; dS\, K, \quad dK = \text{scale}\; dS^\top Q

    where a softcap c multiplies dS by :math:`1 - \tanh^2(s/c)` on its way to dQ and dK. A row that keeps no key has
    gradient 0, and what is behind the mask takes no part, be it NaN.

    Parameters
    ----------
    grad_out : array, shape ``(..., Hq, Sq, Dv)``
        Gradient of the output, of any float dtype.
    query, key, value, mask, bias, q_offset, scale, softcap, sinks, dropout
        As `attention` takes them.

    Returns
    -------
    Gradients
        ``query``, ``key``, ``value``, ``bias`` and ``sinks``, in float64 and of the query's library. Where one entry
        serves several rows, heads or batch entries, its gradient is the sum of theirs.

    Raises
    ------
    ShapeError, DTypeError, UnsupportedError
        Where ``grad_out`` does not have the output's shape, holds no floats, or is of another library; and as
        `attention`.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> k = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], float)
    >>> v = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> rg.reference.attention_backward(np.array([[1.0, 0.0]]), k[2:], k, v).key.round(6)
    array([[ 0.037557,  0.      ,  0.037557,  0.      ],
           [-0.099478,  0.      , -0.099478,  0.      ],
           [ 0.061921,  0.      ,  0.061921,  0.      ]])
    """
    given = Operands.of(query, key, value, bias, sinks)
    options = {"mask": mask, "q_offset": q_offset, "scale": scale, "softcap": softcap, "dropout": dropout, **unknown}
    problem, Q, K, V, biases, sink = _prepare(given, options, np.dtype(np.float64))
    g = problem.geometry
    dO = _gradient_of_output(problem, query, grad_out)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        S, kept = _scores(problem, Q, K, biases, np.arange(g.queries), np.arange(g.keys))
        keep = np.broadcast_to(True if kept is None else kept, g.shape)
        P, lse = _softmax(S, keep, sink)
        # [gradients]
        dV = _weighted_sum(P.swapaxes(-1, -2), dO, keep.swapaxes(-1, -2))
        dP = np.where(keep, dO @ V.swapaxes(-1, -2), 0)
        delta = (P * dP).sum(axis=-1, keepdims=True)  # what the row's own sum takes back
        dS = np.where(keep, P * (dP - delta), 0)
        dB = dS  # a bias is added after the softcap
        if problem.softcap:
            dS = np.where(keep, dS * (1 - (_products(problem, Q, K) / problem.softcap) ** 2), 0)
        dQ = problem.scale * _weighted_sum(dS, K, keep)
        dK = problem.scale * _weighted_sum(dS.swapaxes(-1, -2), Q, keep.swapaxes(-1, -2))
        # [/gradients]
        d_sink = None if sink is None else -delta / (1 + np.exp(lse - sink))  # the sink's value is 0: dP is too
    of_bias = given.bias.array.shape if isinstance(given.bias, DenseBias) else g.user_shape
    give = given.library.give
    return Gradients(
        give(sum_to(dQ, given.query.shape)),
        give(sum_to(sum_groups(dK, problem.kv_heads, problem.group), given.key.shape)),
        give(sum_to(sum_groups(dV, problem.kv_heads, problem.group), given.value.shape)),
        None if given.bias is None else give(sum_to(dB, of_bias)),
        None if d_sink is None or given.sinks is None else give(sum_to(d_sink.sum(axis=(-1, -2)), given.sinks.shape)),
    )


def _gradient_of_output(problem: Problem, query: Any, grad_out: Any) -> Array:
    """Check the gradient of the output; return it with all axes."""
    intake = Intake()
    intake("query", query)
    dO = intake.floats("grad_out", grad_out)
    require_float("grad_out", dO.dtype)
    want = problem.user_shape(problem.geometry.queries, problem.dv)
    if dO.shape != want:
        raise ShapeError(f"grad_out has shape {dO.shape} and the output has shape {want}: give one number for each")
    return dO.astype(np.float64).reshape((*problem.geometry.lead, problem.geometry.heads, *want[-2:]))


def scores(
    query: Any, key: Any, *, bias: Any = None, precision: type[np.floating[Any]] = np.float64, **options: Any
) -> Any:
    """Scores as the softmax gets them, ``(..., Hq, Sq, Skv)``: −inf where mask or bias drops the pair.

    Options and ``precision`` are those of `attention_forward`.

    Raises
    ------
    RegardError, TypeError
        As `attention_forward`.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> k = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], float)
    >>> rg.reference.scores(k[2:], k, mask=rg.Prefix(2))
    array([[ 0.5,  0.5, -inf]])
    """
    given = Operands.of(query, key, key, bias)
    problem, Q, K, _, biases, _ = _prepare(given, options, np.dtype(precision))
    g = problem.geometry
    with np.errstate(invalid="ignore", over="ignore"):
        S, _ = _scores(problem, Q, K, biases, np.arange(g.queries), np.arange(g.keys))
    return given.library.give(S.reshape(g.user_shape))


def online_attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    bias: Any = None,
    sinks: Any = None,
    block_rows: int = 256,
    block_keys: int = 512,
    **options: Any,
) -> Any:
    r"""Attention by tiles and online softmax, in the dtype of the scores and O(n) memory.

    For each row the tiles of keys are folded left to right into a running maximum m, sum l and output O:

    .. math:: m' = \max(m, \max_j s_j), \quad \alpha = e^{m - m'}, \quad l' = \alpha l + \sum_j e^{s_j - m'},
              \quad O' = \alpha O + \sum_j e^{s_j - m'} v_j

    and the output is O / l at the end. Without α, what was summed under the old maximum would keep its weight.

    Raises
    ------
    RegardError, TypeError
        As `attention`; and for a ``block_rows`` or ``block_keys`` that is no integer above 0.

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
    block_rows, block_keys = as_size("block_rows", block_rows, 1), as_size("block_keys", block_keys, 1)
    given = Operands.of(query, key, value, bias, sinks)
    problem, Q, K, V, biases, sink = _prepare(given, options, None)
    g = problem.geometry
    out = np.empty((*g.lead, g.heads, g.queries, problem.dv), Q.dtype)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for first in range(0, g.queries, block_rows):
            rows = np.arange(first, min(first + block_rows, g.queries))
            out[..., rows, :] = _fold_keys(problem, Q[..., rows, :], K, V, biases, sink, rows, block_keys)
    return given.library.give(out.reshape(problem.user_shape(g.queries, problem.dv)))


def _fold_keys(
    problem: Problem,
    Q: Array,
    K: Array,
    V: Array,
    biases: tuple[Bias, ...],
    sink: Array | None,
    rows: IntArray,
    block_keys: int,
) -> Array:
    g = problem.geometry
    m = np.full((*g.lead, g.heads, len(rows), 1), -np.inf, Q.dtype)
    l = np.zeros_like(m)
    O = np.zeros((*m.shape[:-1], problem.dv), Q.dtype)
    seen = np.zeros(m.shape, bool)
    for first in range(0, g.keys, block_keys):
        keys = np.arange(first, min(first + block_keys, g.keys))
        K_tile, V_tile = K[..., first : first + block_keys, :], V[..., first : first + block_keys, :]
        S, keep = _scores(problem, Q, K_tile, biases, rows, keys)
        seen |= True if keep is None else keep.any(axis=-1, keepdims=True)
        # [fold]
        m_new = np.maximum(m, S.max(axis=-1, keepdims=True))
        base = np.where(m_new == -np.inf, 0, m_new)  # nothing kept so far: -inf - -inf is NaN, from 0 it is weight 0
        alpha = np.exp(m - base)
        S -= base
        P = np.exp(S, out=S)
        l = alpha * l + P.sum(axis=-1, keepdims=True)
        O = alpha * O + (P @ V_tile if keep is None else _weighted_sum(P, V_tile, keep))
        m = m_new
        # [/fold]
    O = O / np.where(seen, l, 1)
    if sink is not None:  # once, at the end: it takes its share of the whole
        O = O / (1 + np.exp(sink - (m + np.log(l))))
    return np.where(seen, O, 0)


def _softmax(S: Array, keep: BoolArray, sink: Array | None) -> tuple[Array, Array]:
    """Weights and logsumexp of each row; a row that keeps no key has weights 0 and −inf."""
    # [softmax]
    m = S.max(axis=-1, keepdims=True, initial=-np.inf)
    empty = ~keep.any(axis=-1, keepdims=True)
    P = np.exp(S - np.where(empty, 0, m))  # the shift cancels in P / l; it prevents overflow
    P = np.where(keep, P, 0)
    l = P.sum(axis=-1, keepdims=True)
    W = np.where(keep, P / np.where(empty, 1, l), 0)
    lse = np.where(empty, -np.inf, m + np.log(l))
    # [/softmax]
    if sink is not None:  # it takes its share of the whole, and has no value
        W = np.where(keep, W / (1 + np.exp(sink - lse)), 0)
    return W, lse


def _scores(
    problem: Problem, Q: Array, K: Array, biases: tuple[Bias, ...], rows: IntArray, keys: IntArray
) -> tuple[Array, BoolArray | None]:
    """Scores of the queries ``rows`` and the keys ``keys``, and which of them are kept; None: all."""
    S = _products(problem, Q, K)
    keep = None if isinstance(problem.mask, Full) else problem.mask.keep(problem.geometry, rows, keys)
    for bias in biases:
        B = bias.values(problem.geometry, rows, keys, score_dtype(problem.dtype)).astype(S.dtype, copy=False)
        S = S + B
        visible = np.not_equal(B, -np.inf)
        keep = visible if keep is None else keep & visible
    if keep is None:
        return S, None
    # [mask]
    S = np.where(keep, S, -np.inf)  # before the softmax: a masked key takes no share
    # [/mask]
    return S, keep


def _products(problem: Problem, Q: Array, K: Array) -> Array:
    """Scaled and capped q · k, which is all of a score that depends on both."""
    # [scores]
    S = problem.scale * (Q @ K.swapaxes(-1, -2))
    # [/scores]
    return problem.softcap * np.tanh(S / problem.softcap) if problem.softcap else S


def _prepare(
    given: Operands, options: dict[str, Any], dtype: np.dtype[Any] | None
) -> tuple[Problem, Array, Array, Array, tuple[Bias, ...], Array | None]:
    """Check the call; return all arrays with all axes, each query head with the kv head that it reads."""
    problem = make_problem(given.query, given.key, given.value, bias=given.bias, sinks=given.sinks, **options)
    dtype = score_dtype(problem.dtype) if dtype is None else dtype
    if dtype.kind != "f":
        raise DTypeError(f"precision is {dtype}; all is computed in it: pass a float dtype, such as np.longdouble")
    Q, K, V = (x.astype(dtype, copy=False) for x in (given.query, given.key, given.value))
    Q, K, V = (x.reshape(1, *x.shape) if x.ndim == 2 else x for x in (Q, K, V))
    K, V = np.repeat(K, problem.group, axis=-3), np.repeat(V, problem.group, axis=-3)
    sink = None if given.sinks is None else given.sinks.astype(dtype)[..., None, None]
    return problem, Q, K, V, () if given.bias is None else given.bias.parts, sink


def _weighted_sum(P: Array, V: Array, keep: BoolArray) -> Array:
    """P · V in which a value that a row does not keep is not part of the row's sum, whatever it holds."""
    keep = np.broadcast_to(keep, P.shape)
    finite = np.isfinite(V)
    total: Array = P @ np.where(finite, V, 0)
    spoilt = ~finite.all(axis=(*range(V.ndim - 2), V.ndim - 1))
    for j in np.flatnonzero(spoilt):  # 0 · NaN is NaN: one by one
        v = np.where(finite[..., j, :], 0, V[..., j, :])[..., None, :]
        total = total + np.where(keep[..., j, None], P[..., j, None] * v, 0)
    return total
