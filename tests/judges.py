"""Judges: each one asserts, and test_judges.py shows that each one can say no."""

from __future__ import annotations

import numpy as np
import pytest

import regard as rg
from regard import _runtime
from regard.biases import as_bias
from regard.numerics import forward_bounds


def assert_same_bits(got, want):
    """Equal shapes, dtypes and bytes: zeros of one sign, NaNs of one pattern."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, f"shapes {got.shape} and {want.shape}"
    assert got.dtype == want.dtype, f"dtypes {got.dtype} and {want.dtype}"
    bits = f"u{got.dtype.itemsize}"
    differ = got.copy().view(bits) != want.copy().view(bits)
    assert not differ.any(), f"{differ.sum()} of {differ.size} differ, first at {np.argwhere(differ)[0]}"


def refused(error, *parts, args=(), call=rg.attention, **options):
    """The call raises this error, and its message has all the parts."""
    with pytest.raises(error) as caught:
        call(*args, **options)
    message = str(caught.value)
    assert all(part in message for part in parts), message


def assert_close(got, want, bound):
    """|got - want| <= bound everywhere; infinities and NaNs must be where they are wanted."""
    wide = np.result_type(np.asarray(want).dtype, np.float64)
    got, want = np.asarray(got).astype(wide), np.asarray(want).astype(wide)
    assert got.shape == want.shape, f"shapes {got.shape} and {want.shape}"
    odd = ~np.isfinite(want)
    assert np.array_equal(got[odd], want[odd], equal_nan=True), "infinities or NaNs differ"
    assert np.isfinite(got[~odd]).all(), "infinities or NaNs where numbers are wanted"
    error, allowed = np.abs(got[~odd] - want[~odd]), np.broadcast_to(bound, got.shape)[~odd]
    over = ~(error <= allowed)
    with np.errstate(divide="ignore"):
        worst = np.max(error[over] / allowed[over], initial=0)
    assert not over.any(), f"worst error is {worst:.3g} of the bound"


def weight_rounding(target, dtype):
    """What a target does to weights beside their values, as forward_bounds is told."""
    told = {"weight_unit": _runtime.WEIGHT_UNITS, "least_term": _runtime.LEAST_TERMS}
    return {name: by_target.get((target, dtype), 0) for name, by_target in told.items()}


def ones_bound(target, dtype, keys):
    """How far a value that is 1 for all keys may come back from 1: docs/reference/settings.md has the sum."""
    dtype = np.dtype(dtype).name
    if (target, dtype) in _runtime.WEIGHT_UNITS:
        return 2.0**-7
    return (148 + 4 * -(-keys // 1536)) * 2.0**-24 if (target, dtype) == ("amx", "float32") else 0.0


def assert_agrees(result, query, key, value, *, random_walk=False, bias=None, sinks=None, **options):
    """A ForwardResult against the reference, output, logsumexp and weights, within the derived bound."""
    dtype = np.asarray(query).dtype.name
    precision = np.longdouble if dtype == "float64" else np.float64
    want = rg.reference.attention_forward(query, key, value, bias=bias, sinks=sinks, precision=precision, **options)
    plain, share = want.weights, None
    if sinks is not None:  # which may leave less than float64 can hold of a weight
        plain = rg.reference.attention_forward(query, key, value, bias=bias, precision=precision, **options).weights
        with np.errstate(over="ignore"):
            share = 1 / (1 + np.exp(np.asarray(sinks).astype(want.lse.dtype)[..., None] - want.lse))
    problem = result.plan.problem
    lead, group = problem.geometry.lead, problem.group
    Q, K, V = (np.asarray(x).astype(np.float64) for x in (query, key, value))
    Q, K, V = (x.reshape(1, *x.shape) if x.ndim == 2 else x for x in (Q, K, V))
    K, V = np.repeat(K, group, axis=-3), np.repeat(V, group, axis=-3)
    parts = () if bias is None else as_bias(bias).parts
    rows, keys = np.arange(problem.geometry.queries), np.arange(problem.geometry.keys)
    bounds = forward_bounds(
        np.broadcast_to(Q, (*lead, *Q.shape[-3:])), K, V, plain.reshape(problem.geometry.shape),
        share=None if share is None else share.reshape(problem.geometry.shape[:-1]),
        scale=problem.scale, tile_keys=result.plan.tile_keys, random_walk=random_walk, dtype=dtype,
        **weight_rounding(result.plan.target, dtype),
        biases=[part.values(problem.geometry, rows, keys, result.lse.dtype) for part in parts], softcap=problem.softcap,
    )  # fmt: skip
    assert result.out.dtype == np.asarray(query).dtype
    assert_close(result.out, want.out, bounds.out.reshape(want.out.shape))
    assert_close(result.lse, want.lse, bounds.lse.reshape(want.lse.shape))
    assert_close(result.weights[...], want.weights, bounds.weights.reshape(want.weights.shape))
