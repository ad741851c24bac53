"""Partial results are a monoid: any split, any order, and an identity."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from judges import assert_close, assert_same_bits, refused


def attend(lo, hi, mask=None):
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal(s, dtype=np.float32) for s in ((2, 5, 8), (2, 40, 8), (2, 40, 3)))
    part = None if mask is None else mask[..., lo:hi]
    return rg.attention_forward(q, k[:, lo:hi], v[:, lo:hi], mask=part, aux=rg.Aux(state=True)).state


@given(cuts=st.lists(st.integers(0, 40), max_size=6), seed=st.integers(0, 9))
def test_any_split_in_any_order(cuts, seed):
    rng = np.random.default_rng(seed)
    mask = rng.random((2, 5, 40)) < 0.2
    mask[:, 3] = False
    edges = [0, *sorted(cuts), 40]
    states = [attend(lo, hi, mask) for lo, hi in itertools.pairwise(edges)]
    whole = attend(0, 40, mask)
    rng.shuffle(states)
    merged = rg.merge_states(*states)
    np.testing.assert_allclose(merged.out, whole.out, atol=1e-6)
    np.testing.assert_allclose(merged.lse, whole.lse, atol=2e-6)
    assert (merged.lse[:, 3] == -np.inf).all()


def test_identity_is_exact_on_both_sides():
    state, empty = attend(0, 40), rg.AttentionState.empty((2, 5, 3))
    for merged in (rg.merge_states(state, empty), rg.merge_states(empty, state), rg.merge_states(state)):
        assert_same_bits(merged.out, state.out)
        assert_same_bits(merged.lse, state.lse)


def test_two_empty_states_are_empty():
    empty = rg.AttentionState.empty((2, 5, 3))
    merged = rg.merge_states(empty, empty)
    assert_same_bits(merged.out, empty.out)
    assert_same_bits(merged.lse, empty.lse)


def test_what_an_empty_row_holds_is_never_read():
    state, empty = attend(0, 40), rg.AttentionState.empty((2, 5, 3))
    rubbish = rg.AttentionState(np.full_like(empty.out, np.nan), empty.lse)
    assert_same_bits(rg.merge_states(state, rubbish).out, state.out)


def test_nan_rows_stay_nan():
    state = attend(0, 40)
    spoilt = rg.AttentionState(state.out, np.where(np.arange(5) == 2, np.nan, state.lse).astype(np.float32))
    merged = rg.merge_states(state, spoilt)
    assert np.isnan(merged.out[:, 2]).all()
    assert np.isfinite(merged.out[:, [0, 1, 3, 4]]).all()


def test_messages():
    with pytest.raises(rg.ShapeError, match=r"lse has shape \(3,\).*out has shape \(4, 2\).*shape \(4,\)"):
        rg.AttentionState(np.zeros((4, 2)), np.zeros(3))
    with pytest.raises(rg.DTypeError, match="lse has dtype float64 and out has float32, whose lse is float32: cast"):
        rg.AttentionState(np.zeros((4, 2), np.float32), np.zeros(4))
    with pytest.raises(rg.DTypeError, match="lse has dtype float16 and out has float16, whose lse is float32"):
        rg.AttentionState(np.zeros((4, 2), np.float16), np.zeros(4, np.float16))
    with pytest.raises(rg.ShapeError, match=r"no state.*AttentionState\.empty"):
        rg.merge_states()
    with pytest.raises(rg.ShapeError, match=r"got list: write merge_states\(a, b\)"):
        rg.merge_states([rg.AttentionState.empty((2, 3))])
    with pytest.raises(rg.DTypeError, match="differ in dtype: float32, float64"):
        rg.merge_states(rg.AttentionState.empty((2, 3)), rg.AttentionState.empty((2, 3), np.float64))
    with pytest.raises(rg.ShapeError, match=r"differ in shape: \(2, 3\), \(4, 3\)"):
        rg.merge_states(rg.AttentionState.empty((4, 3)), rg.AttentionState.empty((2, 3)))


@pytest.mark.parametrize(
    ("dtype", "fact"),
    [(int, "integer dtype int64"), (bool, "dtype bool"), (complex, "complex"), ("U3", "not an array of numbers")],
)
def test_states_are_of_floats(dtype, fact):
    with pytest.raises(rg.DTypeError, match=f"out .*{fact}"):
        rg.AttentionState(np.zeros((4, 2), dtype), np.zeros(4))
    with pytest.raises(rg.DTypeError, match=rf"out .*{fact}"):
        rg.AttentionState.empty((4, 2), dtype)
    with pytest.raises(rg.DTypeError, match=f"lse has dtype {np.dtype(dtype)} and out has float64"):
        rg.AttentionState(np.zeros((4, 2)), np.zeros(4, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_states_of_each_dtype_merge(dtype):
    """What results are stored in: two halves of a row are its mean."""
    wide = np.float64 if dtype is np.float64 else np.float32
    left, right = (rg.AttentionState(np.full((3, 2), n, dtype), np.zeros(3, wide)) for n in (1, 2))
    empty = rg.AttentionState.empty((3, 2), dtype)
    assert (empty.out.dtype, empty.lse.dtype) == (dtype, wide)
    merged = rg.merge_states(left, empty, right)
    assert (merged.out.dtype, merged.lse.dtype) == (dtype, wide)
    assert (merged.out.astype(float) == 1.5).all()
    np.testing.assert_allclose(merged.lse, np.log(2), rtol=1e-6)


def test_lists_are_of_the_dtype_that_is_wanted():
    state = rg.AttentionState(np.ones((2, 1), np.float32), [0, -np.inf])
    assert state.lse.dtype == np.float32
    assert "out float64 (1, 1), lse (1,)" in repr(rg.AttentionState([[1]], [0]))


@pytest.mark.parametrize("count", [2, 3, 16, 100, 512])
@pytest.mark.parametrize(("dtype", "unit"), [(np.float16, 2.0**-11), (ml_dtypes.bfloat16, 2.0**-8)], ids=str)
def test_many_states_of_16_bits_are_rounded_once(dtype, unit, count):
    rng = np.random.default_rng(count)
    outs = rng.standard_normal((count, 7, 5)).astype(dtype)
    lses = rng.standard_normal((count, 7)).astype(np.float32)
    merged = rg.merge_states(*map(rg.AttentionState, outs, lses))
    shares = np.exp(lses.astype(float) - np.logaddexp.reduce(lses.astype(float), axis=0))[..., None]
    want, size = (np.sum(shares * part, axis=0) for part in (outs.astype(float), np.abs(outs.astype(float))))
    assert merged.out.dtype == dtype
    # Rounded once to the dtype, after the shares and their sum in float32.
    assert_close(merged.out, want, unit * np.abs(want) + (count + 8) * 2.0**-24 * size)


def test_sums_of_16_bits_do_not_stand_still():
    ones = rg.AttentionState(np.ones((1, 1), ml_dtypes.bfloat16), np.zeros(1, np.float32))
    assert rg.merge_states(*[ones] * 1000).out == 1


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        (3, ["shape is 3", "(..., Sq, Dv)", "a tuple of sizes"]),
        ((), ["shape is ()"]),
        ((-1, 2), ["out has shape (-1, 2)", "0 to 2**63 - 1"]),
        ((2.0, 2), ["out has shape (2.0, 2)", "made of integers"]),
        ((2, 2**63), ["out has shape (2, 9223372036854775808)"]),
    ],
)
def test_empty_states_have_a_shape(shape, parts):
    refused(rg.ShapeError, *parts, call=rg.AttentionState.empty, args=(shape,))


def test_an_empty_state_is_like_an_array():
    refused(rg.DTypeError, "like is of type int", "an array", call=rg.AttentionState.empty, args=((2, 3),), like=5)
