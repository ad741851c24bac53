"""Which faults explain the answers: on the probes, and of precision on cases of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from regard.check._clock import Clock
from regard.check.answers._case import Case
from regard.check.answers._fault import Steps, model
from regard.check.answers._oracle import RIGHT
from regard.check.answers._tolerance import FAIL, Judge, Outcome, Refused, outcome
from regard.check.faults.precision import HALF_MAX
from regard.check.findings._finding import Example, Finding
from regard.check.findings._replay import script
from regard.check.findings._shrink import shrink
from regard.check.findings._verdicts import VERDICTS

from ._diagnose import Shown, explained
from ._dictionary import Diagnosis, Models, Search, Variant
from ._precise import Rounded, roundings

# A function whose answer to the first probe is off by more has another fault, which must be known first.
_ROUNDING = 0.1


@dataclass
class Explanation:
    """The search, first for one fault, then for roundings, then for two faults.

    ``answers`` are those to the probes of ``known``.
    """

    known: Models
    answers: Mapping[str, Outcome]
    extra: tuple[Variant, ...]
    in_time: Clock
    steps: tuple[Steps, ...] = ()

    def findings(self, shown: Shown, may_round: bool) -> tuple[list[Finding], list[Finding]]:
        """Return what explains the answers, and refusals that nothing explains."""
        search, diagnosis = self._first(self.known, self.answers, Search.simple)
        if (
            not diagnosis.explanations and self._overflows_somewhere()
        ):  # which two faults explain sooner than a rounding
            search, diagnosis = self._first(self.known, self.answers, Search.pairs)
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
        refused = [name for name, x in answers.items() if name not in search.answers and not _died(x)]
        self.steps = (*(one.steps for one in rounded), *(v.steps for v in (diagnosis.explanations or ((),))[0]))
        found = [_of_rounding(one, shown, steps) for one in rounded]
        separate = [refuses(refused, answers)] if refused else []
        return [*found, *explained(search, diagnosis, shown)], separate

    def _first(
        self, known: Models, answers: Mapping[str, Outcome], how: Callable[[Search], Diagnosis]
    ) -> tuple[Search, Diagnosis]:
        """Search with all answers; if nothing explains them, without those that are refusals."""
        search = Search(known, answers, self.in_time, self.extra)
        diagnosis = how(search)
        refused = [name for name, answer in answers.items() if isinstance(answer, Refused)]
        if refused and not diagnosis.explanations:
            answered = {name: x for name, x in answers.items() if name not in refused}
            search = Search(known, answered, self.in_time, self.extra)
            diagnosis = how(search)
        return search, diagnosis

    def _overflows_somewhere(self) -> bool:
        """Whether NaN or Inf stands where a number is right."""
        given = {name: x for name, x in self.answers.items() if not isinstance(x, Refused)}
        right = {name: self.known.judges[name].right for name in given}
        return any(
            x.shape == right[n].shape and (np.isfinite(right[n]) & ~np.isfinite(x)).any() for n, x in given.items()
        )

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


def _died(answer: Outcome) -> bool:
    return isinstance(answer, Refused) and answer.died


def _overflows(case: Case) -> bool:
    q, k, v = (np.nan_to_num(np.abs(x), posinf=0) for x in (case.query, case.key, case.value))
    k, _ = RIGHT.share(case, q, k, v)
    return bool((q @ k.swapaxes(-1, -2)).max(initial=0) > HALF_MAX)


# Calls for the smallest example of a rounding: its cases are long.
_CALLS = 60


def _of_rounding(rounded: Rounded, shown: Shown, steps: tuple[Steps, ...]) -> Finding:
    case, dtype = rounded.site.case, shown.setting.dtype

    few = shown.few(_CALLS)

    def shows(less: Case) -> bool:
        if not few():
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
        (rounded.evidence,), (), example, script(fault.name, fault.does, shown.candidate, example), also=fault.also,
    )  # fmt: skip


def refuses(names: list[str], answers: Mapping[str, Outcome]) -> Finding:
    """Report probes that were refused."""
    first = answers[names[0]]
    assert isinstance(first, Refused)
    share = f"{len(names)} of {len(answers)} probes are refused"
    return VERDICTS["REFUSES"].finding(share, does=f"{', '.join(names)}: {first.message}")
