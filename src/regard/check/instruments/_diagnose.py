"""From explanations to findings: the evidence, the smallest example and the script."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from regard.check._clock import Clock
from regard.check.answers._case import Case
from regard.check.answers._fault import Fault, Steps, model
from regard.check.answers._oracle import RIGHT, paper_slopes
from regard.check.answers._probes import Setting, finer
from regard.check.answers._tolerance import FAIL, UNIT, Judge, Outcome, Refused, outcome
from regard.check.candidate._candidate import Candidate
from regard.check.faults.scale import GROUP
from regard.check.findings._finding import Example, Finding
from regard.check.findings._replay import script
from regard.check.findings._shrink import shrink
from regard.check.findings._verdicts import VERDICTS

from ._dictionary import Diagnosis, Search, Variant
from ._laws import Law
from ._tomography import Measured

# Below this an error that no fault explains is one of precision.
_IMPRECISE = 1e-2
# Calls for making an example small.
_CALLS = 500


@dataclass(frozen=True)
class Shown:
    """What is shown beside an explanation: the function, its numbers, and the laws that it breaks.

    ``unit`` is not 0 for a function that is known to round, to such a unit.
    """

    candidate: Candidate
    setting: Setting
    measured: Measured | None
    laws: list[tuple[Law, str]]
    in_time: Clock
    unit: float = 0.0

    def few(self, calls: int) -> Callable[[], bool]:
        """Whether so many calls are not yet made; a few only where each other shape is compiled for."""
        left = iter(range(calls // self.candidate.arrays.patience))
        return lambda: self.in_time() and next(left, None) is not None

    def judge(self, case: Case) -> Judge:
        """Who judges the answer to a case."""
        judge = Judge.of(case, self.setting.dtype)
        return judge.loosened(self.unit) if self.unit else judge

    def judge_if_any(self, case: Case) -> Judge | None:
        """Who judges it; None for a case that has no answer."""
        try:
            return self.judge(case)
        except ValueError:
            return None


def measured_scale(measured: Measured) -> tuple[Variant, ...]:
    """Make a fault to measure: a softmax of q · k with whatever scale was read off."""
    if measured.scale is None or not measured.scale_is_off or not measured.is_softmax:
        return ()
    does = f"the scale is {measured.scale:.6f}, not {measured.expected_scale:.6f}"
    variants: dict[str, Steps] = {}
    for digits in (2, 3, 4, 7):  # a number that someone wrote has few digits; the measured one is not exact
        scale = float(f"{measured.scale:.{digits}g}")
        ratio = float(f"{measured.scale / measured.expected_scale:.{digits}g}")
        variants |= {f"{scale}, whatever d is": _constant(scale), f"{ratio} of the right one": _proportion(ratio)}
    fault = replace(GROUP.faults[0], name="SCALE_UNKNOWN", does=does, variants=variants)
    return tuple(Variant(fault, label) for label in fault.variants)


def _constant(scale: float) -> Steps:
    return {"scale": lambda m, case, q, k, v: scale if case.scale is None else case.scale}


def _proportion(ratio: float) -> Steps:
    return {"logits": lambda m, case, q, k, v: ratio * RIGHT.logits(case, q, k, v)}


def explained(search: Search, diagnosis: Diagnosis, shown: Shown) -> list[Finding]:
    """One finding per fault of the first explanation; without one, what was measured."""
    if not diagnosis.failing:
        return []
    if not diagnosis.explanations:
        return [_unexplained(search, diagnosis, shown)]
    first, *others = diagnosis.explanations
    labels = {variant: _label(search, shown, first, variant) for variant in first}
    first = tuple(Variant(v.fault, labels[v][0]) for v in first)
    labels_of = {variant.fault: label for variant, label in labels.items()}
    deciding = search.deciding(diagnosis.explanations) if others else []
    found = []
    for variant in first:
        also = tuple(" + ".join(_names(other)) for other in others)
        extra = (
            [f"told apart by {', '.join(deciding[:4])}" if deciding else "no probe tells them apart"] if also else []
        )
        evidence = () if variant.fault.edge else _evidence(variant.fault, shown)
        example = _smallest(search, diagnosis, shown, first, variant)
        label = " or ".join(filter(None, labels_of[variant.fault]))
        found.append(_finding(variant, label, first, diagnosis, (*evidence, *extra), also, example, shown.candidate))
    return sorted(found, key=lambda f: f.level != "fault")


def _label(search: Search, shown: Shown, explanation: tuple[Variant, ...], variant: Variant) -> list[str]:
    """Which variants of a fault explain everything; if several do, finer cases are asked."""

    def instead(label: str) -> tuple[Variant, ...]:
        return tuple(Variant(v.fault, label) if v is variant else v for v in explanation)

    labels = [x for x in variant.fault.variants if x == variant.label or search.explains(instead(x), search.order)]
    for case in finer(shown.setting) if len(labels) > 1 else ():
        if not case.features <= search.features or not shown.in_time():
            continue
        judge, got = shown.judge(case), shown.candidate(case)
        left = [x for x in labels if judge.alike(got, outcome(model(*(v.steps for v in instead(x))), case))]
        labels = left or labels
    return labels


def _finding(
    variant: Variant,
    label: str,
    explanation: tuple[Variant, ...],
    diagnosis: Diagnosis,
    evidence: tuple[str, ...],
    also: tuple[str, ...],
    example: Example | None,
    candidate: Candidate,
) -> Finding:
    fault = variant.fault
    others = [v.fault.name for v in explanation if v is not variant]
    share = (
        f"{len(diagnosis.asked)} of {len(diagnosis.asked)} answers are explained, {len(diagnosis.failing)} are wrong"
    )
    sure = "one of several" if also else "certain"
    certainty = f"{sure}: {share}" + (f", together with {', '.join(others)}" if others else "")
    does = f"{fault.does}: {label}" if label else fault.does
    return Finding(
        fault.name, "warning" if fault.edge else "fault", certainty, does, fault.why, fault.mend,
        evidence, also, example,
        "" if example is None else script(fault.name, fault.does, candidate, example), also=fault.also,
    )  # fmt: skip


def _names(variants: tuple[Variant, ...]) -> list[str]:
    return [variant.fault.name for variant in variants]


def _evidence(fault: Fault, shown: Shown) -> tuple[str, ...]:
    lines = [f"measured: {line}" for line in shown.measured.lines(fault.group)] if shown.measured else []
    return (*lines, *([f"laws broken: {', '.join(law.name for law, _ in shown.laws)}"] if shown.laws else []))


def _smallest(
    search: Search, diagnosis: Diagnosis, shown: Shown, explanation: tuple[Variant, ...], variant: Variant
) -> Example | None:
    """Shrink the first probe on which this fault, and not the others alone, decides the answer."""
    whole = model(*(v.steps for v in explanation))
    rest = model(*(v.steps for v in explanation if v is not variant))

    def shows(case: Case, least: float) -> bool:
        case = case.cast(shown.setting.dtype)
        got, wrong, without = shown.candidate(case), outcome(whole, case), outcome(rest, case)
        judge = shown.judge_if_any(case)
        if judge is None or judge.passes(got) or _size(judge, got) < least:
            return False
        return judge.alike(got, wrong) and not judge.alike(got, without)

    return _example(search, diagnosis, shown, shows)


def _example(
    search: Search, diagnosis: Diagnosis, shown: Shown, shows: Callable[[Case, float], bool]
) -> Example | None:
    """Shrink the first probe that shows it, as long as the error stays large enough to be seen in print."""
    first = next((search.known.cases[name] for name in diagnosis.failing if shows(search.known.cases[name], 0)), None)
    if first is None:
        return None
    dtype, ask = shown.setting.dtype, shown.candidate
    least = min(0.05, _size(Judge.of(first, dtype), ask(first)) / 4)
    few = shown.few(_CALLS)

    def still(case: Case) -> bool:
        return few() and _fits(ask, case) and shows(case, least)

    small = shrink(first, still, shown.setting.equal_widths).cast(dtype)
    return Example(small, Judge.of(small, dtype).right, ask(small))


def _fits(candidate: Candidate, case: Case) -> bool:
    """Whether slopes that a function adds of itself are those of the case."""
    slopes = case.alibi
    return slopes is None or not candidate.words.always_alibi or np.array_equal(slopes, paper_slopes(len(slopes)))


def _size(judge: Judge, got: Outcome) -> float:
    """Largest error, in units of the output or of 1; infinite where there are no two numbers to compare."""
    if isinstance(got, Refused) or got.shape != judge.right.shape:
        return math.inf
    finite = np.isfinite(judge.right)
    if not np.array_equal(np.isfinite(got), finite):
        return math.inf
    return float(
        np.abs(got - judge.right)[finite].max(initial=0) / max(1.0, np.abs(judge.right[finite]).max(initial=0))
    )


def _unexplained(search: Search, diagnosis: Diagnosis, shown: Shown) -> Finding:
    """No fault fits: the name says what was measured."""
    measured, dtype = shown.measured, shown.setting.dtype
    verdict = VERDICTS[_by_numbers(measured)]

    def shows(case: Case, least: float) -> bool:
        case = case.cast(dtype)
        judge, got = shown.judge_if_any(case), shown.candidate(case)
        return (
            judge is not None
            and not isinstance(got, Refused)
            and judge.error(got) > FAIL
            and _size(judge, got) >= least
        )

    example = _example(search, diagnosis, shown, shows)
    plain = next(iter(search.answers))
    least = max(_IMPRECISE, 4 * UNIT[dtype])
    small = [n for n in diagnosis.failing if _size(search.known.judges[n], search.answers[n]) < least]
    if plain in small or len(small) == len(diagnosis.failing):
        verdict = VERDICTS["IMPRECISE"]
    worst = max(search.known.judges[n].error(search.answers[n]) for n in diagnosis.failing)
    evidence = (f"wrong: {', '.join(diagnosis.failing)}", f"worst error: {worst:.3g} of the bound of rounding errors")
    lines = tuple(measured.lines()) if measured else ()
    laws = (f"laws broken: {', '.join(law.name for law, _ in shown.laws)}",) if shown.laws else ()
    share = f"{len(diagnosis.failing)} of {len(diagnosis.asked)} answers are wrong"
    shown_by = "" if example is None else script(verdict.name, verdict.does, shown.candidate, example)
    found = verdict.finding(share, *evidence, *lines, *laws, example=example, script=shown_by)
    if measured and measured.scale and measured.is_softmax and measured.scale_is_off:
        form, value = measured.forms[0]
        return replace(found, mend=f"the scale is nearest to {form} = {value:.6f}: mend that first, and check again")
    return found


def of_size(case: Case, shown: Shown) -> Finding:
    """Report a function that is right on every probe and wrong at another size."""

    def shows(less: Case) -> bool:
        less = less.cast(shown.setting.dtype)
        got = shown.candidate(less)
        judge = shown.judge_if_any(less)
        return judge is not None and not isinstance(got, Refused) and not judge.passes(got)

    few = shown.few(_CALLS)
    small = shrink(case, lambda c: few() and shows(c), shown.setting.equal_widths).cast(shown.setting.dtype)
    example = Example(small, Judge.of(small, shown.setting.dtype).right, shown.candidate(small))
    verdict = VERDICTS["WRONG_AT_SOME_SIZE"]
    queries, keys, width = (*small.query.shape[2:3], *small.key.shape[2:])
    seen = f"not at smaller sizes than {queries} queries, {keys} keys, width {width}"
    shown_by = script(verdict.name, verdict.does, shown.candidate, example)
    return verdict.finding("seen", seen, example=example, script=shown_by)


def _by_numbers(measured: Measured | None) -> str:
    """Name of the verdict, by the first number that is off."""
    if measured and measured.sums_are_off:
        return "WEIGHTS_DO_NOT_SUM_TO_ONE"
    return "NOT_SOFTMAX" if measured and measured.scale is not None and not measured.is_softmax else "UNKNOWN"
