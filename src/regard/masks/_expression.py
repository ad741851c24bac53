"""What the engine and the reference ask of a mask, whatever it is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from regard._cached import cached_attribute
from regard._errors import MaskError
from regard._types import BoolArray, Geometry, IntArray

from ._spans import Ranges, RowSpans

Bounds: TypeAlias = tuple[RowSpans, RowSpans]

# What is larger is not hashed at every call, nor kept alive by a cache.
MAX_CACHED_BYTES = 1 << 16


class Expression(ABC):
    """A set of pairs of query and key, as a formula and, where there is one, in closed form."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Expression, ...]:
        """The masks that this one combines; none for a leaf."""

    @property
    def leaves(self) -> list[Expression]:
        """The masks at the ends of the expression, each once, the nearest first; itself for a leaf."""
        return list(self._leaves()) or [self]

    def _nodes(self) -> list[Expression]:
        """List itself and what it is made of, each once. A loop: a long union is deeper than calls may be."""
        found, nodes = {id(self)}, [self]
        for node in nodes:
            for part in node.parts:
                if id(part) not in found:
                    found.add(id(part))
                    nodes.append(part)
        return nodes

    def _leaves(self) -> Iterator[Expression]:
        """Give those that are not made of others, but never itself."""
        return (node for node in self._nodes()[1:] if not node.parts)

    @cached_attribute
    def positional(self) -> bool:
        """Whether the mask depends on where the queries stand among the keys."""
        return any(leaf.positional for leaf in self._leaves())

    @cached_attribute
    def ends_early(self) -> bool:
        """Whether the mask says where sequences end, which may be before the last key."""
        return any(leaf.ends_early for leaf in self._leaves())

    @property
    def held_bytes(self) -> float:
        """Size of the arrays that the mask holds, which only leaves do; infinite where what it keeps may change."""
        return sum(leaf.held_bytes for leaf in self._leaves())

    @cached_attribute
    def cacheable(self) -> bool:
        """Whether equal masks keep equal keys for good and are small, so that what was lowered may be used again."""
        return self.held_bytes <= MAX_CACHED_BYTES

    @property
    def heads(self) -> int | None:
        """How many query heads the mask is made for; None for any number."""
        # The others would ask their parts, a call deeper each.
        told = (node.heads for node in self._nodes()[1:] if type(node).heads is not Expression.heads)
        return next((heads for heads in told if heads is not None), None)

    @property
    def lead(self) -> tuple[int, ...]:
        """Leading axes of the arrays that the mask holds, broadcast; () where it is the same for any batch.

        Raises
        ------
        MaskError
            They do not broadcast.
        """
        told = {node.lead for node in self._nodes()[1:] if type(node).lead is not Expression.lead}
        try:
            return np.broadcast_shapes(*told)
        except ValueError:
            shapes = " and ".join(map(str, sorted(told)))
            raise MaskError(f"{self!r} holds arrays of the leading axes {shapes}, which do not broadcast") from None

    def check(self, geometry: Geometry) -> None:
        """Raise MaskError if what the mask holds does not fit the scores."""
        for part in self.parts:
            part.check(geometry)

    @cached_attribute
    def fits_all(self) -> bool:
        """Whether nothing in the mask has a check of its own, so that it fits any scores."""
        return all(type(node).check is Expression.check for node in self._nodes())

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
        """Write down the same set as ranges for some rows, without a look at single pairs.

        Returns
        -------
        RowSpans or None
            Leading axes ``(*lead, heads, rows)``, each 1 where nothing differs along it, whatever the rows; None
            if the mask has no closed form.
        """

    def row(self, p: int | None, keys: int) -> Ranges | None:
        """Write down in integers what every query keeps, of all heads and batch entries, all of them at position p.

        Returns
        -------
        Ranges or None
            None if heads or entries differ; if positions matter and p is None, which stands for several; or if there
            is no such form, where `spans` may still have one.
        """
        return None

    def bounds(self, geometry: Geometry, rows: slice) -> Bounds:
        """Write down ranges that are kept for sure, and ranges without which none is; one object where they agree."""
        spans = self.spans(geometry, rows)
        if spans is None:
            return RowSpans.between(geometry, 0, 0), RowSpans.between(geometry, 0, geometry.keys)
        return spans, spans

    def table(self, geometry: Geometry) -> BoolArray | None:
        """View the user's own array, if that is all there is to the mask, with all axes of the scores."""
        return None
