"""All questions about the gradients of one function, and what they say together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from regard.check.answers._probes import Setting
from regard.check.answers._tolerance import ALIKE, FAIL, Judge, Refused
from regard.check.candidate._candidate import Candidate
from regard.check.findings._finding import Finding
from regard.check.findings._verdicts import Verdict
from regard.check.instruments._dictionary import Variant

from ._backward import Backward
from ._evidence import measured_lines
from ._example import GradientExample, smallest
from ._judge import GradientJudge
from ._oracle import SHORT, Partial
from ._probes import ELSEWHERE, EMPTY_ROWS, Probe, attends
from ._replay import gradient_script
from ._search import Answer, Cut, GradientSearch, gradient_models, modelled
from ._verdicts import CUT, DROPOUT, EMPTY, IMPRECISE, REFUSED, UNKNOWN, UNSTEADY

# Below this an error that no fault explains is one of precision.
_IMPRECISE = 1e-2


def gradient_findings(
    backward: Backward,
    candidate: Candidate,
    supports: frozenset[str],
    setting: Setting,
    in_time: Callable[[], bool],
) -> list[Finding]:
    """Find out which faults the gradients of a function, or of a whole layer, have.

    Only cases whose output is right are asked about: a wrong output has other gradients, and is reported for itself.

    Parameters
    ----------
    backward : callable
        From a case and the gradient of its output, ``(B, Hq, Sq, Dv)``, or ``(B, S, E)`` of a layer, to gradients by
        name, or a refusal.
    candidate : Candidate
        The function, for its outputs, and to be called in scripts.
    supports : frozenset of str
        Features that it may be asked about.
    setting : Setting
        Of the probes: dtype, seed and rules.
    in_time : callable
        Whether there is time for another question.
    """
    return Inquiry(backward, candidate, supports, setting, in_time).findings()


class Inquiry:
    """One function's gradients on their way through the probes."""

    def __init__(
        self,
        backward: Backward,
        candidate: Candidate,
        supports: frozenset[str],
        setting: Setting,
        in_time: Callable[[], bool],
    ) -> None:
        self.backward, self.candidate, self.supports = backward, candidate, supports
        self.setting, self.in_time = setting, in_time
        self.models = gradient_models(setting, candidate.words.always_causal)

    def findings(self) -> list[Finding]:
        """All that is found."""
        answers = {probe.name: self._ask(probe) for probe in self.models.probes.values() if self._may_ask(probe)}
        cut = self._cut(answers)
        answers = {name: x for name, x in answers.items() if not isinstance(x, Cut)}
        if not answers:
            return cut
        found = self._explained(answers)
        return [*cut, *found, *filter(None, (self._unsteady(answers), self._dropout()))]

    def _ask(self, probe: Probe) -> Answer:
        return self.backward(probe.case, probe.grad_out)

    def _may_ask(self, probe: Probe) -> bool:
        return probe.case.features <= self.supports and self.in_time() and self._is_right(probe)

    def _is_right(self, probe: Probe) -> bool:
        """Whether the output is, but for rounding, in every row that something is sent back to."""
        judge, got = Judge.of(probe.case, self.setting.dtype), self.candidate(probe.case)
        if isinstance(got, Refused) or got.shape != judge.right.shape:
            return False
        got = np.where(attends(probe.case), got, judge.right) if probe.name in ELSEWHERE else got
        near = ALIKE[self.setting.dtype] * max(1.0, float(np.nanmax(np.abs(judge.right))))
        return judge.passes(got) or bool(np.nanmax(np.abs(got - judge.right)) <= near and not np.isnan(got).any())

    # What is no entry of the catalogue.

    def _cut(self, answers: Mapping[str, Answer]) -> list[Finding]:
        """Report what nothing leads back to: the whole call, or single operands by name."""
        whole: dict[str, list[str]] = defaultdict(list)
        single: dict[str, list[str]] = defaultdict(list)
        for name, got in answers.items():
            if isinstance(got, Cut):
                whole[got.message].append(name)
            for role in got.cut if isinstance(got, Partial) else ():
                single[role].append(name)
        if not whole and not single:
            return []
        evidence = [f"{', '.join(names)}: {message}" for message, names in whole.items()]
        evidence += [f"{', '.join(names)}: the gradient of {role} is None" for role, names in single.items()]
        share = f"{len(set().union(*whole.values(), *single.values()))} of {len(answers)} probes"
        does = None if whole else f"no gradient is passed back to {' and '.join(single)}"
        return [CUT.finding(share, *evidence, does=does)]

    def _refused(self, answers: Mapping[str, Answer]) -> list[Finding]:
        names = [name for name, x in answers.items() if isinstance(x, Refused) and not x.died]
        if not names:
            return []
        first = answers[names[0]]
        assert isinstance(first, Refused)
        share = f"{len(names)} of {len(answers)} probes are refused"
        found = self._verdict(REFUSED, share, (f"{', '.join(names)}: {first.message}",))
        return [replace(found, level="fault") if len(names) == len(answers) and not first.honest else found]

    def _unsteady(self, answers: Mapping[str, Answer]) -> Finding | None:
        name = next((name for name in reversed(list(answers)) if not isinstance(answers[name], Refused)), None)
        if name is None or not self.in_time():
            return None
        first, second = answers[name], self._ask(self.models.probes[name])
        if isinstance(first, Refused) or isinstance(second, Refused) or first.keys() != second.keys():
            return None
        moved = [n for n in first if not np.array_equal(first[n], second[n], equal_nan=True)]
        said = ", ".join(f"{SHORT[n]} differs by {np.abs(first[n] - second[n]).max():.3g}" for n in moved)
        return self._verdict(UNSTEADY, "seen", (f"two calls on {name}: {said}",)) if moved else None

    def _dropout(self) -> Finding | None:
        """With one seed, what is dropped must be the same there and back: <v, dv> = <o, do>."""
        probe = self.models.probes["rect"]  # of attention: a layer is not asked for dropout
        case = replace(probe.case, dropout=0.25)
        if not case.features <= self.supports or not self.in_time():
            return None
        with np.errstate(all="ignore"):
            try:
                out, again = self.candidate.raw(case), self.candidate.raw(case)
            except Exception:
                return None
        got = self.backward(case, probe.grad_out)
        if (
            isinstance(got, Refused)
            or "value" not in got
            or out.shape != probe.grad_out.shape
            or not np.array_equal(out, again)
        ):
            return None
        left, right = float((case.value * got["value"]).sum()), float((out * probe.grad_out).sum())
        bound = self.models.judges["rect"].bounds["value"]
        if abs(left - right) <= 4 * FAIL * float((np.abs(case.value) * bound).sum()):
            return None
        return self._verdict(DROPOUT, "seen", (f"<v, dv> = {left:.6g} and <o, do> = {right:.6g}, with one seed",))

    # The catalogue.

    def _explained(self, answers: Mapping[str, Answer]) -> list[Finding]:
        """Search; then without what is NaN where a row is empty, and without refusals, which are findings then."""
        search = GradientSearch(self.models, answers, self.in_time)
        explanations = search.singles()
        separate: list[Finding] = []
        if search.failing and not explanations:
            nan = [name for name in EMPTY_ROWS if name in answers and _has_nan(answers[name])]
            separate = [*self._empty_row(nan, answers), *self._refused(answers)]
            answers = {n: x for n, x in answers.items() if n not in nan and not isinstance(x, Refused)}
            search = GradientSearch(self.models, answers, self.in_time)
            explanations = search.singles() or search.pairs()
        if not search.failing:
            return separate
        if not explanations:
            return [self._unexplained(search), *separate]
        return [*self._named(search, explanations), *separate]

    def _named(self, search: GradientSearch, explanations: list[tuple[Variant, ...]]) -> list[Finding]:
        first, *others = explanations
        also = tuple(" + ".join(v.fault.name for v in other) for other in others)
        evidence = measured_lines(self.models.judges, search.answers)
        sure = "one of several" if also else "certain"
        asked = len(search.answers)
        share = f"{sure}: {asked} of {asked} gradients are explained, {len(search.failing)} are wrong"
        found = []
        for variant in first:
            with_ = [v.fault.name for v in first if v is not variant]
            certainty = share + (f", together with {', '.join(with_)}" if with_ else "")
            fault, example = variant.fault, self._example(search, first)
            does = f"{fault.does}: {variant.label}" if variant.label else fault.does
            script = gradient_script(fault.name, does, self.candidate, self.backward, example)
            found.append(
                Finding(fault.name, "fault", certainty, does, fault.why, fault.mend, evidence, also, example, script)
            )
        return found

    def _example(self, search: GradientSearch, explanation: tuple[Variant, ...]) -> GradientExample:
        def shows(judge: GradientJudge, got: Answer) -> bool:
            return self.in_time() and judge.alike(got, modelled(explanation, judge.probe))

        return self._smallest(_telling(search), shows)

    def _unexplained(self, search: GradientSearch) -> Finding:
        evidence = (f"wrong: {', '.join(search.failing)}", *measured_lines(self.models.judges, search.answers))
        example = self._smallest(_telling(search), lambda judge, got: self.in_time() and not isinstance(got, Refused))
        off = [_relative(search.known.judges[name], search.answers[name]) for name in search.failing]
        verdict = IMPRECISE if max(off) < _IMPRECISE else UNKNOWN
        share = f"{len(search.failing)} of {len(search.answers)} gradients are wrong"
        return self._verdict(verdict, share, evidence, example)

    def _empty_row(self, names: list[str], answers: Mapping[str, Answer]) -> list[Finding]:
        if not names:
            return []
        got = answers[names[0]]
        assert not isinstance(got, Refused)
        where = ", ".join(SHORT[name] for name, x in got.items() if not np.isfinite(x).all())
        sent = "nothing is sent back to the empty row" if names[0] in ELSEWHERE else "all rows get something back"
        example = self._smallest(names[0], lambda judge, got: self.in_time() and _has_nan(got))
        return [self._verdict(EMPTY, "seen", (f"NaN or Inf in {where} on {names[0]}: {sent}",), example)]

    def _smallest(self, name: str, shows: Callable[[GradientJudge, Answer], bool]) -> GradientExample:
        probe = self.models.probes[name]
        return smallest(probe, self.backward, self.setting.dtype, self.setting.equal_widths, shows)

    def _verdict(
        self, verdict: Verdict, certainty: str, evidence: tuple[str, ...], example: GradientExample | None = None
    ) -> Finding:
        script = ""
        if example is not None:
            script = gradient_script(verdict.name, verdict.does, self.candidate, self.backward, example)
        return verdict.finding(certainty, *evidence, example=example, script=script)


def _telling(search: GradientSearch) -> str:
    """Return the first probe whose gradients are wrong; one that is not refused, if there is one."""
    answered = [name for name in search.failing if not isinstance(search.answers[name], Refused)]
    return (answered or search.failing)[0]


def _has_nan(got: Answer) -> bool:
    return not isinstance(got, Refused) and not all(np.isfinite(x).all() for x in got.values())


def _relative(judge: GradientJudge, got: Answer) -> float:
    """Largest error in units of the gradient's largest element."""
    if isinstance(got, Refused):
        return np.inf
    errors = []
    for name in judge.asked(got):
        x, right = got.get(name), judge.right[name]
        known = x is not None and x.shape == right.shape and np.isfinite(x).all()
        errors.append(float(np.abs(x - right).max() / np.abs(right).max()) if known and x is not None else np.inf)
    return max(errors)
