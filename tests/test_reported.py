"""Faults that people reported of other attention code, by kind: the right value, the fault's value, neighbours.

Each test names reports as ``repo#number``. Where the scores are all equal, a row's output is the mean of the values
that it sees, and values that count up from 0 then tell which keys were seen.
"""

import math
import time

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from judges import assert_close, assert_same_bits

DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
IDS = [np.dtype(d).name for d in DTYPES]
# Of values around 1 or of the value itself, for moderate scores; 16-bit inputs are exact, and outputs rounded once.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2}

CAUSAL = rg.Causal()
GARBAGE = [np.nan, np.inf, -np.inf]


@pytest.fixture(params=DTYPES, ids=IDS)
def dtype(request):
    return np.dtype(request.param)


def textbook(q, k, v, keep=True, *, bias=0.0, scale=None, softcap=None, sinks=None):
    """Row by row over the keys that it keeps and no others, in float64; knows nothing of regard."""
    q, k, v = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
    shape = (*q.shape[:-1], k.shape[-2])
    keep, bias = np.broadcast_to(keep, shape), np.broadcast_to(np.asarray(bias).astype(np.float64), shape)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    for at in np.ndindex(shape[:-1]):
        kept = keep[at] & (bias[at] != -np.inf)
        if not kept.any():
            continue
        s = scale * (k[at[:-1]][kept] @ q[at])
        s = (s if softcap is None else softcap * np.tanh(s / softcap)) + bias[at][kept]
        e = np.exp(s - s.max())
        total = e.sum() + (0 if sinks is None else np.exp(sinks[at[-2]] - s.max()))
        out[at] = e @ v[at[:-1]][kept] / total
    return out


def answers(arrays, **options):
    """The same question put to everything that answers it."""
    q, k, v = arrays
    result = rg.attention_forward(q, k, v, **options)
    yield "attention", rg.attention(q, k, v, **options)
    yield "attention_forward", result.out
    yield "state", rg.attention_forward(q, k, v, aux=rg.Aux(state=True), **options).out
    yield "reference", rg.reference.attention(q, k, v, **options)
    yield "online", rg.reference.online_attention(q, k, v, block_rows=3, block_keys=2, **options)
    if np.isfinite(v.astype(np.float64)).all():
        yield "weights", result.weights[...] @ np.repeat(v, q.shape[-3] // v.shape[-3], axis=-3).astype(np.float64)


def assert_right(arrays, want, wrong=None, **options):
    """Every path gives ``want``; ``wrong``, the value of the fault, would have been noticed."""
    dtype = arrays[0].dtype
    bound = TOLERANCE[dtype.name] * np.maximum(1, np.abs(np.nan_to_num(want)))
    for name, got in answers(arrays, **options):
        try:
            assert_close(got, np.broadcast_to(want, got.shape), bound)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
    if wrong is not None:
        with pytest.raises(AssertionError):
            assert_close(np.broadcast_to(wrong, got.shape), np.broadcast_to(want, got.shape), bound)


def counting(rows, keys, dtype=np.float32, batch=1):
    """Equal scores, values 0, 1, 2, ...: a row comes out as the mean of the numbers of the keys that it sees."""
    v = np.tile(np.arange(keys)[:, None], (batch, 1, 1, 4)).astype(dtype)
    return np.zeros((batch, 1, rows, 4), dtype), np.zeros((batch, 1, keys, 4), dtype), v


def rows_of(*means):
    """What ``counting`` gives: one mean per row."""
    return np.array(means, float)[:, None]


def drawn(*shapes, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32).astype(dtype) for shape in shapes]


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


@pytest.mark.parametrize("size", [32, 256, 65504])
def test_products_beyond_float16(target, size):
    """pytorch#119131, pytorch#116176, tinygrad#4985: inf - inf, where the scores are stored in 16 bits."""
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


# -- windows, biases, caps, sinks ---------------------------------------------------------------------------------


def test_window_bounds_are_inclusive(target, dtype):
    """transformers#39408, zml#763, mlx-lm#390: left=2 is the query's own key and two before it."""
    want, two = rows_of(0, 0.5, 1, 2, 3), rows_of(0, 0.5, 1.5, 2.5, 3.5)
    assert_right(counting(5, 5, dtype), want, wrong=two, mask=CAUSAL & rg.Window(left=2))
    assert_right(counting(5, 5, dtype), want, wrong=two, mask=rg.Window(2, 0))
    assert_right(counting(5, 5, dtype), rows_of(1, 1.5, 2, 2.5, 3), wrong=want, mask=rg.Window(2, 2))


@pytest.mark.parametrize(("keys", "want"), [(5, 3.5), (6, 4.5), (200, 198.5)])
def test_a_window_counts_from_absolute_positions(target, dtype, keys, want):
    """nanochat#452, lalamo#200, mistral.rs#246: a decoding step ignored the window, or began it at row 0."""
    for wrong in ((keys - 1) / 2, 0):
        assert_right(
            counting(1, keys, dtype), want, wrong=wrong, mask=CAUSAL & rg.Window(left=1), q_offset="end"
        )  # fmt: skip


def test_a_distance_penalty_prefers_what_is_near(target, dtype):
    """attention-gym#86: the sign of ALiBi."""
    i = np.arange(3)
    bias = (0.5 * (i - i[:, None])).astype(dtype)
    a, b = math.exp(-0.5), math.exp(-1)
    near, far = rows_of(0, 1 / (1 + a), (a + 2) / (1 + a + b)), rows_of(0, a / (1 + a), (a + 2 * b) / (1 + a + b))
    np.testing.assert_allclose([near[2, 0], far[2, 0]], [1.3202, 0.6798], atol=5e-5)
    assert_right(counting(3, 3, dtype), near, wrong=far, mask=CAUSAL, bias=bias)
    assert_right(counting(3, 3, dtype), far, wrong=near, mask=CAUSAL, bias=-bias)


def test_softcap_comes_before_the_mask(target, dtype):
    """onnx#7865, onnxruntime#28379: tanh makes -cap of -inf, and hidden keys have weight."""
    wrong = (1 + 2 * math.exp(-1)) / (2 + math.exp(-1))
    hidden = np.array([[True, True, False]])
    assert_right(counting(1, 3, dtype), 0.5, wrong=wrong, mask=hidden, softcap=1.0)
    bias = np.where(hidden, 0, -np.inf).astype(dtype)
    assert_right(counting(1, 3, dtype), 0.5, wrong=wrong, bias=bias, softcap=1.0)
    capped = textbook(*counting(1, 3), bias=np.array([[0.0, 0, 4]]), softcap=1.0)
    assert_right(counting(1, 3, dtype), capped, wrong=1.0 + 2 / 3, bias=np.array([[0, 0, 4]], dtype), softcap=1.0)


def test_a_sink_is_shifted_with_the_scores(target, dtype):
    """AttentionIsOFFByOne#5: 1 added after the maximum was subtracted."""
    q, k = np.full((1, 1, 1, 1), 10, dtype), np.full((1, 1, 2, 1), 10, dtype)
    v = np.ones((1, 1, 2, 1), dtype)
    assert_right((q, k, v), 1.0, wrong=2 / 3, scale=1, sinks=np.zeros(1, dtype))
    assert_right((q, k, v), 2 / 3, wrong=1.0, scale=1, sinks=np.full(1, 100, dtype))
    assert_right((q, -k, v), 0.0, wrong=2 / 3, scale=1, sinks=np.zeros(1, dtype))


@pytest.mark.parametrize("keys", [1, 2, 8, 1000])
def test_logsumexp_is_natural(target, dtype, keys):
    """pytorch#181645, flashinfer#2114, FlashMLA#106: base 2."""
    lse = rg.attention_forward(*counting(2, keys, dtype), sinks=np.ones(1, dtype)).lse  # over the keys only
    assert_close(lse, np.full((1, 1, 2), math.log(keys)), 1e-6)
    if keys > 1:
        with pytest.raises(AssertionError):
            assert_close(np.full((1, 1, 2), math.log2(keys)), np.full((1, 1, 2), math.log(keys)), 1e-6)


def test_dropout_is_never_on_unasked(target):
    """pytorch#124464, pytorch-image-models#1978: evaluation became random."""
    q, k, v = counting(400, 400)
    v[:] = 1
    first = rg.attention(q, k, v)
    assert (first == 1).all()
    assert_same_bits(rg.attention(q, k, v), first)
    with pytest.raises(rg.UnsupportedError, match="dropout"):
        rg.attention(q, k, v, dropout=0.5)


# -- what a mask says ---------------------------------------------------------------------------------------------


def test_true_means_may_attend(target, dtype):
    """LLMs-from-scratch#1061, pytorch#170415: with the other convention a decoder sees only the future."""
    future = np.triu(np.ones((3, 3), bool), 1)
    right, inverted = rows_of(0, 0.5, 1), rows_of(1.5, 2, 0)
    assert_right(counting(3, 3, dtype), right, wrong=inverted, mask=~future)
    assert_right(counting(3, 3, dtype), inverted, wrong=right, mask=future)


# What 1 1 0 and 1 0 0 give, added to equal scores over the values 0 1 2.
ADDED = rows_of((math.e + 2) / (2 * math.e + 1), 3 / (math.e + 2))


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int64, np.float32, object])
def test_only_bool_is_a_mask(dtype, kind):
    """halonet-pytorch#4, pytorch#39321: ~1 is 254 or -2, which is true. CosyVoice#628: 0 and 1 were added."""
    ones = np.array([[1, 1, 0], [1, 0, 0]]).astype(kind)
    arrays = counting(2, 3, dtype)
    with pytest.raises(rg.MaskError, match="bool"):
        rg.attention(*arrays, mask=ones)
    if kind in (np.uint8, np.int8, np.int64):
        assert (~ones).astype(bool).all()
        with pytest.raises(rg.MaskError, match="bool"):
            rg.attention(*arrays, mask=~ones)
        with pytest.raises(rg.RegardError, match="bias"):
            rg.attention(*arrays, bias=ones)
    meant = rows_of(0.5, 0)
    assert_right(arrays, meant, wrong=ADDED, mask=ones.astype(bool))


def test_a_float_array_is_a_bias(target, dtype):
    """Neighbour: added it is, where it was given as a bias; and a bool array is no bias."""
    ones = np.array([[1, 1, 0], [1, 0, 0]], dtype)
    assert_right(counting(2, 3, dtype), ADDED, wrong=rows_of(0.5, 0), bias=ones)
    with pytest.raises(rg.MaskError, match="bool array is a mask"):
        rg.attention(*counting(2, 3, dtype), bias=ones.astype(bool))


@pytest.mark.parametrize(("batch", "rows"), [(2, 2), (2, 3), (3, 1)])
def test_key_padding_by_batch(target, dtype, batch, rows):
    """fast-transformers#101, transformer#32: a (batch, key) mask was laid over (query, key)."""
    lengths = np.array([3, 1, 2][:batch])
    pad = np.arange(3) < lengths[:, None]
    want = ((lengths - 1) / 2)[:, None, None, None]
    arrays = counting(rows, 3, dtype, batch)
    wrong = ((lengths - 1) / 2)[:, None] if batch == rows else 1.0
    assert_right(arrays, want, wrong, mask=pad[:, None, None])
    assert_right(arrays, want, wrong, mask=rg.KeyLengths(lengths))
    if batch == rows:  # as an array of that shape it says something else, and that is what is done
        assert_right(arrays, wrong, want, mask=pad)
    else:
        with pytest.raises(rg.MaskError, match=r"mask\[:, None, None, :\]"):
            rg.attention(*arrays, mask=pad)


def test_padding_hides_keys_and_not_queries(target, dtype):
    """transformer#40, attention-is-all-you-need-keras#16: padded queries were emptied, padded keys stayed visible."""
    q, k, _ = counting(4, 4, dtype)
    v = np.array([1, 3, 50, 50])[:, None].astype(dtype)[None, None]
    keep = np.array([True, True, False, False])
    assert_right((q, k, v), 2.0, wrong=26.0, mask=keep[None, None, None])
    assert_right((q, k, v), rows_of(26, 26, 0, 0), wrong=2.0, mask=keep[None, None, :, None])


def test_the_softmax_runs_over_keys(target, dtype):
    """annotated_deep_learning_paper_implementations#146, vision-transformer#1: columns summed to 1."""
    scores = np.array([[0, 1], [2, 0]], dtype)
    eye = np.eye(2, dtype=dtype)
    e = np.exp(np.array([[0.0, 1], [2, 0]]))
    rows, columns = e / e.sum(1, keepdims=True), e / e.sum(0)
    np.testing.assert_allclose(rows[0], [0.268941421, 0.731058579], atol=1e-9)
    arrays = tuple(x[None] for x in (scores, eye, eye))
    assert_right(arrays, rows, wrong=columns, scale=1)


def test_masked_weights_are_shared_among_the_rest(target, dtype):
    """pytorch-image-models#2236, self-critical.pytorch#89: zeroed after the softmax, they summed to less than 1."""
    assert_right(counting(1, 4, dtype), 0.5, wrong=0.25, mask=np.array([[True, True, False, False]]))
    assert_right(counting(3, 4, dtype), rows_of(0, 0.5, 1), wrong=rows_of(0, 0.25, 0.75), mask=CAUSAL, q_offset=0)


# -- heads and head sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (6, 3), (6, 2), (3, 1), (3, 3)])
def test_which_kv_head_a_query_head_reads(target, dtype, heads, kv_heads):
    """onnx#7274, M1#4, nanochat#127: heads were tiled 0 1 0 1, and not repeated 0 0 1 1."""
    q, k = np.zeros((1, heads, 2, 4), dtype), np.zeros((1, kv_heads, 1, 4), dtype)
    number = np.arange(kv_heads) * 10 + 10
    v = np.broadcast_to(number[:, None, None], (1, kv_heads, 1, 4)).astype(dtype)
    repeated, tiled = np.repeat(number, heads // kv_heads), np.tile(number, heads // kv_heads)
    wrong = None if kv_heads in (1, heads) else tiled[:, None, None]
    assert_right((q, k, v), repeated[:, None, None], wrong)


def test_heads_that_do_not_divide_are_refused(dtype):
    """keras#23081."""
    q, k = np.zeros((1, 4, 2, 4), dtype), np.zeros((1, 3, 1, 4), dtype)
    with pytest.raises(rg.ShapeError, match="4 % 3"):
        rg.attention(q, k, k)


def test_axes_in_another_order(target, dtype):
    """flash_attn_jax#3, xformers#761: (B, S, H, D) taken for (B, H, S, D) attends over heads, without an error."""
    arrays = drawn(*[(1, 6, 2, 4)] * 3, dtype=dtype)
    turned = tuple(x.swapaxes(1, 2) for x in arrays)
    assert_right(turned, textbook(*turned), wrong=textbook(*arrays).swapaxes(1, 2))
    q, k, v = drawn((1, 6, 3, 4), (1, 7, 2, 4), (1, 7, 2, 4), dtype=dtype)
    with pytest.raises(rg.ShapeError):
        rg.attention(q, k, v)


def test_heads_of_a_wide_row(target, dtype):
    """FuxiCTR#30, reformer-pytorch#51: reshaped without a transpose, a head is made of neighbouring tokens."""
    wide = drawn(*[(1, 4, 6)] * 3, dtype=dtype)
    split = tuple(x.reshape(1, 4, 2, 3).swapaxes(1, 2) for x in wide)
    wrong = textbook(*(x.reshape(1, 2, 4, 3) for x in wide))
    assert_right(split, textbook(*split), wrong)
    order = [2, 0, 3, 1]  # and a permutation of the tokens permutes the output
    assert_right(tuple(x[:, :, order] for x in split), textbook(*split)[:, :, order], textbook(*split))


@pytest.mark.parametrize(("heads", "d", "padded"), [(8, 8, 64), (1, 36, 40), (1, 33, 64), (2, 5, 8), (2, 3, 48)])
def test_the_scale_comes_from_the_head_size(target, dtype, heads, d, padded):
    """vit-pytorch#65, ViT-CIFAR#12: from the model's width. transformers#35984, Fuser#5846: from a padded size."""
    arrays = drawn(*[(1, heads, 5, d)] * 3, dtype=dtype)
    assert_right(arrays, textbook(*arrays), wrong=textbook(*arrays, scale=padded**-0.5))
    assert rg.attention(*arrays).shape == (1, heads, 5, d)


@pytest.mark.parametrize("dv", [1, 3, 7, 300])
def test_values_of_another_width(target, dtype, dv):
    """flash-attention-jax#15, flash-attention#1541, pytorch#135654: one head size for both products."""
    q, k, v = drawn((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, dv), dtype=dtype)
    assert_right((q, k, v), textbook(q, k, v), wrong=textbook(q, k, v, scale=dv**-0.5 if dv != 4 else 1))


# -- sizes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"mask": CAUSAL, "q_offset": "end"}, {"mask": rg.KeyLengths(0)}, {"softcap": 1.0}]
)
def test_no_keys(target, dtype, options):
    """flash-attention#2470, pytorch#141219, jax#20690: an empty cache divides by zero."""
    q, k = np.zeros((1, 2, 3, 4), dtype), np.zeros((1, 2, 0, 4), dtype)
    result = rg.attention_forward(q, k, k, sinks=np.zeros(2, dtype), aux=rg.Aux(state=True), **options)
    for out in (result.out, result.state.out, rg.reference.online_attention(q, k, k, **options)):
        assert_close(out, np.zeros((1, 2, 3, 4)), 0)
    assert result.weights[...].shape == (1, 2, 3, 0)
    assert (result.lse == -np.inf).all()
    assert rg.plan(q, k, k, **options).tiles.visited == 0


def test_no_keys_in_the_reference(dtype):
    q, k = np.zeros((1, 2, 3, 4), dtype), np.zeros((1, 2, 0, 4), dtype)
    assert_close(rg.reference.attention(q, k, k), np.zeros((1, 2, 3, 4)), 0)


@pytest.mark.parametrize("extra", [-1, 1, 2, 100])
def test_key_and_value_of_different_lengths(dtype, extra):
    """pytorch#193728: the count of keys was taken from the values, and memory after the keys was read."""
    q, k = np.ones((1, 1, 3, 8), dtype), np.zeros((1, 1, 5 + max(extra, 0), 8), dtype)[:, :, :5]
    v = np.zeros((1, 1, 5 + extra, 8), dtype)
    for call in (rg.attention, rg.attention_forward, rg.plan, rg.reference.attention, rg.reference.online_attention):
        with pytest.raises(rg.ShapeError, match=f"key has 5 rows and value has {5 + extra}"):
            call(q, k, v)


def test_counts_of_pairs_beyond_32_bits(target):
    """onnxruntime#12435, vllm#45500: 64 heads x 8192 x 8192 is 2**32, 0 in 32 bits. A window bounds the work."""
    q = np.zeros((1, 64, 8192, 1), np.float32)
    v = np.broadcast_to(np.arange(8192, dtype=np.float32)[:, None], q.shape)
    out = rg.attention(q, q, v, mask=rg.Window(left=1, right=0))
    want = np.maximum(np.arange(8192) - 0.5, 0)
    assert_close(out, np.broadcast_to(want[:, None], out.shape), 0)


def test_offsets_beyond_32_bits(target):
    """Neighbour: keys that lie 2**32 bytes into an array of 2**31 numbers, most of it never touched."""
    keys, d = 2**24 + 300, 128
    try:
        k = np.zeros((1, keys, d), np.float32)
    except MemoryError:
        pytest.skip("no address space for 8 GiB of zeros")
    k[:, -3:, 0], k[:, :3, 0] = [1, 2, 3], 100
    q = np.zeros((1, 2, d), np.float32)
    for array in (k, k[:, :, ::-1], k[:, ::2]):
        seen = array[0, -3:]
        out = rg.attention(q, array, array, mask=rg.Window(left=1, right=0), q_offset="end")
        assert_close(out[0], np.stack([seen[:2].mean(0), seen[1:].mean(0)]), 1e-6)


def test_sequences_of_length_zero_in_a_packed_batch(target, dtype):
    """flash-attention#1537, flash-attention#2562, pytorch#81077: cu_seqlens with a repeated value."""
    q, k, v = counting(3, 5, dtype)
    documents = rg.Documents([0, 0, 2], [0, 0, 0, 2, 2])  # 1 is empty
    assert_right((q, k, v), rows_of(1, 1, 3.5), wrong=rows_of(1, 1, 3), mask=documents)
    assert_right((q, k, v), rows_of(1, 0, 3.5), wrong=rows_of(1, 2, 3.5), mask=rg.Documents([0, 1, 2], [0, 0, 0, 2, 2]))
    assert_right((q, k, v), rows_of(3, 3, 3), wrong=2.0, mask=rg.Documents([5, 5, 5], [0, 0, 5, 5, 5]))


# -- layout of the arguments --------------------------------------------------------------------------------------


def _fortran(x):
    return np.asfortranarray(x)


def _reversed(x):
    return x[..., ::-1, ::-1].copy()[..., ::-1, ::-1]


def _column_of_wider(x):
    return np.repeat(x, 2, axis=-1)[..., 1::2]


@pytest.mark.parametrize("layout", [_fortran, _reversed, _column_of_wider])
@pytest.mark.parametrize("which", [(0,), (1,), (2,), (0, 1, 2)])
def test_strides_are_read(target, dtype, layout, which):
    """pytorch#187506, pytorch#112577: the last axis was taken to be contiguous."""
    arrays = drawn((1, 2, 4, 8), (1, 2, 6, 8), (1, 2, 6, 8), dtype=dtype)
    want = textbook(*arrays)
    laid = tuple(layout(x) if n in which else x for n, x in enumerate(arrays))
    flat = tuple(x.ravel("K").reshape(x.shape) for x in laid)  # the memory, read as if it were contiguous
    misread = textbook(*flat) if layout is _fortran else None
    assert_right(laid, want, misread)


def test_reversed_views(target, dtype):
    """pytorch#92680, InferSent#100: permuted keys change nothing, reversed channels reverse the output."""
    q, k, v = drawn((1, 1, 4, 8), (1, 1, 6, 8), (1, 1, 6, 8), dtype=dtype)
    want = textbook(q, k, v)[..., ::-1]
    assert_right((q, k[:, :, ::-1], v[:, :, ::-1, ::-1]), want, wrong=want[..., ::-1])
    assert_right((q[:, :, ::-1], k, v), want[:, :, ::-1, ::-1], wrong=want)


@pytest.mark.parametrize("code", [">f4", ">f8", ">f2"])
def test_the_other_byte_order(code):
    """bottleneck#104, xgboost#12433, cupy#5828: the bytes were read the wrong way round, without an error."""
    native = drawn(*[(1, 1, 3, 4)] * 3, dtype=np.dtype(code).newbyteorder("="))
    swapped = tuple(x.astype(code) for x in native)
    assert (swapped[0] == native[0]).all()
    message = "byte order is not this machine's: pass query.astype"
    for call in (rg.attention, rg.attention_forward, rg.plan, rg.reference.attention):
        with pytest.raises(rg.DTypeError, match=message):
            call(*swapped)
    for name, array in {"bias": np.zeros((3, 3), code), "sinks": np.zeros(1, code)}.items():
        with pytest.raises(rg.DTypeError, match=f"{name}.*byte order"):
            rg.attention(*native, **{name: array})
    with pytest.raises(rg.DTypeError):
        rg.attention(*native, out=np.empty((1, 1, 3, 4), code))
    assert_right(tuple(x.astype(native[0].dtype) for x in swapped), textbook(*native))


@pytest.mark.parametrize("code", [">i8", ">i4", ">u2", "<i4", "u1"])
def test_integers_of_any_kind(target, code):
    """Neighbour: lengths, documents and offsets are read for what they say."""
    two = np.array([2, 3], code)
    assert_right(counting(1, 5, batch=2), np.array([0.5, 1])[:, None, None, None], wrong=2.0, mask=rg.KeyLengths(two))
    ids = np.array([0, 0, 7], code)
    assert_right(counting(3, 3), rows_of(0.5, 0.5, 2), wrong=1.0, mask=rg.Documents(ids))
    assert_right(counting(1, 5, batch=2), np.array([1, 1.5])[:, None, None, None], wrong=2.0, mask=CAUSAL, q_offset=two)


# -- the same answer, however it is come by -----------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [[1, 1, 3, 4], [1] * 9, [5, 4], [9]])
@pytest.mark.parametrize("window", [None, 3, 0])
def test_decoding_step_by_step(target, dtype, chunks, window):
    """x-transformers#311, tiny-llm#46, gpt-neox#1178: cached steps drifted from the whole pass."""
    q, k, v = drawn((1, 4, 9, 8), (1, 2, 9, 8), (1, 2, 9, 8), dtype=dtype)
    mask, i = CAUSAL & rg.Window(left=window), np.arange(9)
    near = (i <= i[:, None]) & (i[:, None] - i <= (9 if window is None else window))
    whole = rg.attention(q, k, v, mask=mask)
    assert_right((q, k, v), textbook(q, k, v, near), wrong=textbook(q, k, v), mask=mask)
    done = 0
    for n in chunks:
        at = slice(done, done := done + n)
        part = rg.attention(q[:, :, at], k[:, :, :done], v[:, :, :done], mask=mask, q_offset="end")
        assert_same_bits(part, whole[:, :, at])


@pytest.mark.parametrize("n", [200, 700])
def test_threads_change_no_bit(target, n):
    """flash-attention#414, flash-attention#2244: additions in the order in which threads came."""
    arrays = drawn(*[(2, 2, n, 32)] * 3)
    with rg.config(num_threads=1):
        want = rg.attention_forward(*arrays)
    for threads in (2, 4, 2):
        with rg.config(num_threads=threads):
            got = rg.attention_forward(*arrays)
        for mine, its in ((got.out, want.out), (got.lse, want.lse)):
            assert_same_bits(mine, its)


# -- speed ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tiny", [1e-41, 1e-45, 1e-39])
def test_subnormal_numbers_are_not_slow(target, tiny):
    """mxnet#19361, Paddle#29924: 10 to 100 times slower; 34 times in torch 2.13."""
    normal, small = (np.full((1, 4, 256, 64), x, np.float32) for x in (1, tiny))
    assert_close(rg.attention(small, small, small), np.full(small.shape, np.float64(np.float32(tiny))), 1e-45)

    def fastest(x):
        times = []
        for _ in range(7):
            started = time.perf_counter()
            rg.attention(x, x, x)
            times.append(time.perf_counter() - started)
        return min(times)

    assert fastest(small) < 5 * fastest(normal)


def test_scores_whose_weights_would_be_subnormal_are_not_slow(target):
    """Scores 88 to 103 below the maximum: exp makes 0 of them, not subnormal numbers."""
    q, v = np.ones((1, 1, 512, 1), np.float32), np.ones((1, 1, 2048, 64), np.float32)
    near, far = (
        np.zeros((1, 1, 2048, 1), np.float32),
        np.linspace(-103, -88, 2048, dtype=np.float32)[:, None][None, None],
    )
    far[:, :, 0] = 0

    def seconds(k):
        started = time.perf_counter()
        out = rg.attention(q, k, v, scale=1)
        spent = time.perf_counter() - started
        assert_close(out, np.ones(out.shape), 1e-6)
        return spent

    assert min(seconds(far) for _ in range(5)) < 5 * min(seconds(near) for _ in range(5))
