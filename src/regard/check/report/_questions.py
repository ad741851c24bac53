"""What a check asks, as a list of questions: a test each in JUnit and in pytest.

The list is the same for every function. A question that could not be put to one, such as what its masks do where it has
none, is skipped there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from regard.check.faults import GROUPS
from regard.check.findings._finding import Finding
from regard.check.habits import HABITS
from regard.check.instruments._laws import LAWS

from ._names import by_name

if TYPE_CHECKING:
    from ._report import Report

# Options of which one at least is needed for faults of a group to show.
_OPTIONS = {
    "mask": ("mask", "causal"),
    "causal": ("causal", "window"),
    "score": ("softcap", "bias"),
    "alibi": ("alibi",),
    "dropout": ("dropout",),
    "gradients": ("gradients",),
}
_SAYS = {
    "gradients": "the gradients are those of the right function",
    "calls": "every call that was declared is answered",
    "results": "results are right at every size, and as exact as their dtype",
}
_VERDICTS = {
    "SCALE_UNKNOWN": "scale",
    "NOT_SOFTMAX": "normalisation",
    "WEIGHTS_DO_NOT_SUM_TO_ONE": "normalisation",
    **dict.fromkeys(("REFUSES", "CRASHES", "HANGS", "EXITS"), "calls"),
}


@dataclass(frozen=True)
class Question:
    """One question: its name, what holds if nothing is found, and options of which it needs one, or all of a law."""

    name: str
    says: str
    needs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Answer:
    """What was found on a question; ``asked`` is False if it could not be put.

    ``missed`` says that this fails: strictly, a check that did not come to its end has not passed what it did not ask.
    """

    question: Question
    asked: bool
    findings: tuple[Finding, ...]
    missed: bool = False

    @property
    def why_not(self) -> str:
        """Why it was not asked."""
        needs = self.question.needs
        return f"not asked: it needs {', '.join(needs)}" if needs else "not asked: there was no time, or no answer"


@lru_cache(maxsize=1)
def questions() -> tuple[Question, ...]:
    """All of them: each group of faults, whether calls are answered, each law, each habit."""
    groups = [Question(g.name, f"no fault of the group {g.name}", _OPTIONS.get(g.name, ())) for g in GROUPS]
    groups += [Question(name, says, _OPTIONS.get(name, ())) for name, says in _SAYS.items()]
    laws = [Question(f"law-{law.name}", law.says, _options(law.needs)) for law in LAWS]
    habits = [Question(f"habit-{h.name}", f"not so: {h.does}", _options(h.wants)) for h in HABITS]
    return (*groups, *laws, *habits)


def _options(features: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({feature.split("_")[0] for feature in features} - {"attention"}))


def asked_of(told: Iterable[str], supports: frozenset[str]) -> tuple[str, ...]:
    """Names of the questions that were put: what was told of while asking, and groups with the options that they need.

    A group is asked about when the search through its faults has begun.
    """
    told = set(told)
    searched = SEARCH in told
    groups = {
        q.name for q in questions() if q.name not in told and "-" not in q.name and searched
        and (not q.needs or supports.intersection(q.needs))
    }  # fmt: skip
    names = told | groups | {"calls"}
    return tuple(q.name for q in questions() if q.name in names)


SEARCH = "which faults explain the answers"


def answers(report: Report) -> tuple[Answer, ...]:
    """Sort a report by question; every finding is in one of them."""
    found: dict[str, list[Finding]] = {}
    for finding in report.findings:
        found.setdefault(_question_of(finding), []).append(finding)
    put = {*report.questions, *found}
    hurried = report.unfinished and (report.strict or report.is_empty)
    return tuple(
        Answer(q, q.name in put, tuple(found.get(q.name, ())), hurried and q.name not in put and not q.needs)
        for q in questions()
    )


def _question_of(finding: Finding) -> str:
    name = finding.about or finding.name
    if name in _VERDICTS:
        return _VERDICTS[name]
    names = {question.name for question in questions()}
    entry = by_name().get(name)
    candidates = (f"law-{name.removeprefix('LAW_')}", f"habit-{name}", entry.group if entry else "")
    return next((candidate for candidate in candidates if candidate in names), "results")
