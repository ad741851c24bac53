"""The multi-head layer against attention written out in loops."""

import dataclasses
import math

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from dense_multihead import turned
from judges import assert_agrees, assert_close, assert_same_bits
from multihead_random import EXACT, build, draw_case, expected, make

# --- heads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 12), (2, 3, 12), (2, 1, 5, 12), (0, 12), (4, 0), (2, 0, 12)])
@pytest.mark.parametrize("heads", [1, 2, 3, 12])
def test_split_and_merge(shape, heads):
    x = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    parts = rg.split_heads(x, heads)
    size = shape[-1] // heads
    assert parts.shape == (*shape[:-2], heads, shape[-2], size)
    for at in np.ndindex(parts.shape):
        *lead, h, s, d = at
        assert parts[at] == x[(*lead, s, h * size + d)]
    assert_same_bits(rg.merge_heads(parts), x)
    assert_same_bits(rg.merge_heads(np.ascontiguousarray(parts)), x)


@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x[:, ::2], lambda x: x[..., ::-3], lambda x: x.T, lambda x: x.swapaxes(0, 1)]
)
def test_split_is_a_view_of_any_strides(view):
    x = view(np.arange(6 * 12 * 12.0).reshape(6, 12, 12))
    parts = rg.split_heads(x, 2)
    assert np.shares_memory(parts, x)
    assert np.shares_memory(rg.merge_heads(parts), x)
    parts[..., 1, 2, 0] = -1
    assert (x[..., 2, x.shape[-1] // 2] == -1).all()


def test_messages_of_heads():
    with pytest.raises(rg.ShapeError, match=r"width of 10 is not a multiple of 4 heads.*\(3, 10\), 10 % 4 = 2"):
        rg.split_heads(np.zeros((3, 10)), 4)
    with pytest.raises(rg.ShapeError, match=r"shape \(12,\); it needs at least two axes, \(\.\.\., S, heads \* D\)"):
        rg.split_heads(np.zeros(12), 4)
    assert rg.split_heads([[1, 2], [3, 4]], 2).tolist() == [[[1], [3]], [[2], [4]]]
    with pytest.raises(rg.ShapeError, match=r"shape \(3, 4\); it needs at least three axes"):
        rg.merge_heads(np.zeros((3, 4)))
    for heads in (0, -1, True, 2.0, None, "2"):
        with pytest.raises(rg.ShapeError, match=r"heads is .*integer, 1 or more"):
            rg.split_heads(np.zeros((3, 12)), heads)


# --- against loops --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_equals_loops(seed):
    layer, inputs, call, base = draw_case(seed)
    out, weights, lse = expected(layer, inputs, call, base)
    result = build(layer, base).forward(*inputs, **call)
    assert_close(result.out, out, EXACT)
    assert_close(result.weights[...], weights, EXACT)
    assert_close(result.lse, lse, EXACT)
    assert_same_bits(build(layer, base)(*inputs, **call), result.out)


@pytest.mark.parametrize("seed", range(12))
def test_float32(seed):
    """Scores are a few units at most here; three sums in a row, each within 50 units of 6e-8 of what they sum."""
    layer, inputs, call, base = draw_case(seed)
    narrow = {name: np.float32(x) if isinstance(x, np.ndarray) else x for name, x in layer.items()}
    inputs = [np.float32(x) for x in inputs]
    want = expected(narrow, inputs, call, base)[0]
    got = build(narrow, base)(*inputs, **call)
    assert got.dtype == np.float32
    assert_close(got, want, 150 * 2.0**-24 * (1 + np.abs(want).max()))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=lambda d: d.__name__)
@pytest.mark.parametrize("weights", ["narrow", "wide"])
def test_16_bit_is_rounded_once(dtype, weights):
    layer, inputs, call, base = draw_case(3)
    stored = dtype if weights == "narrow" else np.float32
    narrow = {name: x.astype(stored) if isinstance(x, np.ndarray) else x for name, x in layer.items()}
    inputs = [x.astype(dtype) for x in inputs]
    got = build(narrow, base)(*inputs, **call)
    assert got.dtype == dtype
    wide = {name: x.astype(np.float32) if isinstance(x, np.ndarray) else x for name, x in narrow.items()}
    assert_same_bits(got, build(wide, base)(*(x.astype(np.float32) for x in inputs), **call).astype(dtype))


def test_float16_overflow_is_inf():
    layer = rg.MultiHeadAttention(
        num_heads=1, query_weight=np.eye(2, dtype=np.float32), key_weight=np.eye(2, dtype=np.float32),
        value_weight=np.eye(2, dtype=np.float32), output_weight=2 * np.eye(2, dtype=np.float32),
    )  # fmt: skip
    assert np.isposinf(layer(np.full((1, 2), 4e4, np.float16))).all()


def test_unbatched_and_many_batch_axes():
    rng = np.random.default_rng(0)
    layer = rg.MultiHeadAttention(**make(rng, widths=(10, 10, 10, 10), extra=1))
    x = rng.standard_normal((2, 3, 5, 10))
    whole = layer.forward(x, mask=rg.Causal())
    assert whole.heads.shape == (2, 3, 4, 5, 5)
    one = layer.forward(x[1, 2], mask=rg.Causal())
    assert_close(one.out, whole.out[1, 2], EXACT)
    assert one.weights.shape == (4, 5, 6)
    assert_close(one.weights[2], whole.weights[1, 2, 2], EXACT)
    assert layer(x[:0]).shape == (0, 3, 5, 10)
    assert layer(x[:, :, :0]).shape == (2, 3, 0, 10)


@pytest.mark.parametrize("extra", [0, 2])
@pytest.mark.parametrize("base", [None, 50.0])
@pytest.mark.parametrize(("queries", "memories"), [(3, 1), (1, 3)])
def test_batch_axes_broadcast(extra, base, queries, memories):
    rng = np.random.default_rng(0)
    layer = build(make(rng, extra=extra), base)
    query, key, value = (rng.standard_normal(s) for s in ((queries, 2, 10), (memories, 6, 9), (memories, 6, 7)))
    got = layer.forward(query, key, value, mask=rg.Causal(), q_offset=[0, 2, 4])
    for b, offset in enumerate((0, 2, 4)):
        own = [x[b % len(x)] for x in (query, key, value)]
        alone = layer.forward(*own, mask=rg.Causal(), q_offset=offset)
        assert_close(got.out[b], alone.out, EXACT)
        assert_close(got.weights[b], alone.weights[...], EXACT)


def test_the_head_parts_are_attentions():
    layer, inputs, call, base = draw_case(5)
    result = build(layer, base).forward(*inputs, **call)
    options = {name: layer.get(name) for name in ("scale", "softcap", "sinks") if layer.get("extra_key") is None}
    options |= {name: layer.get(name) for name in ("scale", "softcap")}
    assert_agrees(result.attention, result.query, result.key, result.value, **call, **options)


# --- extra keys -----------------------------------------------------------------------------------


def test_an_extra_key_is_seen_through_every_mask():
    rng = np.random.default_rng(1)
    arguments = make(rng, extra=2)
    layer = rg.MultiHeadAttention(**arguments)
    inputs = [rng.standard_normal((2, 4, width)) for width in (10, 9, 7)]
    result = layer.forward(*inputs, mask=rg.Empty())
    assert result.weights.shape == (2, 4, 4, 6)
    assert (result.weights[..., :4] == 0).all()
    assert_close(result.weights[..., 4:].sum(-1), np.ones((2, 4, 4)), EXACT)
    assert np.isneginf(result.attention.lse).all()
    assert np.isfinite(result.lse).all()


def test_no_extra_keys_at_all():
    rng = np.random.default_rng(1)
    arguments = make(rng)
    inputs = [rng.standard_normal((2, 4, width)) for width in (10, 9, 7)]
    rows = {"extra_key": np.zeros((0, 24)), "extra_value": np.zeros((0, 20))}
    mask = np.tri(4, dtype=bool)[::-1] & (np.arange(4)[:, None] != 2)
    got, want = (rg.MultiHeadAttention(**arguments, **more).forward(*inputs, mask=mask) for more in (rows, {}))
    assert_close(got.out, want.out, EXACT)
    assert_close(got.weights[...], want.weights[...], EXACT)
    assert np.isneginf(got.lse[..., 2]).all()


def test_a_zero_extra_key_is_a_sink_at_zero():
    """torch's add_zero_attn: a key of zeros has score 0, and its value adds nothing."""
    rng = np.random.default_rng(2)
    arguments = make(rng)
    rows = {"extra_key": np.zeros((1, 24)), "extra_value": np.zeros((1, 20))}
    inputs = [rng.standard_normal((2, 4, width)) for width in (10, 9, 7)]
    zero = rg.MultiHeadAttention(**arguments, **rows).forward(*inputs)
    sink = rg.MultiHeadAttention(**arguments, sinks=np.zeros(4)).forward(*inputs)
    assert_close(zero.out, sink.out, EXACT)
    assert_close(zero.weights[..., :4], sink.weights[...], EXACT)


def test_nan_in_a_row_stays_there():
    rng = np.random.default_rng(3)
    layer = rg.MultiHeadAttention(**make(rng, widths=(10, 10, 10, 10), extra=1))
    x = rng.standard_normal((2, 5, 10))
    spoilt = x.copy()
    spoilt[0, 3:] = np.nan
    mask = rg.KeyLengths([3, 5])
    clean, got = layer.forward(x, mask=mask), layer.forward(spoilt, mask=mask)
    assert np.isnan(got.out[0, 3:]).all()
    assert_same_bits(got.out[0, :3], clean.out[0, :3])
    assert_same_bits(got.out[1], clean.out[1])
    assert_same_bits(got.weights[0, :, :3], clean.weights[0, :, :3])
    assert np.isnan(got.weights[0, :, 3:]).any(axis=-1).all()


def test_what_is_infinite_is_answered_without_a_warning():
    rng = np.random.default_rng(3)
    layer = rg.MultiHeadAttention(**make(rng, widths=(10, 10, 10, 10), extra=1))
    x = rng.standard_normal((3, 10))
    for number in (np.inf, 1e308):
        spoilt = np.where(np.arange(3)[:, None] == 2, number, x)
        result = layer.forward(spoilt, mask=rg.Causal())
        assert not np.isfinite(result.out[2]).any()
        assert_same_bits(result.out[:2], layer(x, mask=rg.Causal())[:2])


def test_a_row_that_sees_nothing_gives_the_output_bias():
    arguments = make(np.random.default_rng(4), widths=(10, 10, 10, 10))
    x = np.random.default_rng(5).standard_normal((3, 10))
    mask = np.ones((3, 3), bool)
    mask[1] = False
    for sinks in (None, np.zeros(4)):
        result = rg.MultiHeadAttention(**arguments, sinks=sinks).forward(x, mask=mask)
        assert_same_bits(result.out[1], arguments["output_bias"])
        assert (result.weights[:, 1] == 0).all()
        assert np.isneginf(result.lse[:, 1]).all()


def test_joined_weights_are_indexed_like_an_array():
    rng = np.random.default_rng(6)
    layer = rg.MultiHeadAttention(**make(rng, widths=(10, 10, 10, 10), extra=2))
    weights = layer.forward(rng.standard_normal((2, 5, 10)), mask=rg.Causal()).weights
    whole = np.asarray(weights)
    assert (weights.ndim, len(weights), weights.dtype) == (4, 2, np.float64)
    indices = [
        (0, 1, 2, 3), (0, 1, 2, 6), (0, 1, 2, -1), (0, 1, 2), (..., 5), (..., slice(3, 6)), (..., slice(5, None)),
        (..., slice(0, 2)), (..., slice(4, 4)), (..., slice(6, 2)), (1,),
        (slice(None, None, -1), slice(1, 3), slice(1, 4)), (slice(None), 0, slice(2, 3), slice(-3, -1)), ...,
    ]  # fmt: skip
    for index in indices:
        assert_same_bits(weights[index], whole[index])
    with pytest.raises(IndexError, match="index 7 is out of range for an axis of size 7"):
        weights[0, 0, 0, 7]
    with pytest.raises(IndexError, match="too many"):
        weights[0, 0, 0, 0, 0]
    with pytest.raises(ValueError, match="always new"):
        weights.__array__(copy=False)  # np.asarray(weights, copy=False), which NumPy 1.26 lacks
    assert np.asarray(weights, np.float32).dtype == np.float32
    assert repr(weights) == "weights float64 (2, 4, 5, 7) computed when indexed"


# --- positions ------------------------------------------------------------------------------------


def test_rotary_gets_heads_and_positions():
    seen = []

    def rotary(x, positions):
        seen.append((x.shape, positions.tolist()))
        return x

    rng = np.random.default_rng(7)
    layer = rg.MultiHeadAttention(**make(rng, kv_heads=2, widths=(10, 10, 10, 8)), rotary=rotary)
    x = rng.standard_normal((2, 5, 10))
    layer(x[:, :3], x, q_offset="end")
    layer(x[:, :1], x, q_offset=[2, 4])
    layer(x[0, :1], x, q_offset=[2, 4])
    layer(x[0])
    keys = ((2, 2, 5, 6), [0, 1, 2, 3, 4])
    assert seen[:2] == [((2, 4, 3, 6), [2, 3, 4]), keys]
    assert seen[2:4] == [((2, 4, 1, 6), [[2], [4]]), keys]
    assert seen[4:6] == [((2, 4, 1, 6), [[2], [4]]), keys]
    assert seen[6:] == [((4, 5, 6), [0, 1, 2, 3, 4]), ((2, 5, 6), [0, 1, 2, 3, 4])]


def test_decoding_equals_the_whole():
    rng = np.random.default_rng(8)
    layer = build(make(rng, widths=(10, 10, 10, 8), extra=1), 50.0)
    x = rng.standard_normal((2, 6, 10))
    whole = layer(x, mask=rg.Causal())
    assert_close(layer(x[:, -2:], x, mask=rg.Causal(), q_offset="end"), whole[:, -2:], EXACT)
    ragged = layer(x[:, 2:4], x, mask=rg.Causal() & rg.KeyLengths([4, 6]), q_offset=[2, 2])
    assert_close(ragged, whole[:, 2:4], EXACT)


def test_messages_of_positions():
    rng = np.random.default_rng(9)
    layer = build(make(rng, widths=(10, 10, 10, 8)), 50.0)
    x = rng.standard_normal((2, 6, 10))
    with pytest.raises(
        rg.AlignmentError,
        match=r"the layer's rotary depends on positions.*2 queries.*6 keys.*q_offset=.start.*=.end.*position 4 \+ i",
    ):
        layer(x[:, :2], x)
    with pytest.raises(rg.AlignmentError, match=r"q_offset=lengths - Sq"):
        layer(x[:, :2], x, mask=rg.KeyLengths([3, 6]), q_offset="end")
    for wrong in (lambda x, p: x.astype(np.float32), lambda x, p: x[..., :2], lambda x, p: None):
        with pytest.raises(rg.ShapeError, match=r"rotary got float64 \(2, 4, 6, 6\) and positions \(6,\), and gave"):
            dataclasses.replace(layer, rotary=wrong)(x)


# --- the oracle can say no ------------------------------------------------------------------------


def test_the_rotation_of_the_oracle():
    row = np.array([1.0, 2.0, 3.0, 4.0])
    assert_close(turned(row, 3, 100.0), rg.rotary_embedding(row[None], [3], base=100.0)[0], EXACT)
    assert not np.allclose(turned(row, 3, 100.0), turned(row, 4, 100.0))
