"""Faults that people reported of other attention code, by kind: masks, positions and precision.

Each test names reports as ``repo#number``: the right value, the fault's value, neighbours. Where the scores are all
equal, a row's output is the mean of the values that it sees, and values that count up from 0 tell which keys were seen.
"""

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from judges import assert_close
from reported import CAUSAL, GARBAGE, assert_right, counting, drawn, rows_of, textbook


def test_the_judge_can_say_no():
    arrays = counting(1, 3)
    assert_right(arrays, 1.0, wrong=0.5)
    for want, wrong in ((0.5, None), (np.nan, None), (1.0, 1.0)):
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            assert_right(arrays, want, wrong)


# -- rows that see no key -----------------------------------------------------------------------------------------

ROW_WITHOUT_KEYS = np.array([[1, 1, 1], [0, 0, 0], [1, 0, 1]], bool)
WORDS = {
    "array": lambda m: {"mask": m},
    "bits": lambda m: {"mask": ~rg.Dense(~m)},
    "function": lambda m: {"mask": rg.from_function(lambda b, h, p, j: m[p, j])},
    "blocks": lambda m: {"mask": rg.Blocks(m, 1)},
    "bias": lambda m: {"bias": np.where(m, 0, -np.inf).astype(np.float32)},
}


@pytest.mark.parametrize("words", WORDS)
def test_a_row_that_sees_no_key_is_zero(target, dtype, words):
    """pytorch#103963, pytorch#103749: NaN, later the mean of all values."""
    arrays = drawn(*[(1, 1, 3, 4)] * 3, dtype=dtype)
    want = textbook(*arrays, ROW_WITHOUT_KEYS)
    if dtype.itemsize > 2:  # the numbers of the report
        printed = [[-0.0606319704, 0.287286518, -0.584198862, -0.202032132], [0] * 4]
        np.testing.assert_allclose(want[0, 0, :2], printed, atol=1e-8)
    options = WORDS[words](ROW_WITHOUT_KEYS)
    assert_right(
        arrays, want, wrong=np.where(want == 0, arrays[2].astype(float).mean(2, keepdims=True), want), **options
    )
    assert rg.attention_forward(*arrays, **options).lse[0, 0, 1] == -np.inf


@pytest.mark.parametrize("row", [0, 15, 16, 63, 64, 69])
def test_one_empty_row_among_many(target, dtype, row):
    """Neighbours: at either end of a vector, a panel, a block."""
    arrays = counting(70, 100, dtype)
    mask = np.ones((70, 100), bool)
    mask[row] = False
    assert_right(arrays, np.where(np.arange(70) == row, 0, 49.5)[:, None], wrong=49.5, mask=mask)


def test_a_band_and_padding_leave_rows_without_keys(target, dtype):
    """pytorch#190486: NaN on the fast path, zeros on the other."""
    i = np.arange(8)
    want = rows_of(0, 0.5, 1.5, 2.5, 3.5, 4, 0, 0)
    array = (i <= i[:, None]) & (i[:, None] - i < 2) & (i < 5)
    for mask in (array, CAUSAL & rg.Window(left=1) & rg.KeyLengths(5), rg.Dense(array) & rg.Full()):
        assert_right(counting(8, 8, dtype), want, wrong=np.where(want == 0, 3.5, want), mask=mask)


def test_minima_that_add_up_to_minus_infinity(target, dtype):
    """transformers#27114, transformers#26421: -inf excludes, and any finite number, finfo.min too, is arithmetic."""
    low = ml_dtypes.finfo(dtype).min
    with np.errstate(over="ignore"):
        bias = np.triu(np.full((3, 3), low, dtype), 1) + np.array([low, low, 0], dtype)
    meant = np.tri(3, dtype=bool) & np.array([False, False, True])
    assert np.isinf(bias[0, 1])
    assert_right(counting(3, 3, dtype), rows_of(1, 1, 2), wrong=rows_of(0, 0, 2), bias=bias)
    assert_right(counting(3, 3, dtype), rows_of(0, 0, 2), wrong=rows_of(1, 1, 2), mask=meant)


# -- what lies behind the mask ------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [0, 1, 2])
@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_in_a_hidden_key(target, dtype, garbage, hidden):
    """pytorch#101967: adding -inf to NaN stays NaN."""
    q, k, v = drawn((1, 1, 2, 4), (1, 1, 3, 4), (1, 1, 3, 4), dtype=dtype)
    seen = np.arange(3) != hidden
    want = textbook(q, k[:, :, seen], v[:, :, seen])
    if hidden == 2 and dtype.itemsize > 2:
        np.testing.assert_allclose(want[0, 0, 0], [0.282895742, 0.85917405, -0.69641246, -0.156091991], atol=1e-8)
    k[0, 0, hidden] = garbage
    assert_right((q, k, v), want, wrong=np.nan, mask=seen[None])


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize(("used", "room"), [(5, 8), (1, 2), (96, 97), (100, 300)])
def test_garbage_in_the_unused_end_of_a_cache(target, dtype, garbage, used, room):
    """flash-attention#2374, flash-attention#1745, flashinfer#941, vllm#936: 0 times NaN is NaN."""
    q, k, v = drawn((2, 2, 3, 4), (2, 1, room, 4), (2, 1, room, 4), dtype=dtype)
    want = textbook(q, k[:, :, :used], v[:, :, :used])
    k[:, :, used:], v[:, :, used:] = garbage, garbage
    bias = np.where(np.arange(room) < used, 0, -np.inf)[None].astype(dtype)
    for options in ({"mask": rg.KeyLengths(used)}, {"mask": rg.KeyLengths([used] * 2)}, {"bias": bias}):
        assert_right((q, k, v), want, wrong=np.nan, **options)


def test_the_last_page_partly_filled(target, dtype):
    """flashinfer#941, vllm#936: 13 of 16 slots are used. The mean does not tell where a page lies."""
    q, k, v = counting(1, 16, dtype)
    k[:, :, 13:], v[:, :, 13:] = np.nan, np.nan
    for order in ([0, 1, 2, 3], [0, 2, 1, 3]):
        pages = [x.reshape(1, 1, 4, 4, 4)[:, :, order].reshape(1, 1, 16, 4) for x in (k, v)]
        assert_right((q, *pages), 6.0, wrong=7.5, mask=rg.KeyLengths(13))


def test_a_visible_nan_is_not_an_empty_row(target, dtype):
    """pytorch#141128: max(-inf, NaN) is -inf, so the row looked empty and came out as 0."""
    q, k, v = drawn((1, 1, 2, 4), (1, 1, 3, 4), (1, 1, 3, 4), dtype=dtype)
    clean = textbook(q, k, v)
    bad = q.copy()
    bad[:] = np.nan
    assert_right((bad, k, v), np.nan, wrong=0.0)
    one = q.copy()
    one[0, 0, 0, 3] = np.nan
    assert_right((one, k, v), np.where([[True], [False]], np.nan, clean), wrong=np.where([[True], [False]], 0, clean))
    spoilt = k.copy()
    spoilt[0, 0, 1, 0] = np.nan
    assert_right((q, spoilt, v), np.nan, wrong=0.0)
    with pytest.raises(rg.UnsupportedError, match="scale is nan"):
        rg.attention(q, k, v, scale=np.nan)


# -- range and precision ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [32, 256, 61440])
def test_products_beyond_float16(target, size):
    """pytorch#119131, pytorch#116176, tinygrad#4985: inf - inf, where the scores are stored in 16 bits.

    Sums of such products are exact in any order: NumPy's order may differ from key to key, which 65504 would show.
    """
    q, k = (np.full((1, 1, n, 64), size, np.float16) for n in (2, 3))
    v = np.tile(np.arange(3)[:, None], (1, 1, 1, 64)).astype(np.float16)
    with np.errstate(over="ignore"):
        stored = (q.astype(np.float32) @ k.swapaxes(-1, -2).astype(np.float32)).astype(np.float16)
    assert np.isinf(stored).all() == (size > 31.9)
    assert_right((q, k, v), 1.0, wrong=np.nan)


@pytest.mark.parametrize("fill", [-1e9, -1e10, -np.inf])
def test_a_fill_that_float16_cannot_hold(target, fill):
    """darts#3087, flax#982, flax#1527: cast to float16 it is -inf, and a row full of it is empty, not NaN."""
    with np.errstate(over="ignore"):
        fill = np.float16(fill)
    bias = np.zeros((2, 3), np.float16)
    bias[1], bias[0, 2] = fill, fill
    assert_right(counting(2, 3, np.float16), rows_of(0.5, 0), wrong=rows_of(0.5, np.nan), bias=bias)


@pytest.mark.parametrize("level", [-2e4, -2e5, -1e6, -1e9, -1e30])
def test_visible_scores_below_any_fill(target, level):
    """TransformerLens#319: with -1e5 written over what is hidden, the hidden key becomes the largest."""
    q = np.array([[[[1.0, 0]]]], np.float32)
    k = np.array([[[[level, 0], [level, 0], [5, 0]]]], np.float32)
    v = np.array([1, 3, 99], np.float32)[None, None, :, None]
    assert_right((q, k, v), 2.0, wrong=99.0, mask=np.array([[True, True, False]]), scale=1)
    assert_right((q, k, v), 2.0, wrong=99.0, mask=rg.Prefix(2), scale=1, softcap=3e38)


@pytest.mark.parametrize("level", [1e4, 1e6, 1e7, 1e30, -1e4, -1e7, -1e30])
def test_weights_of_huge_scores_sum_to_one(target, level):
    """pytorch#125674: exp(s - lse) of a rounded lse gave 0.1353 for 0.2 at scores of -1e7."""
    q, k = np.ones((1, 1, 1, 4), np.float32), np.full((1, 1, 5, 4), level / 4, np.float32)
    v = np.arange(20, dtype=np.float32).reshape(1, 1, 5, 4)
    assert_right((q, k, v), v.mean(2, keepdims=True), scale=1)
    result = rg.attention_forward(q, k, v, scale=1)
    assert_close(result.weights[...], np.full((1, 1, 1, 5), 0.2), 1e-6)
    rebuilt = np.exp(np.float32(level) - result.lse)
    assert abs(rebuilt - 0.2).item() > 1e-6, "this size does not tell the two ways apart"


@pytest.mark.parametrize(("dtype", "keys"), [(np.float16, 70000), (np.float16, 4097), (ml_dtypes.bfloat16, 4096)])
def test_sums_over_many_keys_in_16_bits(target, dtype, keys):
    """axlearn#18, tinygrad#12280, diffusers#3483: sums stall at 2048 and 256, and 1/70000 is subnormal in float16."""
    q, k, v = np.zeros((1, 1, 1, 8), dtype), np.zeros((1, 1, keys, 8), dtype), np.ones((1, 1, keys, 8), dtype)
    stalled = 2048 if dtype == np.float16 else 256
    assert_right((q, k, v), 1.0, wrong=stalled / keys)
    assert (rg.attention(q, k, v) == 1).all()


# -- where the queries stand --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "keys"), [(1, 4), (1, 5), (2, 4), (3, 100), (65, 200)])
def test_causal_with_more_keys_than_queries(target, dtype, rows, keys):
    """flash-attention#351, flash-attention#402, pytorch#103082: one new query saw key 0 alone."""
    i = np.arange(rows)
    end, start = ((keys - rows + i) / 2)[:, None], (i / 2)[:, None]
    assert_right(counting(rows, keys, dtype), end, wrong=start, mask=CAUSAL, q_offset="end")
    assert_right(counting(rows, keys, dtype), end, wrong=start, mask=CAUSAL, q_offset=keys - rows)
    assert_right(counting(rows, keys, dtype), start, wrong=end, mask=CAUSAL, q_offset="start")
    with pytest.raises(rg.AlignmentError, match=r'"start".*"end"'):
        rg.attention(*counting(rows, keys, dtype), mask=CAUSAL)


def test_more_queries_than_keys(target, dtype):
    """Neighbour: the first queries stand before every key."""
    assert_right(
        counting(5, 3, dtype), rows_of(0, 0, 0, 0.5, 1), wrong=rows_of(0, 0.5, 1, 1, 1), mask=CAUSAL, q_offset="end"
    )


@pytest.mark.parametrize("n", [4, 5, 97, 130])
def test_causal_is_not_off_by_one(target, dtype, n):
    """GPT-SoVITS#965, TransformerLens#284: a query sees itself and nothing after it."""
    i = np.arange(n)[:, None]
    for strict_or_leaking in ((i - 1).clip(0) / 2, np.minimum(i + 1, n - 1) / 2):
        assert_right(counting(n, n, dtype), i / 2, wrong=strict_or_leaking, mask=CAUSAL)


def test_a_mask_beside_causal_is_their_intersection(target, dtype):
    """pytorch#187801, nanoVLM#80, tinygrad#8675: refused by one backend, joined by another, one dropped by a third."""
    mask = np.array([[False, True, True]] * 3)
    assert_right(counting(3, 3, dtype), rows_of(0, 1, 1.5), wrong=1.5, mask=CAUSAL & rg.Dense(mask))
    assert_right(counting(3, 3, dtype), rows_of(0, 1, 1.5), wrong=rows_of(0, 0.5, 1), mask=rg.Dense(mask) & CAUSAL)
    bias = np.where(mask, 0, -np.inf).astype(np.float32)
    assert_right(counting(3, 3, dtype), rows_of(0, 1, 1.5), wrong=1.5, mask=CAUSAL, bias=bias)


@pytest.mark.parametrize("scale", [0.0, -0.5, 1e-30])
def test_scale_comes_before_the_mask(target, dtype, scale):
    """cudnn-frontend#804: 0 times -inf is NaN, and a negative scale turns -inf into +inf."""
    q, k, v = counting(3, 3, dtype)
    assert_right((q + 1, k + 1, v), rows_of(0, 0.5, 1), wrong=np.nan, mask=CAUSAL, scale=scale)
