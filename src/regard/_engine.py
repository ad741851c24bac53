"""From a call to the native engine: what calls have in common made ready once, one native call per band of mask."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from regard import _native, _runtime
from regard._arrays import Operands
from regard._errors import UnsupportedError
from regard._plan import Asked, Plan, Problem, Tiles, make_plan, most_keys
from regard._types import FLOAT_DTYPES, Array, Geometry, IntArray, score_dtype
from regard.biases import Bias, Table
from regard.masks import Full, Mask
from regard.masks._lower import Band, lower, lower_row
from regard.masks._spans import MAX_SPANS, Ranges

# Calls that a process keeps ready, and the most bytes that the lowered mask of each takes, with where its heads begin.
MAX_PREPARED = 64
MAX_KEPT_BYTES = 1 << 16
# Heads of a plan without arrays: each takes some 60 bytes while tiles are counted, a gigabyte in all.
MAX_ASSUMED_HEADS = 1 << 24
_K = TypeVar("_K")
_T = TypeVar("_T")
_KINDS = {"full": 0, "spans": 1, "bits": 2, "bytes": 3}  # as in native/include/regard/view.h


class Form:
    """What calls have in common that differ in their keys' number, their mask and their positions, and are else alike.

    When decoding, each step has a number of keys that was never seen, and this is what it need not make anew.
    """

    __slots__ = (
        "attend", "engine", "full", "heads", "keeps_rows", "lead", "map", "most_keys", "out_shape", "problem", "rank",
    )  # fmt: skip

    def __init__(self, problem: Problem, engine: _runtime.Engine) -> None:
        g = problem.geometry
        # Without the mask, whose array may be the user's, and positions, which may be many.
        self.problem = Problem(Geometry(g.lead, g.heads, g.queries, 0, 0, g.rank), Full(), *problem[2:])
        self.engine = engine
        self.lead, self.heads, self.rank = g.lead, g.heads, g.rank  # at hand, for each step asks
        self.most_keys = most_keys(problem.total_heads, g.queries)
        self.out_shape = problem.user_shape(g.queries, problem.dv)
        self.attend = _native.Call(
            engine.target, dtype_number(problem), engine.num_threads or 0, _grid(problem), problem.group,
            engine.row_invariant,
        ).attend  # fmt: skip
        self.full = [_native.Band(_KINDS["full"], None, 0, 0, g.queries)]
        self.keeps_rows = 8 * (problem.total_heads + 2 * MAX_SPANS) <= MAX_KEPT_BYTES
        varies = problem.bias or problem.sinks
        self.map = None if varies else _native.ScoreMap(problem.scale, problem.softcap, None)

    def alike(self, ranges: Ranges) -> list[_native.Band]:
        """Return the one band of all queries that each keep the same keys; ``full`` where these are all."""
        problem = self.problem
        return [_native.Band.alike(ranges, problem.total_heads, 0, problem.geometry.queries)]


class Prepared:
    """A problem made ready to run: it holds no array of a call, and serves all calls whose problems are equal.

    Where arrays lie in memory is read from them at each run; so are bias and sinks. A small mask is lowered once and
    kept, a large one each time, band by band.
    """

    __slots__ = ("_form", "_kept", "_plan", "geometry", "mask", "out_shape")

    def __init__(self, form: Form, mask: Mask, geometry: Geometry) -> None:
        self._form, self.mask, self.geometry = form, mask, geometry
        self.out_shape = form.out_shape
        self._plan: Plan | None = None
        # A mask that is one row, as in most steps of decoding, needs no `Band`.
        ranges = lower_row(mask, geometry, 0, geometry.queries) if form.keeps_rows else None
        self._kept = None if ranges is None else form.full if ranges == (0, geometry.keys) else form.alike(ranges)

    @property
    def problem(self) -> Problem:
        """What is computed."""
        parts = self.geometry, self.mask, *self._form.problem[2:]
        return tuple.__new__(Problem, parts)  # as Problem(...), in half the time

    @property
    def plan(self) -> Plan:
        """How it is run, in words and numbers that the run has no use for: made when they are first asked for."""
        engine = self._form.engine
        if self._plan is None or (engine.num_threads is None and self._plan.threads != _runtime.processors()):
            self._plan = make_plan(self.problem, engine)
        return self._plan

    def run(
        self,
        operands: Operands,
        out: Array,
        state: Array | None = None,
        row_max: Array | None = None,
        row_sum: Array | None = None,
        lse: Array | None = None,
    ) -> None:
        """Fill ``out``, of the query's dtype, and what else is given, of the dtype of the scores.

        ``state`` is the output before any sink; the row statistics are contiguous ``(..., heads, Sq)``.
        """
        q, k, v, attend = operands.query, operands.key, operands.value, self._form.attend
        map_ = self._form.map or score_map(self.problem, operands)
        try:
            for band in self._kept or self._lower():
                attend(q, k, v, out, state, row_max, row_sum, lse, band, map_)
        except MemoryError as error:
            raise out_of_memory(error, self.plan) from None

    def _lower(self) -> Iterator[_native.Band]:
        bands, size, problem = [], 0, self.problem
        for band in lower(problem.mask, problem.geometry):
            native = native_band(band, problem)
            if band.kind != "full":
                size += 8 * problem.total_heads + (8 * len(band.ranges) if band.data is None else band.data.nbytes)
            if size <= MAX_KEPT_BYTES:
                bands.append(native)
            yield native
        if size <= MAX_KEPT_BYTES:
            self._kept = bands


def out_of_memory(error: MemoryError, plan: Plan) -> MemoryError:
    """Say what the native engine wanted, which tells that it got none and no more; NumPy's own errors say it."""
    if str(error) != "std::bad_alloc":
        return error
    p = plan.problem
    return MemoryError(
        f"a thread wants {plan.scratch_bytes:,} bytes of scratch at D = {p.d} and Dv = {p.dv}, {plan.threads} at most: "
        "use fewer by rg.config(num_threads=1), or free memory"
    )


def prepare(asked: Asked, bias: Bias | None) -> Prepared:
    """Check a call and make it ready for the target and the threads in force, once for equal ones that may be kept."""
    engine = _runtime.settings().engine
    name, lasting = (engine, asked), asked.lasting
    call = _prepared.get(name) if lasting else None
    if call is None:
        kind = engine, asked.form
        form = _forms.get(kind) or _keep(_forms, kind, Form(asked.problem(), engine))
        geometry = asked.geometry_like(form.lead, form.heads, form.rank, form.most_keys)
        call = Prepared(form, asked.mask, geometry)
        if lasting:
            _keep(_prepared, name, call)
    if bias is not None:
        bias.check(call.geometry)
    return call


# Each step of a dict is whole, whatever other threads do and wherever a fork comes.
_prepared: dict[tuple[_runtime.Engine, Asked], Prepared] = {}
_forms: dict[tuple[_runtime.Engine, tuple[Any, ...]], Form] = {}


def _keep(kept: dict[_K, _T], name: _K, made: _T) -> _T:
    if len(kept) >= MAX_PREPARED:
        kept.clear()  # to know at each hit which one is used least would cost more than to make them again
    kept[name] = made
    return made


def count_tiles(plan: Plan, bias: Bias | None, kv_heads: tuple[IntArray, IntArray]) -> Tiles:
    """Count what the kernel does with each tile, by the kernel's own rule; no array is read.

    ``kv_heads`` tells where the heads of key and value begin: those that share them are cut into blocks together.
    """
    problem = plan.problem
    g = problem.geometry
    terms = [] if bias is None else bias.lower(g, score_dtype(problem.dtype))
    bias_bytes = sum(term.values.nbytes for term in terms if isinstance(term, Table))
    key, value = (_native.View(offsets, offsets, 0, 0) for offsets in kv_heads)
    kernel, size = (plan.target, dtype_number(problem), plan.threads), sizes(problem)
    counts, mask_bytes, chunk_bytes = np.zeros(3, np.int64), 0, 0
    for band in lower(problem.mask, g):
        native = native_band(band, problem)
        question = _native.Question(*kernel, key, value, size, native)
        counts += question.count_tiles()
        chunk_bytes = max(chunk_bytes, question.chunk_bytes())
        if band.data is not None and band.kind != "bytes":  # those are the user's own
            mask_bytes = max(mask_bytes, band.data.nbytes)
    visited, partial, skipped = (int(n) for n in counts)
    return Tiles(visited, partial, skipped, mask_bytes, bias_bytes, chunk_bytes)


def kv_heads_of(operands: Operands, problem: Problem) -> tuple[IntArray, IntArray]:
    """Where the heads of key and value begin in memory."""
    key, value = (head_offsets(array, problem, problem.group) for array in (operands.key, operands.value))
    return key, value


def kv_heads_assumed(problem: Problem) -> tuple[IntArray, IntArray]:
    """Where the heads of key and value would begin if no two of them shared memory.

    Raises
    ------
    UnsupportedError
        More heads than memory is spent on where there may be no arrays.
    """
    if problem.total_heads > MAX_ASSUMED_HEADS:
        raise UnsupportedError(
            f"the scores {problem.geometry.user_shape} have {problem.total_heads:,} heads of all batch entries, and a "
            f"plan, which looks at each, takes up to {MAX_ASSUMED_HEADS:,}: ask for fewer heads or batch entries"
        )
    key, value = (_place_heads(shape, _dense_strides(shape), problem, problem.group) for shape in problem.kv_leads)
    return key, value


def _dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


@lru_cache(maxsize=16)
def _number(dtype: np.dtype[Any]) -> int:
    """Native number of a dtype."""
    return FLOAT_DTYPES.index(dtype.name)


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
            if isinstance(term, Table):
                map_.add_bias(
                    _native.View.along(term.values, _grid(problem), term.starts, heads), _number(term.values.dtype)
                )
            else:
                map_.add_bias(overlay(term, problem, heads), _number(term.dtype))
    return map_


def view(array: Array, heads: IntArray, writable: bool = False) -> _native.View:
    """Native view of an array whose rows and columns are its last two axes."""
    return _native.View(array, heads, array.strides[-2], array.strides[-1], writable)


def overlay(array: Array, problem: Problem, heads: IntArray | None = None) -> _native.View:
    """Native view of an array laid over the scores: an axis of size 1 serves all of its rows, or all of its keys."""
    return _native.View.over(array, _grid(problem), heads)


def head_offsets(array: Array, problem: Problem, group: int = 1) -> IntArray:
    """Byte offset of each head of ``array``, whose last two axes are row and column."""
    return _place_heads(array.shape[:-2], array.strides[:-2], problem, group)


def _place_heads(shape: tuple[int, ...], strides: tuple[int, ...], problem: Problem, group: int) -> IntArray:
    """Return offsets in C order over ``(*lead, heads)``: 0 along broadcast axes, groups repeated."""
    return np.frombuffer(_native.place_heads(shape, strides, _grid(problem), group), np.int64)


def _grid(problem: Problem) -> tuple[int, ...]:
    return (*problem.geometry.lead, problem.geometry.heads)


def native_band(band: Band, problem: Problem, heads: IntArray | None = None) -> _native.Band:
    """Native form of a band, for all heads or for the numbered ones."""
    rows, data, width = band.rows, band.data, 0
    if band.kind == "row":
        return _native.Band.alike(
            band.ranges, problem.total_heads if heads is None else len(heads), rows.start, rows.stop
        )
    if data is None:
        return _native.Band(_KINDS[band.kind], None, 0, rows.start, rows.stop)
    if band.kind == "spans":
        width = data.shape[-2]
        data = data.reshape(*data.shape[:-2], 2 * width)
    table = overlay(data, problem, heads)
    return _native.Band(_KINDS[band.kind], table, width, rows.start, rows.stop)
