"""A judge that cannot say no proves nothing."""

import dataclasses

import numpy as np
import pytest

import regard as rg
from judges import assert_agrees, assert_close, assert_same_bits, refused


def test_same_bits_tells_zeros_nans_and_last_digits_apart():
    one = np.float32([0.0, 1.0, np.nan])
    assert_same_bits(one, one.copy())
    for other in (
        [-0.0, 1, np.nan],
        [0, np.nextafter(np.float32(1), np.float32(2)), np.nan],
        [0, 1, -np.float32(np.nan)],
    ):
        with pytest.raises(AssertionError, match="1 of 3 differ"):
            assert_same_bits(one, np.float32(other))
    with pytest.raises(AssertionError, match="dtypes"):
        assert_same_bits(one, one.astype(np.float64))


def test_close_says_no():
    assert_close([1.0, np.inf], [1.0 + 1e-7, np.inf], 1e-6)
    with pytest.raises(AssertionError, match="worst error is 2 of the bound"):
        assert_close([0.0], [1.0], 0.5)
    with pytest.raises(AssertionError, match="of the bound"):
        assert_close([0.0], [1.0], np.nan)
    with pytest.raises(AssertionError, match="worst error is inf of the bound"):
        assert_close([0.0, 2.0], [1.0, 2.0], 0)
    with pytest.raises(AssertionError, match="infinities"):
        assert_close([np.nan], [np.inf], 1.0)
    with pytest.raises(AssertionError, match="where numbers are wanted"):
        assert_close([np.nan], [1.0], 1.0)


def test_refused_says_no():
    x = np.ones((2, 3, 4), np.float32)
    refused(rg.ShapeError, "(2, 3, 4)", "(2, 3, 5)", args=(x, np.ones((2, 3, 5), np.float32), x))
    with pytest.raises(AssertionError, match=r"\(2, 3, 5\)"):
        refused(rg.ShapeError, "(2, 3, 4)", "seven", args=(x, np.ones((2, 3, 5), np.float32), x))
    with pytest.raises(rg.ShapeError):
        refused(rg.DTypeError, args=(x, np.ones((2, 3, 5), np.float32), x))
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        refused(rg.ShapeError, args=(x, x, x))


@pytest.mark.parametrize("fault", ["scores in bfloat16", "no rescale", "one key too many", "sum in float16"])
def test_bound_catches_planted_faults(fault, normal):
    """Kernels with a known fault must fail the very judge that the real ones pass."""
    q, k, v = normal(2, 40, 64), normal(2, 600, 64), normal(2, 600, 64)
    result = rg.attention_forward(q, k, v)
    assert_agrees(result, q, k, v, random_walk=True)
    wrong = _faulty(fault, q.astype(np.float64), k.astype(np.float64), v.astype(np.float64)).astype(np.float32)
    object.__setattr__(result, "out", wrong)
    with pytest.raises(AssertionError, match="of the bound"):
        assert_agrees(result, q, k, v, random_walk=True)


def _faulty(fault, q, k, v):
    s = q @ k.swapaxes(-1, -2) / 8
    if fault == "scores in bfloat16":
        bits = s.astype(np.float32).view(np.uint32)
        s = ((bits + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)
    if fault == "one key too many":
        s, v = np.concatenate([s, s[..., :1]], -1), np.concatenate([v, v[:, :1]], -2)
    p = np.exp(s - s.max(-1, keepdims=True))
    if fault == "no rescale":
        first = np.exp(s[..., :192] - s[..., :192].max(-1, keepdims=True))
        p = np.concatenate([first, p[..., 192:]], -1)
    total = p.sum(-1, keepdims=True)
    if fault == "sum in float16":
        total = total.astype(np.float16).astype(np.float64)
    return (p / total) @ v


def test_a_sink_that_takes_nearly_all():
    """It leaves exp(-800), which is 0 in float64: what the bound allows must not vanish with it."""
    q = 3 * np.random.default_rng(0).standard_normal((1, 3, 4)).astype(np.float32)
    for sink in (80, 800, -800):
        options = {"sinks": np.float32([sink]), "bias": rg.Alibi(1), "q_offset": 10**6}
        result = rg.attention_forward(q, q, q / 3, **options)
        assert_agrees(result, q, q, q / 3, **options)
        with pytest.raises(AssertionError, match="of the bound"):
            assert_agrees(dataclasses.replace(result, out=result.out + np.float32(1e-3)), q, q, q / 3, **options)


def test_a_sink_far_above_the_logsumexp_in_float64(target, normal):
    """The difference of 190 is rounded by up to 128 units, which its exponential makes a relative error."""
    q, k, v = (x.astype(np.float64) for x in (normal(64, 1, 1), normal(64, 2, 1), normal(64, 2, 1)))
    options = {"sinks": np.random.default_rng(0).uniform(129, 255, 64)}
    result = rg.attention_forward(q, k, v, **options)
    assert_agrees(result, q, k, v, **options)
    wrong = dataclasses.replace(result, out=result.out * (1 + 2.0**-43))
    with pytest.raises(AssertionError, match="of the bound"):
        assert_agrees(wrong, q, k, v, **options)


def test_products_below_the_normal_numbers_under_a_large_scale(target):
    """Each of the 64 products is rounded to 0, and the scale would have made them 9e-6 together."""
    q, k, v = np.float32(2.0**-75) * np.float32([1, 0.98, 1])[:, None, None] * np.ones((3, 1, 64), np.float32)
    result = rg.attention_forward(q, k, v, scale=2e38)
    assert (result.lse == 0).all()
    assert_agrees(result, q, k, v, scale=2e38)
    with pytest.raises(AssertionError, match="of the bound"):
        assert_agrees(result, 4 * q, k, v, scale=2e38)
