"""Attention weights on demand: exact, for the asked block only, from q, k and the row statistics."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from types import EllipsisType
from typing import Any

import numpy as np

from regard import _engine, _native
from regard._arrays import Operands
from regard._errors import written
from regard._plan import Plan
from regard._types import Array, score_dtype
from regard.masks._lower import lower


class OnDemand(ABC):
    """An array that is computed when indexed, as much of it as is asked for."""

    shape: tuple[int, ...]
    dtype: Any

    @abstractmethod
    def _block(self, index: Any) -> Array:
        """Compute what ``index`` asks for."""

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"weights {self.dtype} {self.shape} computed when indexed"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("weights are computed when asked for: an array of them is always new")
        block = self._block(...)
        return block if dtype is None else block.astype(dtype)

    def __getitem__(self, index: Any) -> Any:
        return self._block(index)


class Weights(OnDemand):
    """The attention weights of one call, computed when indexed and never kept.

    Indexes like an array of shape ``(..., heads, Sq, Skv)`` (``(Sq, Skv)`` for 2-D inputs): integers and slices,
    those of the last two axes of step 1. The scores are those of the forward pass bit for bit, so each row sums to
    1 to rounding at any size of the scores; a masked pair has weight exactly 0, and so has all of an empty row.
    The inputs of the call are referred to, not copied: changing them changes what is computed here. A block is an
    array of the query's library.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> k = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], np.float32)
    >>> res = rg.attention_forward(k, k, k, mask=rg.Causal())
    >>> print(res.weights[2].round(6))
    [0.274069 0.274069 0.451863]
    """

    def __init__(self, plan: Plan, operands: Operands, row_max: Array, row_sum: Array) -> None:
        self._plan = plan
        self._operands = operands
        per_head = (plan.problem.total_heads, plan.problem.geometry.queries)
        self._max, self._sum = row_max.reshape(per_head), row_sum.reshape(per_head)
        self.shape = plan.problem.geometry.user_shape
        self._dtype = score_dtype(plan.problem.dtype)
        self.dtype = operands.library.dtype(self._dtype)

    @property
    def row_stats(self) -> tuple[Array, Array]:
        """Maximum of each row's scores, and the sum of e^(score − maximum), a sink counted: ``(..., heads, Sq)``."""
        return self._max.reshape(self.shape[:-1]), self._sum.reshape(self.shape[:-1])

    def __getitem__(self, index: Any) -> Any:
        return self._operands.library.give(self._block(index))

    def _block(self, index: Any) -> Array:
        at = full_index(index, len(self.shape))
        rows, keys = (as_range(i, n) for i, n in zip(at[-2:], self.shape[-2:], strict=True))
        g = self._plan.problem.geometry
        numbers = np.arange(self._plan.problem.total_heads, dtype=np.int64).reshape(*g.lead, g.heads)
        heads = numbers[at[:-2]] if g.rank > 2 else numbers.ravel()
        block = self._compute(heads.ravel(), rows, keys)
        kept = heads.shape if g.rank > 2 else ()
        block = block.reshape(*kept, len(rows), len(keys))
        return block[(..., *(slice(None) if isinstance(i, slice) else 0 for i in at[-2:]))]

    def _compute(self, heads: Array, rows: range, keys: range) -> Array:
        plan, problem, operands = self._plan, self._plan.problem, self._operands
        out = self._operands.library.empty((len(heads), len(rows), len(keys)), self._dtype)
        if out.size == 0:
            return out
        out_heads = np.arange(len(heads), dtype=np.int64) * out.strides[0]
        query = _engine.view(operands.query, _engine.head_offsets(operands.query, problem)[heads])
        key = _engine.view(operands.key, _engine.head_offsets(operands.key, problem, problem.group)[heads])
        map_ = _engine.score_map(problem, operands, heads)
        try:
            for band in lower(problem.mask, problem.geometry, rows=slice(rows.start, rows.stop)):
                _native.weights(
                    plan.target, _engine.dtype_number(problem), plan.threads, query, key,
                    _engine.view(out[:, band.rows.start - rows.start :], out_heads, writable=True),
                    self._max[heads], self._sum[heads],
                    _engine.sizes(problem, len(heads)), _engine.native_band(band, problem, heads), map_,
                    keys.start, keys.stop,
                )  # fmt: skip
        except MemoryError as error:
            raise _engine.out_of_memory(error, plan) from None
        return out


def full_index(index: Any, rank: int) -> tuple[Any, ...]:
    """Write ``index`` out for all axes: integers and slices, no Ellipsis."""
    given = index if isinstance(index, tuple) else (index,)
    for i in given:
        if not isinstance(i, EllipsisType | slice | int | np.integer) or isinstance(i, bool):
            raise IndexError(f"weights are indexed by integers, slices and ..., not by {type(i).__name__} {written(i)}")
    dots = sum(i is Ellipsis for i in given)
    if dots > 1 or len(given) - dots > rank:
        raise IndexError(f"weights have {rank} axes; the index {written(index)} has too many")
    cut = next((n for n, i in enumerate(given) if i is Ellipsis), len(given))
    fill = (slice(None),) * (rank - len(given) + dots)
    return given[:cut] + fill + given[cut + dots :]


def as_range(index: Any, size: int) -> range:
    """Write an index of queries or keys as a range; an integer is a range of one."""
    if isinstance(index, slice):
        start, stop, step = index.indices(size)
        if step != 1:
            raise IndexError(
                f"a slice of step {written(step)} over queries or keys would compute all that it steps over: "
                "take a slice of step 1 and index the result"
            )
        return range(start, max(start, stop))
    at = operator.index(index)
    if not -size <= at < size:
        raise IndexError(f"index {written(at)} is out of range for an axis of size {size}")
    return range(at % size, at % size + 1)
