"""From a plan to the native engine: views of the user's arrays, and one call per band of lowered mask."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from regard import _native
from regard._plan import Plan, Problem, Tiles
from regard._types import Array, IntArray
from regard.masks._lower import BAND_ROWS, Band, lower

_KINDS = {"full": 0, "spans": 1, "bits": 2, "bytes": 3}  # as in native/include/regard/view.h


@lru_cache(maxsize=256)
def _head_offsets(
    shape: tuple[int, ...], strides: tuple[int, ...], lead: tuple[int, ...], heads: int, group: int
) -> IntArray:
    """Byte offset of each head, C order over ``(*lead, heads)``: 0 along broadcast axes, groups repeated.

    ``shape`` and ``strides`` are those of the array's leading and head axes.
    """
    full = (*lead, heads)
    offsets = np.zeros(full, np.int64)
    for back, (size, stride) in enumerate(zip(reversed(shape), reversed(strides), strict=True), start=1):
        if size == 1:
            continue
        index = np.arange(full[-back]) // (group if back == 1 else 1)
        offsets += (index * stride).reshape(-1, *(1,) * (back - 1))
    offsets = offsets.ravel()
    offsets.flags.writeable = False
    return offsets


def head_offsets(array: Array, problem: Problem, group: int = 1) -> IntArray:
    """Offsets of ``array``'s heads, its last two axes being row and column."""
    g = problem.geometry
    return _head_offsets(array.shape[:-2], array.strides[:-2], g.lead, g.heads, group)


def view(array: Array, heads: IntArray, writable: bool = False) -> _native.View:
    """Native view of an array whose rows and columns are its last two axes."""
    return _native.View(array, heads, array.strides[-2], array.strides[-1], writable)


def native_band(band: Band, problem: Problem, heads: Array | None = None) -> _native.Band:
    """Native form of a band, for all heads or for the numbered ones."""
    if band.data is None:
        return _native.Band(_KINDS[band.kind], None, 0, band.rows.start, band.rows.stop)
    g, data, width = problem.geometry, band.data, 0
    if band.kind == "spans":
        data, width = data.reshape(*data.shape[:-2], -1), data.shape[-2]
    offsets = _head_offsets(data.shape[:-2], data.strides[:-2], g.lead, g.heads, 1)
    # An axis of size 1 serves all rows, or all keys.
    row, col = (0 if size == 1 else stride for size, stride in zip(data.shape[-2:], data.strides[-2:], strict=True))
    table = _native.View(data, offsets if heads is None else offsets[heads], row, col)
    return _native.Band(_KINDS[band.kind], table, width, band.rows.start, band.rows.stop)


def sizes(problem: Problem, heads: int | None = None) -> _native.Sizes:
    """Native sizes of a problem, or of ``heads`` of its heads."""
    g = problem.geometry
    return _native.Sizes(problem.total_heads if heads is None else heads, g.queries, g.keys, problem.d, problem.dv)


def run(
    plan: Plan, query: Array, key: Array, value: Array, out: Array, stats: tuple[Array, Array, Array] | None
) -> None:
    """Fill ``out`` and, where asked, ``stats``: the row maxima, sums and logsumexps."""
    problem = plan.problem
    q = view(query, head_offsets(query, problem))
    k = view(key, head_offsets(key, problem, problem.group))
    v = view(value, head_offsets(value, problem, problem.group))
    o = view(out, head_offsets(out, problem), writable=True)
    row_max, row_sum, lse = stats or (None, None, None)
    for band in _bands(problem):
        _native.attend(
            plan.target, plan.threads, q, k, v, o, row_max, row_sum, lse, sizes(problem), band, problem.scale
        )


def _bands(problem: Problem) -> Iterable[_native.Band]:
    """Lowered mask; a small one is lowered once and kept, a large one is lowered band by band as it is used."""
    if problem.mask.cacheable and problem.geometry.queries <= BAND_ROWS:
        return _kept_bands(problem)
    return (native_band(band, problem) for band in lower(problem.mask, problem.geometry))


@lru_cache(maxsize=64)
def _kept_bands(problem: Problem) -> tuple[_native.Band, ...]:
    return tuple(native_band(band, problem) for band in lower(problem.mask, problem.geometry))


def count_tiles(plan: Plan) -> Tiles:
    """Count what the kernel would do with each tile, by the kernel's own rule; no array is read."""
    problem = plan.problem
    # Which heads share keys decides how rows are cut into blocks: number the kv heads.
    owner = (np.arange(problem.total_heads) // problem.group).astype(np.int64)
    key = _native.View(owner, owner, 0, 0)
    counts = np.zeros(3, np.int64)
    for band in _bands(problem):
        counts += _native.count_tiles(plan.target, key, sizes(problem), band)
    return Tiles(*(int(n) for n in counts))
