"""No false alarm: right functions raise nothing, whatever the seed, in every dtype in which they compute properly."""

import math

import pytest

import regard as rg
from check_right import softmax
from check_seeds import DECLARED, FUNCTIONS, KINDS, alarms


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_twenty_seeds_raise_no_alarm(dtype):
    assert alarms(KINDS, dtype, range(20)) == {}


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: f"{fn.__module__}-{fn.__name__}")
def test_the_whole_check_raises_no_alarm_in_any_dtype(fn):
    declared, _, warned = DECLARED.get(fn, ({}, {}, set()))
    for dtype in FUNCTIONS[fn]:
        report = rg.check(fn, **{**declared, "dtype": dtype}, seed=1)
        assert report.ok, report
        assert set(report.names) - {"EMPTY_SHAPE_CRASH"} <= warned, report


def test_an_alarm_would_be_seen():
    def attention(q, k, v):
        return softmax(1.001 * (q @ k.swapaxes(-1, -2)) / math.sqrt(q.shape[-1])) @ v

    assert len(alarms([attention], "float32", range(3))) == 3
