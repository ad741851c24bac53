"""A fault: a name, what it does, why it matters, how to mend it, and the oracle with its steps replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from ._oracle import Oracle

Steps: TypeAlias = Mapping[str, Callable[..., Any]]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Fault:
    """One entry of the catalogue.

    ``variants`` are the ways in which it is met, such as the size of a tile, each as replaced steps of `Oracle`.
    ``also`` names what cannot be told apart from it by any input. ``edge`` says that results are wrong only on unusual
    inputs: a row without keys, NaN behind a mask.
    """

    name: str
    group: str
    does: str
    why: str
    mend: str
    variants: Mapping[str, Steps]
    also: tuple[str, ...] = ()
    edge: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, and those that mean the same function."""
        return (self.name, *self.also)


class Group:
    """Faults of one kind, in the order in which they are written down."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why
        self.faults: list[Fault] = []

    def add(
        self,
        name: str,
        does: str,
        mend: str,
        variants: Mapping[str, Steps] | None = None,
        *,
        why: str | None = None,
        also: tuple[str, ...] = (),
        edge: bool = False,
        **steps: Callable[..., Any],
    ) -> None:
        """Add a fault by its replaced steps, or by several variants of them."""
        known = {"": steps} if variants is None else variants
        self.faults.append(Fault(name, self.name, does, why or self.why, mend, known, also, edge))


def model(*steps: Steps) -> Oracle:
    """Return the oracle with the steps of one or more faults; of two for the same step, the first counts."""
    return planted(Oracle, *steps)


def planted(oracle: type[T], *steps: Steps) -> T:
    """Return an instance of an oracle with the steps of faults, as `model`."""
    merged = {name: step for part in reversed(steps) for name, step in part.items()}
    built: T = type("Mutant", (oracle,), merged)()
    return built
