"""The algebra of masks: values without a shape that combine with ``& | ~``."""

from __future__ import annotations

import math
import operator
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from regard._cached import cached_attribute
from regard._errors import MaskError, ShapeError, written
from regard._fit import as_geometry, as_offset, as_size, batch_of, entry_of, offset_at
from regard._types import BoolArray, Geometry, IntArray

from ._evaluate import chunks, indices
from ._expression import Bounds, Expression
from ._picture import Picture, draw
from ._spans import Ranges, RowSpans, both, either, outside

# Masks of masks, one inside the other: what is asked of a mask is asked of its parts, and calls of Python's go so deep.
MAX_DEPTH, MAX_LOOKS = 100, 1 << 16
# Arrays of up to so many elements are spelled out in a repr, which then gives the mask back.
_SPELLED = 64


class Mask(Expression):
    """Which keys each query may attend to.

    Masks are frozen, comparable, printable and picklable, and know no shape: one mask serves every call.
    They combine with ``&``, ``|`` and ``~``, with masks only.

    Raises
    ------
    MaskError
        When combined with anything that is not a mask; or when more than 100 would be one inside the other. What ``&``
        or ``|`` adds on the right, under the same operator, is one part more and goes no deeper.
    TypeError
        When asked for a truth value, as ``and``, ``or``, ``not`` and ``if`` do.

    Examples
    --------
    >>> from regard.masks import Causal, KeyLengths, Window
    >>> Causal() & (Window(left=256) | ~KeyLengths([3, 5]))
    Causal() & (Window(left=256) | ~KeyLengths([3, 5]))
    >>> Causal() and Window(left=256)
    Traceback (most recent call last):
    TypeError: a mask has no truth value; combine masks with & | ~, not and / or / not
    """

    # NumPy then leaves `array & mask` to __rand__ instead of going through the elements.
    __array_ufunc__: ClassVar[None] = None
    # How tightly repr() binds, as in Python's grammar: | 1, & 2, ~ 3, a call 4.
    _binds: ClassVar[int] = 4

    @property
    def parts(self) -> tuple[Mask, ...]:
        return ()

    @property
    def depth(self) -> int:
        """How many masks of masks are one inside the other."""
        return 0

    @property
    def looks(self) -> int:
        """How many masks it is made of, each as often as it is looked at."""
        return 1

    def materialize(
        self,
        queries: int,
        keys: int,
        *,
        q_offset: int | npt.ArrayLike = 0,
        lead: tuple[int, ...] = (),
        heads: int | None = None,
    ) -> BoolArray:
        """Spell the mask out as a bool array, True = may attend: O(queries · keys) memory.

        Parameters
        ----------
        queries, keys, lead, heads
            Sizes of the scores; by default one head, or as many as the mask is made for.
        q_offset
            Position of query 0, or one per batch entry, broadcasting to ``lead``.

        Returns
        -------
        BoolArray
            ``(*lead, heads, queries, keys)``; ``(queries, keys)`` for one head without lead, the default.

        Raises
        ------
        MaskError
            If an array that the mask holds does not fit these sizes.
        ShapeError, AlignmentError
            If a size is none, or `q_offset` no position.

        Examples
        --------
        >>> from regard.masks import Causal
        >>> Causal().materialize(2, 4, q_offset=2).astype(int)
        array([[1, 1, 1, 0],
               [1, 1, 1, 1]])
        """
        geometry = as_geometry(queries, keys, q_offset, lead, (self.heads or 1) if heads is None else heads)
        self.check(geometry)
        kept = np.empty(geometry.shape, np.bool_)
        for rows, columns in chunks(
            slice(0, geometry.queries), slice(0, geometry.keys), math.prod(geometry.shape[:-2])
        ):
            kept[..., rows, columns] = self.keep(geometry, indices(rows), indices(columns))
        return kept.reshape(geometry.user_shape)

    def picture(
        self,
        queries: int,
        keys: int,
        *,
        q_offset: int | npt.ArrayLike = 0,
        batch: int = 0,
        head: int = 0,
        block_rows: int = 96,
        tile_keys: int = 96,
    ) -> Picture:
        """Draw the mask for one head of a batch entry, in text and as SVG, with what becomes of each tile.

        Parameters
        ----------
        queries, keys
            Sizes of the scores. Up to 64 of each, every pair is drawn; above, tiles are, several to a cell where
            they are many.
        q_offset
            Position of query 0, or one per batch entry.
        batch
            Batch entry to draw, where the mask tells them apart; of several leading axes their entries are counted in
            C order.
        head
            Query head to draw, where the mask tells heads apart.
        block_rows, tile_keys
            Queries and keys of one tile, as the engine has them: an empty tile is skipped, a full one not masked.

        Raises
        ------
        MaskError
            If an array that the mask holds does not fit these sizes.
        ShapeError, AlignmentError
            If a size is none, `batch` no entry, `head` no head, or `q_offset` no position.

        Examples
        --------
        >>> from regard.masks import Causal, KeyLengths, Window
        >>> KeyLengths([2, 3]).picture(1, 4, batch=1)
        KeyLengths([2, 3]): 1 query down, 4 keys across, batch entry 1
        ■ ■ ■ ·
        ■ kept  · not kept
        3 of 4 pairs kept; tiles of 96 x 96: 0 full, 1 partial, 0 empty
        >>> (Causal() & Window(left=2)).picture(4, 6, q_offset=2, block_rows=2, tile_keys=3)
        Causal() & Window(left=2): 4 queries down, the first at position 2, 6 keys across
        ■ ■ ■ · · ·
        · ■ ■ ■ · ·
        · · ■ ■ ■ ·
        · · · ■ ■ ■
        ■ kept  · not kept
        12 of 24 pairs kept; tiles of 2 x 3: 0 full, 4 partial, 0 empty
        """
        batch, head = as_size("batch", batch), as_size("head", head)
        offset = as_offset(q_offset, "for the last query at the last key write keys - queries")
        lead = batch_of(self.lead, offset)
        if batch and math.prod(lead) == 1:  # for any batch
            lead = (*lead[:-1], batch + 1)
        geometry = as_geometry(queries, keys, q_offset, lead, self.heads or head + 1)
        if head >= geometry.heads:
            raise ShapeError(f"head: there is no head {head} in {self!r}, which is made for {self.heads}, from 0 on")
        self.check(geometry)
        entry = entry_of(repr(self), batch, lead)
        return draw(self, geometry._replace(q_offset=offset_at(offset, entry)), head, (block_rows, tile_keys), entry)

    def __and__(self, other: Mask) -> Mask:
        return And(self, _mask(other))

    def __or__(self, other: Mask) -> Mask:
        return Or(self, _mask(other))

    def __invert__(self) -> Mask:
        return Not(self)

    # Python comes here only with a left operand that is not a mask.
    def __rand__(self, other: object) -> Mask:
        return And(_mask(other), self)

    def __ror__(self, other: object) -> Mask:
        return Or(_mask(other), self)

    def __bool__(self) -> NoReturn:
        raise TypeError("a mask has no truth value; combine masks with & | ~, not and / or / not")


class ArrayLeaf(Mask):
    """A leaf that holds small arrays: read-only copies, equal where they hold the same."""

    @property
    @abstractmethod
    def arguments(self) -> tuple[Any, ...]:
        """What the class makes an equal mask from."""

    @property
    def held_bytes(self) -> float:
        return sum(np.asarray(argument).nbytes for argument in self.arguments)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArrayLeaf) or type(other) is not type(self):
            return False
        mine, others = self.arguments, other.arguments
        return len(mine) == len(others) and all(map(np.array_equal, mine, others))

    @cached_attribute
    def _hash(self) -> int:
        return hash((type(self), *map(_hashed, self.arguments)))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(_spelled, self.arguments))})"

    def __reduce__(self) -> tuple[type[ArrayLeaf], tuple[Any, ...]]:
        # NumPy's pickle forgets that an array is read-only.
        return type(self), self.arguments


def _hashed(argument: Any) -> Any:
    return (argument.shape, argument.tobytes()) if isinstance(argument, np.ndarray) else argument


def _spelled(argument: Any) -> str:
    if not isinstance(argument, np.ndarray):
        return written(argument)
    short = argument.size <= _SPELLED and (argument.size or argument.ndim == 1)  # [] has but one axis
    return repr(argument.tolist()) if short else f"<{argument.dtype} {argument.shape}>"


def _mask(operand: object) -> Mask:
    if isinstance(operand, Mask):
        return operand
    what = type(operand).__name__
    if isinstance(operand, np.ndarray):
        what += f" of dtype {operand.dtype} and shape {operand.shape}"
    raise MaskError(
        f"masks combine with masks only, got {what}; wrap a bool array as Dense(array), "
        "and for no mask at all write Full()"
    )


def _operand(mask: Mask, binds: int) -> str:
    return repr(mask) if mask._binds >= binds else f"({mask!r})"


class Combined(Mask):
    """A mask of masks: closed where all of its parts are."""

    def spans(self, geometry: Geometry, rows: slice) -> RowSpans | None:
        inner, outer = self.bounds(geometry, rows)
        return inner if inner is outer else None

    @abstractmethod
    def bounds(self, geometry: Geometry, rows: slice) -> Bounds: ...

    @cached_attribute
    def depth(self) -> int:
        return 1 + max((part.depth for part in self.parts), default=0)

    @cached_attribute
    def looks(self) -> int:
        return sum(part.looks for part in self.parts)

    def _refuse_large(self) -> None:
        if self.looks > MAX_LOOKS:
            raise MaskError(
                f"masks are made of up to {MAX_LOOKS:,} masks, and this one of {self.looks:,}, each counted as often "
                "as it is in it: put what many of them say into one, as in Dense(array) or KeyLengths(lengths)"
            )
        if self.depth > MAX_DEPTH:
            raise MaskError(
                f"masks go up to {MAX_DEPTH} deep, one inside the other: what a loop adds goes on the right, as in "
                "mask & more or mask | more, and makes a mask longer but no deeper; else combine parts first, and then "
                "what came of them; of ~~mask leave both ~ out"
            )


@dataclass(frozen=True, init=False, repr=False)
class _Chain(Combined):
    """Masks under one operator, grouped to the left as Python does it: a loop makes a long one and no deep one."""

    operands: tuple[Mask, ...]

    _symbol: ClassVar[str]
    # On bool arrays and on spans alike; and on the ranges of one row.
    _combine: ClassVar[Callable[[Any, Any], Any]]
    _combine_row: ClassVar[Callable[[Ranges, Ranges, int], Ranges]]

    def __init__(self, left: Mask, right: Mask) -> None:
        longer = type(left) is type(self)
        object.__setattr__(self, "operands", (*left.parts, right) if longer else (left, right))
        if longer or left.parts or right.parts:
            # Without a look at each of the others, for a loop comes here at each turn.
            object.__setattr__(self, "depth", max(left.depth + (not longer), right.depth + 1))
            object.__setattr__(self, "looks", left.looks + right.looks)
            self._refuse_large()

    @property
    def parts(self) -> tuple[Mask, ...]:
        return self.operands

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        kept = self.operands[0].keep(geometry, rows, keys)
        for operand in self.operands[1:]:
            kept = type(self)._combine(kept, operand.keep(geometry, rows, keys))
        return kept

    def bounds(self, geometry: Geometry, rows: slice) -> Bounds:
        inner, outer = self.operands[0].bounds(geometry, rows)
        for operand in self.operands[1:]:
            least, most = operand.bounds(geometry, rows)
            combined = type(self)._combine(inner, least)
            outer = combined if inner is outer and least is most else type(self)._combine(outer, most)
            inner = combined
        return inner, outer

    def row(self, p: int | None, keys: int) -> Ranges | None:
        ranges = self.operands[0].row(p, keys)
        for operand in self.operands[1:]:
            more = None if ranges is None else operand.row(p, keys)
            if ranges is None or more is None:
                return None
            ranges = type(self)._combine_row(ranges, more, keys)
        return ranges

    def __repr__(self) -> str:
        # Python groups to the left: an equal operator on the right was in parentheses.
        first, *others = self.operands
        return f" {self._symbol} ".join([_operand(first, self._binds), *(_operand(x, self._binds + 1) for x in others)])


class And(_Chain):
    """What both masks keep."""

    _symbol, _combine, _combine_row, _binds = "&", operator.and_, both, 2


class Or(_Chain):
    """What one mask or the other keeps."""

    _symbol, _combine, _combine_row, _binds = "|", operator.or_, either, 1


@dataclass(frozen=True, repr=False)
class Not(Combined):
    """What the mask does not keep."""

    operand: Mask

    _binds = 3

    def __post_init__(self) -> None:
        self._refuse_large()

    @property
    def parts(self) -> tuple[Mask, ...]:
        return (self.operand,)

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        return ~self.operand.keep(geometry, rows, keys)

    def bounds(self, geometry: Geometry, rows: slice) -> Bounds:
        inner, outer = self.operand.bounds(geometry, rows)
        dropped = ~inner
        return (dropped if inner is outer else ~outer), dropped

    def row(self, p: int | None, keys: int) -> Ranges | None:
        ranges = self.operand.row(p, keys)
        return None if ranges is None else outside(ranges, keys)

    def __repr__(self) -> str:
        return f"~{_operand(self.operand, self._binds)}"
