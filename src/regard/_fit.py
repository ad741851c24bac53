"""Arrays that are laid over the scores, masks and biases: which shapes fit, and what to write where one does not."""

from __future__ import annotations

from itertools import combinations

from regard._types import Geometry


def misfit(what: str, shape: tuple[int, ...], geometry: Geometry) -> str | None:
    """Say why an array of ``shape`` cannot be laid over the scores, with the indexing to write; None if it can.

    It can if it has shape ``(Sq, Skv)`` or the rank of the scores, each axis 1 or full.
    """
    full = geometry.shape
    if len(shape) in (2, len(full)) and _fits(shape, full[-len(shape) :]):
        return None
    message = (
        f"the {what} has shape {shape} and the scores have shape {geometry.user_shape}; a {what} is "
        f"(Sq, Skv) = ({geometry.queries}, {geometry.keys}) or has the rank of the scores, each axis 1 or full"
    )
    ways = _indexings(what, shape, geometry.user_shape)
    return f"{message}: write {' or '.join(ways)}" if ways else message


def _fits(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    return all(size in (1, full) for size, full in zip(shape, target, strict=True))


def _indexings(what: str, shape: tuple[int, ...], target: tuple[int, ...]) -> list[str]:
    """List the ways to give an array its missing axes so that it fits, such as ``mask[:, None, None, :]``."""
    ways: dict[tuple[int, ...], str] = {}
    for kept in combinations(range(len(target)), len(shape)):
        if _fits(shape, tuple(target[axis] for axis in kept)):
            sizes = iter(shape)
            full = tuple(next(sizes) if axis in kept else 1 for axis in range(len(target)))
            index = ", ".join(":" if axis in kept else "None" for axis in range(len(target)))
            ways.setdefault(full, f"{what}[{index.removesuffix(', :, :')}]")
    return list(ways.values())
