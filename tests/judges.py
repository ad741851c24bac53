"""Judges: each one asserts, and test_judges.py shows that each one can say no."""

from __future__ import annotations

import numpy as np

import regard as rg
from regard.numerics import forward_bounds


def assert_same_bits(got, want):
    """Equal shapes, dtypes and bytes: zeros of one sign, NaNs of one pattern."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, f"shapes {got.shape} and {want.shape}"
    assert got.dtype == want.dtype, f"dtypes {got.dtype} and {want.dtype}"
    bits = f"u{got.dtype.itemsize}"
    differ = got.copy().view(bits) != want.copy().view(bits)
    assert not differ.any(), f"{differ.sum()} of {differ.size} differ, first at {np.argwhere(differ)[0]}"


def assert_close(got, want, bound):
    """|got - want| <= bound everywhere; infinities and NaNs must be where they are wanted."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, f"shapes {got.shape} and {want.shape}"
    odd = ~np.isfinite(want)
    assert np.array_equal(got[odd], want[odd], equal_nan=True), "infinities or NaNs differ"
    assert np.isfinite(got[~odd]).all(), "infinities or NaNs where numbers are wanted"
    error, allowed = np.abs(got[~odd] - want[~odd]), np.broadcast_to(bound, got.shape)[~odd]
    over = error > allowed
    assert not over.any(), f"worst error is {np.max(error[over] / allowed[over]):.3g} of the bound"


def assert_agrees(result, query, key, value, *, random_walk=False, **options):
    """A ForwardResult against the float64 reference, output, logsumexp and weights, within the derived bound."""
    want = rg.reference.attention_forward(query, key, value, **options)
    problem = result.plan.problem
    lead, group = problem.geometry.lead, problem.group
    Q, K, V = (x.reshape(1, *x.shape) if x.ndim == 2 else x for x in (query, key, value))
    K, V = np.repeat(K, group, axis=-3), np.repeat(V, group, axis=-3)
    weights = want.weights.reshape(problem.geometry.shape)
    bounds = forward_bounds(
        np.broadcast_to(Q, (*lead, *Q.shape[-3:])), K, V, weights,
        scale=problem.scale, tile_keys=result.plan.tile_keys, random_walk=random_walk,
    )  # fmt: skip
    assert_close(result.out, want.out, bounds.out.reshape(want.out.shape))
    assert_close(result.lse, want.lse, bounds.lse.reshape(want.lse.shape))
    assert_close(result.weights[...], want.weights, bounds.weights.reshape(want.weights.shape))
