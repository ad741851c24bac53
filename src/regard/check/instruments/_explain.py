"""Which faults explain the answers: on the probes, and of precision on cases of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from regard.check.answers._case import Case
from regard.check.answers._fault import Steps, model
from regard.check.answers._oracle import RIGHT
from regard.check.answers._tolerance import FAIL, Judge, Outcome, Refused, outcome
from regard.check.faults.precision import HALF_MAX
from regard.check.findings._finding import Example, Finding
from regard.check.findings._replay import script
from regard.check.findings._shrink import shrink

from ._diagnose import Shown, explained
from ._dictionary import Diagnosis, Models, Search, Variant
from ._precise import Rounded, roundings

# A function whose answer to the first probe is off by more has another fault, which must be known first.
_ROUNDING = 0.1


@dataclass
class Explanation:
    """The search, first for one fault, then for roundings, then for two faults.

    ``answers`` are those to the probes of ``known``; ``another`` gives a search its time.
    """

    known: Models
    answers: Mapping[str, Outcome]
    extra: tuple[Variant, ...]
    another: Callable[[float], Callable[[], bool]]
    seconds: float

    def findings(self, shown: Shown, may_round: bool) -> tuple[list[Finding], list[Finding]]:
        """Return what explains the answers, and refusals that nothing explains."""
        search, diagnosis = self._first(self.known, self.answers, Search.simple)
        steps = tuple(v.steps for v in (diagnosis.explanations or ((),))[0])
        rounded: list[Rounded] = []
        if may_round and (steps or self._nearly_right()):
            rounded = list(roundings(shown.candidate, shown.setting.dtype, steps, shown.in_time))
        known, answers = self.known, self.answers
        if rounded and not diagnosis.explanations:
            unit = max(one.unit for one in rounded)
            known, answers, shown = known.loosened(unit), self._in_range(rounded), replace(shown, unit=unit)
            search, diagnosis = self._first(known, answers, Search.simple)
        if not diagnosis.explanations:
            search, diagnosis = self._first(known, answers, Search.pairs)
        refused = [name for name in answers if name not in search.answers]
        found = [_of_rounding(one, shown, steps) for one in rounded]
        separate = [refuses(refused, answers)] if refused else []
        return [*found, *explained(search, diagnosis, shown)], separate

    def _first(
        self, known: Models, answers: Mapping[str, Outcome], how: Callable[[Search], Diagnosis]
    ) -> tuple[Search, Diagnosis]:
        """Search with all answers; if nothing explains them, without those that are refusals."""
        search = Search(known, answers, self.another(self.seconds), self.extra)
        diagnosis = how(search)
        refused = [name for name, answer in answers.items() if isinstance(answer, Refused)]
        if refused and not diagnosis.explanations:
            answered = {name: x for name, x in answers.items() if name not in refused}
            search = Search(known, answered, self.another(self.seconds / 2), self.extra)
            diagnosis = how(search)
        return search, diagnosis

    def _nearly_right(self) -> bool:
        """Whether the first answer is off by no more than rounding explains."""
        if not self.answers:
            return False
        name, answer = next(iter(self.answers.items()))
        right = self.known.judges[name].right
        same = not isinstance(answer, Refused) and answer.shape == right.shape
        return bool(same and np.all(np.abs(answer - right) < _ROUNDING * np.abs(right).max()))

    def _in_range(self, rounded: list[Rounded]) -> dict[str, Outcome]:
        """Leave out what overflows in float16: it is explained, and has no number to compare."""
        if not any(one.has_small_range for one in rounded):
            return dict(self.answers)
        return {name: answer for name, answer in self.answers.items() if not _overflows(self.known.cases[name])}


def _overflows(case: Case) -> bool:
    q, k, v = (np.nan_to_num(np.abs(x), posinf=0) for x in (case.query, case.key, case.value))
    k, _ = RIGHT.share(case, q, k, v)
    return bool((q @ k.swapaxes(-1, -2)).max(initial=0) > HALF_MAX)


# Seconds for the smallest example of a rounding: its cases are long.
_SHRINK_S = 0.7


def _of_rounding(rounded: Rounded, shown: Shown, steps: tuple[Steps, ...]) -> Finding:
    case, dtype = rounded.site.case, shown.setting.dtype

    in_time = shown.in_time.another(_SHRINK_S)

    def shows(less: Case) -> bool:
        if not in_time():
            return False
        less = less.cast(dtype)
        judge = Judge.of(less, dtype)
        return judge.error(shown.candidate(less)) > FAIL and judge.error(outcome(whole, less)) > FAIL

    whole = model(rounded.steps, *steps)
    case = shrink(case, shows, equal_widths=True).cast(dtype) if rounded.steps else case
    example = Example(case, Judge.of(case, dtype).right, shown.candidate(case))
    fault = rounded.fault
    return Finding(
        fault.name, "fault", "certain: the error is that of this rounding",
        f"{fault.does}: {rounded.label}" if rounded.label else fault.does, fault.why, fault.mend,
        (rounded.evidence,), fault.also, example, script(fault.name, fault.does, shown.candidate, example),
    )  # fmt: skip


def refuses(names: list[str], answers: Mapping[str, Outcome]) -> Finding:
    """Report probes that were refused."""
    first = answers[names[0]]
    assert isinstance(first, Refused)
    return Finding(
        "REFUSES", "warning", f"{len(names)} of {len(answers)} probes are refused",
        f"{', '.join(names)}: {first.message}",
        "Callers with these shapes or options get an exception.",
        "support them, or declare with supports= what is supported",
    )  # fmt: skip
