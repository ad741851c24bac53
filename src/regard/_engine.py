"""From a plan to the native engine: views of the user's arrays, and one call per band of lowered mask."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from regard import _native
from regard._arrays import Operands
from regard._plan import Plan, Problem, Tiles
from regard._types import FLOAT_DTYPES, Array, IntArray, score_dtype
from regard.biases import Bias, Table
from regard.masks._lower import Band, lower

# What a process keeps of lowered masks and of the places of heads: 64 and 256 entries of at most so many bytes.
MAX_KEPT_BYTES = 1 << 16
MAX_KEPT_OFFSETS = 1 << 14
_KINDS = {"full": 0, "spans": 1, "bits": 2, "bytes": 3}  # as in native/include/regard/view.h


@dataclass(frozen=True, eq=False)
class Results:
    """The arrays that a call fills: the output, and where asked the state's output and the row statistics.

    ``out`` has the query's dtype, the others that of the scores; statistics are contiguous ``(..., heads, Sq)``.
    """

    out: Array
    state: Array | None = None
    row_max: Array | None = None
    row_sum: Array | None = None
    lse: Array | None = None


def run(plan: Plan, operands: Operands, results: Results) -> None:
    """Compute what ``results`` has room for."""
    problem = plan.problem
    q = view(operands.query, head_offsets(operands.query, problem))
    k, v = map(view, (operands.key, operands.value), kv_heads_of(operands, problem))
    o = view(results.out, head_offsets(results.out, problem), writable=True)
    state = results.state
    s = None if state is None else view(state, head_offsets(state, problem), writable=True)
    dtype, count, map_ = dtype_number(problem), sizes(problem), score_map(problem, operands)
    for band in _bands(problem):
        _native.attend(
            plan.target, dtype, plan.threads, q, k, v, o, s, results.row_max, results.row_sum, results.lse,
            count, band, map_,
        )  # fmt: skip


def count_tiles(plan: Plan, bias: Bias | None, kv_heads: tuple[IntArray, IntArray]) -> Tiles:
    """Count what the kernel does with each tile, by the kernel's own rule; no array is read.

    ``kv_heads`` tells where the heads of key and value begin: those that share them are cut into blocks together.
    """
    problem = plan.problem
    g = problem.geometry
    terms = [] if bias is None else bias.lower(g, score_dtype(problem.dtype))
    bias_bytes = sum(term.values.nbytes for term in terms if isinstance(term, Table))
    key, value = (_native.View(offsets, offsets, 0, 0) for offsets in kv_heads)
    counts, mask_bytes = np.zeros(3, np.int64), 0
    for band in lower(problem.mask, g):
        counts += _native.count_tiles(
            plan.target, dtype_number(problem), key, value, sizes(problem), native_band(band, problem)
        )
        if band.data is not None and band.kind != "bytes":  # those are the user's own
            mask_bytes = max(mask_bytes, band.data.nbytes)
    visited, partial, skipped = (int(n) for n in counts)
    return Tiles(visited, partial, skipped, mask_bytes, bias_bytes)


def kv_heads_of(operands: Operands, problem: Problem) -> tuple[IntArray, IntArray]:
    """Where the heads of key and value begin in memory."""
    key, value = (head_offsets(array, problem, problem.group) for array in (operands.key, operands.value))
    return key, value


def kv_heads_assumed(problem: Problem) -> tuple[IntArray, IntArray]:
    """Where the heads of key and value would begin if no two of them shared memory."""
    g = problem.geometry
    key, value = (
        _head_offsets(shape, _dense_strides(shape), g.lead, g.heads, problem.group) for shape in problem.kv_leads
    )
    return key, value


def _dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def dtype_number(problem: Problem) -> int:
    """Native number of the inputs' dtype."""
    return FLOAT_DTYPES.index(problem.dtype)


def sizes(problem: Problem, heads: int | None = None) -> _native.Sizes:
    """Native sizes of a problem, or of ``heads`` of its heads."""
    g = problem.geometry
    total = problem.total_heads if heads is None else heads
    return _native.Sizes(total, g.queries, g.keys, problem.d, problem.dv)


def score_map(problem: Problem, operands: Operands, heads: IntArray | None = None) -> _native.ScoreMap:
    """Native form of scale, softcap, sinks and biases, for all heads or for the numbered ones."""
    g = problem.geometry
    sinks = operands.sinks
    if sinks is not None:
        sinks = np.broadcast_to(sinks.astype(np.float64), (*g.lead, g.heads)).ravel()
        sinks = np.ascontiguousarray(sinks if heads is None else sinks[heads])
    map_ = _native.ScoreMap(problem.scale, problem.softcap, sinks)
    if operands.bias is not None:
        for term in operands.bias.lower(g, score_dtype(problem.dtype)):
            values = term.values if isinstance(term, Table) else term
            lay = diagonals(term, heads) if isinstance(term, Table) else overlay(term, problem, heads)
            map_.add_bias(lay, FLOAT_DTYPES.index(values.dtype.name))
    return map_


def view(array: Array, heads: IntArray, writable: bool = False) -> _native.View:
    """Native view of an array whose rows and columns are its last two axes."""
    return _native.View(_exportable(array), heads, array.strides[-2], array.strides[-1], writable)


def overlay(array: Array, problem: Problem, heads: IntArray | None = None) -> _native.View:
    """Native view of an array laid over the scores: an axis of size 1 serves all of its rows, or all of its keys."""
    row, col = (0 if size == 1 else stride for size, stride in zip(array.shape[-2:], array.strides[-2:], strict=True))
    offsets = head_offsets(array, problem)
    return _native.View(_exportable(array), offsets if heads is None else offsets[heads], row, col)


def diagonals(table: Table, heads: IntArray | None = None) -> _native.View:
    """Native view of a table of distances, laid over the scores: a row down is a number back."""
    size = table.values.itemsize
    offsets = np.ascontiguousarray(table.start).ravel() * size
    return _native.View(table.values, offsets if heads is None else offsets[heads], -size, size)


def _exportable(array: Array) -> Array:
    # A buffer has no name for bfloat16; the engine is told the dtype apart.
    return array.view(np.uint16) if array.dtype.itemsize == 2 else array


def head_offsets(array: Array, problem: Problem, group: int = 1) -> IntArray:
    """Byte offset of each head of ``array``, whose last two axes are row and column."""
    g = problem.geometry
    find = _head_offsets_kept if 8 * problem.total_heads <= MAX_KEPT_OFFSETS else _head_offsets
    return find(array.shape[:-2], array.strides[:-2], g.lead, g.heads, group)


def _head_offsets(
    shape: tuple[int, ...], strides: tuple[int, ...], lead: tuple[int, ...], heads: int, group: int
) -> IntArray:
    """Return offsets in C order over ``(*lead, heads)``: 0 along broadcast axes, groups repeated."""
    full = (*lead, heads)
    offsets = np.zeros(full, np.int64)
    for back, (size, stride) in enumerate(zip(reversed(shape), reversed(strides), strict=True), start=1):
        if size == 1:
            continue
        index = np.arange(full[-back], dtype=np.int64) // (group if back == 1 else 1)
        offsets += (index * stride).reshape(-1, *(1,) * (back - 1))
    offsets = offsets.ravel()
    offsets.flags.writeable = False
    return offsets


_head_offsets_kept = lru_cache(maxsize=256)(_head_offsets)


def native_band(band: Band, problem: Problem, heads: IntArray | None = None) -> _native.Band:
    """Native form of a band, for all heads or for the numbered ones."""
    if band.data is None:
        return _native.Band(_KINDS[band.kind], None, 0, band.rows.start, band.rows.stop)
    data, width = band.data, 0
    if band.kind == "spans":
        width = data.shape[-2]
        data = data.reshape(*data.shape[:-2], 2 * width)
    table = overlay(data, problem, heads)
    return _native.Band(_KINDS[band.kind], table, width, band.rows.start, band.rows.stop)


class _Bands:
    """The lowered mask of a problem: a small one is lowered once and kept, a large one each time, band by band."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._kept: tuple[_native.Band, ...] | None = None

    def __iter__(self) -> Iterator[_native.Band]:
        return self._lower() if self._kept is None else iter(self._kept)

    def _lower(self) -> Iterator[_native.Band]:
        bands, size = [], 0
        for band in lower(self._problem.mask, self._problem.geometry):
            native = native_band(band, self._problem)
            size += 0 if band.data is None else band.data.nbytes
            if size <= MAX_KEPT_BYTES:
                bands.append(native)
            yield native
        if size <= MAX_KEPT_BYTES:
            self._kept = tuple(bands)


_known_bands = lru_cache(maxsize=64)(_Bands)


def _bands(problem: Problem) -> Iterable[_native.Band]:
    """Bands of the mask; those of equal problems are the same where equal masks keep equal keys."""
    return _known_bands(problem) if problem.mask.cacheable else _Bands(problem)
