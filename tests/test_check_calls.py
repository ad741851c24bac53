"""Right functions that want to be called otherwise, and functions that do odd things: no false name, no traceback."""

import math
import re

import numpy as np
import pytest

import regard as rg
from check_right import softmax, textbook


def masked(q, k, v, keep=None):
    scores = q @ k.swapaxes(-1, -2) / q.dtype.type(math.sqrt(q.shape[-1]))
    return softmax(scores if keep is None else np.where(keep, scores, -np.inf)) @ v


def padded(q, k, v, key_padding_mask=None):
    """(batch, keys), True hides."""
    return masked(q, k, v, None if key_padding_mask is None else ~key_padding_mask[:, None, None, :])


def without_a_head_axis(q, k, v, mask=None):
    """(batch, queries, keys)."""
    return masked(q, k, v, None if mask is None else mask[:, None])


def causal_by_default(q, k, v, causal=True, window=None):
    n, m = q.shape[-2], k.shape[-2]
    behind = np.arange(n)[:, None] + m - n - np.arange(m)
    keep = np.ones((n, m), bool)
    if causal:
        keep &= behind >= 0
    if window is not None:
        keep &= behind < window
    return masked(q, k, v, keep)


def all_required(q, k, v, mask, causal):
    n, m = q.shape[-2], k.shape[-2]
    keep = np.tri(n, m, m - n, dtype=bool) if causal else np.ones((n, m), bool)
    return masked(q, k, v, keep if mask is None else keep & mask)


def by_keyword(*, query, key, value, mask=None):
    return masked(query, key, value, mask)


def lists(q, k, v):
    return textbook(q, k, v).tolist()


def base_two(q, k, v):
    """exp2 of scores times log2 e, as kernels have it."""
    scores = q @ k.swapaxes(-1, -2) * q.dtype.type(math.log2(math.e) / math.sqrt(q.shape[-1]))
    e = np.exp2(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


def always_causal_and_masked(q, k, v, mask=None):
    n, m = q.shape[-2], k.shape[-2]
    keep = np.tri(n, m, m - n, dtype=bool)
    return masked(q, k, v, keep if mask is None else keep & mask)


def multiples_of_four(q, k, v):
    if q.shape[-1] % 4 or v.shape[-1] % 4:
        raise ValueError("widths are multiples of 4")
    return textbook(q, k, v)


def one_head_size(q, k, v):
    if q.shape[-1] not in (8, 64):
        raise ValueError("head size 8 or 64")
    return textbook(q, k, v)


def short_only(q, k, v):
    if k.shape[-2] > 140:
        raise ValueError("at most 140 positions")
    return textbook(q, k, v)


def with_lse_but_not_causal(q, k, v, causal=False):
    if causal:
        raise NotImplementedError("causal")
    scores = q @ k.swapaxes(-1, -2) / q.dtype.type(math.sqrt(q.shape[-1]))
    return textbook(q, k, v), np.log(np.exp(scores).sum(axis=-1))


RIGHT = {
    padded: {"NAN_MASKED_V"},
    without_a_head_axis: {"NAN_MASKED_V"},
    causal_by_default: {"CAUSAL_FUTURE_NAN"},
    all_required: {"NAN_MASKED_V", "CAUSAL_FUTURE_NAN"},
    by_keyword: {"NAN_MASKED_V"},
    lists: {"OUT_DTYPE"},
    base_two: {"DTYPE_DOWNCAST"},
    always_causal_and_masked: {"NAN_MASKED_V", "CAUSAL_FUTURE_NAN"},
    multiples_of_four: {"REFUSES"},
    one_head_size: {"REFUSES"},
    short_only: {"REFUSES"},
    with_lse_but_not_causal: {"RETURNS_TUPLE", "REFUSES"},
}


@pytest.mark.parametrize("fn", RIGHT, ids=lambda fn: fn.__name__)
def test_a_right_function_is_not_called_wrong(fn):
    report = rg.check(fn)
    assert report.ok, report
    assert set(report.names) - {"EMPTY_SHAPE_CRASH"} <= RIGHT[fn], report


def raises(error):
    def attention(q, k, v):
        raise error

    return attention


class UnreadableError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (raises(UnreadableError()), r"UnreadableError: its text cannot be read \(RuntimeError\)"),
        (raises(GeneratorExit()), "GeneratorExit"),
        (raises(ValueError("a\x1b[31m\x00b")), re.escape(r"ValueError: a\x1b[31m\x00b")),
        (lambda q, k, v: None, "it returns None"),
        (lambda q, k, v: textbook(q, k, v) + 1j, "it returns an array of complex"),
        (lambda q, k, v: np.broadcast_to(np.float32(0), (10**6, 10**6, 10, 10)), r"shape \(1000000, 1000000, 10, 10\)"),
    ],
)
def test_what_is_no_answer_is_a_refusal(fn, said):
    report = rg.check(fn)
    assert report.names == ("REFUSES",)
    assert re.search(said, str(report))


@pytest.mark.parametrize("fn", [lambda q, k, v: v[..., :1, :], lambda q, k, v: (), lambda q, k, v: "text"])
def test_odd_results_end_in_a_report(fn):
    assert not rg.check(fn).ok


def test_ctrl_c_goes_on():
    with pytest.raises(KeyboardInterrupt):
        rg.check(raises(KeyboardInterrupt()))


def caches_keys(cache):
    def attention(q, k, v):
        return textbook(q, cache.setdefault(k.shape, k.copy()), v)

    return attention


def caches_outputs(cache):
    def attention(q, k, v):
        return cache.setdefault((q.shape, k.shape), textbook(q, k, v)).copy()

    return attention


@pytest.mark.parametrize("kind", [caches_keys, caches_outputs])
def test_what_is_kept_between_calls_is_named(kind):
    report = rg.check(kind({}))
    assert report.names[0] == "STALE_CACHE", report
    assert not {"UNKNOWN", "NOT_SOFTMAX"} & set(report.names)


def test_an_expected_fault_hides_no_other():
    """Top-left, as is expected; and wrong beyond 250 keys, as nobody expects."""

    def attention(q, k, v, causal=False):
        n, m = q.shape[-2], k.shape[-2]
        out = masked(q, k, v, np.tri(n, m, dtype=bool) if causal else None)
        return out * np.float32(1.5) if m > 250 else out

    report = rg.check(attention, expected={"CAUSAL_TOP_LEFT": "as torch"})
    assert not report.ok
    assert {"CAUSAL_TOP_LEFT", "WRONG_AT_SOME_SIZE"} <= set(report.names)


def test_an_expected_fault_alone_is_ok():
    def attention(q, k, v, causal=False):
        return masked(q, k, v, np.tri(q.shape[-2], k.shape[-2], dtype=bool) if causal else None)

    report = rg.check(attention, expected={"CAUSAL_TOP_LEFT": "as torch"})
    assert report.ok, report
    assert "WRONG_AT_SOME_SIZE" not in report.names


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_wrong_scale_has_the_same_name_in_every_dtype(dtype):
    def attention(q, k, v):
        wide = (x.astype(np.float32) for x in (np.float32(1.1) * q.astype(np.float32), k, v))
        return textbook(*wide).astype(q.dtype)

    assert rg.check(attention, dtype=dtype).names[0] == "SCALE_UNKNOWN"


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"seed": -1}, ValueError, "seed is -1; it is a whole number from 0 on"),
        ({"seed": 1.5}, ValueError, "seed is 1.5; it is a whole number"),
        ({"budget_s": "1"}, ValueError, "budget_s is '1'; it is a number of seconds"),
        ({"budget_s": math.nan}, ValueError, "budget_s is nan"),
        ({"supports": "causal"}, TypeError, "supports is 'causal'; it is a set of options, such as {'mask', 'causal'}"),
        ({"supports": 3}, TypeError, "supports is 3"),
        ({"expected": ["X"]}, TypeError, "expected is ['X']; it is a mapping of names to reasons"),
        (
            {"expected": {"SCALE_MISSING": 5}},
            TypeError,
            "expected has 'SCALE_MISSING': 5, which is no reason; write in",
        ),
        ({"expected": {"SCALE_MISSING": " "}}, TypeError, "expected has 'SCALE_MISSING': ' ', which is no reason"),
        ({"vjp": 5}, TypeError, "vjp is 5, which is no function: pass vjp(grad_out, query, key, value), or leave it"),
        ({"expected": {"SCALE_MISING": "x"}}, ValueError, "did you mean SCALE_MISSING?"),
        ({"expected": {"NOPE": "x"}}, ValueError, "which no finding is called; regard check --list names them"),
        ({"empty_row": None}, ValueError, "empty_row is None; check knows zero, nan, any: pass one of them"),
        ({"memory": "quadratic"}, ValueError, "memory is 'quadratic'; check knows linear"),
    ],
)
def test_options_that_are_not_known(options, error, said):
    with pytest.raises(error, match=re.escape(said)):
        rg.check(textbook, **options)


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (None, "fn is None, which is no function: pass a function of query, key, value"),
        ("file.py:attention", 'check_apart("file.py:function") takes a text'),
        (dict, "make an instance first"),
    ],
)
def test_what_is_no_function(fn, said):
    with pytest.raises(TypeError, match=re.escape(said)):
        rg.check(fn)


def test_another_name_of_a_fault_may_be_expected():
    def attention(q, k, v):
        return masked(q, k, v) * 1

    assert rg.check(attention, expected={"MASK_FILL_TINY": "typed so"}).ok


def test_a_dtype_may_be_a_dtype():
    assert rg.check(textbook, dtype=np.dtype("float64")).ok
