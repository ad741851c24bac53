"""From a call to the native engine: what calls have in common made ready once, one native call per band of mask."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np

from regard import _native, _runtime
from regard._arrays import Operands
from regard._plan import Asked, Plan, Problem, Tiles, make_plan
from regard._types import FLOAT_DTYPES, Array, Geometry, IntArray, score_dtype
from regard.biases import Bias, Table
from regard.masks import Full
from regard.masks._lower import Band, lower

# Calls that a process keeps ready, and the most bytes that the lowered mask of each takes, with where its heads begin.
MAX_PREPARED = 64
MAX_KEPT_BYTES = 1 << 16
_K = TypeVar("_K")
_T = TypeVar("_T")
_KINDS = {"full": 0, "spans": 1, "bits": 2, "bytes": 3}  # as in native/include/regard/view.h


class Form:
    """What calls have in common that differ in their keys' number, their mask and their positions, and are else alike.

    When decoding, each step has a number of keys that was never seen, and this is what it need not make anew.
    """

    __slots__ = ("attend", "engine", "map", "out_shape", "problem")

    def __init__(self, problem: Problem, engine: _runtime.Engine) -> None:
        g = problem.geometry
        # Without the mask, whose array may be the user's, and positions, which may be many.
        self.problem = Problem(Geometry(g.lead, g.heads, g.queries, 0, 0, g.rank), Full(), *problem[2:])
        self.engine = engine
        self.out_shape = problem.user_shape(g.queries, problem.dv)
        target, _, threads = engine
        self.attend = _native.Call(target, dtype_number(problem), threads, _grid(problem), problem.group).attend
        varies = problem.bias or problem.sinks
        self.map = None if varies else _native.ScoreMap(problem.scale, problem.softcap, None)


class Prepared:
    """A problem made ready to run: it holds no array of a call, and serves all calls whose problems are equal.

    Where arrays lie in memory is read from them at each run; so are bias and sinks. A small mask is lowered once and
    kept, a large one each time, band by band.
    """

    __slots__ = ("_attend", "_engine", "_kept", "_map", "_plan", "out_shape", "problem")

    def __init__(self, form: Form, problem: Problem) -> None:
        self.problem, self.out_shape = problem, form.out_shape
        self._engine, self._attend, self._map = form.engine, form.attend, form.map
        self._kept: tuple[_native.Band, ...] | None = None
        self._plan: Plan | None = None

    @property
    def plan(self) -> Plan:
        """How it is run, in words and numbers that the run has no use for: made when they are first asked for."""
        if self._plan is None:
            self._plan = make_plan(self.problem, self._engine)
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
        q, k, v = operands.query, operands.key, operands.value
        map_ = score_map(self.problem, operands) if self._map is None else self._map
        try:
            for band in self._lower() if self._kept is None else self._kept:
                self._attend(q, k, v, out, state, row_max, row_sum, lse, band, map_)
        except MemoryError as error:
            raise out_of_memory(error, self.plan) from None

    def _lower(self) -> Iterator[_native.Band]:
        bands, size, problem = [], 0, self.problem
        for band in lower(problem.mask, problem.geometry):
            native = native_band(band, problem)
            size += 0 if band.data is None else band.data.nbytes + 8 * problem.total_heads
            if size <= MAX_KEPT_BYTES:
                bands.append(native)
            yield native
        if size <= MAX_KEPT_BYTES:
            self._kept = tuple(bands)


def out_of_memory(error: MemoryError, plan: Plan) -> MemoryError:
    """Say what the native engine wanted, which tells that it got none and no more; NumPy's own errors say it."""
    if str(error) != "std::bad_alloc":
        return error
    p = plan.problem
    return MemoryError(
        f"a thread wants {plan.scratch_bytes:,} bytes of scratch at D = {p.d} and Dv = {p.dv}, {plan.threads} at most, "
        "and what they share up to 16 MiB: use fewer by rg.config(num_threads=1), or free memory"
    )


def prepare(asked: Asked, bias: Bias | None) -> Prepared:
    """Check a call and make it ready for the target and the threads in force, once for equal ones that may be kept."""
    name = _runtime.engine(), asked
    call = _prepared.get(name) if asked.lasting else None
    if call is None:
        call = _made(*name)
    if bias is not None:
        bias.check(call.problem.geometry)
    return call


# Each step of a dict is whole, whatever other threads do and wherever a fork comes.
_prepared: dict[tuple[_runtime.Engine, Asked], Prepared] = {}
_forms: dict[tuple[_runtime.Engine, tuple[Any, ...]], Form] = {}


def _made(engine: _runtime.Engine, asked: Asked) -> Prepared:
    name = engine, asked.form
    form = _forms.get(name)
    if form is None:
        problem = asked.problem()
        form = _keep(_forms, name, Form(problem, engine))
    else:
        problem = asked.problem_like(form.problem)
    call = Prepared(form, problem)
    return _keep(_prepared, (engine, asked), call) if asked.lasting else call


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
    """Where the heads of key and value would begin if no two of them shared memory."""
    key, value = (_place_heads(shape, _dense_strides(shape), problem, problem.group) for shape in problem.kv_leads)
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
    return _native.View(array, heads, array.strides[-2], array.strides[-1], writable)


def overlay(array: Array, problem: Problem, heads: IntArray | None = None) -> _native.View:
    """Native view of an array laid over the scores: an axis of size 1 serves all of its rows, or all of its keys."""
    (rows, cols), (row, col) = array.shape[-2:], array.strides[-2:]
    offsets = head_offsets(array, problem)
    offsets = offsets if heads is None else offsets[heads]
    return _native.View(array, offsets, 0 if rows == 1 else row, 0 if cols == 1 else col)


def diagonals(table: Table, heads: IntArray | None = None) -> _native.View:
    """Native view of a table of distances, laid over the scores: a row down is a number back."""
    size = table.values.itemsize
    offsets = np.ascontiguousarray(table.start).ravel() * size
    return _native.View(table.values, offsets if heads is None else offsets[heads], -size, size)


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
    if band.data is None:
        return _native.Band(_KINDS[band.kind], None, 0, band.rows.start, band.rows.stop)
    data, width = band.data, 0
    if band.kind == "spans":
        width = data.shape[-2]
        data = data.reshape(*data.shape[:-2], 2 * width)
    table = overlay(data, problem, heads)
    return _native.Band(_KINDS[band.kind], table, width, band.rows.start, band.rows.stop)
