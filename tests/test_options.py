"""Dtypes, biases, softcap, sinks, out and aux: what each means, and how they meet."""

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from judges import assert_agrees, assert_same_bits
from regard import _runtime

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
ids = [np.dtype(d).name for d in DTYPES]


@pytest.fixture(params=DTYPES, ids=ids)
def arrays(request, normal, target):
    return tuple(x.astype(request.param) for x in (normal(2, 4, 70, 24), normal(2, 2, 210, 24), normal(2, 2, 210, 20)))


def test_dtypes_of_results(arrays):
    result = rg.attention_forward(*arrays, aux=rg.Aux(state=True))
    wide = np.float64 if arrays[0].dtype == np.float64 else np.float32
    assert result.out.dtype == arrays[0].dtype
    assert result.lse.dtype == result.weights[...].dtype == result.state.out.dtype == wide
    assert_agrees(result, *arrays, random_walk=True)


@pytest.mark.parametrize("dtype", DTYPES[2:], ids=ids[2:])
def test_half_results_are_the_float32_results_rounded_once(target, normal, dtype):
    """Scores, weights and sums of 16-bit inputs are those of float32, and only the output is rounded."""
    arrays = [x.astype(dtype) for x in (normal(2, 4, 70, 24), normal(2, 2, 210, 24), normal(2, 2, 210, 20))]
    wide = rg.attention(*(x.astype(np.float32) for x in arrays), mask=rg.Causal(), q_offset=140)
    got = rg.attention(*arrays, mask=rg.Causal(), q_offset=140)
    if target == "amx" or (target, arrays[0].dtype.name) in _runtime.WEIGHT_UNITS:
        # float32 is in other pieces there, or its weights are not rounded: the two may differ by the last place
        np.testing.assert_allclose(got.astype(float), wide.astype(float), rtol=0, atol=0.02)
        return
    assert_same_bits(got.view(np.uint16), wide.astype(arrays[0].dtype).view(np.uint16))


@pytest.mark.parametrize("dtype", DTYPES[2:], ids=ids[2:])
def test_every_half_passes_through_unchanged(target, dtype):
    """One key: the output is the value, for each of the 65536 bit patterns."""
    value = np.arange(65536, dtype=np.uint16).view(dtype)[None, :]
    one = np.ones((1, 1), dtype)
    out = rg.attention(one, one, value)
    number = (value.view(np.uint16) & 0x7FFF) <= np.array(np.inf, dtype).view(np.uint16)
    zero = value[number].astype(np.float32) == 0
    assert np.isnan(out[~number]).all()
    assert_same_bits(out[number][~zero].view(np.uint16), value[number][~zero].view(np.uint16))
    assert (out[number][zero] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES[2:], ids=ids[2:])
def test_rounding_to_half_is_to_nearest_even(target, dtype):
    """Means of two neighbours are ties; with a third of the weight elsewhere they are not."""
    low = np.arange(1, 0x7B00, 37, dtype=np.uint16)
    value = np.stack([low.view(dtype), (low + 1).view(dtype)])
    zeros = np.zeros((1, 1), dtype), np.zeros((2, 1), dtype)
    mean = value.astype(np.float64).mean(axis=0)
    assert_same_bits(
        rg.attention(*zeros, value)[0].view(np.uint16), mean.astype(np.float32).astype(dtype).view(np.uint16)
    )


def test_overflow_of_the_output_is_infinite(target):
    one = np.ones((1, 1), np.float16)
    big = np.full((1, 1), 65504, np.float16)
    assert rg.attention(one, one, big) == 65504
    assert np.isinf(rg.attention(one, one, np.full((1, 1), np.inf, np.float16)))


def test_half_scores_beyond_their_range(target):
    """q.k = 64 * 40 * 40 = 102400 is inf in float16 and a number in float32."""
    x = np.full((3, 64), 40, np.float16)
    assert (rg.attention(x, x, x) == 40).all()
    assert_agrees(rg.attention_forward(x, x, x, scale=1), x, x, x, scale=1)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=ids[2:])
def test_sums_do_not_stall(target, dtype):
    """4096 equal keys: a float16 sum would stall at 2048, a bfloat16 sum at 256."""
    ones = np.ones((4096, 1), dtype)
    result = rg.attention_forward(ones[:1], ones, ones, scale=0)
    assert result.out == 1
    np.testing.assert_allclose(result.lse, np.log(4096), rtol=1e-6)


# -- bias ------------------------------------------------------------------------------------------------------------


def test_bias_of_minus_infinity_is_a_mask_bit_for_bit(arrays, rng):
    keep = rng.random((2, 1, 70, 210)) < 0.3
    keep[0, 0, 5] = False
    bias = np.where(keep, 0, -np.inf).astype(np.float32)
    want = rg.attention_forward(*arrays, mask=keep)
    got = rg.attention_forward(*arrays, bias=bias)
    assert_same_bits(got.out, want.out) if got.out.dtype.itemsize > 2 else np.testing.assert_array_equal(
        got.out, want.out
    )
    assert_same_bits(got.lse, want.lse)
    assert_same_bits(got.weights[...], want.weights[...])
    assert (got.lse[0, :, 5] == -np.inf).all()


def test_minus_infinity_contains_what_it_hides(target, normal):
    q, k, v = normal(2, 30, 8), normal(2, 200, 8), normal(2, 200, 8)
    bias = np.zeros((30, 200), np.float32)
    bias[:, 77] = -np.inf
    clean = rg.attention_forward(q, k, v, bias=bias)
    k[:, 77], v[:, 77] = np.nan, np.inf
    dirty = rg.attention_forward(q, k, v, bias=bias)
    assert_same_bits(dirty.out, clean.out)
    assert_same_bits(dirty.lse, clean.lse)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_bias_spoils_the_rows_that_see_it(target, normal, bad):
    q, k, v = normal(2, 70, 8), normal(2, 200, 8), normal(2, 200, 8)
    clean = rg.attention(q, k, v, mask=rg.Causal(), bias=np.zeros((2, 70, 200), np.float32), q_offset=100)
    bias = np.zeros((2, 70, 200), np.float32)
    bias[1, 33, 5] = bad
    bias[0, 10, 180] = bad  # hidden by the mask
    out = rg.attention(q, k, v, mask=rg.Causal(), bias=bias, q_offset=100)
    assert np.isnan(out[1, 33]).all()
    others = np.ones((2, 70), bool)
    others[1, 33] = False
    assert_same_bits(out[others], clean[others])


def test_bias_is_read_with_its_strides(arrays, rng):
    full = rng.standard_normal((2, 4, 70, 210)).astype(np.float32)
    want = rg.attention(*arrays, bias=full)
    views = [
        np.ascontiguousarray(full.swapaxes(-1, -2)).swapaxes(-1, -2),
        np.repeat(full, 2, axis=-1)[..., ::2],
        full[..., ::-1, ::-1].copy()[..., ::-1, ::-1],
    ]
    for view in views:
        np.testing.assert_array_equal(rg.attention(*arrays, bias=view), want)
    row = full[:, :, :1]
    np.testing.assert_array_equal(
        rg.attention(*arrays, bias=row), rg.attention(*arrays, bias=np.broadcast_to(row, full.shape))
    )


def test_finite_masks_stay_arithmetic(target, normal):
    """finfo.min everywhere is not -inf: every key is equally far, and the row is a mean."""
    v = normal(1, 5, 3)
    q, k = np.zeros((1, 2, 4), np.float32), np.zeros((1, 5, 4), np.float32)
    bias = np.full((2, 5), np.finfo(np.float32).min)
    np.testing.assert_allclose(rg.attention(q, k, v, bias=bias)[0, 0], v[0].mean(0), rtol=1e-5)


# -- softcap and sinks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("softcap", [0.01, 1.0, 50.0, 1e30])
def test_softcap(arrays, softcap):
    assert_agrees(rg.attention_forward(*arrays, softcap=softcap), *arrays, softcap=softcap)


@pytest.mark.parametrize("softcap", [1e-38, 1e-45, 1e-46, 1e-300])
def test_a_softcap_that_float32_takes_for_none(arrays, softcap):
    """0 / 0 in the kernel was NaN, where the scores are 0 and the output is the mean."""
    zeros = (arrays[0] * 0, *arrays[1:])
    for given in (zeros, arrays):
        assert_agrees(rg.attention_forward(*given, softcap=softcap), *given, softcap=softcap)


def test_softcap_comes_before_the_mask(target, normal):
    """A cap on -inf would give masked keys the weight of -softcap."""
    q, k, v = normal(4, 8), normal(6, 8), normal(6, 3)
    mask = np.zeros((4, 6), bool)
    mask[:, :2] = True
    got = rg.attention_forward(q, k, v, mask=mask, softcap=1.0)
    assert not got.weights[:, 2:].any()
    bias = np.where(mask, 0, -np.inf).astype(np.float32)
    assert_same_bits(rg.attention(q, k, v, bias=bias, softcap=1.0), got.out)


def test_a_sink_takes_its_share(arrays):
    sinks = np.array([0.0, -np.inf, 3.0, 200.0], np.float32)
    result = rg.attention_forward(*arrays, sinks=sinks, aux=rg.Aux(state=True))
    plain = rg.attention_forward(*arrays)
    assert_agrees(result, *arrays, sinks=sinks)
    assert_same_bits(result.lse, plain.lse)
    np.testing.assert_array_equal(result.out[:, 1], plain.out[:, 1])
    assert (np.abs(result.out[:, 3].astype(np.float64)) < 1e-80).all()
    share = 1 / (1 + np.exp(sinks[:, None].astype(np.float64) - result.lse))
    np.testing.assert_allclose(result.weights[...].sum(-1, dtype=np.float64), share, atol=1e-5)


def test_a_state_is_free_of_the_sink(arrays):
    sinks = np.zeros(4, np.float32)
    q, k, v = arrays
    aux = rg.Aux(state=True)
    whole = rg.attention_forward(q, k, v, sinks=sinks, aux=aux)
    parts = [rg.attention_forward(q, k[:, :, s], v[:, :, s], aux=aux).state for s in (np.s_[:100], np.s_[100:])]
    merged = rg.merge_states(*parts)
    unit = _runtime.WEIGHT_UNITS.get((whole.plan.target, q.dtype.name), 0)
    np.testing.assert_allclose(merged.out, whole.state.out, atol=1e-6 + unit * np.abs(v.astype(float)).max())
    out = merged.out / (1 + np.exp(0 - merged.lse))[..., None]
    np.testing.assert_allclose(out, whole.out.astype(out.dtype), atol=1e-6 if q.dtype.itemsize > 2 else 1e-2)


def test_empty_rows_with_a_sink(target, normal):
    q, k, v = normal(2, 4, 8), normal(2, 6, 8), normal(2, 6, 3)
    result = rg.attention_forward(q, k, v, mask=rg.Empty(), sinks=np.float32([1, 2]))
    assert_same_bits(result.out, np.zeros((2, 4, 3), np.float32))
    assert (result.lse == -np.inf).all()
    assert not result.weights[...].any()


def test_sink_of_equal_scores():
    """Scores 100 and 100, sink 0 against them nothing; sink 100 takes a third."""
    q, k = np.float32([[10]]), np.float32([[10], [10]])
    v = np.float32([[3], [3]])
    assert rg.attention(q, k, v, scale=1, sinks=np.float32([0])) == 3
    np.testing.assert_allclose(rg.attention(q, k, v, scale=1, sinks=np.float32([100])), 2, rtol=1e-6)


# -- out and offsets -------------------------------------------------------------------------------------------------


def test_out_of_any_strides(arrays):
    want = rg.attention(*arrays, mask=rg.Causal(), q_offset="end")
    room = np.full((2, 4, 140, 40), 7, arrays[0].dtype)
    out = room[:, ::-1, ::2, ::-2]
    assert rg.attention(*arrays, mask=rg.Causal(), q_offset="end", out=out) is out
    np.testing.assert_array_equal(out, want)
    assert (room[:, :, 1::2] == 7).all()
    assert (room[..., ::2] == 7).all()


def test_offsets_per_batch(arrays):
    q, k, v = arrays
    got = rg.attention_forward(q, k, v, mask=rg.Causal() & rg.Window(left=50), q_offset=[3, 140])
    for b, offset in enumerate((3, 140)):
        want = rg.attention_forward(q[b], k[b], v[b], mask=rg.Causal() & rg.Window(left=50), q_offset=offset)
        np.testing.assert_array_equal(got.out[b], want.out)
        assert_same_bits(got.lse[b], want.lse)


def test_lengths_and_offsets_of_a_cache(target, normal):
    """Decoding with a ragged cache: each member's last query stands at its own last key."""
    q, k, v = normal(2, 4, 3, 8), normal(2, 4, 20, 8), normal(2, 4, 20, 8)
    lengths = np.array([9, 20])
    got = rg.attention(q, k, v, mask=rg.Causal() & rg.KeyLengths(lengths), q_offset=lengths - 3)
    for b, n in enumerate(lengths):
        assert_same_bits(got[b], rg.attention(q[b], k[b, :, :n], v[b, :, :n], mask=rg.Causal(), q_offset="end"))
