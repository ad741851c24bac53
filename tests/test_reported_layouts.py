"""Faults that people reported of other attention code, by kind: heads, sizes, layouts and speed.

Each test names reports as ``repo#number``: the right value, the fault's value, neighbours. Where the scores are all
equal, a row's output is the mean of the values that it sees, and values that count up from 0 tell which keys were seen.
"""

import time

import numpy as np
import pytest

import regard as rg
from judges import assert_close, assert_same_bits
from reported import CAUSAL, assert_right, counting, drawn, rows_of, textbook

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
    with pytest.raises(rg.ShapeError, match="4 is no multiple of 3"):
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


@pytest.mark.alone
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


@pytest.mark.alone
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
