"""The algebra of biases: numbers that are added to the scores, as values that combine with ``+``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from regard._errors import DTypeError, ShapeError, written
from regard._fit import as_geometry, misfit
from regard._libraries import as_numpy, library_of
from regard._types import Array, Geometry, IntArray, with_axes
from regard.masks import Mask


class Table(NamedTuple):
    """A bias that depends on head and distance alone, as numbers in a row.

    Query i and key j of head h find theirs at ``values[h, start + j - i]``, and all heads in one row where there is
    but one. ``starts`` has one number for all batch entries, or one for each, in C order.
    """

    values: Array
    starts: tuple[int, ...]


class Bias(ABC):
    """What is added to the scores after the softcap, computed where it is needed and never spelled out.

    Biases are frozen and know no shape: one serves every call. They add with ``+``, to each other and to float
    arrays; an array stands for `DenseBias`.

    Raises
    ------
    DTypeError, ShapeError
        When an array does not hold floats, or does not fit the scores.

    Examples
    --------
    >>> from regard.biases import Alibi, DenseBias
    >>> Alibi(4) + np.zeros((1, 1, 1, 7), np.float32)
    Alibi([0.25, 0.0625, 0.015625, 0.00390625]) + DenseBias(<float32 (1, 1, 1, 7)>)
    """

    # NumPy then leaves `array + bias` to __radd__ instead of going through the elements.
    __array_ufunc__: ClassVar[None] = None

    @property
    def parts(self) -> tuple[Bias, ...]:
        """The biases that are added, in order: itself for a leaf."""
        return (self,)

    @property
    @abstractmethod
    def positional(self) -> bool:
        """Whether the bias depends on where the queries stand among the keys."""

    @property
    @abstractmethod
    def heads(self) -> int:
        """Query heads that the bias tells apart; 1: none."""

    @property
    @abstractmethod
    def arrays(self) -> bool:
        """Whether it holds arrays of the caller's, which `with_arrays` then passes on."""

    @abstractmethod
    def check(self, geometry: Geometry) -> None:
        """Raise ShapeError if what the bias holds does not fit the scores."""

    @abstractmethod
    def values(self, geometry: Geometry, rows: IntArray, keys: IntArray, dtype: npt.DTypeLike) -> Array:
        """Give the numbers for query indices ``rows`` and key indices ``keys``, 1-D int64.

        ``dtype`` is that of the scores: formulas are computed in it, and arrays rounded to it. The result has
        ``len(lead) + 3`` axes and broadcasts to ``(*lead, heads, len(rows), len(keys))``.
        """

    @abstractmethod
    def lower(self, geometry: Geometry, dtype: npt.DTypeLike) -> list[Array | Table]:
        """Write the bias down as terms that are added one after the other, in O(Sq + Skv) memory."""

    def with_arrays(self, take: Callable[[Any], Array]) -> Bias:
        """Return the same bias with the caller's arrays passed through ``take``."""
        return self

    def materialize(
        self,
        queries: int,
        keys: int,
        *,
        q_offset: int | npt.ArrayLike = 0,
        lead: tuple[int, ...] = (),
        heads: int | None = None,
        dtype: npt.DTypeLike = np.float32,
    ) -> Array:
        """Spell the bias out as an array: O(queries · keys) memory.

        Parameters
        ----------
        queries, keys, lead, heads
            Sizes of the scores; default: the heads that the bias tells apart.
        q_offset
            Position of query 0, or one per batch entry, broadcasting to ``lead``.
        dtype
            float32, as scores are, or float64, as those of float64 inputs are.

        Returns
        -------
        array, shape ``(*lead, heads, queries, keys)``
            ``(queries, keys)`` for one head without lead.

        Raises
        ------
        ShapeError, AlignmentError
            If a size is none or does not fit the bias, or `q_offset` is no position.

        Examples
        --------
        >>> from regard.biases import Alibi
        >>> Alibi([0.5]).materialize(2, 3, q_offset=1)
        array([[-0.5,  0. , -0.5],
               [-1. , -0.5,  0. ]], dtype=float32)
        """
        geometry = as_geometry(queries, keys, q_offset, lead, self.heads if heads is None else heads)
        self.check(geometry)
        total = np.zeros(geometry.shape, dtype)
        for part in self.parts:
            total += part.values(geometry, np.arange(geometry.queries), np.arange(geometry.keys), dtype)
        return total.reshape(geometry.user_shape)

    def __add__(self, other: object) -> Bias:
        return Sum((*self.parts, *as_bias(other).parts))

    # Python comes here only with a left operand that is not a bias.
    def __radd__(self, other: object) -> Bias:
        return Sum((*as_bias(other).parts, *self.parts))


@dataclass(frozen=True, repr=False)
class Sum(Bias):
    """Biases that are added to the scores one after the other."""

    terms: tuple[Bias, ...]

    @property
    def parts(self) -> tuple[Bias, ...]:
        return self.terms

    @property
    def positional(self) -> bool:
        return any(term.positional for term in self.terms)

    @property
    def arrays(self) -> bool:
        return any(term.arrays for term in self.terms)

    @property
    def heads(self) -> int:
        return max(term.heads for term in self.terms)

    def check(self, geometry: Geometry) -> None:
        for term in self.terms:
            term.check(geometry)

    def values(self, geometry: Geometry, rows: IntArray, keys: IntArray, dtype: npt.DTypeLike) -> Array:
        first, *others = (term.values(geometry, rows, keys, dtype) for term in self.terms)
        return sum(others, start=first)

    def lower(self, geometry: Geometry, dtype: npt.DTypeLike) -> list[Array | Table]:
        return [part for term in self.terms for part in term.lower(geometry, dtype)]

    def with_arrays(self, take: Callable[[Any], Array]) -> Bias:
        return Sum(tuple(term.with_arrays(take) for term in self.terms))

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.terms))


@dataclass(frozen=True, init=False, eq=False, repr=False)
class DenseBias(Bias):
    """Any numbers, as the float array that holds them; ``bias=array`` means the same.

    Equality and hash are by identity, because the array is yours and may change.

    Parameters
    ----------
    array
        float, ``(Sq, Skv)`` or of the rank of the scores, each axis 1 or full; neither copied nor expanded. −inf
        drops the pair as a mask does.

    Raises
    ------
    DTypeError, ShapeError
        If lists have no rectangular shape; and, with the scores known, if it is no array of floats, or does not fit.

    Examples
    --------
    >>> DenseBias(np.zeros((2, 1, 1, 7), np.float32))
    DenseBias(<float32 (2, 1, 1, 7)>)
    """

    array: Array
    _given: Any  # attention takes its own arrays from here: lists go with any library

    def __init__(self, array: Any) -> None:
        if isinstance(array, np.ndarray):
            array = as_numpy("bias", array)
        described = hasattr(array, "shape") and hasattr(array, "dtype")  # a plan needs no more
        object.__setattr__(self, "array", array if described else _as_array(array))
        object.__setattr__(self, "_given", array)

    @property
    def positional(self) -> Literal[False]:
        return False

    @property
    def arrays(self) -> Literal[True]:
        return True

    @property
    def heads(self) -> int:
        shape = np.shape(self.array)
        return int(shape[-3]) if len(shape) > 2 else 1

    def check(self, geometry: Geometry) -> None:
        message = misfit("bias", tuple(self.array.shape), geometry)
        if message:
            raise ShapeError(message)

    def values(self, geometry: Geometry, rows: IntArray, keys: IntArray, dtype: npt.DTypeLike) -> Array:
        table = with_axes(as_numpy("bias", self.array), len(geometry.shape))
        table = table if table.shape[-2] == 1 else table[..., rows, :]
        table = table if table.shape[-1] == 1 else table[..., keys]
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and drops the pair if it is negative
            return table.astype(dtype, copy=False)

    def lower(self, geometry: Geometry, dtype: npt.DTypeLike) -> list[Array | Table]:
        return [self.array]

    def with_arrays(self, take: Callable[[Any], Array]) -> DenseBias:
        return DenseBias(take(self._given))

    def __repr__(self) -> str:
        return f"DenseBias(<{self.array.dtype} {tuple(self.array.shape)}>)"


def as_bias(bias: Any) -> Bias:
    """Return the bias that is meant; an array becomes `DenseBias`."""
    if isinstance(bias, Bias):
        return bias
    if isinstance(bias, type) and issubclass(bias, Bias):
        raise DTypeError(f"bias is the class {bias.__name__}: write {bias.__name__}(...), with parentheses")
    if isinstance(bias, Mask):
        raise DTypeError(f"{bias!r} is a mask: pass mask={bias!r}; a bias is numbers that are added to the scores")
    if isinstance(bias, bool | str) or bias is None or callable(bias):
        raise DTypeError(
            f"bias is {written(bias)} of type {type(bias).__name__}; it must be a float array that is added to the "
            "scores, or a bias such as rg.Alibi(heads)"
        )
    return DenseBias(bias)


def _as_array(given: Any) -> Array:
    array = as_numpy("bias", given)
    listed = library_of("bias", given) is None
    return array.astype(np.float64) if listed and array.dtype.kind in "iu" else array
