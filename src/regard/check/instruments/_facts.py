"""What is told about a function without being a fault: its bits, its memory, its loops in Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from regard.check.answers._case import Case
from regard.check.answers._tolerance import FAIL, Refused
from regard.check.candidate._candidate import refused
from regard.check.habits import Behaviour
from regard.check.habits.cost import bytes_per_pair

_ROWS = (0, 5, 18, 36)


def facts(behaviour: Behaviour, in_time: Callable[[], bool]) -> list[str]:
    """All lines; none of a function that is not asked about attention."""
    if "attention" not in behaviour.supports:
        return []
    asked = (_same_bits, _subnormal, _memory, _loops)
    return [line for ask in asked if in_time() and (line := _told(ask, behaviour))]


def _told(ask: Callable[[Behaviour], str | None], behaviour: Behaviour) -> str | None:
    """Put a question; nothing is told if the function refuses its sizes."""
    try:
        return ask(behaviour)
    except BaseException as error:
        refused(error)
        return None


def _case(behaviour: Behaviour, queries: int, keys: int, *, width: int = 16) -> Case:
    rng = np.random.default_rng(37)
    shapes = (2, 3, queries, width), (2, 3, keys, width), (2, 3, keys, width)
    q, k, v = (rng.standard_normal(shape) for shape in shapes)
    return replace(behaviour.case, query=q, key=k, value=v).cast(behaviour.candidate.dtype)


def _same_bits(behaviour: Behaviour) -> str | None:
    case, ask = _case(behaviour, 37, 37), behaviour.candidate
    whole = ask(case)
    if isinstance(whole, Refused) or whole.shape != case.query.shape or behaviour.candidate.words.always_causal:
        return None
    rows = [ask(replace(case, query=case.query[..., i : i + 1, :])) for i in _ROWS]
    alone = ask(replace(case, query=case.query[:1], key=case.key[:1], value=case.value[:1]))
    equal = sum(_is(row, whole[..., i : i + 1, :]) for i, row in zip(_ROWS, rows, strict=True))
    batch = "the same bits" if _is(alone, whole[:1]) else "other bits"
    share = f"{equal} of {len(_ROWS)}"
    return f"rows with the same bits alone as among others: {share}; an entry of the batch alone has {batch}"


def _subnormal(behaviour: Behaviour) -> str | None:
    """Say that small weights are 0: e^-95 in float32, times a value of 2^100, is 7e-12, and not 0."""
    words = behaviour.candidate.words
    is_right = behaviour.error(behaviour.case) <= FAIL
    if not is_right or behaviour.candidate.dtype != "float32" or words.always_causal or words.always_alibi:
        return None
    q, k, v = np.ones((1, 1, 1, 4)), np.zeros((1, 1, 2, 4)), np.zeros((1, 1, 2, 4))
    k[0, 0, 1, 0], v[0, 0, 1] = -190, 2.0**100
    got = behaviour.candidate(replace(behaviour.case, query=q, key=k, value=v))
    if isinstance(got, Refused) or got.any():
        return None
    return "DENORMAL_FLUSH: weights below 1e-38, which are subnormal in float32, are 0; harmless"


def _is(a: Any, b: Any) -> bool:
    return not isinstance(a, Refused) and bool(np.array_equal(a, b, equal_nan=True))


def _memory(behaviour: Behaviour) -> str | None:
    """Of NumPy's functions only: its allocations are counted, not measured."""
    if behaviour.candidate.arrays.name != "numpy":
        return None
    size = bytes_per_pair(behaviour)
    if size is None:
        return None
    if size < 0.5:
        return "memory: NumPy's arrays grow with queries plus keys"
    return f"memory: NumPy's arrays grow with queries times keys, {size:.1f} bytes for each pair"


def _loops(behaviour: Behaviour) -> str | None:
    counts = []
    for queries in (8, 40):
        call = behaviour.call(_case(behaviour, queries, 40))
        try:
            with _counted() as count:
                behaviour.run(call)
        except Exception:
            return None
        counts.append(count[0])
    per_query = (counts[1] - counts[0]) / 32
    return f"Python: {per_query:.0f} more calls for each query: a loop over queries" if per_query >= 1 else None


@contextmanager
def _counted() -> Iterator[list[int]]:
    """Count calls that Python makes, of functions in Python and in C."""
    count, before = [0], sys.getprofile()

    def called(frame: Any, event: str, arg: Any) -> None:
        count[0] += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        yield count
    finally:
        sys.setprofile(before)
