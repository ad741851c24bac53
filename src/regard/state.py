"""Partial results are a monoid: attention over a part of the keys, and the one function that joins parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._arrays import Intake, require_float
from regard._errors import DTypeError, ShapeError, written
from regard._libraries import NUMPY, library_of
from regard._plan.shapes import Shape, as_shape
from regard._types import Array, score_dtype


@dataclass(frozen=True, eq=False)
class AttentionState:
    r"""Attention of some queries over a part of the keys.

    Attributes
    ----------
    out : array_like, shape ``(..., Sq, Dv)``
        NumPy array, or torch tensor or JAX array in CPU memory, as ``lse`` is, referred to and not copied.
        :math:`\sum_j w_j v_j`, normalised over the keys of this part; 0 for a row that saw no key.
    lse : array_like, shape ``(..., Sq)``
        Natural :math:`\log\sum_j e^{s_j}` over the keys of this part; −inf for a row that saw no key.

    Raises
    ------
    ShapeError
        ``lse`` does not have one number per row of ``out``.
    DTypeError
        ``out`` does not hold floats, or ``lse`` others than scores of such: float64 beside float64, else float32.
    UnsupportedError
        The arrays are of different libraries, or cannot be read: tracers, other devices, tensors that require grad.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> state = rg.AttentionState.empty((2, 5, 3))
    >>> state.out.shape, float(state.lse.max())
    ((2, 5, 3), -inf)
    """

    out: Any
    lse: Any

    def __post_init__(self) -> None:
        intake = Intake()
        out, lse = intake.floats("out", self.out), intake.floats("lse", self.lse)
        dtype = score_dtype(require_float("out", out.dtype).name)
        if library_of("lse", self.lse) is None:  # a list has no dtype of its own
            lse = lse.astype(dtype)
        if lse.dtype != dtype:
            raise DTypeError(
                f"lse has dtype {lse.dtype} and out has {out.dtype}, whose lse is {dtype}: cast one of them"
            )
        if out.ndim < 1 or lse.shape != out.shape[:-1]:
            raise ShapeError(
                f"lse has shape {lse.shape} and out has shape {out.shape}: lse needs one number per row of out, "
                f"shape {out.shape[:-1]}"
            )
        for name, given, array in (("out", self.out, out), ("lse", self.lse, lse)):
            if intake.library is NUMPY or library_of(name, given) is None:
                object.__setattr__(self, name, intake.library.give(array))

    def __repr__(self) -> str:
        return f"AttentionState: out {self.out.dtype} {tuple(self.out.shape)}, lse {tuple(self.lse.shape)}"

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: Any = np.float32, like: Any = None) -> AttentionState:
        """Return the state of rows that have seen no key: the identity of `merge_states`.

        ``shape`` is that of ``out``, ``(..., Sq, Dv)``, and ``dtype`` its dtype, one that attention computes. The
        arrays are of NumPy, or of the library of the array ``like``.

        Raises
        ------
        ShapeError, DTypeError
            ``shape`` is no tuple of sizes, ``dtype`` none that attention computes, or ``like`` no array.
        """
        sizes, of_out = _as_shape(shape), require_float("out", dtype)
        library = NUMPY if like is None else library_of("like", like)
        if library is None:
            raise DTypeError(f"like is of type {type(like).__name__}; it is an array, whose library the state is of")
        out, lse = library.empty(sizes, of_out), library.empty(sizes[:-1], score_dtype(of_out.name))
        out.fill(0)
        lse.fill(-np.inf)
        return cls(library.give(out), library.give(lse))


def _as_shape(shape: Any) -> Shape:
    sizes = as_shape("out", shape) if isinstance(shape, Iterable) else ()
    if not sizes:
        raise ShapeError(f"shape is {written(shape)}; it is that of out, (..., Sq, Dv): pass a tuple of sizes")
    return sizes


def merge_states(*states: AttentionState) -> AttentionState:
    r"""Join attention over disjoint parts of the keys into attention over all of them.

    .. math:: L = \log\sum_p e^{L_p}, \qquad o = \sum_p e^{L_p - L}\, o_p

    The result does not depend on the order beyond rounding: sums are in the dtype of ``lse``, from the first state to
    the last, and the output is rounded once. `AttentionState.empty` is the identity, and two empty
    states give an empty one. What the ``out`` of a row with ``lse = −inf`` holds is never read.

    Parameters
    ----------
    *states : AttentionState
        At least one, all of one shape, dtype and library, which are those of the result.

    Raises
    ------
    ShapeError, DTypeError
        There is no state, or shapes or dtypes differ.
    UnsupportedError
        The libraries of the states' arrays differ.

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
    intake = Intake()
    outs = [intake(f"states[{i}].out", state.out) for i, state in enumerate(states)]
    dtypes = {out.dtype.name for out in outs}
    if len(dtypes) > 1:
        raise DTypeError(f"states to merge differ in dtype: {', '.join(sorted(dtypes))}; cast them to one")
    shapes = {out.shape for out in outs}
    if len(shapes) > 1:
        raise ShapeError(f"states to merge differ in shape: {', '.join(map(str, sorted(shapes)))}")
    lse = np.stack([intake(f"states[{i}].lse", state.lse) for i, state in enumerate(states)])
    library = intake.library
    shares, joined_lse = share_out(lse, np.ones_like(lse))
    joined = join(outs, shares, library.empty(outs[0].shape, outs[0].dtype))
    return AttentionState(library.give(joined), library.give(joined_lse))


def share_out(peaks: Array, sums: Array) -> tuple[Array, Array]:
    r"""Divide each row among parts of sizes :math:`\text{sum}_p\, e^{\text{peak}_p}`, parts on the first axis.

    Returns each part's share of the whole, which add up to 1, or are 0 in a row that no part has seen; and the
    logarithm of the whole. A peak apart from its sum keeps its digits where their logsumexp has none left for the sum.
    """
    with np.errstate(all="ignore"):
        peak = peaks.max(axis=0)
        # A row that no part has seen has peak -inf; measured from 0 all its factors are 0, as they should be.
        factors = sums * np.exp(peaks - np.where(peak == -np.inf, 0, peak))
        total = factors.sum(axis=0)
        seen = total != 0
        shares: Array = factors / np.where(seen, total, 1)
        return shares, np.where(seen, peak + np.log(total), peak)


def join(outs: Sequence[Array], shares: Array, joined: Array) -> Array:
    """Fill ``joined`` with the parts' outputs, each times its share, and round once.

    What a part without a share holds is not read.
    """
    # In the dtype of the scores: sums in 16 bits stand still before they are at their end.
    total = joined if joined.dtype == shares.dtype else np.empty(joined.shape, shares.dtype)
    total.fill(0)
    with np.errstate(all="ignore"):
        for share, out in zip(shares, outs, strict=True):
            weight = np.broadcast_to(share[..., None], out.shape)
            total += np.multiply(weight, out, out=np.zeros_like(total), where=weight != 0)
        if total is not joined:
            joined[...] = total
    return joined
