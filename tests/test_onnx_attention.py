"""regard.onnx.attention against the operator written down pair by pair, and the laws between its uses."""

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onnx_oracle
import regard as rg
import regard.onnx
from judges import assert_close, assert_same_bits, weight_rounding
from regard import _runtime
from regard._types import score_dtype
from regard.numerics import forward_bounds

DTYPES = [np.dtype(t) for t in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)]
STORED = {"float64": (2.0**-53, 0), "float32": (2.0**-24, 2.0**-149), "float16": (2.0**-11, 2.0**-24),
          "bfloat16": (2.0**-8, 2.0**-133)}  # fmt: skip


def normal(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


@st.composite
def masks(draw, rng, scores, dtype):
    """A bool or float mask of any rank, any axis 1 or full, the last one maybe shorter."""
    rank = draw(st.integers(1, 4))
    front = [draw(st.sampled_from([1, full])) for full in scores[4 - rank : 3]]
    keys = draw(st.one_of(st.just(scores[3]), st.integers(1, scores[3])))
    shape = (*front, keys)
    kind = draw(st.sampled_from(["bool", "float", "holes"]))
    if kind == "bool":
        return rng.random(shape) < 0.6
    mask = normal(rng, *shape, dtype=dtype)
    if kind == "holes":
        mask[rng.random(shape) < 0.4] = -np.inf
    return mask


@st.composite
def calls(draw):
    """Inputs and attributes of one valid call of opset 25."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype, value_dtype = draw(st.sampled_from(DTYPES)), draw(st.sampled_from([None, None, *DTYPES]))
    batch, kv_heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    queries, new, d, dv = (draw(st.integers(1, n)) for n in (5, 7, 6, 4))
    cache = draw(st.sampled_from(["none", "past", "lengths"]))
    inputs = {
        "Q": normal(rng, batch, kv_heads * group, queries, d, dtype=dtype),
        "K": normal(rng, batch, kv_heads, new, d, dtype=dtype),
        "V": normal(rng, batch, kv_heads, new, dv, dtype=value_dtype or dtype),
    }
    attributes = {
        "is_causal": draw(st.integers(0, 1)),
        "left_window_size": draw(st.integers(-1, 4)),
        "right_window_size": draw(st.integers(-1, 4)),
        "softcap": draw(st.sampled_from([0.0, 0.5, 3.0])),
        "scale": draw(st.sampled_from([None, 0.25, 2.0])),
        "softmax_precision": draw(st.sampled_from([None, 1, 10, 11, 16])),
        "qk_matmul_output_mode": draw(st.integers(0, 3)),
    }
    if draw(st.booleans()):
        inputs = {name: np.concatenate(list(x.swapaxes(0, 1)), axis=-1) for name, x in inputs.items()}
        attributes |= {"q_num_heads": kv_heads * group, "kv_num_heads": kv_heads}
    past = draw(st.integers(0, 4)) if cache == "past" else 0
    if cache == "past":
        inputs["past_key"] = normal(rng, batch, kv_heads, past, d, dtype=dtype)
        inputs["past_value"] = normal(rng, batch, kv_heads, past, dv, dtype=value_dtype or dtype)
    if cache == "lengths":
        inputs["nonpad_kv_seqlen"] = rng.integers(0, new + 1, batch)
    if draw(st.booleans()):
        inputs["attn_mask"] = draw(masks(rng, (batch, kv_heads * group, queries, past + new), dtype))
    return inputs, attributes


@settings(max_examples=300)
@given(calls())
def test_against_the_operator_written_down(call):
    inputs, attributes = call
    got = regard.onnx.attention(**inputs, **attributes, want_qk=True)
    agrees(got, inputs, attributes)


def agrees(got, inputs, attributes):
    Y, present_key, present_value, qk, parts = onnx_oracle.attention(**inputs, **attributes)
    query, key, value, bias, weights = (np.asarray(x, np.float64) for x in parts)
    dtype, d = inputs["Q"].dtype, query.shape[-1]
    scale = attributes.get("scale") or 1 / np.sqrt(d)
    cap, mode = attributes.get("softcap", 0.0), attributes.get("qk_matmul_output_mode", 0)
    bounds = forward_bounds(
        query, key, value, weights, scale=scale, tile_keys=96, biases=[bias], softcap=cap, dtype=dtype.name,
        random_walk=False, **weight_rounding(_runtime.chosen()[0], dtype.name),
    )  # fmt: skip
    stored, tiny = STORED[dtype.name]
    if mode == 3:
        allowed = bounds.weights
    else:
        unit = STORED[score_dtype(dtype.name).name][0]
        size = abs(scale) * (np.abs(query) @ np.abs(key).swapaxes(-1, -2))
        offset = np.where(np.isfinite(bias), np.abs(bias), 0) if mode == 2 else 0
        allowed = unit * ((d + 3) * size + 8 * np.minimum(size, cap or np.inf) + 2 * offset)
    shown = np.where(np.isfinite(qk), np.abs(qk), 0)
    assert [x.dtype for x in (got.Y, got.qk_matmul_output)] == [dtype] * 2
    allowed_out = bounds.out if inputs["Q"].ndim == 4 else np.concatenate(list(bounds.out.swapaxes(0, 1)), axis=-1)
    assert_close(got.Y, Y, allowed_out)
    assert_close(got.qk_matmul_output, qk, allowed + stored * (shown + allowed) + tiny)
    assert_same_bits(got.present_key, present_key)
    assert_same_bits(got.present_value, present_value)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def test_a_last_axis_of_one_is_for_all_keys_at_opset_23_and_a_short_mask_later(rng):
    call = dict(zip(["Q", "K", "V", "attn_mask"], (normal(rng, 2, 2, 3, 4) for _ in range(4)), strict=True))
    call["attn_mask"] = call["attn_mask"][..., :1]
    outputs = {}
    for opset in (23, 24):
        outputs[opset] = regard.onnx.attention(**call, opset=opset, want_qk=True)
        agrees(outputs[opset], call, {"opset": opset})
    assert_same_bits(outputs[24].Y, np.broadcast_to(call["V"][:, :, :1], (2, 2, 3, 4)))  # one key is left
    assert (outputs[23].Y != outputs[24].Y).all()


def test_a_decoding_step_with_a_past_is_the_row_of_the_prefill(rng):
    Q, K, V = normal(rng, 2, 6, 40, 8), normal(rng, 2, 2, 40, 8), normal(rng, 2, 2, 40, 5)
    full = regard.onnx.attention(Q, K, V, is_causal=1, left_window_size=9)
    for i in (0, 1, 17, 39):
        now = slice(i, i + 1)
        step = regard.onnx.attention(
            Q[:, :, now], K[:, :, now], V[:, :, now], None, K[:, :, :i], V[:, :, :i], is_causal=1, left_window_size=9
        )
        assert_same_bits(step.Y, full.Y[:, :, now])
        assert_same_bits(step.present_key, K[:, :, : i + 1])
        assert_same_bits(step.present_value, V[:, :, : i + 1])


def test_a_cache_with_lengths_is_the_same_step_per_batch_entry(rng):
    K, V, Q = normal(rng, 3, 2, 40, 8), normal(rng, 3, 2, 40, 5), normal(rng, 3, 4, 2, 8)
    lengths = np.array([2, 17, 40])
    K[0, :, 2:], V[1, :, 17:] = np.nan, np.nan  # what is not filled yet
    got = regard.onnx.attention(Q, K, V, nonpad_kv_seqlen=lengths, is_causal=1, want_qk=True, qk_matmul_output_mode=3)
    for b, n in enumerate(lengths):
        past = slice(0, n - 2), slice(n - 2, n)
        (old, new), one = past, slice(b, b + 1)
        want = regard.onnx.attention(
            Q[one], K[one, :, new], V[one, :, new], None, K[one, :, old], V[one, :, old], is_causal=1, want_qk=True,
            qk_matmul_output_mode=3,
        )  # fmt: skip
        assert_same_bits(got.Y[one], want.Y)
        assert_same_bits(got.qk_matmul_output[one, ..., :n], want.qk_matmul_output)
        assert not got.qk_matmul_output[one, ..., n:].any()


def test_mode_3_sums_to_one_or_zero_and_gives_the_output(rng):
    Q, K, V = normal(rng, 2, 4, 5, 8), normal(rng, 2, 2, 9, 8), normal(rng, 2, 2, 9, 3)
    mask = rng.random((2, 1, 5, 7)) < 0.5
    mask[1, 0, 2] = False
    got = regard.onnx.attention(Q, K, V, mask, qk_matmul_output_mode=3, want_qk=True)
    sums = got.qk_matmul_output.astype(np.float64).sum(-1)
    empty = np.zeros((2, 4, 5), bool)
    empty[1, :, 2] = True
    np.testing.assert_array_equal(sums[empty], 0)
    np.testing.assert_allclose(sums[~empty], 1, rtol=9 * 2.0**-24)
    np.testing.assert_array_equal(got.Y[empty], 0)
    np.testing.assert_allclose(got.qk_matmul_output @ np.repeat(V, 2, axis=1), got.Y, atol=1e-6)


def test_layouts_give_the_same_bits(rng):
    Q, K, V = normal(rng, 2, 5, 12), normal(rng, 2, 7, 6), normal(rng, 2, 7, 4)
    packed = regard.onnx.attention(Q, K, V, q_num_heads=4, kv_num_heads=2, want_qk=True)
    heads = [x.reshape(2, -1, n, x.shape[2] // n).swapaxes(1, 2) for x, n in ((Q, 4), (K, 2), (V, 2))]
    apart = regard.onnx.attention(*heads, want_qk=True)
    assert_same_bits(packed.Y, apart.Y.swapaxes(1, 2).reshape(2, 5, 8))
    assert_same_bits(packed.present_key, apart.present_key)
    assert_same_bits(packed.qk_matmul_output, apart.qk_matmul_output)
    assert np.shares_memory(packed.present_key, K)
    assert packed.Y.flags.c_contiguous


def test_it_is_regards_attention_bit_for_bit(rng):
    Q, K, V = normal(rng, 2, 4, 130, 8), normal(rng, 2, 2, 130, 8), normal(rng, 2, 2, 130, 5)
    mask = rng.random((4, 130, 130)) < 0.5
    got = regard.onnx.attention(Q, K, V, mask, is_causal=1, left_window_size=50, softcap=2.0, scale=0.3)
    want = rg.attention(
        Q, K, V, mask=rg.Causal() & rg.Window(left=50) & rg.Dense(mask[None]), softcap=2.0, scale=0.3
    )  # fmt: skip
    assert_same_bits(got.Y, want)
    assert got.qk_matmul_output is None


def test_the_lowest_number_is_a_bias_and_minus_infinity_a_mask(rng):
    Q, K, V = (normal(rng, 1, 1, 2, 4) for _ in range(3))
    lowest = np.array([[np.finfo(np.float32).min] * 2, [-np.inf] * 2], np.float32)
    Y = regard.onnx.attention(Q, K, V, lowest).Y[0, 0]
    np.testing.assert_allclose(Y[0], V[0, 0].mean(0), rtol=1e-6)  # scores of 1 are lost beside 3e38
    np.testing.assert_array_equal(Y[1], 0)


def test_minus_infinity_hides_an_infinite_score(rng):
    Q, K, V = (normal(rng, 1, 1, 3, 4) for _ in range(3))
    mask = np.array([0, -np.inf, 0], np.float32)
    clean = regard.onnx.attention(Q, K, V, mask, want_qk=True, qk_matmul_output_mode=2)
    K[:, :, 1], V[:, :, 1] = np.inf, np.nan
    got = regard.onnx.attention(Q, K, V, mask, want_qk=True, qk_matmul_output_mode=2)
    assert_same_bits(got.Y, clean.Y)
    assert_same_bits(got.qk_matmul_output, clean.qk_matmul_output)


def test_scores_are_those_of_the_reference(rng, monkeypatch):
    """One function of scores serves the reference and modes 0, 1 and 2."""
    Q, K, V = normal(rng, 2, 4, 5, 8), normal(rng, 2, 2, 9, 8), normal(rng, 2, 2, 9, 3)
    bias = normal(rng, 2, 1, 5, 9)
    cap, causal = {"softcap": 2.0}, {"mask": rg.Causal(), "q_offset": 0, "bias": bias}
    for mode, options in enumerate(({}, cap, cap | causal)):
        want = rg.reference.scores(Q, K, scale=0.3, precision=np.float32, **options)
        got = regard.onnx.attention(
            Q, K, V, bias, is_causal=1, scale=0.3, softcap=2.0, want_qk=True, qk_matmul_output_mode=mode
        )  # fmt: skip
        assert_same_bits(got.qk_matmul_output, want)
    exact = rg.reference.attention_forward(Q, K, V, scale=0.3, **cap, **causal)
    shares = np.exp(rg.reference.scores(Q, K, scale=0.3, **cap, **causal) - exact.lse[..., None])
    assert_close(exact.weights, shares, 1e-14)
    real = rg.reference._scores
    monkeypatch.setattr(rg.reference, "_scores", lambda *given: (2 * real(*given)[0], real(*given)[1]))
    spoilt = regard.onnx.attention(
        Q, K, V, bias, is_causal=1, scale=0.3, softcap=2.0, want_qk=True, qk_matmul_output_mode=2
    )  # fmt: skip
    assert_same_bits(spoilt.qk_matmul_output, 2 * got.qk_matmul_output)
    for function in (rg.reference.attention, rg.reference.online_attention):
        assert not np.allclose(function(Q, K, V, scale=0.3, **cap, **causal), exact.out)


def test_double_softmax_is_computed_in_float64(rng):
    Q, K, V = (normal(rng, 1, 2, 50, 16) for _ in range(3))
    wide = rg.attention(*(x.astype(np.float64) for x in (Q, K, V))).astype(np.float32)
    assert_same_bits(regard.onnx.attention(Q, K, V, softmax_precision=11).Y, wide)
    assert (rg.attention(Q, K, V) != wide).any()


def test_sizes_of_zero():
    for shapes in ([(0, 2, 3, 4)] * 3, [(1, 2, 0, 4), (1, 2, 3, 4), (1, 2, 3, 4)], [(1, 2, 3, 4), *[(1, 2, 0, 4)] * 2]):
        for mode in range(4):
            Q, K, V = (np.ones(shape, np.float32) for shape in shapes)
            got = regard.onnx.attention(Q, K, V, want_qk=True, qk_matmul_output_mode=mode, is_causal=1)
            assert got.Y.shape == Q.shape
            assert not got.Y.any()
            assert got.qk_matmul_output.shape == (*Q.shape[:3], K.shape[2])


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("dtype", [bool, np.float32])
def test_nothing_quadratic_is_made(rng, rank, dtype):
    n = 6000
    Q, K, V = (normal(rng, 1, 1, n, 4) for _ in range(3))
    mask = np.ones((1,) * (rank - 1) + (n - 100,), dtype)
    lengths = np.array([n - 50])
    regard.onnx.attention(Q[:, :, :1], K, V, mask)
    tracemalloc.start()
    regard.onnx.attention(Q, K, V, mask, nonpad_kv_seqlen=lengths, is_causal=1, left_window_size=3000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n  # bytes: blocks of the mask are evaluated one by one
