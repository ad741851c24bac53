"""A habit of a function: its texts and the test for it; and what tests are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case
from regard.check.answers._tolerance import Judge
from regard.check.candidate._candidate import Call, Candidate, quiet, refused

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


def habit(name: str, does: str, why: str, mend: str, *, fault: bool = False, wants: str = "") -> Callable[[Test], Test]:
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
        except BaseException as error:
            refused(error)  # which is a finding elsewhere, and no sign of a habit
            continue
        if seen:
            yield habit, seen


def same(a: Array, b: Array) -> bool:
    """Whether two arrays have the same bits."""
    return a.shape == b.shape and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def largest(x: Array) -> float:
    """Return the largest size of a finite element."""
    return float(np.abs(np.where(np.isfinite(x), x, 0)).max(initial=0))
