"""What passes between the two processes of a check: plain values and listed classes, read without running anything."""

import pickle
from pathlib import Path

import numpy as np
import pytest

import regard as rg
from check_backwards import WRONG as WRONG_WAYS
from check_wrong import a_layer_with_two_faults, tril_of_a_rectangle
from regard.check import Example, Report, check_apart
from regard.check.apart._wire import _KINDS, Done, Told, line, message
from regard.check.arrays import NUMPY
from regard.check.candidate._guard import Called, speak

HERE = Path(__file__).parent


def attention_with_lse(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1], dtype=q.dtype)
    top = scores.max(axis=-1, keepdims=True, initial=-1e30)
    e = np.exp(scores - top)
    total = e.sum(axis=-1, keepdims=True)
    return e / total @ v, np.log(total[..., 0])  # without the maximum


def reports():
    fn, vjp, _, declared = WRONG_WAYS[0]
    yield rg.check(fn, vjp=vjp, **declared)
    for fn in (a_layer_with_two_faults, tril_of_a_rectangle, attention_with_lse):
        yield rg.check(fn)


def test_reports_arrive_as_they_were():
    examples = set()
    for report in reports():
        got = message(line(Done(report))).report
        assert str(got) == str(report)
        assert got.json() == report.json()
        assert got.junit() == report.junit()
        assert [f.script for f in got.findings] == [f.script for f in report.findings]
        examples |= {type(finding.example).__name__ for finding in got.findings}
    assert {"Example", "GradientExample", "_Lse"} <= examples


def test_every_kind_of_example_is_known():
    kinds, rest = set(), [Example]
    while rest:
        kinds.add(rest[0])
        rest += rest.pop(0).__subclasses__()
    assert kinds <= set(_KINDS.values())


def test_arrays_and_numbers_arrive_as_they_were():
    values = [np.float32([[1, -0.0, np.nan]]), np.array([True, False]), np.zeros((0, 3)), np.arange(4)[::2]]
    numbers = {"scale": np.float64(0.5), "softcap": float("inf"), "n": 3, "flag": True, "none": None, "text": "\ud800"}
    sent = message(line(Called(speak("attention", values, numbers, NUMPY)))).spoken.sent
    for want, got in zip(values, sent.arguments, strict=False):
        assert got.value.dtype == want.dtype
        assert got.value.tobytes() == want.tobytes()
        assert got.value.shape == want.shape
    assert [(x.name, x.value) for x in sent.arguments[len(values) :]] == list(numbers.items())


@pytest.mark.parametrize("value", [object(), np.array([object()]), {1, 2}, np.array(1j)])
def test_nothing_else_is_sent(value):
    with pytest.raises(TypeError, match="cannot be sent"):
        line(Told(value, 0.5))


FORGED = [
    b'{"is": "system"}',
    b'{"is": "Told", "what": 3, "share": 0.5}',
    b'{"is": "Told", "what": "x", "share": "y"}',
    b'{"is": "Told", "what": "x"}',
    b'{"is": "Done", "report": {"is": "Loaded"}}',
    b'{"is": "Done", "report": {"is": "Report", "name": "f", "findings": [1], "guessed": []}}',
    b'{"is": "array", "dtype": "O", "shape": [1], "data": "AAAAAAAAAAA="}',
    b'{"is": "array", "dtype": "<f8", "shape": [2], "data": "AAAAAAAAAAA="}',
    b"{}",
    b"null",
    b"[[1]]",
    b'{"is": "array", "dtype": "<f8", "shape": [1], "data": "AAAAAAAAAAA="}',
    b'{"is": "Report", "name": "f", "findings": [], "guessed": []}',
    b"Fatal Python error: Segmentation fault",
    pickle.dumps(Report("f", (), ())),
]


@pytest.mark.parametrize("text", FORGED)
def test_what_is_no_message_is_refused(text):
    with pytest.raises((TypeError, ValueError, KeyError)):
        message(text)


def test_what_a_function_writes_into_the_pipe_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = check_apart(f"{HERE / 'check_hostile.py'}:writes_everywhere").report
    assert report.names[0] == "SCALE_MISSING"
    assert not Path("pickled").exists()


def test_a_report_that_comes_before_the_function_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    forged = line(Done(Report("attention", (), ())))
    code = f"import os\nfor n in range(3, 20):\n    try: os.write(n, {forged!r})\n    except OSError: pass\nos._exit(0)"
    Path("forges.py").write_text(code)
    with pytest.raises(rg.RegardError, match="does not end well: the process ended with code 0"):
        check_apart("forges.py:attention")


def test_a_call_with_what_a_script_cannot_make_is_sent_without_it():
    class Unspeakable:
        """Neither array nor number."""

    drawn = speak("attention", [np.zeros(3)], {"rng": np.random.default_rng(1)}, NUMPY)
    assert drawn.sent.arguments[1].give == "np.random.default_rng(11)"
    assert drawn.text == "attention(float64(3), rng=Generator)"
    assert speak("attention", [np.zeros(3)], {"rng": Unspeakable()}, NUMPY).sent is None
    assert speak("attention", [np.array([object()])], {}, NUMPY).sent is None
