"""Roundings: each is named where it is, and told from the others; functions that compute properly have none."""

import math

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from check_mutants import as_function
from check_right import everything, in_float64, softmax, textbook, tiled
from regard.check.faults import BY_NAME
from regard.check.faults.precision import BFLOAT16, GROUP, TF32
from regard.check.instruments._sites import sites

DTYPES = ("float64", "float32", "float16", "bfloat16")
VARIANTS = [(fault, label) for fault in GROUP.faults for label in fault.variants]
SIXTEEN = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def in_single(q, k, v):
    """As a kernel does: 16-bit operands and output, all else in float32."""
    single = (x.astype(np.float32) for x in (q, k, v))
    return textbook(*single).astype(q.dtype)


def in_sixteen(q, k, v):
    """Every intermediate in the dtype of the inputs, sums one by one."""
    kind = q.dtype.type
    s = (q @ np.swapaxes(k, -1, -2)).astype(kind)
    s = (s / np.full(1, math.sqrt(q.shape[-1])).astype(kind)).astype(kind)
    e = np.exp((s - s.max(axis=-1, keepdims=True)).astype(kind)).astype(kind)
    total = np.zeros((*e.shape[:-1], 1), kind)
    for j in range(e.shape[-1]):
        total = (total + e[..., j : j + 1]).astype(kind)
    return ((e / total).astype(kind) @ v).astype(kind)


def in_half(q, k, v):
    half = (x.astype(np.float16) for x in (q, k, v))
    return textbook(*half).astype(q.dtype)


def faults(fn, **declared):
    report = rg.check(fn, **declared)
    return [finding.name for finding in report.findings if finding.level == "fault"]


def test_rounding_is_that_of_the_dtypes():
    x = np.random.default_rng(0).standard_normal(1000) * 1e3
    np.testing.assert_array_equal(BFLOAT16(x), x.astype(ml_dtypes.bfloat16).astype(float))
    half = x[np.abs(x) > 1e-3]
    np.testing.assert_array_equal(TF32(half), half.astype(np.float16).astype(float))
    assert np.isinf(BFLOAT16(np.array([np.inf]))).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_function_that_computes_properly_is_exact_enough_at_every_site(dtype):
    for fn in (in_single if dtype in SIXTEEN else textbook, in_float64, rg.attention):
        for _, places in sites(dtype):
            for site in places:
                got = fn(*(x.astype(site_dtype(dtype)) for x in (site.case.query, site.case.key, site.case.value)))
                assert site.judge.error(np.asarray(got, np.float64)) < 1.5, (fn, site.case.name)


def site_dtype(dtype):
    return SIXTEEN.get(dtype) or np.dtype(dtype)


@pytest.mark.parametrize(("fault", "label"), VARIANTS, ids=lambda x: getattr(x, "name", x))
def test_every_rounding_is_named(fault, label):
    report = rg.check(as_function(fault.variants[label]))
    assert report.names == (fault.name,), report
    finding = report.findings[0]
    assert not label or label in finding.does
    assert "of the bound of rounding errors" in finding.evidence[0]
    assert finding.example is not None
    assert finding.script


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_a_textbook_function_in_sixteen_bits_truly_rounds(dtype):
    want = ["LOWP_LOGITS", "FP16_OVERFLOW_BEFORE_SCALE"] if dtype == "float16" else ["LOWP_LOGITS"]
    assert faults(in_sixteen, dtype=dtype) == [*want, "LOWP_SUM"]


def test_numpys_sums_in_half_are_made_in_single():
    assert faults(textbook, dtype="float16") == ["LOWP_LOGITS", "FP16_OVERFLOW_BEFORE_SCALE"]


def test_a_tiled_function_in_half_carries_in_half():
    assert set(faults(tiled, dtype="float16")) == {
        "LOWP_LOGITS", "FP16_OVERFLOW_BEFORE_SCALE", "FP16_PV_OVERFLOW", "LOWP_CARRY",
    }  # fmt: skip


def test_single_that_is_computed_in_half_is_seen():
    assert faults(in_half) == ["LOWP_LOGITS", "FP16_OVERFLOW_BEFORE_SCALE"] or "TF32_OR_BF16X1_GEMM" in faults(in_half)


def test_a_rounding_does_not_hide_another_fault():
    def attention(q, k, v, causal=False):
        s = (q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])).astype(np.float16).astype(np.float32)
        if causal:
            n, m = s.shape[-2:]
            s = np.where(np.tri(n, m, m - n + 1, dtype=bool), s, -np.inf)
        return softmax(s) @ v

    assert set(faults(attention)) == {"LOWP_LOGITS", "CAUSAL_PLUS_ONE"}


def test_an_approximation_that_nobody_has_listed_is_seen_by_its_period():
    def attention(q, k, v):
        s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
        x = (s - s.max(axis=-1, keepdims=True, initial=-np.inf)) * np.float32(math.log2(math.e))
        f = x - np.floor(x)
        e = np.ldexp(1 + f - 0.3 * f * (1 - f), np.floor(x).astype(int))
        return (e / e.sum(axis=-1, keepdims=True) @ v).astype(q.dtype)

    report = rg.check(attention)
    assert report.names[0] == "EXP_APPROX_COARSE"
    assert "weights are off by up to" in report.findings[0].does


@pytest.mark.parametrize("fn", [textbook, everything, tiled, in_float64, rg.attention], ids=lambda fn: fn.__name__)
def test_no_rounding_is_seen_in_single(fn):
    assert not {fault.name for fault in GROUP.faults} & set(rg.check(fn).names)


def test_all_roundings_have_a_place():
    named = {name for dtype in DTYPES for name, _ in sites(dtype)}
    assert named == {fault.name for fault in GROUP.faults} == {name for name in named if name in BY_NAME}
