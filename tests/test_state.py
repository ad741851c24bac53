"""Partial results are a monoid: any split, any order, and an identity."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from judges import assert_same_bits


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
    with pytest.raises(rg.ShapeError, match=r"no state.*AttentionState\.empty"):
        rg.merge_states()
    with pytest.raises(rg.ShapeError, match=r"got list: write merge_states\(a, b\)"):
        rg.merge_states([rg.AttentionState.empty((2, 3))])
    with pytest.raises(rg.DTypeError, match="differ in dtype: float32, float64"):
        rg.merge_states(rg.AttentionState.empty((2, 3)), rg.AttentionState.empty((2, 3), np.float64))
    with pytest.raises(rg.ShapeError, match=r"differ in shape: \(2, 3\), \(4, 3\)"):
        rg.merge_states(rg.AttentionState.empty((4, 3)), rg.AttentionState.empty((2, 3)))
