"""`regard.check` on JAX: its own function as it is, and one that is wrong."""

import subprocess
import sys
from pathlib import Path

import jax
import pytest

import check_jax as written
import regard as rg


@pytest.fixture(scope="module")
def as_found():
    return rg.check(jax.nn.dot_product_attention, window="left-inclusive")


def test_jaxs_own_function_as_found(as_found):
    names = {"CAUSAL_TOP_LEFT", "WINDOW_TOP_LEFT", "EMPTY_ROW_UNIFORM", "NAN_MASKED_V", "DTYPE_DOWNCAST"}
    assert names <= set(as_found.names), as_found
    assert {f.name for f in as_found.findings if f.level == "fault"} == {"CAUSAL_TOP_LEFT", "WINDOW_TOP_LEFT"}
    guessed = {guess.what: guess.value for guess in as_found.guessed}
    assert guessed["arrays"] == "jax"
    assert guessed["layout"] == "bshd"
    assert guessed["causal rule"] == "top-left"
    assert not as_found.unfinished


def test_its_scripts_run_and_fail(as_found):
    finding = as_found["CAUSAL_TOP_LEFT"]
    done = subprocess.run(
        [sys.executable, "-c", finding.script], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "FAULT CAUSAL_TOP_LEFT" in done.stderr


def test_a_wrong_function_in_jax_is_named():
    report = rg.check(written.over_queries)
    assert [f.name for f in report.findings if f.level == "fault"] == ["SOFTMAX_OVER_QUERIES"], report
    done = subprocess.run(
        [sys.executable, "-c", report["SOFTMAX_OVER_QUERIES"].script], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(Path(written.__file__).parent)},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "FAULT SOFTMAX_OVER_QUERIES" in done.stderr


def test_a_right_function_in_jax_raises_nothing():
    report = rg.check(written.textbook, dtype="float64")
    assert report.ok, report
    assert {guess.what: guess.value for guess in report.guessed}["arrays"] == "jax"
