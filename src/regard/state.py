"""Partial results are a monoid: attention over a part of the keys, and the one function that joins parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard._errors import DTypeError, ShapeError
from regard._types import Array


@dataclass(frozen=True, eq=False)
class AttentionState:
    r"""Attention of some queries over a part of the keys.

    Attributes
    ----------
    out : array, shape ``(..., Sq, Dv)``
        :math:`\sum_j w_j v_j`, normalised over the keys of this part; 0 for a row that saw no key.
    lse : array, shape ``(..., Sq)``
        Natural :math:`\log\sum_j e^{s_j}` over the keys of this part; −inf for a row that saw no key.

    Raises
    ------
    ShapeError
        ``lse`` does not have one number per row of ``out``.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> state = rg.AttentionState.empty((2, 5, 3))
    >>> state.out.shape, float(state.lse.max())
    ((2, 5, 3), -inf)
    """

    out: Array
    lse: Array

    def __post_init__(self) -> None:
        out, lse = np.asarray(self.out), np.asarray(self.lse)
        if out.ndim < 1 or lse.shape != out.shape[:-1]:
            raise ShapeError(
                f"lse has shape {lse.shape} and out has shape {out.shape}: lse needs one number per row of out, "
                f"shape {out.shape[:-1]}"
            )
        object.__setattr__(self, "out", out)
        object.__setattr__(self, "lse", lse)

    def __repr__(self) -> str:
        return f"AttentionState: out {self.out.dtype} {self.out.shape}, lse {self.lse.shape}"

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: np.dtype | type = np.float32) -> AttentionState:
        """Return the state of rows that have seen no key: the identity of `merge_states`.

        ``shape`` is that of ``out``, ``(..., Sq, Dv)``.
        """
        return cls(np.zeros(shape, dtype), np.full(shape[:-1], -np.inf, dtype))


def merge_states(*states: AttentionState) -> AttentionState:
    r"""Join attention over disjoint parts of the keys into attention over all of them.

    .. math:: L = \log\sum_p e^{L_p}, \qquad o = \sum_p e^{L_p - L}\, o_p

    The result does not depend on the order beyond rounding; `AttentionState.empty` is the identity, and two empty
    states give an empty one. What the ``out`` of a row with ``lse = −inf`` holds is never read.

    Parameters
    ----------
    *states : AttentionState
        At least one, all of one shape and dtype.

    Raises
    ------
    ShapeError, DTypeError
        There is no state, or shapes or dtypes differ.

    References
    ----------
    Rabe & Staats 2021 (arXiv 2112.05682), section 3; FlashDecoding merges splits of the keys alike.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> k = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], np.float32)
    >>> v = np.array([[1, 0], [0, 1], [1, 1]], np.float32)
    >>> q = k[2:]
    >>> aux = rg.Aux(state=True)
    >>> left = rg.attention_forward(q, k[:2], v[:2], aux=aux).state
    >>> right = rg.attention_forward(q, k[2:], v[2:], aux=aux).state
    >>> both = rg.merge_states(left, right)
    >>> print(both.out.round(6), both.lse.round(6))
    [[0.725931 0.725931]] [1.794377]
    """
    if not states:
        raise ShapeError("merge_states got no state; AttentionState.empty(shape) is the state of no keys")
    for state in states:
        if not isinstance(state, AttentionState):
            raise ShapeError(
                f"merge_states takes AttentionState objects and got {type(state).__name__}: write merge_states(a, b), "
                "or merge_states(*states) for a list"
            )
    dtypes = {state.out.dtype.name for state in states}
    if len(dtypes) > 1:
        raise DTypeError(f"states to merge differ in dtype: {', '.join(sorted(dtypes))}; cast them to one")
    shapes = {state.out.shape for state in states}
    if len(shapes) > 1:
        raise ShapeError(f"states to merge differ in shape: {', '.join(map(str, sorted(shapes)))}")
    with np.errstate(all="ignore"):
        return _merge(states, np.stack([state.lse for state in states]))


def _merge(states: tuple[AttentionState, ...], lse: Array) -> AttentionState:
    peak = lse.max(axis=0)
    # A row that no part has seen has peak -inf; measured from 0 all its factors are 0, as they should be.
    factors = np.exp(lse - np.where(peak == -np.inf, 0, peak))
    total = factors.sum(axis=0)
    seen = total != 0
    out = np.zeros_like(states[0].out)
    for factor, state in zip(factors, states, strict=True):
        weight = np.broadcast_to(factor[..., None], out.shape)
        out += np.multiply(weight, state.out, out=np.zeros_like(out), where=weight != 0)
    out /= np.where(seen, total, 1)[..., None]
    return AttentionState(out, np.where(seen, peak + np.log(total), peak))
