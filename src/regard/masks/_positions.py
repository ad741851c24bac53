"""Leaves without arrays: rules of positions, each stated twice, key by key and as ranges; tests compare the two."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar, NoReturn, TypeAlias

import numpy as np

from regard._cached import cached_attribute
from regard._errors import MaskError, refuse_unknown, written
from regard._types import BoolArray, Geometry, IntArray, as_int, positions

from ._arguments import positive, reach
from ._base import Mask
from ._spans import Ranges, RowSpans, one_range

Position: TypeAlias = IntArray | int
# What others call the bounds of a window.
_PEERS = dict.fromkeys(
    ("size", "width", "window", "window_size", "sliding_window"),
    "left= and right=, how many keys a query sees before and after its own",
)


class _OneRange(Mask):
    """A leaf that keeps one range of keys at each position."""

    @abstractmethod
    def ends(self, p: Position, keys: int) -> tuple[Position, Position]:
        """Tell where the range of a query at p begins and ends, clipped or not; p means nothing if not `positional`."""

    def spans(self, geometry: Geometry, rows: slice) -> RowSpans:
        p = _row_positions(geometry, rows) if self.positional else 0
        return RowSpans.between(geometry, *self.ends(p, geometry.keys))

    def row(self, p: int | None, keys: int) -> Ranges | None:
        if (p is None and self.positional) or type(self).spans is not _OneRange.spans:  # of a user's class
            return None
        begin, end = self.ends(p or 0, keys)
        return one_range(begin, end, keys)  # type: ignore[arg-type]  # of an integer they are integers


@dataclass(frozen=True)
class Full(_OneRange):
    """Every query keeps every key.

    Examples
    --------
    >>> Full() == Full(), Full() == ~Empty()  # equality compares expressions, not sets
    (True, False)
    """

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        return np.ones((1,) * (len(geometry.lead) + 3), np.bool_)

    def ends(self, p: Position, keys: int) -> tuple[Position, Position]:
        return 0, keys


@dataclass(frozen=True)
class Empty(_OneRange):
    """No query keeps any key: attention is 0 everywhere, and lse is -inf.

    Examples
    --------
    >>> Empty() | Causal()
    Empty() | Causal()
    """

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        return np.zeros((1,) * (len(geometry.lead) + 3), np.bool_)

    def ends(self, p: Position, keys: int) -> tuple[Position, Position]:
        return 0, 0


@dataclass(frozen=True)
class Causal(_OneRange):
    """A query at position p keeps key j where ``j <= p``; query i stands at ``p = q_offset + i``.

    Examples
    --------
    >>> Causal().materialize(2, 4, q_offset=2).astype(int)
    array([[1, 1, 1, 0],
           [1, 1, 1, 1]])
    """

    @property
    def positional(self) -> bool:
        return True

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        return keys <= positions(geometry, rows)

    def ends(self, p: Position, keys: int) -> tuple[Position, Position]:
        return 0, p + 1


@dataclass(frozen=True, init=False)
class Window(_OneRange):
    """A query at position p keeps key j where ``p - left <= j <= p + right``, both ends included.

    Parameters
    ----------
    left, right
        How many keys before and after its own position a query sees; None = no bound.

    Raises
    ------
    MaskError
        If a bound is negative or no integer.
    TypeError
        For an argument of another name.

    Examples
    --------
    >>> Window(left=1, right=0).materialize(4, 4).astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [0, 1, 1, 0],
           [0, 0, 1, 1]])
    """

    left: int | None
    right: int | None

    def __init__(self, left: int | None = None, right: int | None = None, **unknown: NoReturn) -> None:
        if unknown:
            refuse_unknown(unknown, ("left", "right"), "Window has no argument", "it has", _PEERS)
        object.__setattr__(self, "left", _bound("left", left))
        object.__setattr__(self, "right", _bound("right", right))

    def __repr__(self) -> str:
        bounds = (("left", self.left), ("right", self.right))
        return f"Window({', '.join(f'{name}={written(bound)}' for name, bound in bounds if bound is not None)})"

    @property
    def positional(self) -> bool:
        return True

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        ahead = keys - positions(geometry, rows)
        return (ahead >= -reach(self.left)) & (ahead <= reach(self.right))

    def ends(self, p: Position, keys: int) -> tuple[Position, Position]:
        # Positions before the keys see none to their left, and those behind none to their right: no sum overflows.
        left, right = self._reaches
        return _most(p, 0) - left, _least(p, keys) + right + 1

    @cached_attribute
    def _reaches(self) -> tuple[int, int]:
        return reach(self.left), reach(self.right)


class _OfNumber(Mask):
    """A leaf that holds one number, 1 or more."""

    # What to write for none of its effect.
    _way: ClassVar[str]

    def __post_init__(self) -> None:
        name = self._name
        object.__setattr__(self, name, positive(type(self).__name__, name, getattr(self, name), self._way))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({written(getattr(self, self._name))})"

    @property
    def _name(self) -> str:
        (field,) = fields(self)  # type: ignore[arg-type]
        return field.name


@dataclass(frozen=True, repr=False)
class Prefix(_OfNumber, _OneRange):
    """Every query keeps the first n keys: ``j < n``.

    Raises
    ------
    MaskError
        If n is no integer, or below 1. It may be above the number of keys.

    Examples
    --------
    >>> (Causal() | Prefix(2)).materialize(3, 3).astype(int)  # a prefix language model
    array([[1, 1, 0],
           [1, 1, 0],
           [1, 1, 1]])
    """

    n: int

    _way = "for no keys at all write Empty()"

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        return (keys < reach(self.n)).reshape((1,) * (len(geometry.lead) + 2) + keys.shape)

    def ends(self, p: Position, keys: int) -> tuple[Position, Position]:
        return 0, reach(self.n)


@dataclass(frozen=True, repr=False)
class Global(_OfNumber, _OneRange):
    """The first n tokens see all and are seen by all: a query at position p keeps key j where ``j < n or p < n``.

    Raises
    ------
    MaskError
        If n is no integer, or below 1. It may be above the number of keys.

    Examples
    --------
    >>> Global(1).materialize(3, 3).astype(int)
    array([[1, 1, 1],
           [1, 0, 0],
           [1, 0, 0]])
    """

    n: int

    _way = "for no global tokens leave it out"

    @property
    def positional(self) -> bool:
        return True

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        n = reach(self.n)
        return (keys < n) | (positions(geometry, rows) < n)

    def ends(self, p: Position, keys: int) -> tuple[Position, Position]:
        n = reach(self.n)
        return 0, n + (keys - n) * (p < n)


@dataclass(frozen=True, repr=False)
class Chunked(_OfNumber, _OneRange):
    """A query keeps the keys of its own chunk of positions: ``p // size == j // size``.

    Raises
    ------
    MaskError
        If size is no integer, or below 1.

    Examples
    --------
    >>> Chunked(2).materialize(3, 4, q_offset=1).astype(int)
    array([[1, 1, 0, 0],
           [0, 0, 1, 1],
           [0, 0, 1, 1]])
    """

    size: int

    _way = "for one chunk that holds all keys write Full()"

    @property
    def positional(self) -> bool:
        return True

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        size = reach(self.size)
        kept: BoolArray = positions(geometry, rows) // size == keys // size
        return kept

    def ends(self, p: Position, keys: int) -> tuple[Position, Position]:
        size = reach(self.size)
        # A chunk behind the keys is empty, wherever it begins: no sum overflows.
        begin = _least(p // size * size, keys)
        return begin, begin + size


@dataclass(frozen=True, repr=False)
class Dilated(_OfNumber):
    """A query at position p keeps every step-th key, its own among them: ``(p - j) % step == 0``.

    Raises
    ------
    MaskError
        If step is no integer, or below 1.

    Examples
    --------
    >>> (Causal() & Dilated(2)).materialize(4, 4).astype(int)
    array([[1, 0, 0, 0],
           [0, 1, 0, 0],
           [1, 0, 1, 0],
           [0, 1, 0, 1]])
    """

    step: int

    _way = "for all keys write Full()"

    @property
    def positional(self) -> bool:
        return True

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        # p and j are congruent: one remainder per position and key, not one per pair.
        step = reach(self.step)
        kept: BoolArray = positions(geometry, rows) % step == keys % step
        return kept

    def spans(self, geometry: Geometry, rows: slice) -> None:
        return None


def _row_positions(geometry: Geometry, rows: slice) -> Position:
    """Positions with the axes of spans, ``(*lead, head, row)``; a number where there is but one."""
    start, stop, _ = rows.indices(geometry.queries)
    if stop - start == 1 and isinstance(geometry.q_offset, int):
        return geometry.q_offset + start
    return positions(geometry, np.arange(start, stop))[..., 0]


# Python's integers need no bounds: what is made of them does not overflow, and is clipped in the end.
def _most(p: Position, bound: int) -> Position:
    return p if isinstance(p, int) else np.maximum(p, bound)


def _least(p: Position, bound: int) -> Position:
    return p if isinstance(p, int) else np.minimum(p, bound)


def _bound(name: str, value: object) -> int | None:
    bound = as_int(value)
    if value is not None and (bound is None or bound < 0):
        raise MaskError(
            f"Window({name}={written(value)}): a bound is an integer number of keys, 0 or more; "
            f"for no bound leave it out or write {name}=None"
        )
    return bound
