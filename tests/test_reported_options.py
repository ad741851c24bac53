"""Faults that people reported of other attention code, by kind: options and what a mask says.

Each test names reports as ``repo#number``: the right value, the fault's value, neighbours. Where the scores are all
equal, a row's output is the mean of the values that it sees, and values that count up from 0 tell which keys were seen.
"""

import math

import numpy as np
import pytest

import regard as rg
from judges import assert_close, assert_same_bits
from reported import CAUSAL, assert_right, counting, rows_of, textbook

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
