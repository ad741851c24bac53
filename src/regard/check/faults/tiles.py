"""Faults of tiling and of the online softmax: invisible while all keys fit into one tile."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from regard._types import Array, BoolArray
from regard.check.answers._fault import Group, Steps
from regard.check.answers._oracle import RIGHT, distance

GROUP = Group(
    "tiles",
    "Tests with short sequences cannot see it: the result is wrong only when there are more keys than one tile holds.",
)
# Tile sizes that are tried; the report says which one fits.
SIZES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128)
RESCALE = "when the maximum rises by d, multiply both the running sum and the running output by exp(-d)"
CURRENT = "keep the running maximum: m = max(m, maximum of the tile)"


def _sized(fold: Any, sizes: tuple[int, ...] = SIZES) -> dict[str, Steps]:
    """One variant per tile size, each replacing softmax and weighted sum by a fold over tiles."""
    return {f"tiles of {size} keys": _steps(fold, size) for size in sizes}


def _steps(fold: Any, size: int) -> Steps:
    """Scores stand in for weights until the fold: the other steps are as they were."""

    def combine(m: Any, case: Any, s: Array, v: Array, keep: BoolArray) -> Array:
        if s.shape[-1] <= size or case.dropout is not None:
            return RIGHT.combine(case, RIGHT.drop(case, RIGHT.weights(case, s, keep)), v, keep)
        return np.asarray(fold(s, np.where(np.isfinite(v), v, 0), size))

    return {"combine": combine, "weights": lambda m, case, s, keep: s, "drop": lambda m, case, s: s}


def _tiles(s: Array, v: Array, size: int) -> Iterator[tuple[Array, Array]]:
    for first in range(0, s.shape[-1], size):
        yield s[..., first : first + size], v[..., first : first + size, :]


def _online(*, of_sum: Any, of_output: Any, running: bool = True) -> Any:
    """Fold tiles online; what the old sum and output are multiplied by are functions of exp(m - m')."""

    def fold(s: Array, v: Array, size: int) -> Array:
        m = np.full((*s.shape[:-1], 1), -np.inf)
        l, o = np.zeros(m.shape), np.zeros((*s.shape[:-1], v.shape[-1]))  # noqa: E741
        for part, values in _tiles(s, v, size):
            peak = part.max(axis=-1, keepdims=True)
            new = np.maximum(m, peak) if running else peak
            base = np.where(np.isneginf(new), 0, new)
            alpha, e = np.exp(m - base), np.exp(part - base)
            l = np.where(np.isneginf(m), 0, l * of_sum(alpha)) + e.sum(axis=-1, keepdims=True)  # noqa: E741
            o = np.where(np.isneginf(m), 0, o * of_output(alpha)) + e @ values
            m = new
        return np.where(l == 0, 0, o / l)

    return fold


def _same(alpha: Array) -> Array:
    return alpha


def _nothing(alpha: Array) -> Array:
    return np.ones_like(alpha)


def _inverse(alpha: Array) -> Array:
    return np.asarray(1 / alpha)


def _softmax_times(s: Array, v: Array) -> Array:
    peak = s.max(axis=-1, keepdims=True)
    e = np.exp(s - np.where(np.isneginf(peak), 0, peak))
    total = e.sum(axis=-1, keepdims=True)
    return np.asarray(e @ v / np.where(total == 0, 1, total))


def _only_last(s: Array, v: Array, size: int) -> Array:
    return [_softmax_times(*tile) for tile in _tiles(s, v, size)][-1]


def _mean_of_tiles(weighted: bool) -> Any:
    def fold(s: Array, v: Array, size: int) -> Array:
        outs = [(_softmax_times(*tile), tile[0].shape[-1]) for tile in _tiles(s, v, size)]
        sizes = [n if weighted else 1 for _, n in outs]
        return np.asarray(sum(o * n for (o, _), n in zip(outs, sizes, strict=True)) / sum(sizes))

    return fold


def _whole_tiles(s: Array, v: Array, size: int) -> Array:
    kept = s.shape[-1] // size * size
    return _softmax_times(s[..., :kept], v[..., :kept, :])


def _zero_keys(s: Array, v: Array, size: int) -> Array:
    more = -s.shape[-1] % size
    zeros = np.zeros((*s.shape[:-1], more)), np.zeros((*v.shape[:-2], more, v.shape[-1]))
    return _softmax_times(np.concatenate([s, zeros[0]], axis=-1), np.concatenate([v, zeros[1]], axis=-2))


def _merged(weight: Any) -> Any:
    """Attend to each part of the keys alone, and merge the outputs by a function of their logsumexps."""

    def fold(s: Array, v: Array, parts: list[slice]) -> Array:
        outs, sums = [], []
        for part in parts:
            outs.append(_softmax_times(s[..., part], v[..., part, :]))
            peak = s[..., part].max(axis=-1, keepdims=True)
            base = np.where(np.isneginf(peak), 0, peak)
            sums.append(base + np.log(np.exp(s[..., part] - base).sum(axis=-1, keepdims=True)))
        w = [weight(x) for x in sums]
        top = np.max(w, axis=0)
        e = [np.exp(x - np.where(np.isneginf(top), 0, top)) for x in w]
        total = sum(e)
        return np.asarray(sum(x * o for x, o in zip(e, outs, strict=True)) / np.where(total == 0, 1, total))

    return fold


def _splits(weight: Any) -> dict[str, Steps]:
    """Merge by a function in place of the logsumexp; so many parts, or parts of so many keys."""
    fold = _merged(weight)

    def parts_of(n: int, count: int) -> list[slice]:
        ends = [0, *np.cumsum([len(x) for x in np.array_split(np.arange(n), min(count, max(n, 1)))])]
        return [slice(a, b) for a, b in pairwise(ends)]

    def cuts(n: int, size: int) -> list[slice]:
        return [slice(a, a + size) for a in range(0, n, size)]

    counted = {
        f"{count} parts": _steps(lambda s, v, _, count=count: fold(s, v, parts_of(s.shape[-1], count)), 1)
        for count in (2, 4, 8)
    }
    halves = _steps(lambda s, v, _: fold(s, v, [slice(0, s.shape[-1] // 2), slice(s.shape[-1] // 2, None)]), 1)
    return (
        counted
        | {"2 parts, the second longer": halves}
        | {
            f"parts of {size} keys": _steps(lambda s, v, size: fold(s, v, cuts(s.shape[-1], size)), size)
            for size in (16, 32, 64, 128)
        }
    )


def _diagonal(seen: bool) -> dict[str, Steps]:
    """Square tiles over queries and keys, of which those on the diagonal are wholly seen, or not at all."""

    def causal(m: Any, case: Any, queries: int, keys: int, size: int) -> BoolArray:
        behind = -distance(case, queries, keys)
        here = (behind + np.arange(keys)) // size == np.arange(keys) // size
        return np.asarray((behind >= 0) | here if seen else (behind >= 0) & ~here)

    return {f"tiles of {n}": {"causal": lambda m, case, q, k, n=n: causal(m, case, q, k, n)} for n in SIZES[3:]}


GROUP.add(
    "DIAG_TILE_SKIPPED",
    "with causal the tile on the diagonal is left out: rows lose their last keys, and the first rows have none",
    "the loop over key tiles ends after the tile of the query's own position, not before it",
    _diagonal(False),
)
GROUP.add(
    "DIAG_TILE_UNMASKED",
    "with causal the tile on the diagonal is not masked: queries see later keys, up to the end of their tile",
    "apply the causal rule inside each tile that the diagonal crosses",
    _diagonal(True),
)
GROUP.add(
    "SPLIT_MERGE_BASE2",
    "parts of the keys are merged by 2^lse, and lse is a natural logarithm",
    "merge by exp(lse), or keep lse in base 2 on both sides",
    _splits(lambda lse: lse * np.log(2)),
)
GROUP.add(
    "SPLIT_MERGE_SIGN",
    "parts of the keys are merged by exp(-lse): the part that matters least counts most",
    "merge by exp(lse - largest lse)",
    _splits(lambda lse: -lse),
)
GROUP.add(
    "TILE_NO_RESCALE",
    "what was summed under an old maximum is not rescaled when the maximum rises",
    RESCALE,
    _sized(_online(of_sum=_nothing, of_output=_nothing)),
)
GROUP.add(
    "TILE_L_NOT_RESCALED",
    "the running output is rescaled, the running sum is not",
    RESCALE,
    _sized(_online(of_sum=_nothing, of_output=_same)),
)
GROUP.add(
    "TILE_O_NOT_RESCALED",
    "the running sum is rescaled, the running output is not",
    RESCALE,
    _sized(_online(of_sum=_same, of_output=_nothing)),
)
GROUP.add(
    "TILE_ALPHA_INVERTED",
    "old sums are multiplied by exp(new - old), not by exp(old - new)",
    RESCALE,
    _sized(_online(of_sum=_inverse, of_output=_inverse)),
)
GROUP.add(
    "TILE_MAX_REPLACED",
    "each tile's own maximum replaces the running one: old sums overflow when the scores fall",
    CURRENT,
    _sized(_online(of_sum=_same, of_output=_same, running=False)),
)
GROUP.add(
    "TILE_LAST_ONLY",
    "the output is that of the last tile alone",
    "add each tile to the running output",
    _sized(_only_last),
)
GROUP.add(
    "TILE_NORMALISED_EACH",
    "each tile is normalised by itself and the outputs are averaged",
    "carry sum and output of all tiles, and divide once at the end",
    {
        **{f"{name}, by their keys": steps for name, steps in _sized(_mean_of_tiles(True)).items()},
        **{f"{name}, equally": steps for name, steps in _sized(_mean_of_tiles(False)).items()},
    },
)
GROUP.add(
    "TAIL_DROPPED",
    "keys after the last whole tile are left out",
    "handle the last tile, which is shorter",
    _sized(_whole_tiles, SIZES[1:]),
)
GROUP.add(
    "TAIL_ZERO_KEYS",
    "the last tile is filled up with zero keys, and these take a share of the weight",
    "set the scores of the filling to -inf",
    _sized(_zero_keys, SIZES[1:]),
)
