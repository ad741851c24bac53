"""The algebra of masks: values without a shape that combine with ``& | ~``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NoReturn

import numpy as np

from regard._errors import MaskError
from regard._types import BoolArray, Geometry, IntArray

from ._spans import RowSpans


class Mask(ABC):
    """Which keys each query may attend to.

    Masks are frozen, comparable, printable and picklable, and know no shape: one mask serves every call.
    They combine with ``&``, ``|`` and ``~``, with masks only.

    Raises
    ------
    MaskError
        When combined with anything that is not a mask.
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
        """The masks that this one combines; none for a leaf."""
        return ()

    @property
    def positional(self) -> bool:
        """Whether the mask depends on where the queries stand among the keys."""
        return any(part.positional for part in self.parts)

    @property
    def cacheable(self) -> bool:
        """Whether equal masks keep equal keys for good, so that what was lowered may be used again."""
        return all(part.cacheable for part in self.parts)

    def check(self, geometry: Geometry) -> None:
        """Raise MaskError if an array that the mask holds does not fit the scores."""
        for part in self.parts:
            part.check(geometry)

    @abstractmethod
    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        """Evaluate the formula for query indices ``rows`` and key indices ``keys``, both 1-D int64.

        Returns
        -------
        BoolArray
            True = may attend; it has ``len(lead) + 3`` axes and broadcasts to
            ``(*lead, heads, len(rows), len(keys))``.
        """

    @abstractmethod
    def spans(self, geometry: Geometry, rows: slice) -> RowSpans | None:
        """Write down the same set as ranges for some rows, without a look at single keys.

        Returns
        -------
        RowSpans or None
            Leading axes ``(*lead, heads, rows)``, each 1 where nothing differs along it; None if the mask
            has no closed form.
        """

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


def positions(geometry: Geometry, rows: IntArray) -> IntArray:
    """Give the absolute positions of query indices, with all axes of the scores: ``(1, ..., 1, rows, 1)``."""
    return (geometry.q_offset + rows).reshape(*(1,) * len(geometry.lead), 1, len(rows), 1)


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


@dataclass(frozen=True, repr=False)
class _Pair(Mask):
    left: Mask
    right: Mask

    _symbol: ClassVar[str]

    @property
    def parts(self) -> tuple[Mask, ...]:
        return self.left, self.right

    def __repr__(self) -> str:
        # Python groups to the left: an equal operator on the right was in parentheses.
        return f"{_operand(self.left, self._binds)} {self._symbol} {_operand(self.right, self._binds + 1)}"


@dataclass(frozen=True, repr=False)
class And(_Pair):
    """What both masks keep."""

    _symbol = "&"
    _binds = 2

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        return self.left.keep(geometry, rows, keys) & self.right.keep(geometry, rows, keys)

    def spans(self, geometry: Geometry, rows: slice) -> RowSpans | None:
        left, right = self.left.spans(geometry, rows), self.right.spans(geometry, rows)
        return None if left is None or right is None else left & right


@dataclass(frozen=True, repr=False)
class Or(_Pair):
    """What one mask or the other keeps."""

    _symbol = "|"
    _binds = 1

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        return self.left.keep(geometry, rows, keys) | self.right.keep(geometry, rows, keys)

    def spans(self, geometry: Geometry, rows: slice) -> RowSpans | None:
        left, right = self.left.spans(geometry, rows), self.right.spans(geometry, rows)
        return None if left is None or right is None else left | right


@dataclass(frozen=True, repr=False)
class Not(Mask):
    """What the mask does not keep."""

    operand: Mask

    _binds = 3

    @property
    def parts(self) -> tuple[Mask, ...]:
        return (self.operand,)

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        return ~self.operand.keep(geometry, rows, keys)

    def spans(self, geometry: Geometry, rows: slice) -> RowSpans | None:
        spans = self.operand.spans(geometry, rows)
        return None if spans is None else ~spans

    def __repr__(self) -> str:
        return f"~{_operand(self.operand, self._binds)}"
