"""softmax(scale · q kᵀ over the kept keys) · v, by the native engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from regard import _engine
from regard._arrays import HasShapeAndDType, Operands, as_input, check_out
from regard._attention.weights import Weights
from regard._engine import Prepared
from regard._errors import UnsupportedError, written
from regard._plan import Plan, make_plan, make_problem, read
from regard._plan.options import refuse_positional, refuse_unknown
from regard._types import Array, score_dtype
from regard.biases import as_bias
from regard.state import AttentionState

if TYPE_CHECKING:
    from typing_extensions import Never

_ArrayT = TypeVar("_ArrayT", bound=HasShapeAndDType)


@dataclass(frozen=True)
class Aux:
    """What `attention_forward` keeps beside the output.

    Attributes
    ----------
    lse : bool
        Natural logsumexp of each row.
    state : bool
        An `AttentionState` to merge with others.
    """

    lse: bool = True
    state: bool = False


@dataclass(frozen=True, eq=False)
class ForwardResult:
    """What `attention_forward` returns.

    Attributes
    ----------
    out : array, shape ``(..., Hq, Sq, Dv)``
        The output, of the query's library and dtype.
    weights : Weights
        Attention weights on demand: ``weights[b, h, i0:i1, j0:j1]``.
    """

    out: Any
    weights: Weights
    _operands: Operands
    _plan: Plan
    _lse: Any
    _state: AttentionState | None

    def __repr__(self) -> str:
        return f"ForwardResult: out {self.out.dtype} {tuple(self.out.shape)}, {self.weights!r}"

    @property
    def plan(self) -> Plan:
        """What was run, tiles counted."""
        heads = _engine.kv_heads_of(self._operands, self._plan.problem)
        return replace(self._plan, tiles=_engine.count_tiles(self._plan, self._operands.bias, heads))

    @property
    def lse(self) -> Any:
        """Natural logsumexp of each row's scores over the keys that it keeps, ``(..., Hq, Sq)``.

        float32, or float64 for float64; −inf for a row that keeps no key. A sink is not part of it.
        """
        if self._lse is None:
            raise UnsupportedError("the logsumexp was not asked for: pass aux=rg.Aux(lse=True)")
        return self._lse

    @property
    def state(self) -> AttentionState:
        """Partial result that `merge_states` joins with others: output before any sink, and logsumexp.

        float32, or float64 for float64.
        """
        if self._state is None:
            raise UnsupportedError("the state was not asked for: pass aux=rg.Aux(state=True)")
        return self._state


def attention(
    query: _ArrayT,
    key: Any,
    value: Any,
    *extra: Never,
    mask: Any = None,
    bias: Any = None,
    q_offset: Any = None,
    scale: Any = None,
    softcap: Any = None,
    sinks: Any = None,
    dropout: Any = None,
    out: Any = None,
    **unknown: Never,
) -> _ArrayT:
    r"""Exact scaled dot-product attention in O(n) memory.

    .. math:: o_i = \sum_j w_{ij} v_j, \qquad w_{ij} = \frac{e^{s_{ij}}}{\sum_{l\ \text{kept}} e^{s_{il}}},
              \qquad s_{ij} = \operatorname{cap}(\text{scale} \cdot q_i \cdot k_j) + \text{bias}_{ij}

    over the keys j that ``mask`` keeps for query i. A query that keeps none gives 0. What a masked key or value
    holds (NaN too) is never part of the arithmetic.

    Parameters
    ----------
    query : array_like, shape ``(..., Hq, Sq, D)``
        NumPy array, torch tensor or JAX array in CPU memory, read as it lies and never copied; key, value, bias, sinks
        and out are of the same library. What another library exports by ``__dlpack__`` counts as a NumPy array.
        float64, float32, float16 or bfloat16 (ml_dtypes), the same for all three; any strides. ``(Sq, D)`` is
        one head. Leading axes broadcast. Nested lists of numbers are taken as float64. There are no gradients: a
        tensor that requires grad is taken under ``torch.no_grad()`` only, a tracer of JAX never.
    key : array_like, shape ``(..., Hkv, Skv, D)``
        Query head h reads kv head ``h // (Hq // Hkv)``.
    value : array_like, shape ``(..., Hkv, Skv, Dv)``
        Dv may differ from D.
    mask : Mask or bool array_like, optional
        True = may attend. An array, of any library, has shape ``(Sq, Skv)`` or the rank of the scores
        ``(..., Hq, Sq, Skv)``, each axis 1 or full. Causal attention is ``rg.Causal()``; masks combine with ``& | ~``.
    bias : float array_like or Bias, optional
        Added to the scores after the softcap. An array has shapes as for ``mask`` and any of the four dtypes, and is
        never expanded; its numbers are first rounded to the dtype of the scores. −inf drops the pair as a mask does;
        +inf and NaN give NaN in the rows that see them. `Alibi`,
        `RelativeBias` and `T5Bias` are computed from positions; biases add with ``+``.
    q_offset : int, ints per batch (array_like of any library), "start" or "end", optional
        Position of query 0 among the keys; "start" is 0, "end" is Skv − Sq; ints broadcast against the leading
        axes. Needed where the mask depends on positions and Sq ≠ Skv.
    scale : float, optional
        Default 1/√D. May be 0 or negative.
    softcap : float, optional
        Scores s become ``softcap * tanh(s / softcap)``, before bias and mask. Above 0.
    sinks : float array_like, shape ``(Hq,)`` or broadcasting to ``(..., Hq)``, optional
        A logit per head that takes part in the softmax's denominator and has no value: the output is multiplied by
        ``sigmoid(lse - sink)``.
    dropout
        Refused by this version, with a message that says what to do meanwhile.
    out : array, optional
        Where to write the result: NumPy array or torch tensor as the query is, its shape and the query's dtype, any
        strides, no memory shared with an input. JAX arrays are immutable.

    Returns
    -------
    array, shape ``(..., Hq, Sq, Dv)``
        ``out``, or a new array of the query's library and dtype. Scores, sums and output are carried in float32
        (float64 for float64) whatever the dtype; what is too large for float16 becomes inf. A row has the same bits
        for any number of threads, whatever batch, other queries or garbage stand around it, and whatever the strides.

    Raises
    ------
    ShapeError, DTypeError, MaskError, AlignmentError, UnsupportedError
        All are `RegardError`, a ValueError; each message gives the fact, the values and the way out.

    Notes
    -----
    Weights are normalised at the end: a sum of values whose partial sums pass the largest number of the score dtype
    (10³⁸ in float32) is inf even where their mean is not. Scores that overflow it are inf, and make NaN.

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
    if extra:
        refuse_positional(extra)
    operands = Operands.of(query, key, value, bias, sinks)
    call, target = _prepare(operands, out, mask, q_offset, scale, softcap, dropout, unknown)
    call.run(operands, target)
    result: _ArrayT = operands.library.give(target) if out is None else out
    return result


def attention_forward(
    query: Any,
    key: Any,
    value: Any,
    *extra: Never,
    mask: Any = None,
    bias: Any = None,
    q_offset: Any = None,
    scale: Any = None,
    softcap: Any = None,
    sinks: Any = None,
    dropout: Any = None,
    out: Any = None,
    aux: Aux | None = None,
    **unknown: Never,
) -> ForwardResult:
    """Attention with what else the forward pass knows: logsumexp, weights on demand, a state to merge, the plan.

    Parameters are those of `attention`, shapes too; ``out`` has the same bits, unless
    `config` is told ``row_invariant=False``.

    Parameters
    ----------
    aux : Aux, optional
        What to keep; default ``Aux(lse=True)``.

    Returns
    -------
    ForwardResult
        ``.out``, ``.lse``, ``.weights``, ``.state``, ``.plan``.

    Raises
    ------
    RegardError, TypeError
        As `attention`; and for an ``aux`` that is none.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> key = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], np.float32)
    >>> res = rg.attention_forward(key[2:], key, key)
    >>> print(res.lse.round(6), res.weights[0, 1:].round(6))
    [1.794377] [0.274069 0.451863]
    """
    if extra:
        refuse_positional(extra)
    operands = Operands.of(query, key, value, bias, sinks)
    call, target = _prepare(operands, out, mask, q_offset, scale, softcap, dropout, unknown)
    aux = _as_aux(aux)
    problem = call.problem
    dtype, queries = score_dtype(problem.dtype), problem.geometry.queries
    row_max, row_sum = np.empty((2, *problem.user_shape(queries)), dtype)
    library = operands.library
    lse = library.empty(row_max.shape, dtype)
    state = library.empty(target.shape, dtype) if aux.state else None
    call.run(operands, target, state, row_max, row_sum, lse)
    weights = Weights(call.plan, operands, row_max, row_sum)
    result, given_lse = library.give(target) if out is None else out, library.give(lse)
    partial = None if state is None else AttentionState(library.give(state), given_lse)
    return ForwardResult(result, weights, operands, call.plan, given_lse if aux.lse else None, partial)


def plan(
    query: HasShapeAndDType,
    key: HasShapeAndDType,
    value: HasShapeAndDType,
    *extra: Never,
    mask: Any = None,
    bias: Any = None,
    q_offset: Any = None,
    scale: Any = None,
    softcap: Any = None,
    sinks: Any = None,
    dropout: Any = None,
    **unknown: Never,
) -> Plan:
    """Say how a call would be computed: engine, instruction set, tiles visited and skipped, bytes.

    No attention is computed. The mask is evaluated as far as counting tiles needs it: a function (`from_function`) is
    called, for every pair that other masks leave open.

    Parameters are those of `attention`; query, key and value may be anything with ``.shape`` and ``.dtype`` (of
    NumPy, torch or JAX): arrays without memory, on other devices, tracers.

    Raises
    ------
    RegardError, TypeError
        As the call would raise; and UnsupportedError for over 2**24 heads of all batch entries: each is looked at.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> x = np.broadcast_to(np.float32(0), (1, 8, 4096, 64))      # no memory behind it
    >>> full, causal = rg.plan(x, x, x).tiles, rg.plan(x, x, x, mask=rg.Causal()).tiles
    >>> full.skipped, 0.4 < causal.skipped / full.visited < 0.5
    (0, True)
    """
    if extra:
        refuse_positional(extra)
    chosen = make_plan(
        make_problem(
            query, key, value, mask=mask, bias=bias, q_offset=q_offset, scale=scale, softcap=softcap,
            sinks=sinks if hasattr(sinks, "shape") or sinks is None else as_input("sinks", sinks), dropout=dropout,
            **unknown,
        )
    )  # fmt: skip
    heads = _engine.kv_heads_assumed(chosen.problem)
    return replace(chosen, tiles=_engine.count_tiles(chosen, None if bias is None else as_bias(bias), heads))


def _prepare(
    operands: Operands,
    out: Any,
    mask: Any,
    q_offset: Any,
    scale: Any,
    softcap: Any,
    dropout: Any,
    unknown: dict[str, Any],
) -> tuple[Prepared, Array]:
    """Check the call, and find or make the array of the result."""
    if unknown:
        refuse_unknown(unknown)
    query, key, value, bias, sinks, library = operands
    asked, added = read(query, key, value, mask, bias, q_offset, scale, softcap, sinks, dropout)
    call = _engine.prepare(asked, added)
    if out is None:
        return call, library.empty(call.out_shape, query.dtype)
    target = check_out(out, call.out_shape, query.dtype, operands, call.mask)
    library.wrote(out)  # beforehand: a call that is interrupted has written, too
    return call, target


def _as_aux(aux: Any) -> Aux:
    if aux is None:
        return Aux()
    if isinstance(aux, Aux):
        return aux
    raise UnsupportedError(f"aux is {written(aux)} of type {type(aux).__name__}; pass rg.Aux(lse=..., state=...)")
