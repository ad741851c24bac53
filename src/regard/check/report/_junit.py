"""A report as JUnit XML, which build servers show: one test case per question."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from regard.check.findings._finding import Finding

from ._questions import Answer, answers

if TYPE_CHECKING:
    from ._report import Report

# XML 1.0 has no place for these, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """Write the XML of a report."""
    every = answers(report)
    failing = [answer for answer in every if answer.missed or _failures(answer, report)]
    skipped = [answer for answer in every if answer not in failing and _skipped(answer)]
    counts = {
        "name": f"regard check {report.name}", "tests": str(len(every)), "failures": str(len(failing)), "errors": "0",
        "skipped": str(len(skipped)), "time": f"{report.seconds:.3f}",
    }  # fmt: skip
    root = ElementTree.Element("testsuites", {**counts, "name": "regard check"})
    suite = ElementTree.SubElement(root, "testsuite", {name: _clean(text) for name, text in counts.items()})
    for answer in every:
        _case(suite, answer, report)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _failures(answer: Answer, report: Report) -> list[Finding]:
    return [finding for finding in answer.findings if report.fails(finding)]


def _skipped(answer: Answer) -> str:
    """Why a case is skipped: it was not asked, or all that was found was expected."""
    if not answer.asked:
        return answer.why_not
    reasons = [f"{f.name} is expected: {f.expected}" for f in answer.findings if f.expected]
    return "; ".join(reasons)


def _case(suite: ElementTree.Element, answer: Answer, report: Report) -> None:
    named = {"classname": f"regard.check.{report.name}", "name": answer.question.name}
    case = ElementTree.SubElement(suite, "testcase", {name: _clean(text) for name, text in named.items()})
    failures = _failures(answer, report)
    if failures:
        level = "fault" if any(finding.level == "fault" for finding in failures) else "warning"
        names = ", ".join(finding.name for finding in failures)
        failure = ElementTree.SubElement(case, "failure", type=level, message=_clean(names))
        failure.text = _clean("\n\n".join(map(str, failures)))
    elif answer.missed:
        ElementTree.SubElement(case, "failure", type="unfinished", message=answer.why_not)
    elif reason := _skipped(answer):
        ElementTree.SubElement(case, "skipped", message=_clean(reason))
    beside = [str(finding) for finding in answer.findings if not report.fails(finding)]
    if beside:
        ElementTree.SubElement(case, "system-out").text = _clean("\n\n".join(beside))


def _clean(text: str) -> str:
    return _NOT_XML.sub(lambda found: ascii(found[0])[1:-1], text)
