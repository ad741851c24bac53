"""The leaves of the algebra: each states its set twice, key by key and as ranges; tests compare the two."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from regard._errors import MaskError
from regard._types import BoolArray, Geometry, IntArray

from ._base import Mask, positions
from ._spans import RowSpans

# Stands for an unbounded reach: beyond any key, and |position| + _FAR still fits int64.
_FAR = 2**62
# ml_dtypes registers bfloat16 and its kin as V.
_FLOAT_KINDS = "fV"


@dataclass(frozen=True)
class Full(Mask):
    """Every query keeps every key.

    Examples
    --------
    >>> Full() == Full(), Full() == ~Empty()  # equality compares expressions, not sets
    (True, False)
    """

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        return np.ones((1,) * (len(geometry.lead) + 3), np.bool_)

    def spans(self, geometry: Geometry, rows: slice) -> RowSpans:
        begin = np.zeros((1,) * (len(geometry.lead) + 2), np.int64)
        return RowSpans.from_ranges(begin, geometry.keys, geometry.keys)


@dataclass(frozen=True)
class Empty(Mask):
    """No query keeps any key: attention is 0 everywhere, and lse is -inf.

    Examples
    --------
    >>> Empty() | Causal()
    Empty() | Causal()
    """

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        return np.zeros((1,) * (len(geometry.lead) + 3), np.bool_)

    def spans(self, geometry: Geometry, rows: slice) -> RowSpans:
        begin = np.zeros((1,) * (len(geometry.lead) + 2), np.int64)
        return RowSpans.from_ranges(begin, 0, geometry.keys)


@dataclass(frozen=True)
class Causal(Mask):
    """A query at position p keeps key j where ``j <= p``; query i stands at ``p = q_offset + i``.

    Examples
    --------
    >>> from regard._types import Geometry
    >>> decode = Geometry(lead=(), heads=1, queries=2, keys=4, q_offset=2)
    >>> Causal().keep(decode, np.arange(2), np.arange(4))[0].astype(int)
    array([[1, 1, 1, 0],
           [1, 1, 1, 1]])
    """

    @property
    def positional(self) -> bool:
        return True

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        return keys <= positions(geometry, rows)

    def spans(self, geometry: Geometry, rows: slice) -> RowSpans:
        return RowSpans.from_ranges(0, _row_positions(geometry, rows) + 1, geometry.keys)


@dataclass(frozen=True)
class Window(Mask):
    """A query at position p keeps key j where ``p - left <= j <= p + right``, both ends included.

    Parameters
    ----------
    left, right
        How many keys before and after its own position a query sees; None = no bound.

    Raises
    ------
    MaskError
        If a bound is negative or no integer.

    Examples
    --------
    >>> from regard._types import Geometry
    >>> rows = keys = np.arange(4)
    >>> Window(left=1, right=0).keep(Geometry((), 1, 4, 4), rows, keys)[0].astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [0, 1, 1, 0],
           [0, 0, 1, 1]])
    """

    left: int | None = None
    right: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "left", _bound("left", self.left))
        object.__setattr__(self, "right", _bound("right", self.right))

    def __repr__(self) -> str:
        bounds = (("left", self.left), ("right", self.right))
        return f"Window({', '.join(f'{name}={bound}' for name, bound in bounds if bound is not None)})"

    @property
    def positional(self) -> bool:
        return True

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        p = positions(geometry, rows)
        return (p - _reach(self.left) <= keys) & (keys <= p + _reach(self.right))

    def spans(self, geometry: Geometry, rows: slice) -> RowSpans:
        p = _row_positions(geometry, rows)
        return RowSpans.from_ranges(p - _reach(self.left), p + _reach(self.right) + 1, geometry.keys)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class KeyLengths(Mask):
    """Batch entry b keeps key j where ``j < n[b]``: the padding of ragged batches.

    Parameters
    ----------
    n
        An integer, or integers that broadcast to the leading axes of the scores; copied.

    Raises
    ------
    MaskError
        If `n` holds no integers; and, with the scores known, if it does not fit the leading axes or a length
        is outside ``[0, Skv]``.

    Examples
    --------
    >>> from regard._types import Geometry
    >>> batch = Geometry(lead=(2,), heads=1, queries=1, keys=4)
    >>> KeyLengths([1, 3]).keep(batch, np.arange(1), np.arange(4)).astype(int)[:, 0, 0]
    array([[1, 0, 0, 0],
           [1, 1, 1, 0]])
    """

    n: IntArray

    def __init__(self, n: npt.ArrayLike) -> None:
        given = np.asarray(n)
        if given.dtype.kind not in "iu" and given.size:
            raise MaskError(
                "KeyLengths takes integers, one length per batch entry; "
                f"got dtype {given.dtype}, shape {given.shape}; for whole floats write np.asarray(n, int), "
                "for a (B, Skv) bool padding mask write Dense(mask[:, None, None, :])"
            )
        lengths = given.astype(np.int64)
        lengths.flags.writeable = False
        object.__setattr__(self, "n", lengths)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyLengths) and np.array_equal(self.n, other.n)

    def __hash__(self) -> int:
        return hash((KeyLengths, self.n.shape, self.n.tobytes()))

    def __repr__(self) -> str:
        return f"KeyLengths({self.n.tolist()})"

    def __reduce__(self) -> tuple[type[KeyLengths], tuple[IntArray]]:
        # NumPy's pickle forgets that an array is read-only.
        return KeyLengths, (self.n,)

    def check(self, geometry: Geometry) -> None:
        lead, shape = geometry.lead, self.n.shape
        if len(shape) > len(lead) or not _fits(shape, lead[len(lead) - len(shape) :]):
            raise MaskError(
                f"KeyLengths has shape {shape}, which does not broadcast to the leading axes {lead} "
                f"of the scores; give one length per batch entry, in shape {lead}, or one int for all"
            )
        outside = (self.n < 0) | (self.n > geometry.keys)
        if np.any(outside):
            raise MaskError(
                f"KeyLengths has the length {self.n[outside][0]}, but Skv = {geometry.keys}; "
                f"a length counts the keys of its batch entry and lies in 0 ... {geometry.keys}"
            )

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        return keys < self._lengths(geometry)

    def spans(self, geometry: Geometry, rows: slice) -> RowSpans:
        return RowSpans.from_ranges(0, self._lengths(geometry)[..., 0], geometry.keys)

    def _lengths(self, geometry: Geometry) -> IntArray:
        missing = len(geometry.lead) - self.n.ndim
        return self.n.reshape((1,) * missing + self.n.shape + (1, 1, 1))


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Dense(Mask):
    """Any set of pairs, as the bool array that says so: True = may attend.

    Equality and hash are by identity, because the array is yours and may change.

    Parameters
    ----------
    array
        bool, ``(Sq, Skv)`` or of the rank of the scores, each axis 1 or full; not copied.

    Raises
    ------
    MaskError
        If the array is not bool; and, with the scores known, if its shape does not fit them.

    Examples
    --------
    >>> Causal() & Dense(np.ones((2, 1, 1, 7), bool))
    Causal() & Dense(<bool (2, 1, 1, 7)>)
    """

    array: BoolArray

    def __init__(self, array: npt.ArrayLike) -> None:
        given = np.asarray(array)
        if given.dtype != np.bool_:
            raise MaskError(_not_bool(array, given))
        object.__setattr__(self, "array", given)

    def __repr__(self) -> str:
        return f"Dense(<bool {self.array.shape}>)"

    @property
    def cacheable(self) -> bool:
        return False

    def check(self, geometry: Geometry) -> None:
        shape = self.array.shape
        if len(shape) in (2, len(geometry.shape)) and _fits(shape, geometry.shape[-len(shape) :]):
            return
        queries, keys = geometry.queries, geometry.keys
        message = (
            f"the mask has shape {shape} and the scores have shape {geometry.user_shape}; "
            f"a mask is (Sq, Skv) = ({queries}, {keys}) or has the rank of the scores, each axis 1 or full"
        )
        ways = _indexings(shape, geometry.user_shape)
        raise MaskError(f"{message}: write {' or '.join(ways)}" if ways else message)

    def table(self, geometry: Geometry) -> BoolArray:
        """View the array with all axes of the scores; those of size 1 stay so."""
        return self.array[(None,) * (len(geometry.shape) - self.array.ndim)]

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        table = self.table(geometry)
        if table.shape[-2] != 1:
            table = table.take(rows, axis=-2)
        return table if table.shape[-1] == 1 else table.take(keys, axis=-1)

    def spans(self, geometry: Geometry, rows: slice) -> None:
        return None


def _row_positions(geometry: Geometry, rows: slice) -> IntArray:
    """Positions with the axes of spans: ``(*lead, head, row)``."""
    return positions(geometry, np.arange(*rows.indices(geometry.queries)))[..., 0]


def _reach(bound: int | None) -> int:
    return _FAR if bound is None else min(bound, _FAR)


def _bound(name: str, value: object) -> int | None:
    if value is None:
        return None
    try:
        bound = None if isinstance(value, bool | np.bool_) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        bound = None
    if bound is None or bound < 0:
        raise MaskError(
            f"Window({name}={value!r}): a bound is an integer number of keys, 0 or more; "
            f"for no bound leave it out or write {name}=None"
        )
    return bound


def _not_bool(array: object, given: npt.NDArray[np.generic]) -> str:
    if isinstance(array, Mask):
        return f"{array} is a mask already; Dense() is for bool arrays"
    fact = f"a mask is bool, True = may attend; got dtype {given.dtype} and shape {given.shape}"
    bias = "a bias is float and is added: pass it as bias=; " if given.dtype.kind in _FLOAT_KINDS else ""
    return f"{fact}; {bias}for 0/1 write mask.astype(bool), and ~mask.astype(bool) where 1 means masked out"


def _fits(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    return all(size in (1, full) for size, full in zip(shape, target, strict=True))


def _indexings(shape: tuple[int, ...], target: tuple[int, ...]) -> list[str]:
    """List the ways to give an array its missing axes so that it fits, such as ``mask[:, None, None, :]``."""
    ways: dict[tuple[int, ...], str] = {}
    for kept in combinations(range(len(target)), len(shape)):
        if _fits(shape, tuple(target[axis] for axis in kept)):
            sizes = iter(shape)
            full = tuple(next(sizes) if axis in kept else 1 for axis in range(len(target)))
            index = ", ".join(":" if axis in kept else "None" for axis in range(len(target)))
            ways.setdefault(full, f"mask[{index.removesuffix(', :, :')}]")
    return list(ways.values())
