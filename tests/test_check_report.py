"""What a report says, and how: examples, scripts, JSON, expectations, messages."""

import itertools
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
    assert re.search(r"^tril_of_a_rectangle: 1 fault, 3 warnings \(17 probes", text)
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


def test_another_name_of_a_fault_is_no_other_explanation():
    def attention(q, k, v):
        return softmax(q @ k.swapaxes(-1, -2) / (q.shape[1] * q.shape[-1]) ** 0.5) @ v

    finding = rg.check(attention)["SCALE_D_MODEL"]
    assert finding.certainty.startswith("certain")
    assert (finding.also, finding.alternatives) == (("MHA_SCALE_DMODEL",), ())
    assert "\n  the same function as MHA_SCALE_DMODEL\n" in str(finding)
    assert "or: " not in str(finding)
    assert finding.as_dict()["also"] == ["MHA_SCALE_DMODEL"]


def test_rows_of_an_array_stand_under_each_other():
    lines = str(rg.check(tril_of_a_rectangle)["CAUSAL_TOP_LEFT"]).splitlines()
    wrapped = [(a, b) for a, b in itertools.pairwise(lines) if "[[" in a and b.lstrip().startswith("[")]
    assert wrapped
    for first, second in wrapped:
        assert second.index("[") == first.index("[[") + 1, (first, second)


def test_the_cure_of_a_wide_output_cuts_no_integers():
    def attention(q, k, v, cured=True):
        whole = [x if x.dtype.kind == "f" or not cured else x.astype(np.float64) for x in (q, k, v)]
        return textbook(*(x.astype(np.float64) for x in whole)).astype(whole[2].dtype)

    assert (
        "where integers were made float64 at the beginning"
        in rg.check(lambda q, k, v: textbook(q, k, v * 1.0).astype(float))["OUT_DTYPE"].mend
    )
    assert not {"OUT_DTYPE", "INT_INPUT_TRUNCATED"} & set(rg.check(attention).names)
    assert "INT_INPUT_TRUNCATED" in rg.check(lambda q, k, v: attention(q, k, v, False)).names


@pytest.mark.parametrize(
    "call", [lambda fn: fn, lambda fn: lambda q, k, v, n: fn(q, k, v), lambda fn: lambda q, k, v: {"out": fn(q, k, v)}]
)
def test_what_cannot_be_called_is_told_of_a_function_around_it(call):
    def only_64(q, k, v):
        if q.shape[-1] != 64:
            raise ValueError("only 64")
        return textbook(q, k, v)

    finding = rg.check(call(only_64))["REFUSES"]
    assert finding.level == "fault"
    assert "is checked by a function of query, key and value around it" in finding.mend


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
