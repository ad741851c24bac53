"""What a report says, and how: examples, scripts, JSON, expectations, messages."""

import json
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import regard as rg
from check_right import everything, softmax, textbook
from check_wrong import WRONG, forgot_the_root, notebook_polarity, tril_of_a_rectangle

HERE = Path(__file__).parent
RUN_ALL = """
import io, runpy, sys, contextlib
for path in sys.argv[1:]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path(path)
        code = None
    except SystemExit as stop:
        code = stop.code
    print(path.split("/")[-1], "|", code, "|", said.getvalue().replace(chr(10), " ")[:60])
"""
ALONE = '\nassert "regard" not in sys.modules\n'


@lru_cache
def checked(fn):
    declared = next((declared for wrong, _, declared in WRONG if wrong is fn), {})
    return rg.check(fn, budget_s=120, **declared)


def run(scripts, tmp_path, after=ALONE):
    """Run scripts in a fresh interpreter; by name, what each exits with and prints."""
    for name, text in scripts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    paths = [str(tmp_path / name) for name in scripts]
    command = [sys.executable, "-W", "ignore", "-c", RUN_ALL + after, *paths]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(HERE)}, check=False)
    assert done.returncode == 0, done.stderr
    return {line.split(" | ")[0]: line.split(" | ")[1:] for line in done.stdout.splitlines()}


def test_scripts_need_numpy_only_and_print_the_fault(tmp_path):
    scripts = {}
    for fn, *_ in WRONG:
        for finding in checked(fn).findings:
            if finding.script:
                scripts[f"{fn.__name__}-{finding.name}.py"] = finding.script
            else:
                assert finding.name == "REFUSES", finding.name
    assert len(scripts) > len(WRONG)
    seen = run(scripts, tmp_path)
    assert seen.keys() == scripts.keys()
    quiet = {name: said for name, said in seen.items() if f"FAULT {name.split('-')[1][:-3]}" not in said[0]}
    assert quiet == {}


def test_a_script_of_a_local_function_holds_what_it_answered(tmp_path):
    finding = rg.check(lambda q, k, v: softmax(q @ k.swapaxes(-1, -2)) @ v).findings[0]
    assert "cannot be imported" in finding.script
    ((code, said),) = run({"local.py": finding.script}, tmp_path).values()
    assert code.startswith("FAULT SCALE_MISSING: off by 0.")
    assert "expected" in said


def test_a_mended_function_ends_its_script_well(tmp_path):
    finding = checked(forgot_the_root)["SCALE_MISSING"]
    mended = finding.script.replace("from check_wrong import forgot_the_root", "from mended import attention")
    (tmp_path / "mended.py").write_text(
        "import numpy as np\ndef attention(q, k, v):\n    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])\n"
        "    e = np.exp(s - s.max(-1, keepdims=True))\n    return e / e.sum(-1, keepdims=True) @ v\n"
    )
    script = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{mended}"
    assert run({"mended.py.run.py": script}, tmp_path)["mended.py.run.py"][0] == "None"


def test_the_smallest_example_is_small_and_round():
    example = checked(forgot_the_root)["SCALE_MISSING"].example
    case = example.case
    assert case.query.shape[:3] == (1, 1, 1)
    assert case.key.shape[2] == 2
    assert case.query.shape[3] == 2  # with one feature the factor is 1
    for x in (case.query, case.key, case.value):
        np.testing.assert_allclose(x, np.round(x, 1), atol=1e-6)
    assert np.abs(example.got - example.expected).max() > 0.04
    want = rg.reference.attention(case.query, case.key, case.value)
    np.testing.assert_allclose(example.expected, want, rtol=1e-9)


def test_printed():
    text = str(checked(tril_of_a_rectangle))
    assert re.search(r"^tril_of_a_rectangle: 1 fault, 2 warnings \(14 probes", text)
    for part in ("guessed  layout: bhsd", "FAULT CAUSAL_TOP_LEFT  (certain:", "smallest example", "expected [",
                 "yours    [", "why it matters", "how to mend it", "measured scale 0.353553 per q · k"):  # fmt: skip
        assert part in text, part
    assert "■ · · · · · ·    ■ ■ ■ · · · ·" in text


def test_table_and_json():
    report = checked(tril_of_a_rectangle)
    assert report.table().splitlines()[1].split()[:2] == ["CAUSAL_TOP_LEFT", "fault"]
    found = json.loads(report.json())
    assert found["ok"] is False
    first = found["findings"][0]
    assert first["name"] == "CAUSAL_TOP_LEFT"
    assert first["example"]["causal"] is True
    assert np.shape(first["example"]["expected"]) == np.shape(first["example"]["got"])
    nan = json.loads(checked(notebook_polarity).json(), parse_constant=pytest.fail)
    assert nan["ok"] is False


def test_what_is_expected_does_not_fail():
    report = rg.check(tril_of_a_rectangle, expected={"CAUSAL_TOP_LEFT": "documented rule"})
    assert report.ok
    assert report.exit_code == 0
    assert "EXPECTED CAUSAL_TOP_LEFT  (documented rule)" in str(report)
    strict = rg.check(textbook, expected={"NO_MAX": "kept simple"}, strict=True)
    assert "EXPECTED_NOT_FOUND" in strict.names
    assert strict.exit_code == 1


def test_strict_lets_warnings_fail():
    assert rg.check(notebook_polarity).ok  # a right function of the other polarity
    assert not rg.check(notebook_polarity, strict=True).ok


def test_supports_says_what_is_asked():
    report = rg.check(everything, supports={"causal"})
    assert "causal_sq" in report.asked
    assert not {"mask_sq", "bias", "window"} & set(report.asked)


def test_a_list_of_explanations_says_what_would_decide():
    """Without its scale argument, the two cannot be told apart."""

    def attention(q, k, v):
        return softmax(q @ k.swapaxes(-1, -2) / q.shape[-1]) @ v

    finding = rg.check(attention).findings[0]
    assert finding.certainty.startswith("one of several")
    assert {finding.name, *finding.alternatives} == {"SCALE_1_OVER_D", "SCALE_TWICE"}
    assert "told apart by scale_arg" in finding.evidence


def test_a_function_that_refuses_everything():
    def attention(q, k, v):
        raise RuntimeError("no such kernel")

    report = rg.check(attention)
    assert report.names == ("REFUSES",)
    assert "no such kernel" in str(report)


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (lambda q, k, v: None, "it returns None"),
        (lambda q: q, "positional argument"),
        (lambda q, k, v: sys.exit(3), "SystemExit: 3"),
        (lambda q, k, v: "text", "it returns an array of"),
    ],
)
def test_what_is_no_attention_function_is_survived(fn, said):
    report = rg.check(fn)
    assert report.names == ("REFUSES",)
    assert said in str(report)


def test_a_refused_option_is_a_warning():
    def attention(q, k, v, causal=False):
        if causal:
            raise RuntimeError("not today")
        return textbook(q, k, v)

    report = rg.check(attention)
    assert report.ok
    assert "causal raises RuntimeError: not today" in report["REFUSES"].does


def test_time_runs_out():
    report = rg.check(textbook, budget_s=0.0)
    assert report.unfinished
    assert "time ran out" in str(report)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"layout": "dshb"}, "layout is 'dshb'; check knows bhsd, bshd"),
        ({"mask": "true"}, "mask is 'true'; check knows keep, drop, additive"),
        ({"causal": "left"}, "causal is 'left'; check knows bottom-right, top-left"),
        ({"window": "w"}, "window is 'w'; check knows total, left-inclusive"),
        ({"empty_row": "mean"}, "empty_row is 'mean'; check knows zero, nan, any"),
        ({"supports": {"rope"}}, "supports has 'rope'; check asks about mask, causal"),
        ({"dtype": "int8"}, "dtype is 'int8'; check knows float32"),
    ],
)
def test_what_is_not_known_is_refused(declared, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        rg.check(textbook, **declared)


def test_unknown_finding_says_which_there_are():
    with pytest.raises(KeyError, match="there are CAUSAL_TOP_LEFT"):
        checked(tril_of_a_rectangle)["NO_MAX"]
