"""A check as a list of pytest's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from regard._cached import cached_attribute
from regard._errors import UnsupportedError
from regard.check import check

from .report._questions import Answer, Question, answers, questions
from .report._report import Report


class _Checked:
    """A function, and its report once one is wanted."""

    def __init__(self, fn: Callable[..., Any], options: dict[str, Any]) -> None:
        self._fn, self._options = fn, options

    @cached_attribute
    def report(self) -> Report:
        """The report; the function is called when it is first read."""
        return check(self._fn, **self._options)

    @cached_attribute
    def answers(self) -> dict[str, Answer]:
        """What was found, by question."""
        return {answer.question.name: answer for answer in answers(self.report)}


class Asked:
    """One question to one function: call it in a test."""

    def __init__(self, question: Question, checked: _Checked) -> None:
        self._question, self._checked = question, checked

    @property
    def name(self) -> str:
        """The name of the question, which is the id of the test."""
        return self._question.name

    def __call__(self) -> None:
        """Fail with what was found; skip what could not be asked; what is expected is an expected failure."""
        __tracebackhide__ = True
        pytest = _pytest()
        answer, report = self._checked.answers[self.name], self._checked.report
        failing = [str(finding) for finding in answer.findings if report.fails(finding)]
        if failing:
            pytest.fail("\n\n".join(failing), pytrace=False)
        if answer.missed:
            pytest.fail(answer.why_not, pytrace=False)
        if not answer.asked:
            pytest.skip(answer.why_not)
        if reasons := [f"{finding.name}: {finding.expected}" for finding in answer.findings if finding.expected]:
            pytest.xfail("; ".join(reasons))

    def __repr__(self) -> str:
        return f"<question {self.name}: {self._question.says}>"


def parametrize(fn: Callable[..., Any], **options: Any) -> Any:
    """Make the decorator; `regard.parametrize` documents it."""
    checked = _Checked(fn, options)
    asked = [Asked(question, checked) for question in questions()]
    return _pytest().mark.parametrize("question", asked, ids=[one.name for one in asked])


def _pytest() -> Any:
    try:
        import pytest
    except ModuleNotFoundError:
        raise UnsupportedError(
            "parametrize makes tests for pytest, which is missing; run `pip install pytest`"
        ) from None
    return pytest
