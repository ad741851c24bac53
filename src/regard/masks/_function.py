"""The leaf that is a user's function, evaluated block by block."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from regard._errors import MaskError, written
from regard._types import Array, BoolArray, Geometry, IntArray, positions, with_axes

from ._base import Mask

PairFunction = Callable[[IntArray, IntArray, IntArray, IntArray], BoolArray]


@dataclass(frozen=True, eq=False, repr=False)
class Function(Mask):
    """A mask made by `from_function`."""

    function: PairFunction

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise MaskError(
                f"from_function({written(self.function)}) takes a function f(b, h, p, j) of integer arrays that "
                "returns a bool array, such as lambda b, h, p, j: j <= p"
            )
        if not _takes_four(self.function):
            raise MaskError(
                f"from_function({written(self.function)}) takes a function that can be called as f(b, h, p, j), with "
                "batch entry, head, position of the query, and key, such as lambda b, h, p, j: j <= p"
            )

    def __repr__(self) -> str:
        return f"from_function({getattr(self.function, '__name__', type(self.function).__name__)})"

    @property
    def positional(self) -> bool:
        return True

    @property
    def held_bytes(self) -> float:
        return math.inf

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        lead, heads = geometry.lead, geometry.heads
        shape = (*lead, heads, len(rows), len(keys))
        if 0 in shape:  # no pair to ask for, and many functions fail without one
            return np.zeros((1,) * len(shape), np.bool_)
        entries = np.arange(math.prod(lead)).reshape(*lead, 1, 1, 1)
        arguments = (entries, np.arange(heads)[:, None, None], positions(geometry, rows), keys.copy())
        kept = self.function(*(with_axes(argument, len(shape)) for argument in arguments))
        if type(kept) not in (np.ndarray, np.bool_) or kept.dtype != np.bool_ or not _broadcasts(kept, shape):
            what = f"dtype {kept.dtype} and shape {kept.shape}" if isinstance(kept, np.ndarray) else written(kept)
            raise MaskError(
                f"{self!r} returned {what}, asked for a block of shape {shape}; it must return a bool array, "
                "True = may attend, that broadcasts to the block: compare its arguments, as in j <= p, "
                "and combine with & | ~"
            )
        return with_axes(np.asarray(kept), len(shape))

    def spans(self, geometry: Geometry, rows: slice) -> None:
        return None


def from_function(f: PairFunction) -> Mask:
    """Make a mask of a function: a query keeps a key where ``f(b, h, p, j)``.

    The function is called for blocks of pairs, never for all at once. Equality and hash are by identity, because
    nobody can tell what a function will answer next time.

    Parameters
    ----------
    f
        Takes int64 arrays that broadcast to ``(*lead, heads, rows, keys)``: flat index b of the batch entry, head
        h, absolute position p of the query, key j; returns a bool array that broadcasts to the same, True = may
        attend. Which axes its answer has may depend on shapes, not on values.

    Raises
    ------
    MaskError
        If `f` is not callable; and, when it is called, if it returns anything else.

    Examples
    --------
    >>> def stairs(b, h, p, j):
    ...     return j // 2 <= p // 2
    >>> from_function(stairs)
    from_function(stairs)
    >>> from_function(stairs).materialize(3, 4).astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 0, 0],
           [1, 1, 1, 1]])
    """
    return Function(f)


def _takes_four(function: PairFunction) -> bool:
    """Whether a function can be called with four arguments, as far as its signature can be read."""
    if isinstance(function, np.ufunc):  # whose signature an older NumPy does not tell
        return function.nin == 4
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a function in C
        return True
    try:
        signature.bind(*range(4))
    except TypeError:
        return False
    return True


def _broadcasts(array: Array | np.bool_, shape: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        return False
