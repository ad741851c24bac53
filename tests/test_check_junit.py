"""Report.junit: a test case per question, of the shape that build servers read."""

import json
from dataclasses import replace
from functools import lru_cache
from xml.etree import ElementTree

import pytest

import regard as rg
from check_hostile import attention
from check_right import textbook
from check_wrong import WRONG, tril_of_a_rectangle
from regard.check import Finding
from regard.check.report._names import entries
from regard.check.report._questions import _question_of, answers, questions

COUNTED = {"failures": "failure", "skipped": "skipped", "errors": "error"}


@lru_cache
def checked(fn, **options):
    return rg.check(fn, **options)


def suite_of(report):
    root = ElementTree.fromstring(report.junit().encode())
    assert root.tag == "testsuites"
    (suite,) = root
    return suite


def case(suite, name):
    return suite.find(f"testcase[@name='{name}']")


@pytest.mark.parametrize("fn", [rg.attention, attention, tril_of_a_rectangle], ids=lambda fn: fn.__name__)
def test_shape(fn):
    report = checked(fn)
    suite = suite_of(report)
    assert suite.tag == "testsuite"
    assert suite.get("name") == f"regard check {report.name}"
    assert float(suite.get("time")) == pytest.approx(report.seconds, abs=1e-3)
    assert int(suite.get("tests")) == len(suite) == len(questions())
    for counted, tag in COUNTED.items():
        assert int(suite.get(counted)) == len(suite.findall(f"testcase/{tag}"))
    names = [one.get("name") for one in suite]
    assert len(set(names)) == len(names)
    for one in suite:
        assert one.get("classname") == f"regard.check.{report.name}"
        assert [child.tag for child in one] in ([], ["failure"], ["skipped"], ["system-out"], ["failure", "system-out"],
                                                ["skipped", "system-out"])  # fmt: skip


def test_a_right_function_fails_nothing():
    suite = suite_of(checked(rg.attention))
    assert suite.get("failures") == "0"
    assert list(case(suite, "scale")) == []
    assert list(case(suite, "law-CONVEX")) == []


def test_a_fault_is_a_failure_of_its_group():
    report = checked(attention)
    failure = case(suite_of(report), "scale").find("failure")
    assert failure.get("message") == "SCALE_MISSING"
    assert failure.get("type") == "fault"
    assert failure.text == str(report["SCALE_MISSING"])


def test_what_cannot_be_asked_is_skipped():
    suite = suite_of(checked(attention))
    assert case(suite, "score").find("skipped").get("message") == "not asked: it needs softcap, bias"
    assert case(suite, "habit-MASK_MUTATED").find("skipped").get("message") == "not asked: it needs mask"
    assert case(suite, "causal").find("skipped") is None
    assert case(suite, "mask").find("skipped") is None  # causal alone shows how pairs are hidden
    unmasked = case(suite_of(checked(textbook)), "mask")
    assert unmasked.find("skipped").get("message") == "not asked: it needs mask, causal"
    report = replace(checked(rg.attention), questions=("calls",), unfinished=True)
    assert report.exit_code == 0
    unasked = case(suite_of(report), "scale")
    assert unasked.find("skipped").get("message") == "not asked: there was no time, or no answer"


@pytest.mark.parametrize("changes", [{"strict": True}, {"asked": ()}], ids=["strict", "nothing asked"])
def test_what_there_was_no_time_for_fails(changes):
    report = replace(checked(rg.attention), questions=("calls",), unfinished=True, **changes)
    assert (report.ok, report.exit_code) == (False, 1 if "strict" in changes else 2)
    suite = suite_of(report)
    failure = case(suite, "scale").find("failure")
    assert failure.get("type") == "unfinished"
    assert failure.get("message") == "not asked: there was no time, or no answer"
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure")) > 10
    assert str(report).startswith(
        "attention: nothing asked (0 probes" if "asked" in changes else "attention: nothing f"
    )
    assert case(suite, "mask").find("skipped").get("message") == "not asked: it needs mask, causal"


def test_what_is_expected_is_skipped_with_its_reason():
    report = rg.check(attention, expected={"SCALE_MISSING": "scaled outside"})
    suite = suite_of(report)
    assert suite.get("failures") == "0"
    assert case(suite, "scale").find("skipped").get("message") == "SCALE_MISSING is expected: scaled outside"
    assert "EXPECTED SCALE_MISSING" in case(suite, "scale").find("system-out").text


def test_a_warning_fails_only_strictly():
    warning = Finding("NAN_MASKED_V", "warning", "seen", "NaN leaks", "why", "mend")
    report = replace(checked(rg.attention), findings=(warning,))
    mask = case(suite_of(report), "mask")
    assert [child.tag for child in mask] == ["system-out"]
    assert "NaN leaks" in mask.find("system-out").text
    mask = case(suite_of(replace(report, strict=True)), "mask")
    assert [child.tag for child in mask] == ["failure"]
    assert mask.find("failure").get("type") == "warning"


def test_control_characters_of_messages_do_not_spoil_the_file():
    finding = Finding("REFUSES", "fault", "seen", "raises \x1b[31mred\x00 \ud800 <&>", "why", "mend")
    suite = suite_of(replace(checked(rg.attention), findings=(finding,)))
    assert r"raises \x1b[31mred\x00 \ud800 <&>" in case(suite, "calls").find("failure").text


def test_a_missing_expectation_belongs_to_the_question_of_what_was_expected():
    report = rg.check(attention, expected={"NO_MAX": "small"}, strict=True)
    assert report["EXPECTED_NOT_FOUND"].about == "NO_MAX"
    assert case(suite_of(report), "stability").find("failure").get("message") == "EXPECTED_NOT_FOUND"


def test_json_is_ascii():
    finding = Finding("REFUSES", "fault", "seen", "raises é \ud800", "why", "mend")
    text = replace(checked(rg.attention), findings=(finding,)).json()
    assert text.isascii()
    assert json.loads(text)["findings"][0]["does"] == finding.does


def test_every_name_belongs_to_one_question():
    groups = {"verdict": {"calls", "results", "scale", "normalisation", "gradients"}}
    for entry in entries():
        name = _question_of(Finding(entry.name, "fault", "", "", "", ""))
        if entry.kind in ("law", "habit"):
            assert name == f"{entry.kind}-{entry.name.removeprefix('LAW_')}"
        else:
            assert name in groups.get(entry.kind, {entry.group}), entry


def test_no_finding_is_lost():
    for fn, _, declared in WRONG[:6]:
        report = rg.check(fn, **declared)
        said = [finding for answer in answers(report) for finding in answer.findings]
        assert sorted(f.name for f in said) == sorted(report.names)
        failing = [answer for answer in answers(report) if any(map(report.fails, answer.findings))]
        assert len(suite_of(report).findall("testcase/failure")) == len(failing) > 0
