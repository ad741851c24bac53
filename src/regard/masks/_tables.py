"""Leaves that are tables: a bool for every pair, or for every block of pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from regard._cached import cached_attribute
from regard._errors import MaskError, written
from regard._fit import fits_lead, misfit
from regard._libraries import of_ml_dtypes
from regard._types import BoolArray, Geometry, IntArray, as_int, with_axes

from ._arguments import as_array, frozen, reach
from ._base import ArrayLeaf, Mask
from ._spans import RowSpans, runs_of


def _run(index: IntArray) -> IntArray | slice:
    """Write consecutive indices as a slice, which copies nothing whatever the order of the array in memory."""
    first, last = (int(index[0]), int(index[-1])) if len(index) else (0, -1)
    return slice(first, last + 1) if np.array_equal(index, np.arange(first, last + 1)) else index


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
    >>> from regard.masks import Causal
    >>> Causal() & Dense(np.ones((2, 1, 1, 7), bool))
    Causal() & Dense(<bool (2, 1, 1, 7)>)
    """

    array: BoolArray

    def __init__(self, array: npt.ArrayLike) -> None:
        object.__setattr__(self, "array", as_bool("Dense", "array", array))

    def __repr__(self) -> str:
        return f"Dense(<bool {self.array.shape}>)"

    @property
    def held_bytes(self) -> float:
        return math.inf

    @property
    def lead(self) -> tuple[int, ...]:
        return self.array.shape[:-3]

    @property
    def heads(self) -> int | None:
        heads = self.array.shape[-3] if self.array.ndim > 2 else 1
        return heads if heads > 1 else None

    def check(self, geometry: Geometry) -> None:
        message = misfit("mask", self.array.shape, geometry)
        if message:
            raise MaskError(message)

    def table(self, geometry: Geometry) -> BoolArray:
        return with_axes(self.array, len(geometry.shape))

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        table = self.table(geometry)
        if table.shape[-2] != 1:
            table = table[..., _run(rows), :]
        return table if table.shape[-1] == 1 else table[..., _run(keys)]

    def spans(self, geometry: Geometry, rows: slice) -> RowSpans | None:
        table = self.table(geometry)
        if table.shape[-2] != 1:
            return None  # to look for ranges would be to read every pair once more
        edges = runs_of(table)
        if edges is None:
            return None
        return RowSpans.from_edges(edges * geometry.keys if table.shape[-1] == 1 else edges, geometry.keys)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Blocks(ArrayLeaf):
    """A bool for each block of queries and keys, by index and not by position: ``array[i // rows, j // keys]``.

    Parameters
    ----------
    array
        bool, ``(ceil(Sq / rows), ceil(Skv / keys))``, or of the rank of the scores with leading and head axes
        1 or full; copied.
    block
        Queries and keys of a block: ``(rows, keys)``, or one number for both.

    Raises
    ------
    MaskError
        If the array is not bool or `block` is no size; and, with the scores known, if the table does not cover
        them exactly.

    Examples
    --------
    >>> Blocks([[True, False], [False, True]], (1, 2)).materialize(2, 3).astype(int)
    array([[1, 1, 0],
           [0, 0, 1]])
    """

    array: BoolArray
    block: tuple[int, int]

    def __init__(self, array: npt.ArrayLike, block: int | tuple[int, int]) -> None:
        object.__setattr__(self, "array", frozen(as_bool("Blocks", "array", array).copy()))
        object.__setattr__(self, "block", _as_block(block))

    @property
    def arguments(self) -> tuple[Any, ...]:
        rows, keys = self.block
        return self.array, rows if rows == keys else self.block

    @property
    def lead(self) -> tuple[int, ...]:
        return self.array.shape[:-3]

    def check(self, geometry: Geometry) -> None:
        (rows, keys), shape = self.block, self.array.shape
        tiles = -(-geometry.queries // rows), -(-geometry.keys // keys)
        above = geometry.shape[:-2]
        if len(shape) not in (2, len(above) + 2) or shape[-2:] != tiles or not fits_lead(shape[:-2], above):
            raise MaskError(
                f"Blocks has a table of shape {shape}, and scores of shape {geometry.user_shape} have "
                f"{tiles[0]} x {tiles[1]} blocks of {rows} x {keys}: give a table of shape {tiles}, or one of the rank "
                "of the scores, each axis before these 1 or full"
            )

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        table = with_axes(self.array, len(geometry.shape))
        tall, wide = map(reach, self.block)
        return table.take(rows // tall, axis=-2).take(keys // wide, axis=-1)

    def spans(self, geometry: Geometry, rows: slice) -> RowSpans | None:
        if self._runs is None:
            return None
        runs = with_axes(self._runs, len(geometry.shape))
        tall, wide = map(reach, self.block)
        edges = runs.take(np.arange(*rows.indices(geometry.queries)) // tall, axis=-2) * wide
        return RowSpans.from_edges(np.minimum(edges, geometry.keys), geometry.keys)

    @cached_attribute
    def _runs(self) -> IntArray | None:
        return runs_of(self.array)


def _as_block(block: object) -> tuple[int, int]:
    pair = block if isinstance(block, tuple | list) else (block, block)
    sizes = tuple(as_int(size) or 0 for size in pair)
    if len(sizes) != 2 or min(sizes) < 1:
        raise MaskError(
            f"Blocks(..., {written(block)}): a block is a number of queries and keys, 1 or more, "
            "or a pair of these, (rows, keys)"
        )
    return sizes


def as_bool(leaf: str, name: str, array: object) -> BoolArray:
    """Take a bool array; tell what anything else may have been meant for."""
    if isinstance(array, Mask):
        raise MaskError(f"{array} is a mask already; {leaf}() is for bool arrays")
    given = as_array(name, array)
    if given.dtype == np.bool_ or (not given.size and isinstance(array, list | tuple)):
        return given.astype(np.bool_, copy=False)
    fact = f"a mask is bool, True = may attend; got dtype {given.dtype} and shape {given.shape}"
    is_float = given.dtype.kind == "f" or of_ml_dtypes(given.dtype)
    bias = "a bias is float and is added: pass it as bias=; " if is_float else ""
    raise MaskError(f"{fact}; {bias}for 0/1 write mask != 0, and mask == 0 where 1 means masked out")
