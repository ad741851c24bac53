"""The leaf that gives each query head a mask of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from regard._errors import MaskError, written
from regard._types import Array, BoolArray, Geometry, IntArray

from ._base import Combined, Mask
from ._expression import Bounds
from ._spans import RowSpans


@dataclass(frozen=True, init=False, repr=False)
class PerHead(Combined):
    """Query head h keeps what mask number h keeps.

    Parameters
    ----------
    masks
        One mask for each query head.

    Raises
    ------
    MaskError
        If `masks` holds anything but masks, or none; and, with the scores known, if there is not one for each query
        head.

    Examples
    --------
    >>> from regard.masks import Causal, Full, Window
    >>> Causal() & PerHead([Full(), Window(left=1)])
    Causal() & PerHead([Full(), Window(left=1)])
    >>> (Causal() & PerHead([Full(), Window(left=1)])).materialize(3, 3).astype(int)
    array([[[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]],
    <BLANKLINE>
           [[1, 0, 0],
            [1, 1, 0],
            [0, 1, 1]]])
    """

    masks: tuple[Mask, ...]

    def __init__(self, masks: Iterable[Mask]) -> None:
        given = tuple(masks) if isinstance(masks, Iterable) else ()
        if not given or not all(isinstance(mask, Mask) for mask in given):
            raise MaskError(
                f"PerHead({written(masks)}) takes a list of masks, one for each query head, such as "
                "PerHead([Causal(), Window(left=64)]); wrap a bool array as Dense(array), and for a head without a "
                "mask write Full()"
            )
        object.__setattr__(self, "masks", given)
        self._refuse_large()

    def __repr__(self) -> str:
        return f"PerHead([{', '.join(map(repr, self.masks))}])"

    @property
    def parts(self) -> tuple[Mask, ...]:
        return self.masks

    @property
    def heads(self) -> int:
        return len(self.masks)

    def check(self, geometry: Geometry) -> None:
        if geometry.heads != self.heads:
            masks, heads = "mask" if self.heads == 1 else "masks", "head" if geometry.heads == 1 else "heads"
            raise MaskError(
                f"PerHead has {self.heads} {masks} and the scores have {geometry.heads} query {heads}: give one mask "
                f"for each, such as PerHead([mask] * {geometry.heads}); heads that share keys have a mask each, too"
            )
        super().check(geometry)

    def keep(self, geometry: Geometry, rows: IntArray, keys: IntArray) -> BoolArray:
        of = {mask: mask.keep(geometry, rows, keys) for mask in dict.fromkeys(self.masks)}
        heads = [_head(of[mask], h, axis=-3) for h, mask in enumerate(self.masks)]
        return np.concatenate(np.broadcast_arrays(*heads), axis=-3)

    def bounds(self, geometry: Geometry, rows: slice) -> Bounds:
        of = {mask: mask.bounds(geometry, rows) for mask in dict.fromkeys(self.masks)}
        bounds = [of[mask] for mask in self.masks]
        inner = _stacked([inner for inner, _ in bounds])
        if all(inner is outer for inner, outer in bounds):
            return inner, inner
        return inner, _stacked([outer for _, outer in bounds])


def _head(values: Array, head: int, axis: int) -> Array:
    """Take what is one head's along an axis that has one place for each head, or one for all."""
    return values if values.shape[axis] == 1 else values.take([head], axis)


def _stacked(spans: list[RowSpans]) -> RowSpans:
    """Stack the heads, each from the set of its number, along the axis of heads; the width is what the widest needs."""
    taken = [RowSpans(_head(one.data, h, axis=-4), one.keys) for h, one in enumerate(spans)]
    joined = RowSpans.joined(taken, axis=-4)
    return RowSpans.from_edges(joined.edges, joined.keys)
