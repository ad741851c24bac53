"""What a function does beside computing: to its inputs, between calls, with odd shapes and memory layouts.

Each test returns None, or what it saw. The arrays are the ones that were passed, in the function's own words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from regard._types import Array

from ._candidate import Call, Candidate, quiet, refused
from ._case import Case
from ._guard import CrashError
from ._tolerance import FAIL, Judge, Refused

Test: TypeAlias = Callable[["Behaviour"], "str | None"]


@dataclass(frozen=True)
class Habit:
    """A fault of behaviour: its texts, whether it makes results wrong, and the test for it."""

    name: str
    does: str
    why: str
    mend: str
    test: Test
    edge: bool = True
    wants: frozenset[str] = frozenset()


HABITS: list[Habit] = []


def _habit(
    name: str, does: str, why: str, mend: str, *, fault: bool = False, wants: str = ""
) -> Callable[[Test], Test]:
    def enter(test: Test) -> Test:
        HABITS.append(Habit(name, does, why, mend, test, not fault, frozenset(wants.split())))
        return test

    return enter


@dataclass(frozen=True)
class Behaviour:
    """A candidate and a case that it answers."""

    candidate: Candidate
    case: Case
    supports: frozenset[str]

    def call(self, case: Case | None = None) -> Call:
        """Arguments of the first call of a case."""
        return self.candidate.calls(case or self.case)[0]

    def run(self, call: Call) -> Any:
        """Return what the function gives: the output as it is."""
        with quiet():
            return self.candidate.element_of(self.candidate.invoke(call))

    def answer(self, call: Call) -> Array:
        """Return what the function gives, as a NumPy array."""
        return self.candidate.arrays.read(self.run(call))

    def read(self, call: Call) -> list[Array]:
        """View the arrays that are passed."""
        return [self.candidate.arrays.read(x) for x in call.arrays]

    def error(self, case: Case) -> float:
        """Worst error of an answer, in bounds."""
        return Judge.of(case, self.candidate.dtype).error(self.candidate(case))


def seen_habits(behaviour: Behaviour, asks: Callable[[str], bool]) -> Iterator[tuple[Habit, str]]:
    """Every habit that a function shows, and the evidence."""
    for habit in HABITS:
        if not habit.wants <= behaviour.supports or not asks(f"habit-{habit.name}"):
            continue
        try:
            seen = habit.test(behaviour)
        except CrashError:
            continue  # a finding of its own
        except (Exception, SystemExit) as error:
            seen = f"the call raises {refused(error).message}"
        if seen:
            yield habit, seen


@_habit(
    "INPUT_MUTATED",
    "the function writes into its inputs",
    "The caller's arrays are changed: the next layer reads something else, and no test of the output sees it.",
    "work on copies: q = q * scale, not q *= scale",
    fault=True,
)
def _mutated(behaviour: Behaviour) -> str | None:
    call = behaviour.call()
    before = [x.copy() for x in behaviour.read(call)]
    behaviour.run(call)
    changed = [i for i, (a, b) in enumerate(zip(before, behaviour.read(call), strict=True)) if not _equal(a, b)]
    return f"argument {changed[0] + 1} differs after the call" if changed else None


@_habit(
    "MASK_MUTATED",
    "the function writes into its mask",
    "A mask is shared by all layers: the second one gets another.",
    "work on a copy: keep = mask & causal, not mask &= causal",
    fault=True,
    wants="mask mask_query",
)
def _mask_mutated(behaviour: Behaviour) -> str | None:
    axis = 1 if behaviour.case.layer else 2
    keep = np.ones((1, 1, behaviour.case.query.shape[axis], behaviour.case.key.shape[axis]), bool)
    keep[..., -1] = False
    causal = "causal" in behaviour.supports
    call = behaviour.call(replace(behaviour.case, mask=keep, causal=causal))
    before = behaviour.read(call)[-1].copy()
    behaviour.run(call)
    return None if _equal(before, behaviour.read(call)[-1]) else "the mask differs after the call"


@_habit(
    "OUTPUT_ALIASES_INPUT",
    "the output is memory of an input",
    "Who writes into the result, such as a residual connection in place, changes the inputs.",
    "return a new array",
    fault=True,
)
def _aliases(behaviour: Behaviour) -> str | None:
    call = behaviour.call()
    if not behaviour.candidate.arrays.writable:
        return None
    out = behaviour.answer(call)
    shared = [i for i, x in enumerate(behaviour.read(call)) if np.shares_memory(out, x)]
    return f"it shares memory with argument {shared[0] + 1}" if shared else None


@_habit(
    "OUTPUT_BUFFER_REUSED",
    "a second call overwrites the first one's result",
    "Two results are held at once wherever there are two layers.",
    "return a new array from each call",
    fault=True,
)
def _reused(behaviour: Behaviour) -> str | None:
    first = behaviour.answer(behaviour.call())
    before = first.copy()
    behaviour.run(behaviour.call(replace(behaviour.case, value=-behaviour.case.value)))
    return None if _equal(before, first) else "the first result differs after the second call"


@_habit(
    "STALE_CACHE",
    "a result depends on earlier calls",
    "Something is kept from a call of other sizes or other values: results are right in a test and wrong in a loop.",
    "key what is cached by everything that it depends on, or do not cache",
    fault=True,
    wants="attention",
)
def _stale(behaviour: Behaviour) -> str | None:
    rng, case = np.random.default_rng(31), behaviour.case
    queries, keys = case.query.shape[2], case.key.shape[2]
    errors = []
    for n in (1, 3, 1):
        one = replace(case, key=case.key[..., n:, :] * rng.choice([-1, 1]), value=case.value[..., n:, :] + rng.random())
        if {"mask", "mask_query"} <= behaviour.supports:
            keep = rng.random((1, 1, queries, keys - n)) < 0.5
            keep[..., 0] = True
            one = replace(one, mask=keep)
        errors.append(behaviour.error(one))
    if max(errors) <= FAIL or errors[0] > FAIL:
        return None
    return f"wrong when called with {keys - 1}, {keys - 3}, then {keys - 1} keys, of other values"


@_habit(
    "NONDETERMINISTIC",
    "the same call gives different results",
    "Failures cannot be repeated; without dropout nothing should be drawn.",
    "draw random numbers only where dropout is asked for; sum in a fixed order",
    fault=True,
)
def _nondeterministic(behaviour: Behaviour) -> str | None:
    first, second = (behaviour.answer(behaviour.call()).copy() for _ in range(2))
    return None if _equal(first, second) else f"two calls differ by {_largest(first - second):.3g}"


@_habit(
    "STRIDES_IGNORED",
    "an array that is a view is read as if it were contiguous",
    "Transposed and sliced arrays are what head splitting gives.",
    "use the strides, or np.ascontiguousarray",
    fault=True,
)
def _strides(behaviour: Behaviour) -> str | None:
    want = behaviour.answer(behaviour.call()).astype(float)
    rounding = 1e-3 if behaviour.candidate.dtype in ("float32", "float64") else 0.1
    plain = behaviour.call().arguments
    views = [behaviour.candidate.arrays.views(x) if hasattr(x, "shape") else {} for x in plain]
    for named in views[0]:
        call = replace(behaviour.call(), arguments=[v.get(named, x) for v, x in zip(views, plain, strict=True)])
        got = behaviour.answer(call).astype(float)
        if got.shape != want.shape or _largest(got - want) > rounding * _largest(want):
            return f"with {named} the result is another"
    return None


@_habit(
    "READ_ONLY_REFUSED",
    "arrays that cannot be written are refused, or written to",
    "Memory-mapped weights and broadcast views are read-only.",
    "do not write into inputs",
)
def _read_only(behaviour: Behaviour) -> str | None:
    call = behaviour.call()
    for x in call.arrays:
        if isinstance(x, np.ndarray):
            x.setflags(write=False)
    behaviour.run(call)
    return None


@_habit(
    "OUT_DTYPE",
    "the output has another dtype than the inputs",
    "float32 becomes float64 down the whole model, twice as large and slow; or digits are lost.",
    "return result.astype(value.dtype)",
)
def _dtype(behaviour: Behaviour) -> str | None:
    call = behaviour.call()
    out, given = behaviour.answer(call), behaviour.read(call)[0].dtype
    return None if out.dtype == given else f"{given} in, {out.dtype} out"


@_habit(
    "DTYPE_DOWNCAST",
    "float64 is computed in lower precision",
    "Gradient checks and scientific users need the digits that they pass.",
    "compute in the dtype of the inputs",
)
def _downcast(behaviour: Behaviour) -> str | None:
    wide = replace(behaviour, candidate=replace(behaviour.candidate, dtype="float64"))
    case, usual = behaviour.case, behaviour.error(behaviour.case)
    got = wide.candidate(case)
    judge = Judge.of(case, "float64")
    if usual > FAIL or isinstance(got, Refused) or judge.error(got) <= 1e4:
        return None
    return f"float64 inputs have an error of {_largest(got - judge.right):.1e}"


@_habit(
    "ONE_KEY_WRONG",
    "with one key the output is not that key's value",
    "The first step of decoding has one key.",
    "the softmax of one score is 1: look for a squeeze or a special case",
    fault=True,
    wants="attention",
)
def _one_key(behaviour: Behaviour) -> str | None:
    case = behaviour.case
    one = replace(case, query=case.query[..., :1, :], key=case.key[..., :1, :], value=case.value[..., :1, :])
    got = behaviour.candidate(one)
    if isinstance(got, Refused):
        return f"it refuses: {got.message}"
    return (
        None if Judge.of(one, behaviour.candidate.dtype).passes(got) else f"{_few(got)} in place of {_few(one.value)}"
    )


@_habit(
    "EMPTY_SHAPE_CRASH",
    "no keys, or no queries, or an empty batch, is refused or answered wrongly",
    "The last piece of a sequence that is cut up, or of a batch, may be empty.",
    "give the maximum an initial value: scores.max(axis=-1, initial=-np.inf); without keys the output is 0",
    wants="attention",
)
def _empty(behaviour: Behaviour) -> str | None:
    case = behaviour.case
    cases = {
        "no keys": replace(case, key=case.key[..., :0, :], value=case.value[..., :0, :]),
        "no queries": replace(case, query=case.query[..., :0, :]),
        "no batch": replace(case, query=case.query[:0], key=case.key[:0], value=case.value[:0]),
    }
    for name, one in cases.items():
        if (name == "no batch" and "b" not in behaviour.candidate.words.layout) or (case.causal and name != "no batch"):
            continue
        got = behaviour.candidate(one)
        if isinstance(got, Refused):
            return f"{name}: {got.message}"
        if got.shape != (*one.query.shape[:3], one.value.shape[3]) or got.any():
            return f"{name}: shape {got.shape}, or not 0"
    return None


@_habit(
    "SILENT_BROADCAST",
    "values with another number of positions than the keys are accepted",
    "A wrong cache length is not noticed: the result has the right shape.",
    "check that key and value have the same number of positions",
    wants="attention",
)
def _broadcast(behaviour: Behaviour) -> str | None:
    case = behaviour.case
    for count in (1, case.key.shape[2] - 1):
        got = behaviour.candidate(replace(case, value=case.value[..., :count, :]))
        if not isinstance(got, Refused):
            return f"{case.key.shape[2]} keys with {count} values are answered"
    return None


@_habit(
    "INT_INPUT_TRUNCATED",
    "integers give integers: the output is cut off",
    "Small examples are written with integers.",
    "convert to a float dtype first, or refuse integers",
)
def _integers(behaviour: Behaviour) -> str | None:
    call = behaviour.call()
    arrays = behaviour.candidate.arrays
    whole = [
        arrays.send(np.round(3 * arrays.read(x)).astype(int)) if hasattr(x, "shape") else x for x in call.arguments
    ]
    try:
        out = behaviour.answer(replace(call, arguments=whole))
    except Exception:
        return None  # refusing is right
    return f"integers in, {out.dtype} out" if out.dtype.kind in "iu" else None


SIZES = ((1, 2, 1), (2, 3, 7), (9, 33, 16), (3, 65, 40), (70, 67, 72), (33, 200, 5), (4, 300, 130))


def wrong_size(behaviour: Behaviour) -> Case | None:
    """Find an odd or larger size that is answered wrongly, by a function that is right at a small one."""
    rng = np.random.default_rng(29)
    if behaviour.error(behaviour.case) > FAIL:
        return None
    for queries, keys, width in SIZES:
        wide = 3 if "value_width" in behaviour.supports else width
        shapes = (2, 3, queries, width), (2, 3, keys, width), (2, 3, keys, wide)
        q, k, v = (rng.standard_normal(shape) for shape in shapes)
        for causal in _rules(behaviour, queries <= keys):
            case = replace(behaviour.case, query=q, key=k, value=v, causal=causal).cast(behaviour.candidate.dtype)
            got = behaviour.candidate(case)
            if not isinstance(got, Refused) and not Judge.of(case, behaviour.candidate.dtype).passes(got):
                return case
    return None


def _rules(behaviour: Behaviour, no_empty_rows: bool) -> list[bool]:
    """Causal or not, as far as the function can be asked; what is right in rows without keys is asked elsewhere."""
    causal = [True] if no_empty_rows and "causal" in behaviour.supports else []
    return causal if behaviour.case.causal else [False, *causal]


def _equal(a: Array, b: Array) -> bool:
    return a.shape == b.shape and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def _largest(x: Array) -> float:
    return float(np.abs(np.where(np.isfinite(x), x, 0)).max(initial=0))


def _few(x: Array) -> str:
    return np.array2string(x.ravel()[:3], precision=4)
