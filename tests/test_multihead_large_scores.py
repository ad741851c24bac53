"""Layers with extra keys and sinks: output and weights tell the same at any size of the scores."""

import math

import numpy as np
import pytest

import regard as rg
from judges import assert_close, assert_same_bits
from multihead_random import EXACT, make

SIZES = [1.0, 1e2, 4e4, 1e6, 4e6, 1e10]
UNIT = 2.0**-24


def large(size, sinks=None, extra=3):
    """A float32 layer whose scores are about ``size``, sixteen of them nearly equal, and its input."""
    rng = np.random.default_rng(12)
    drawn = make(rng, heads=2, size=8, value_size=6, widths=(10, 10, 10, 7), extra=extra)
    layer = {name: np.float32(x) if isinstance(x, np.ndarray) else x for name, x in drawn.items()}
    x = rng.standard_normal(10) + 3e-7 * rng.standard_normal((16, 10))
    q, k = (x.astype(np.float32) @ layer[f"{name}_weight"].T + layer[f"{name}_bias"] for name in ("query", "key"))
    first = (q.reshape(16, 2, 8) * k.reshape(16, 2, 8)).sum(-1).mean(0)
    layer["extra_key"] = (k[:1] + 3e-7 * rng.standard_normal((extra, 16))).astype(np.float32)
    layer["scale"] = float(size / np.abs(first).max())
    return rg.MultiHeadAttention(**layer, sinks=sinks), x.astype(np.float32)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("sink", [None, 0.0, 1.0])
def test_rows_sum_to_1_and_give_the_output(size, sink):
    """Each share is rounded a few times, and a sum of 19 weights as often; a sink of 1 × size takes a part of it."""
    layer, x = large(size, None if sink is None else np.full(2, sink * size, np.float32))
    result = layer.forward(x)
    weights = result.weights[...].astype(np.float64)
    if sink is None:
        assert_close(weights.sum(-1), np.ones((2, 16)), 30 * UNIT)
    else:
        assert (weights.sum(-1) <= 1 + 30 * UNIT).all()
    values = np.concatenate([result.value, rg.split_heads(layer.extra_value, 2)], axis=-2).astype(np.float64)
    assert_close(result.heads, weights @ values, 40 * UNIT * (weights @ np.abs(values)).max())


@pytest.mark.parametrize("size", [1e2, 4e4, 1e6, 4e6])
@pytest.mark.parametrize("sink", [False, True])
def test_equals_the_reference_where_scores_are_exact(size, sink):
    """Queries and keys of powers of 2 have exact scores, and ties: weights are small fractions at any size."""
    eye, size = np.eye(2, dtype=np.float32), 2.0 ** round(math.log2(size))
    layer = rg.MultiHeadAttention(
        num_heads=1, query_weight=size * eye, key_weight=eye, value_weight=eye, output_weight=eye,
        extra_key=np.float32([[1, 0], [0, 1]]), extra_value=np.float32([[8, 0], [0, 8]]), scale=1.0,
        sinks=np.float32([size]) if sink else None,
    )  # fmt: skip
    x = np.float32([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1]])
    result = layer.forward(x)
    ties = np.array([3, 3, 3, 2, 2]) + 1 + sink
    assert_close(result.weights[0], np.where(x @ np.vstack([x, eye]).T == 1, 1 / ties[:, None], 0), 4 * UNIT)
    assert_close(result.heads[0], x * ((ties[:, None] - sink + 7) / ties[:, None]), 4 * UNIT * 8)


@pytest.mark.parametrize("extra", [0, 1, 3, "no rows"])
def test_sinks_without_bounds(extra):
    """One rule with extra keys and without: a sink of +inf takes everything, one of −inf nothing."""
    rng = np.random.default_rng(3)
    rows = {"extra_key": np.zeros((0, 24)), "extra_value": np.zeros((0, 20))} if extra == "no rows" else {}
    extra = 0 if rows else extra
    arguments = make(rng, widths=(10, 10, 10, 8), extra=extra) | rows
    x = rng.standard_normal((5, 10))
    mask = np.tri(5, dtype=bool)
    mask[2] = False
    got = rg.MultiHeadAttention(**arguments, sinks=np.array([np.inf, -np.inf, np.nan, 0.5])).forward(x, mask=mask)
    none = rg.MultiHeadAttention(**arguments).forward(x, mask=mask)
    seen = np.isfinite(none.lse)
    assert seen.sum() == (20 if extra else 16)
    assert (got.heads[0] == 0).all()
    assert (got.weights[0] == 0).all()
    assert_same_bits(got.heads[1], none.heads[1])
    assert_same_bits(got.weights[1], none.weights[1])
    assert np.isnan(got.heads[2][seen[2]]).all()
    assert (got.heads[2][~seen[2]] == 0).all()
    left = 1 / (1 + np.exp(0.5 - none.lse[3]))
    assert_close(got.heads[3], none.heads[3] * left[:, None], EXACT)
    assert_close(got.weights[3], none.weights[3] * left[:, None], EXACT)
    assert_same_bits(got.lse, none.lse)


@pytest.mark.parametrize("sequence", [np.inf, 2.0])
@pytest.mark.parametrize("own", [None, np.inf, 3.0])
def test_scores_of_minus_infinity(sequence, own):
    """As in one call: weight 0 beside a finite score, and NaN where all kept scores are −inf, which is no empty row."""
    one = np.ones((1, 1))
    arguments = {f"{name}_weight": one for name in ("query", "key", "value", "output")}
    extra = {} if own is None else {"extra_key": own * one, "extra_value": 5 * one}
    result = rg.MultiHeadAttention(num_heads=1, **arguments, **extra, scale=-1.0).forward(one, sequence * one, 4 * one)
    keys, values = ([[x] for x in pair[: 1 + (own is not None)]] for pair in ((sequence, own), (4.0, 5.0)))
    want = rg.attention_forward(one, keys, values, scale=-1.0)
    assert np.isnan(want.out).all() == (sequence == np.inf and own in (None, np.inf))
    assert_close(result.heads[0], want.out, EXACT)
    assert_close(result.weights[0], want.weights[...], EXACT)
    assert_close(result.lse[0], want.lse, EXACT)
