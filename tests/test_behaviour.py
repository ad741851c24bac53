"""How a right function behaves, whatever it computes: no state, no changed input, laws of softmax and sums."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from judges import assert_same_bits, ones_bound
from test_probes import normal


@pytest.fixture
def arrays(target, dtype):
    return [x.astype(dtype) for x in normal((2, 4, 70, 24), (2, 2, 210, 24), (2, 2, 210, 20))]


def test_repeated_with_other_sizes_between(target, dtype):
    """No state: 8 keys, 5, and 8 again; and an output is nobody else's buffer."""
    eight, five = ([x.astype(dtype) for x in normal((2, n, 4), (2, n, 4), (2, n, 4))] for n in (8, 5))
    first = rg.attention(*eight, mask=rg.Causal())
    kept = first.copy()
    rg.attention(*five)
    again = rg.attention(*eight, mask=rg.Causal())
    assert_same_bits(again, kept)
    assert_same_bits(first, kept)
    assert not any(np.may_share_memory(first, x) for x in (again, *eight))


def test_inputs_are_not_changed(arrays):
    before = [x.tobytes() for x in arrays]
    for x in arrays:
        x.setflags(write=False)
    bias, sinks = np.ones((70, 210), np.float32), np.ones(4, np.float32)
    mask = np.arange(210) % 3 > np.zeros((70, 1))
    for x in (bias, sinks, mask):
        x.setflags(write=False)
    result = rg.attention_forward(*arrays, mask=mask, bias=bias, sinks=sinks, softcap=5.0, aux=rg.Aux(state=True))
    assert result.weights[...].any()
    assert [x.tobytes() for x in arrays] == before
    assert (bias == 1).all()
    assert (sinks == 1).all()
    assert mask.sum() == 70 * 140


def test_threads_batches_and_rows(arrays):
    q, k, v = arrays
    options = {"softcap": 5.0, "sinks": np.arange(4, dtype=np.float32)}
    want = rg.attention_forward(q, k, v, mask=rg.Causal(), q_offset=140, **options)
    for threads in (1, 2):
        with rg.config(num_threads=threads):
            assert_same_bits(rg.attention(q, k, v, mask=rg.Causal(), q_offset=140, **options), want.out)
    for b in range(2):
        one = slice(b, b + 1)
        alone = rg.attention(q[one], k[one], v[one], mask=rg.Causal(), q_offset=140, **options)
        assert_same_bits(alone, want.out[one])
    for i in (0, 1, 15, 16, 63, 64, 69):
        alone = rg.attention(q[:, :, [i]], k, v, mask=rg.Causal(), q_offset=140 + i, **options)
        assert_same_bits(alone, want.out[:, :, [i]])


def test_what_a_result_says_of_itself(arrays):
    result = rg.attention_forward(*arrays, aux=rg.Aux(state=True))
    name = "float64" if arrays[0].dtype == np.float64 else "float32"
    assert (result.weights.ndim, len(result.weights)) == (4, 2)
    assert repr(result.state) == f"AttentionState: out {name} (2, 4, 70, 20), lse (2, 4, 70)"
    assert repr(result) == f"ForwardResult: out {arrays[0].dtype} (2, 4, 70, 20), {result.weights!r}"
    assert "visited" in repr(result.plan)
    assert "visited" not in repr(dataclasses.replace(result.plan, tiles=None))


def test_permuted_queries(arrays):
    q, k, v = arrays
    order = np.random.default_rng(4).permutation(70)
    assert_same_bits(rg.attention(q[:, :, order], k, v), rg.attention(q, k, v)[:, :, order])


def test_what_comes_later_is_not_seen(arrays):
    """Keys after a causal query's own, and keys that a mask hides, may be anything, and may be missing."""
    q, k, v = arrays
    want = rg.attention_forward(q, k, v, mask=rg.Causal(), q_offset=100)
    for garbage in (np.nan, np.inf, 1.0):
        k2, v2 = k.copy(), v.copy()
        k2[:, :, 150:], v2[:, :, 150:] = garbage, garbage
        got = rg.attention_forward(q, k2, v2, mask=rg.Causal(), q_offset=100)
        assert_same_bits(got.out[:, :, :50], want.out[:, :, :50])
        assert_same_bits(got.lse[:, :, :50], want.lse[:, :, :50])
        short = rg.attention(q, k2, v2, mask=rg.KeyLengths(150))
        assert_same_bits(short, rg.attention(q, k[:, :, :150], v[:, :, :150]))
        with pytest.raises(AssertionError):
            assert_same_bits(got.out, want.out)


def test_one_key_gives_its_value(arrays):
    q, k, v = arrays
    out = rg.attention(q, k[:, :, :1], v[:, :, :1])
    assert_same_bits(out, np.broadcast_to(np.repeat(v[:, :, :1], 2, axis=1), out.shape).copy())


def test_rows_sum_to_one_and_stay_among_the_values(arrays):
    q, k, v = arrays
    ones = rg.attention_forward(q, k, np.ones_like(v))
    near = ones_bound(ones.plan.target, v.dtype, k.shape[-2])
    assert (np.abs(ones.out.astype(float) - 1) <= near).all()
    out, ulp = rg.attention(16 * q, k, v).astype(float), 2.0 ** -{"float64": 50, "float32": 21, "float16": 9}.get(
        v.dtype.name, 6
    )  # fmt: skip
    low, high = (np.repeat(f(v.astype(float), axis=2, keepdims=True), 2, axis=1) for f in (np.min, np.max))
    assert (low - ulp * np.abs(low) <= out).all()
    assert (out <= high + ulp * np.abs(high)).all()


def test_linear_in_the_values(arrays):
    """Powers of two are exact: so is the law."""
    q, k, v = arrays
    four, one = rg.attention(q, k, 4 * v), rg.attention(q, k, v)
    exact = np.abs(one) > 4 * ml_dtypes.finfo(v.dtype).smallest_normal
    assert exact.mean() > 0.9
    assert_same_bits(four[exact], 4 * one[exact])
    assert_same_bits(rg.attention(2 * q, k / np.array(2, k.dtype), v), rg.attention(q, k, v))
