"""softmax(scale · q kᵀ over the kept keys) · v, by the native engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard import _engine
from regard._arrays import HasShapeAndDType, as_input
from regard._attention.weights import Weights
from regard._plan import FLOAT32, Plan, make_plan, make_problem
from regard._types import Array
from regard.state import AttentionState


@dataclass(frozen=True, eq=False)
class ForwardResult:
    """What `attention_forward` returns.

    Attributes
    ----------
    out : array, shape ``(..., Hq, Sq, Dv)``
        The output.
    lse : array, shape ``(..., Hq, Sq)``
        Natural logsumexp of each row's scores over the keys that it keeps; −inf for a row that keeps none.
    weights : Weights
        Attention weights on demand: ``weights[b, h, i0:i1, j0:j1]``.
    plan : Plan
        What was run.
    """

    out: Array
    lse: Array
    weights: Weights
    plan: Plan

    @property
    def state(self) -> AttentionState:
        """Out and lse as a partial result that `merge_states` joins with others."""
        return AttentionState(self.out, self.lse)


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
    out: Any = None,
) -> Array:
    r"""Exact scaled dot-product attention in O(n) memory.

    .. math:: o_i = \sum_j w_{ij} v_j, \qquad w_{ij} = \frac{e^{s_{ij}}}{\sum_{l\ \text{kept}} e^{s_{il}}},
              \qquad s_{ij} = \text{scale} \cdot q_i \cdot k_j

    over the keys j that ``mask`` keeps for query i. A query that keeps none gives 0. What a masked key or value
    holds (NaN too) is never part of the arithmetic.

    Parameters
    ----------
    query : array, shape ``(..., Hq, Sq, D)``
        float32, any strides. ``(Sq, D)`` is one head. Leading axes broadcast.
    key : array, shape ``(..., Hkv, Skv, D)``
        Query head h reads kv head ``h // (Hq // Hkv)``.
    value : array, shape ``(..., Hkv, Skv, Dv)``
        Dv may differ from D.
    mask : Mask or bool array, optional
        True = may attend. An array has shape ``(Sq, Skv)`` or the rank of the scores ``(..., Hq, Sq, Skv)``, each
        axis 1 or full. Causal attention is ``rg.Causal()``; masks combine with ``& | ~``.
    q_offset : int, "start" or "end", optional
        Position of query 0 among the keys; "start" is 0, "end" is Skv − Sq. Needed where the mask depends on
        positions and Sq ≠ Skv.
    scale : float, optional
        Default 1/√D.
    bias, softcap, sinks, dropout, out
        Refused by this version, with a message that says what to do meanwhile.

    Returns
    -------
    array, shape ``(..., Hq, Sq, Dv)``
        A new float32 array. A row has the same bits for any number of threads, whatever batch, other queries or
        garbage stand around it, and whatever the strides.

    Raises
    ------
    ShapeError, DTypeError, MaskError, AlignmentError, UnsupportedError
        All are `RegardError`, a ValueError; each message gives the fact, the values and the way out.

    References
    ----------
    Vaswani et al. 2017, equation 1; tiles and online softmax after Dao et al. 2022, algorithm 1.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> key = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], np.float32)
    >>> value = np.array([[1, 0], [0, 1], [1, 1]], np.float32)
    >>> print(rg.attention(key[2:], key, value).round(6))
    [[0.725931 0.725931]]
    >>> print(rg.attention(key, key, value, mask=rg.Causal()).round(6))
    [[1.       0.      ]
     [0.268941 0.731059]
     [0.725931 0.725931]]
    """
    arrays, plan = _prepare(
        query, key, value, mask=mask, bias=bias, q_offset=q_offset, scale=scale,
        softcap=softcap, sinks=sinks, dropout=dropout, out=out,
    )  # fmt: skip
    problem = plan.problem
    result = np.empty(problem.user_shape(problem.geometry.queries, problem.dv), arrays[0].dtype)
    _engine.run(plan, *arrays, result, None)
    return result


def attention_forward(
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
    out: Any = None,
    aux: Any = None,
) -> ForwardResult:
    """Attention with what else the forward pass knows: logsumexp, weights on demand, a state to merge, the plan.

    Parameters are those of `attention`, shapes and errors too; ``out`` has the same bits.

    Returns
    -------
    ForwardResult
        ``.out``, ``.lse``, ``.weights``, ``.state``, ``.plan``.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> key = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], np.float32)
    >>> res = rg.attention_forward(key[2:], key, key)
    >>> print(res.lse.round(6), res.weights[0, 1:].round(6))
    [1.794377] [0.274069 0.451863]
    """
    arrays, plan = _prepare(
        query, key, value, mask=mask, bias=bias, q_offset=q_offset, scale=scale,
        softcap=softcap, sinks=sinks, dropout=dropout, out=out, aux=aux,
    )  # fmt: skip
    problem, dtype = plan.problem, arrays[0].dtype
    queries = problem.geometry.queries
    result = np.empty(problem.user_shape(queries, problem.dv), dtype)
    row_max, row_sum, lse = np.empty((3, *problem.user_shape(queries)), dtype)
    _engine.run(plan, *arrays, result, (row_max, row_sum, lse))
    weights = Weights(plan, arrays[0], arrays[1], row_max, row_sum)
    return ForwardResult(result, lse, weights, plan)


def plan(
    query: HasShapeAndDType,
    key: HasShapeAndDType,
    value: HasShapeAndDType,
    *,
    mask: Any = None,
    bias: Any = None,
    q_offset: Any = None,
    scale: Any = None,
    softcap: Any = None,
    sinks: Any = None,
    dropout: Any = None,
    out: Any = None,
) -> Plan:
    """Say how a call would be computed: engine, instruction set, tiles visited and skipped, bytes. Runs nothing.

    Parameters are those of `attention`; query, key and value may be anything with ``.shape`` and ``.dtype``.
    Errors are those that the call would raise.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> x = np.broadcast_to(np.float32(0), (1, 8, 4096, 64))      # no memory behind it
    >>> full, causal = rg.plan(x, x, x).tiles, rg.plan(x, x, x, mask=rg.Causal()).tiles
    >>> full.skipped, 0.4 < causal.skipped / full.visited < 0.5
    (0, True)
    """
    chosen = make_plan(
        make_problem(
            query, key, value, dtypes=FLOAT32, mask=mask, q_offset=q_offset, scale=scale,
            bias=bias, softcap=softcap, sinks=sinks, dropout=dropout, out=out,
        )
    )  # fmt: skip
    return replace(chosen, tiles=_engine.count_tiles(chosen))


def _prepare(query: Any, key: Any, value: Any, **options: Any) -> tuple[tuple[Array, Array, Array], Plan]:
    arrays = (as_input("query", query), as_input("key", key), as_input("value", value))
    return arrays, make_plan(make_problem(*arrays, dtypes=FLOAT32, **options))
