"""Leaves for batches: sequences that end early, and documents packed into one sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from regard._cached import cached_attribute
from regard._errors import MaskError
from regard._fit import fits_lead
from regard._types import Array, BoolArray, Geometry, IntArray, with_axes

from ._arguments import as_array, as_int64, frozen
from ._base import ArrayLeaf
from ._spans import RowSpans, runs_of
from ._tables import as_bool


@dataclass(frozen=True, init=False, eq=False, repr=False)
class KeyLengths(ArrayLeaf):
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
    >>> KeyLengths([1, 3]).materialize(1, 4, lead=(2,)).astype(int)[:, 0, 0]
    array([[1, 0, 0, 0],
           [1, 1, 1, 0]])
    """

    n: IntArray

    def __init__(self, n: npt.ArrayLike) -> None:
        given = as_array("n", n)
        refusal = (
            "KeyLengths takes integers, one length per batch entry; "
            f"got dtype {given.dtype}, shape {given.shape}; for whole floats write np.asarray(n, int), "
            "for a (B, Skv) bool padding mask write KeyPadding(mask)"
        )
        object.__setattr__(self, "n", as_int64(given, refusal))

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (self.n,)

    @property
    def ends_early(self) -> bool:
        return True

    @property
    def lead(self) -> tuple[int, ...]:
        return self.n.shape

    def check(self, geometry: Geometry) -> None:
        lead, shape = geometry.lead, self.n.shape
        if not fits_lead(shape, lead):
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
        return keys < with_axes(self.n[..., None, None, None], len(geometry.lead) + 3)

    def spans(self, geometry: Geometry, rows: slice) -> RowSpans:
        n = self.n
        end = n.item() if n.size == 1 else with_axes(n[..., None, None], len(geometry.lead) + 2)
        return RowSpans.between(geometry, 0, end)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class KeyPadding(ArrayLeaf):
    """Batch entry b keeps key j where ``kept[b, j]``: padding on either side, or anywhere.

    Parameters
    ----------
    kept
        bool, True = a key, False = padding; ``(Skv,)``, or ``(*lead, Skv)`` broadcasting to the leading axes of the
        scores; copied.

    Raises
    ------
    MaskError
        If `kept` is not bool; and, with the scores known, if there is not one for each key.

    Examples
    --------
    >>> padding = KeyPadding([[False, True, True], [True, True, True]])
    >>> padding.materialize(1, 3, lead=(2,)).astype(int)[:, 0, 0]
    array([[0, 1, 1],
           [1, 1, 1]])
    """

    kept: BoolArray

    def __init__(self, kept: npt.ArrayLike) -> None:
        given = as_bool("KeyPadding", "kept", kept)
        if not given.ndim:
            raise MaskError(f"KeyPadding({kept!r}) takes a bool for each key, of shape (Skv,) or (*lead, Skv)")
        object.__setattr__(self, "kept", frozen(given.copy()))

    @classmethod
    def from_torch(cls, key_padding_mask: npt.ArrayLike) -> KeyPadding:
        """Take torch's ``key_padding_mask``, whose True means the opposite: a key to ignore.

        Parameters
        ----------
        key_padding_mask
            bool, True = ignore, or float, 0 = keep and -inf = ignore; ``(Skv,)`` or ``(B, Skv)``: an array, lists,
            or a tensor in the memory of the CPU.

        Raises
        ------
        MaskError
            If it holds anything else.

        Examples
        --------
        >>> KeyPadding.from_torch([[False, True], [False, False]])
        KeyPadding([[True, False], [True, True]])
        """
        given = as_array("key_padding_mask", key_padding_mask)
        if given.dtype == np.bool_:
            return cls(~given)
        ignored = given == -np.inf if given.dtype.kind == "f" else None
        if ignored is None or not np.all(ignored | (given == 0)):
            odd = f"dtype {given.dtype}, shape {given.shape}"
            if ignored is not None:
                odd += f", a {given[~ignored & (given != 0)][0]} among its numbers"
            raise MaskError(
                "a key_padding_mask is bool, True = ignore, or float, 0 = keep and -inf = ignore; "
                f"got {odd}; where other numbers are to be added to the scores pass bias=array[:, None, None, :], "
                "and for 0/1 write array != 0 if 1 means ignore"
            )
        return cls(~ignored)

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (self.kept,)

    @property
    def lead(self) -> tuple[int, ...]:
        return self.kept.shape[:-1]

    def check(self, geometry: Geometry) -> None:
        lead, shape = geometry.lead, self.kept.shape
        if shape[-1] != geometry.keys or not fits_lead(shape[:-1], lead):
            raise MaskError(
                f"KeyPadding has shape {shape}; the scores take one bool per key, in shape ({geometry.keys},) or "
                f"{(*lead, geometry.keys)}, each leading axis 1 or full"
            )

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        return self._over_rows(self.kept.take(keys, axis=-1), geometry)

    def spans(self, geometry: Geometry, rows: slice) -> RowSpans | None:
        edges = self._runs
        return None if edges is None else RowSpans.from_edges(self._over_rows(edges, geometry), geometry.keys)

    @cached_attribute
    def _runs(self) -> IntArray | None:
        return runs_of(self.kept)

    @staticmethod
    def _over_rows(values: Array, geometry: Geometry) -> Array:
        return with_axes(values[..., None, None, :], len(geometry.lead) + 3)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Documents(ArrayLeaf):
    """A query keeps the keys of its own document: ``ids[i] == key_ids[j]``, by index and not by position.

    A document that lies in one piece among the keys is one range for each of its queries, however long; ids in
    any other order are served, too, by a bit for each pair of a band.

    Parameters
    ----------
    ids
        Integers ``(Sq,)``, or ``(*lead, Sq)`` broadcasting to the leading axes of the scores; copied.
    key_ids
        The same for the keys, ``(..., Skv)``; by default the queries' ids.

    Raises
    ------
    MaskError
        If ids are not integers; and, with the scores known, if there is not one per query and one per key.

    Examples
    --------
    >>> Documents([7, 7, 9]).materialize(3, 3).astype(int)
    array([[1, 1, 0],
           [1, 1, 0],
           [0, 0, 1]])
    >>> Documents([9], key_ids=[7, 7, 9, 9]).materialize(1, 4).astype(int)
    array([[0, 0, 1, 1]])
    """

    ids: IntArray
    key_ids: IntArray | None

    def __init__(self, ids: npt.ArrayLike, key_ids: npt.ArrayLike | None = None) -> None:
        object.__setattr__(self, "ids", _ids("ids", ids, "Sq"))
        object.__setattr__(self, "key_ids", None if key_ids is None else _ids("key_ids", key_ids, "Skv"))

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (self.ids,) if self.key_ids is None else (self.ids, self.key_ids)

    @property
    def lead(self) -> tuple[int, ...]:
        return np.broadcast_shapes(self.ids.shape[:-1], self._of_keys.shape[:-1])

    def check(self, geometry: Geometry) -> None:
        queries, keys = geometry.queries, geometry.keys
        if self.key_ids is None and queries != keys:
            raise MaskError(
                f"Documents has ids of shape {self.ids.shape} and no key_ids, but Sq = {queries} and Skv = {keys}: "
                "write Documents(ids, key_ids), with one id per query and one per key"
            )
        sides = (("ids", self.ids, "query", queries), ("key_ids", self._of_keys, "key", keys))
        for name, ids, what, count in sides:
            if ids.shape[-1] != count or not fits_lead(ids.shape[:-1], geometry.lead):
                raise MaskError(
                    f"Documents has {name} of shape {ids.shape}; the scores take one id per {what}, in shape "
                    f"({count},) or {(*geometry.lead, count)}, each leading axis 1 or full"
                )

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        ids = _over_heads(self.ids.take(rows, axis=-1), geometry)
        key_ids = _over_heads(self._of_keys.take(keys, axis=-1), geometry)
        kept: BoolArray = ids[..., :, None] == key_ids[..., None, :]
        return kept

    def spans(self, geometry: Geometry, rows: slice) -> RowSpans | None:
        if self._ranges is None:
            return None
        begin, end = (_over_heads(edge[..., rows], geometry) for edge in self._ranges)
        return RowSpans.from_ranges(begin, end, geometry.keys)

    @property
    def _of_keys(self) -> IntArray:
        return self.ids if self.key_ids is None else self.key_ids

    @cached_attribute
    def _ranges(self) -> tuple[IntArray, IntArray] | None:
        """First key and end of each query's document, ``(*lead, Sq)`` each; None if one is in pieces."""
        lead = self.lead
        ids = np.broadcast_to(self.ids, (*lead, self.ids.shape[-1]))
        key_ids = np.broadcast_to(self._of_keys, (*lead, self._of_keys.shape[-1]))
        begin, end = np.zeros(ids.shape, np.int64), np.zeros(ids.shape, np.int64)
        for entry in np.ndindex(lead):
            documents = _pieces(key_ids[entry])
            if np.any(documents[0, 1:] == documents[0, :-1]):
                return None
            if documents.size:
                at = np.searchsorted(documents[0], ids[entry])
                names, *edges = documents.take(at, axis=-1, mode="clip")
                begin[entry], end[entry] = np.where(names == ids[entry], edges, 0)
        return begin, end


def _pieces(ids: IntArray) -> IntArray:
    """Find the runs of equal ids: id, first index and end of each, ``(3, runs)``, sorted by id."""
    first = np.flatnonzero(np.diff(ids, prepend=ids[:1] - 1))
    runs = np.stack([ids[first], first, np.append(first, len(ids))[1:]])
    return runs[:, np.argsort(runs[0], kind="stable")]


def _over_heads(values: Array, geometry: Geometry) -> Array:
    """Give ``(..., n)`` the axes ``(*lead, head, n)``."""
    return with_axes(values[..., None, :], len(geometry.lead) + 2)


def _ids(name: str, values: npt.ArrayLike, size: str) -> IntArray:
    given = as_array(name, values)
    refusal = (
        f"Documents takes integers as {name}, of shape ({size},) or (*lead, {size}); "
        f"got dtype {given.dtype}, shape {given.shape}; for names write np.unique(names, return_inverse=True)[1]"
    )
    if not given.ndim:
        raise MaskError(refusal)
    return as_int64(given, refusal)
