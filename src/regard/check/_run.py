"""All instruments on one function, and what they say together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ._clock import Clock, Listener
from .answers._case import Case
from .answers._fault import Steps
from .answers._oracle import paper_slopes
from .answers._probes import Setting
from .answers._tolerance import Outcome, Refused
from .candidate._candidate import Candidate
from .candidate._guess import Declared, Known
from .candidate._understand import understand
from .faults import BY_NAME
from .findings._demonstrate import demonstration
from .findings._finding import Finding
from .findings._verdicts import VERDICTS
from .gradients import backward_of, gradient_findings
from .habits import HABITS, Behaviour, Habit, seen_habits, wrong_size
from .instruments._diagnose import Shown, measured_scale, of_size
from .instruments._dictionary import Models, models
from .instruments._explain import Explanation
from .instruments._facts import facts
from .instruments._laws import LAWS, Law, Subject, broken_laws, subject
from .instruments._lse import lse_findings
from .instruments._tomography import Measured, measure
from .report._questions import SEARCH, asked_of
from .report._report import Report


def run(
    fn: Callable[..., Any],
    declared: Declared,
    setting: Setting,
    expected: Mapping[str, str],
    strict: bool,
    budget_s: float,
    listener: Listener | None = None,
) -> Report:
    """Put a function through all instruments."""
    in_time = Clock(budget_s, listener)
    going = Run(understand(fn, declared, setting.dtype), declared, setting, in_time, frozenset(expected))
    findings = tuple(_judged(going.findings(), dict(expected), strict))
    lines = going.lines()
    return Report(
        getattr(fn, "__qualname__", type(fn).__name__), findings, going.known.guesses, tuple(lines),
        going.measured.pictures if going.measured else (), tuple(going.answers), in_time.spent, strict, in_time.is_over,
        asked_of(in_time.asked, going.known.supports),
    )  # fmt: skip


class Run:
    """One function on its way through the instruments."""

    def __init__(
        self,
        known: Known,
        declared: Declared,
        setting: Setting,
        in_time: Clock,
        expected: frozenset[str] = frozenset(),
    ) -> None:
        self.known, self.declared, self.in_time, self.expected = known, declared, in_time, expected
        in_time.stretch(self.candidate.arrays.patience)
        attention = "attention" in known.supports
        self.setting = replace(
            setting,
            equal_widths=attention and "value_width" not in known.supports,
            layer=known.layer,
            sides=known.sides,
        )
        self.models: Models = models(self.setting)
        needs = [
            *(c.features for c in self.models.cases.values()),
            *(x.needs for x in LAWS),
            *(x.wants for x in HABITS),
        ]
        in_time.questions = 1 + sum(need <= known.supports for need in needs)
        self.answers = self._answers()
        self.measured: Measured | None = None
        self.explained_by: tuple[Steps, ...] = ()

    @property
    def candidate(self) -> Candidate:
        """The function."""
        return self.known.candidate

    def _answers(self) -> dict[str, Outcome]:
        """Answers to all probes that the function may be asked."""
        found: dict[str, Outcome] = {}
        for name, case in self.models.cases.items():
            if self._may_ask(case) and self.in_time.asks(f"probe {name}"):
                found[name] = self.candidate(case)
        return found

    def _may_ask(self, case: Case) -> bool:
        words = self.candidate.words
        if words.always_causal and not case.causal:
            return False
        if words.always_alibi and not (case.alibi is not None and case.name.startswith("alibi_paper")):
            return False
        return case.features <= self.known.supports

    def lines(self) -> list[str]:
        """Numbers that were read off, and what else is told."""
        measured = self.measured.lines() if self.measured else []
        return [*measured, *facts(self._behaviour(), self.in_time)] if self.known.supports else measured

    def findings(self) -> list[Finding]:
        """All that is found, gravest first."""
        if not self.known.supports:
            return self._refusals("fault")
        found = self._refusals("warning")
        laws: list[tuple[Law, str]] = []
        if "attention" in self.known.supports and not self.candidate.words.always_alibi:
            self.measured = measure(self.candidate, self.known.supports)
            laws = broken_laws(self._subject(), self.known.supports, self.in_time.asks)
        named, refused = self._named(laws)
        found += named + refused
        if not any(f.level == "fault" for f in named):
            found += [_of_law(law, seen, self.candidate) for law, seen in laws]
        if not self._news(named):
            found += self._at_sizes(laws)
            found += lse_findings(self.candidate, self.models.cases)
        if self.candidate.words.element is not None:
            found.append(_returns_tuple(self.candidate))
        seen = seen_habits(self._behaviour(), self.in_time.asks)
        habits = [_of_habit(habit, evidence, self.candidate) for habit, evidence in seen]
        implied = _implied([*named, *habits], self._news(named))
        new = [f for f in (*found, *self._gradients(), *habits) if f.name not in implied]
        return sorted(new, key=lambda f: f.level != "fault")

    def _news(self, named: list[Finding]) -> bool:
        """Whether a fault was named that nobody expected."""
        return any(f.level == "fault" and f.name in BY_NAME and f.name not in self.expected for f in named)

    def _refusals(self, level: str) -> list[Finding]:
        return [_refusal(what, refused, level) for what, refused in self.known.refusals if not refused.died]

    def _gradients(self) -> list[Finding]:
        """Ask for the gradients of a function that has some."""
        backward = backward_of(self.candidate, self.declared.vjp)
        wanted = self.declared.supports is None or "gradients" in self.declared.supports or self.declared.vjp
        if backward is None or not wanted or not self.in_time.asks("gradients"):
            return []
        return gradient_findings(backward, self.candidate, self.known.supports, self.setting, self.in_time)

    def _named(self, laws: list[tuple[Law, str]]) -> tuple[list[Finding], list[Finding]]:
        """Search the dictionary. Refusals that no fault explains are findings of their own."""
        self.in_time.asks(SEARCH)
        extra = measured_scale(self.measured) if self.measured else ()
        explanation = Explanation(self.models, self.answers, extra, self.in_time)
        found = explanation.findings(self._shown(laws), self._may_round())
        self.explained_by = explanation.steps
        return found

    def _may_round(self) -> bool:
        """Whether the sites of roundings can be asked: one query that sees all keys."""
        words = self.candidate.words
        sees_all = not (words.always_causal and words.causal == "top-left")
        return "attention" in self.known.supports and sees_all and not words.always_alibi

    def _at_sizes(self, laws: list[tuple[Law, str]]) -> list[Finding]:
        if "attention" not in self.known.supports or not self.in_time():
            return []
        case = wrong_size(self._behaviour(), self.explained_by)
        return [] if case is None else [of_size(case, self._shown(laws))]

    def _shown(self, laws: list[tuple[Law, str]]) -> Shown:
        return Shown(self.candidate, self.setting, self.measured, laws, self.in_time)

    def _subject(self) -> Subject:
        base = subject(self.candidate, self.known.supports)
        return replace(base, case=replace(base.case, from_start=self.setting.from_start))

    def _behaviour(self) -> Behaviour:
        names = ("mha",) if "layer" in self.known.supports else ("square", "base")
        answered = [n for n in names if not isinstance(self.answers.get(n), Refused)]
        case = self.models.cases[(answered or names)[0]]
        if self.candidate.words.always_causal:
            case = replace(case, causal=True)
        if self.candidate.words.always_alibi:
            case = replace(case, alibi=paper_slopes(case.query.shape[1]))
        memory = {"linear_memory"} if self.declared.memory == "linear" else set()
        return Behaviour(self.candidate, case, self.known.supports | memory)


def _judged(findings: list[Finding], expected: dict[str, str], strict: bool) -> list[Finding]:
    """Mark what was expected; strictly, an expectation that is not met is a finding."""
    said = [replace(f, expected=expected.get(f.name)) for f in findings]
    names = {finding.name for finding in findings}
    if strict:
        said += [
            replace(
                VERDICTS["EXPECTED_NOT_FOUND"].finding(
                    f"{name} was expected: {reason}", does=f"there is no sign of {name}"
                ),
                about=name,
            )
            for name, reason in expected.items()
            if name not in names
        ]
    return said


def _refusal(what: str, refused: Refused, level: str) -> Finding:
    return VERDICTS["REFUSES"].finding(f"{what} is refused", does=f"{what} raises {refused.message}", level=level)


def _of_law(law: Law, seen: str, candidate: Candidate) -> Finding:
    name, does = f"LAW_{law.name}", f"not so: {law.says}"
    return Finding(
        name, "fault", "a law is broken, and no fault of the catalogue explains it alone", does,
        "Softmax attention has this property for all inputs.", "look for what the law excludes", (seen,),
        script=demonstration(name, does, candidate),
    )  # fmt: skip


def _of_habit(habit: Habit, seen: str, candidate: Candidate) -> Finding:
    return Finding(
        habit.name, "warning" if habit.edge else "fault", "seen", habit.does, habit.why, habit.mend, (seen,),
        script=demonstration(habit.name, habit.does, candidate),
    )  # fmt: skip


def _returns_tuple(candidate: Candidate) -> Finding:
    fault = BY_NAME["RETURNS_TUPLE"]
    seen = f"element {candidate.words.element!r} has the shape of the output"
    return Finding(fault.name, "warning", "seen", fault.does, fault.why, fault.mend, (seen,))


# What a finding implies, so that it is no news beside it.
_AT_ALL = {"UNKNOWN", "NOT_SOFTMAX", "WEIGHTS_DO_NOT_SUM_TO_ONE", "IMPRECISE", *(f"LAW_{law.name}" for law in LAWS)}
_FOLLOWS = {
    "NONDETERMINISTIC": {f"LAW_{law.name}" for law in LAWS} | {"STRIDES_IGNORED", "THREAD_DEPENDENT", "DTYPE_DOWNCAST"},
    "DROPOUT_ACTIVE_IN_EVAL": _AT_ALL | {"NONDETERMINISTIC", "STRIDES_IGNORED", "THREAD_DEPENDENT"},
    "STALE_CACHE": _AT_ALL,
    "INPUT_MUTATED": {"READ_ONLY_REFUSED", "GRAD_REFUSES"},
    "MASK_MUTATED": {"READ_ONLY_REFUSED"},
}


def _implied(found: list[Finding], wrong: bool) -> set[str]:
    """Names that are no news; a function with a known fault is wrong with one key, and from call to call, as well."""
    hidden = {"ONE_KEY_WRONG", "STALE_CACHE"} if wrong else set()
    return hidden.union(*(_FOLLOWS.get(f.name, set()) for f in found if f.name not in hidden))
