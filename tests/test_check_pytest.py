"""regard.parametrize: one test per question, in pytest runs of their own."""

import builtins
import re
import subprocess
import sys
from pathlib import Path

import pytest

import regard as rg
from regard.check.report._questions import questions

HERE = Path(__file__).parent
FILE = """
import regard as rg
from check_hostile import attention

def told(q, k, v, causal=False):
    open("called", "a").close()
    return attention(q, k, v, causal)

@rg.parametrize({})
def test_attention(question):
    question()
"""


def run(tmp_path, arguments, *options):
    """Outcomes by question of a run of pytest, its exit code and its text."""
    (tmp_path / "test_it.py").write_text(FILE.format(arguments))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-rxs",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        *options,
    ]
    environment = {"PYTHONPATH": str(HERE), "COLUMNS": "400"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    pattern = r"^test_it.py::test_attention\[(.*?)\] (PASSED|FAILED|XFAIL|SKIPPED|ERROR)"
    found = re.findall(pattern, done.stdout, re.MULTILINE)
    return dict(found), done.returncode, done.stdout


def test_each_question_is_a_test(tmp_path):
    outcomes, code, text = run(tmp_path, "told")
    assert code == 1
    assert outcomes["scale"] == "FAILED"
    assert "FAULT SCALE_MISSING" in text
    assert "how to mend it   multiply q · k by 1 / sqrt(q.shape[-1]), once" in text
    for name in ("causal", "law-ROWS_SUM_TO_ONE", "habit-INPUT_MUTATED", "calls"):
        assert outcomes[name] == "PASSED", name
    assert {outcomes[name] for name in ("score", "dropout", "gradients")} == {"SKIPPED"}
    assert "FAILED" not in {outcome for name, outcome in outcomes.items() if name != "scale"}
    assert "not asked: it needs mask" in text
    assert len(re.findall(r"test_it.py:\d+: in ", text)) == 0  # the finding is shown, and no traceback


def test_a_right_function_passes(tmp_path):
    outcomes, code, _ = run(tmp_path, "rg.attention, strict=True")
    assert code == 0
    assert set(outcomes.values()) <= {"PASSED", "SKIPPED"}


def test_nothing_is_called_before_a_test_runs(tmp_path):
    _, code, text = run(tmp_path, "told", "--collect-only", "-qq")
    assert code == 0
    assert not (tmp_path / "called").exists()
    for question in questions():
        assert f"test_attention[{question.name}]" in text


def test_what_is_expected_is_an_expected_failure(tmp_path):
    known = "expected={'SCALE_MISSING': 'scaled outside', 'NO_MAX': 'small'}"
    outcomes, code, text = run(tmp_path, f"told, {known}")
    assert code == 0
    assert outcomes["scale"] == "XFAIL"
    assert "SCALE_MISSING: scaled outside" in text
    outcomes, code, text = run(tmp_path, f"told, {known}, strict=True")
    assert code == 1
    assert outcomes["scale"] == "XFAIL"
    assert outcomes["stability"] == "FAILED"
    assert "there is no sign of NO_MAX" in text


def test_a_wrong_option_fails_the_tests_and_not_the_collection(tmp_path):
    outcomes, code, text = run(tmp_path, "told, mask='yes'", "-k", "scale or calls")
    assert code == 1
    assert outcomes == {"scale": "FAILED", "calls": "FAILED"}
    assert "mask is 'yes'; check knows keep, drop, additive" in text


def test_what_there_was_no_time_for_fails_strictly():
    def test(question):
        """Takes the mark."""

    asked = {q.name: q for q in rg.parametrize(rg.attention, strict=True, budget_s=0.0)(test).pytestmark[0].args[1]}
    with pytest.raises(pytest.fail.Exception, match="not asked: there was no time, or no answer"):
        asked["scale"]()
    with pytest.raises(pytest.skip.Exception, match="not asked: it needs mask"):
        asked["mask"]()


def test_the_check_runs_once():
    seen = []

    def attention(q, k, v):
        seen.append(q.shape)
        return rg.attention(q, k, v)

    def test(question):
        """Takes the mark."""

    asked = rg.parametrize(attention)(test).pytestmark[0].args[1]
    assert seen == []
    asked[0]()
    once = len(seen)
    assert once > 0
    for question in asked:
        if question.name in ("calls", "layout", "law-CONVEX"):
            question()
    assert len(seen) == once
    assert repr(asked[0]) == "<question scale: no fault of the group scale>"


def test_without_pytest(monkeypatch):
    monkeypatch.setattr(
        builtins, "__import__",
        lambda name, *rest, real=builtins.__import__: _missing(name) if name == "pytest" else real(name, *rest),
    )  # fmt: skip
    with pytest.raises(rg.UnsupportedError, match=re.escape("run `pip install pytest`")):
        rg.parametrize(rg.attention)


def _missing(name):
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
