"""Small probes, each made to show a family of faults: a right function passes, and a wrong one named here does not.

Values are standard normal from one seed and all sizes differ, unless the name says square. Every probe runs on every
target in every float dtype; what its fault would have given is held to the same bound and must be outside.
"""

import dataclasses
import math

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from judges import assert_agrees
from regard import _runtime

DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
IDS = [np.dtype(d).name for d in DTYPES]
PROBES = {}


def probe(function):
    """A generator of (query, key, value), options, and the outputs of faults, all from float64 arrays."""
    PROBES[function.__name__] = function
    return function


def normal(*shapes):
    rng = np.random.default_rng(20261129)
    return [rng.standard_normal(shape) for shape in shapes]


def reference(*arrays, **options):
    return rg.reference.attention(*arrays, **options)


@probe
def base(cast):
    arrays = cast(*normal((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6)))
    for scale in (1, 1 / 8, math.sqrt(8), 3**-0.5, 7**-0.5, 6**-0.5, 0.5, math.log(2) / math.sqrt(8)):
        yield arrays, {}, reference(*arrays, scale=scale)
    yield arrays, {}, np.broadcast_to(reference(*(x[:1] for x in arrays)), (2, 3, 5, 6))  # batch 0 for all


@probe
def square(cast):
    q, k, v = arrays = cast(*normal(*[(2, 3, 6, 6)] * 3))
    yield arrays, {}, reference(k, q, v)
    yield arrays, {}, reference(q, v, v)
    yield arrays, {}, reference(q, k, k)
    yield arrays, {}, reference(*(x.swapaxes(1, 2) for x in arrays)).swapaxes(1, 2)
    yield arrays, {}, reference(*arrays) + q


@probe
def scale_arg(cast):
    arrays = cast(*normal((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6)))
    for scale in (8**-0.5, 0.7 * 8**-0.5, 0.49):
        yield arrays, {"scale": 0.7}, reference(*arrays, scale=scale)


@probe
def causal_square(cast):
    arrays = cast(*normal(*[(2, 3, 6, 8)] * 3))
    for mask in (None, rg.Window(0, None), rg.Window(None, 1), rg.Window(None, 0) & ~rg.Window(0, 0)):
        yield arrays, {"mask": rg.Causal()}, reference(*arrays, mask=mask)


@probe
def causal_rectangle(cast):
    arrays = cast(*normal((2, 3, 3, 8), (2, 3, 7, 8), (2, 3, 7, 6)))
    for offset in ("start", 3, 5):
        yield arrays, {"mask": rg.Causal(), "q_offset": "end"}, reference(*arrays, mask=rg.Causal(), q_offset=offset)


@probe
def mask_square(cast):
    arrays = cast(*normal(*[(2, 3, 6, 6)] * 3))
    mask = np.random.default_rng(1).random((2, 3, 6, 6)) < 0.6
    mask[..., np.arange(6), np.arange(6)] = True
    for wrong in (None, ~mask, mask.swapaxes(-1, -2), mask[:1], mask[:, :1]):
        yield arrays, {"mask": mask}, reference(*arrays, mask=wrong)
    yield arrays, {"mask": mask}, reference(*arrays, bias=mask.astype(float))  # added as 0 and 1


@probe
def key_padding(cast):
    """As many batch entries as heads: a mask laid over the wrong one of them fits."""
    arrays = cast(*normal((2, 2, 5, 8), (2, 2, 6, 8), (2, 2, 6, 7)))
    mask = np.ones((2, 1, 1, 6), bool)
    mask[0, ..., 4:] = False
    mask[1, ..., :2] = False
    for wrong in (mask.swapaxes(0, 1), mask[:1], None):
        yield arrays, {"mask": mask}, reference(*arrays, mask=wrong)


@probe
def mask_and_causal(cast):
    arrays = cast(*normal((2, 3, 4, 8), (2, 3, 9, 8), (2, 3, 9, 5)))
    dense = rg.Dense(np.random.default_rng(2).random((4, 9)) < 0.6)
    options = {"mask": rg.Causal() & dense, "q_offset": "end"}
    for wrong in (rg.Causal(), dense):
        yield arrays, options, reference(*arrays, mask=wrong, q_offset="end")
    yield arrays, options, reference(*arrays, mask=options["mask"], q_offset="start")


def _levels(cast, visible, hidden):
    """Queries of ones: a key of value x has the score x, near ``visible`` where it is seen."""
    noise, value = normal((5, 1), (7, 6))
    key = np.where(np.arange(7) < 4, visible + np.resize(noise, 7), hidden)[:, None]
    arrays = cast(np.ones((3, 1)), key, value)
    return arrays, {"mask": np.broadcast_to(np.arange(7) < 4, (3, 7)), "scale": 1.0}


@probe
def masked_dominates(cast):
    arrays, options = _levels(cast, 0, 900)
    yield arrays, options, reference(*arrays, scale=1.0)
    with np.errstate(all="ignore"):  # masked after the softmax and renormalised: 0 / 0
        weights = np.exp(arrays[1].astype(np.float32)[:, 0] - 900)[None]
        weights[:, 4:] = 0
        yield arrays, options, np.broadcast_to(weights / weights.sum() @ arrays[2].astype(float), (3, 6))


@probe
def visible_below_a_fill_of_1e4(cast):
    arrays, options = _levels(cast, -2e4, 0)
    yield arrays, options, np.broadcast_to(arrays[2][4:].astype(float).mean(0), (3, 6))  # the fill is the maximum


@probe
def bias(cast):
    *arrays, bias = cast(*normal((2, 3, 6, 8), (2, 3, 6, 8), (2, 3, 6, 5), (2, 3, 6, 6)))
    for wrong in (bias / math.sqrt(8), None, -bias, bias.swapaxes(-1, -2), bias[:, :1]):
        yield arrays, {"bias": bias}, reference(*arrays, bias=None if wrong is None else wrong.astype(bias.dtype))
    weights = rg.reference.attention_forward(*arrays).weights + bias.astype(float)
    yield arrays, {"bias": bias}, weights @ arrays[2].astype(float)  # added after the softmax


@probe
def softcap_and_causal(cast):
    q, k, v = normal(*[(2, 3, 6, 8)] * 3)
    arrays = cast(2 * q, 2 * k, v)
    options = {"mask": rg.Causal(), "softcap": 3.0}
    s = arrays[0].astype(float) @ arrays[1].astype(float).swapaxes(-1, -2) / math.sqrt(8)
    hidden = ~np.tri(6, dtype=bool)
    for scores in (
        *(s, np.clip(s, -3, 3), 3 * np.tanh(s), np.tanh(s / 3), s * np.tanh(s / 3)),
        3 * np.tanh(s * math.sqrt(8) / 3) / math.sqrt(8),  # before the scale
    ):
        yield arrays, options, _softmax(np.where(hidden, -np.inf, scores)) @ arrays[2].astype(float)
    yield (
        arrays,
        options,
        _softmax(np.where(hidden, -3, 3 * np.tanh(s / 3))) @ arrays[2].astype(float),
    )  # after the mask


@probe
def softcap_and_bias(cast):
    q, k, v, b = normal((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6), (2, 3, 5, 7))
    *arrays, bias = cast(q, k, v, 2 * b)
    s = arrays[0].astype(float) @ arrays[1].astype(float).swapaxes(-1, -2) / math.sqrt(8)
    weights = _softmax(3 * np.tanh((s + bias.astype(float)) / 3))
    yield arrays, {"softcap": 3.0, "bias": bias}, weights @ arrays[2].astype(float)  # over the bias too


@probe
def window(cast):
    arrays = cast(*normal((2, 3, 4, 8), (2, 3, 9, 8), (2, 3, 9, 5)))
    options = {"mask": rg.Causal() & rg.Window(left=2), "q_offset": "end"}
    for wrong in (rg.Causal(), rg.Window(3, 0), rg.Window(1, 0), rg.Window(2, 2)):
        yield arrays, options, reference(*arrays, mask=wrong, q_offset="end")
    yield arrays, options, reference(*arrays, mask=options["mask"], q_offset="start")


@probe
def grouped_heads(cast):
    q, k, v = arrays = cast(*normal((2, 6, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6)))
    tile, repeat, first = [0, 1, 2] * 2, [0, 0, 1, 1, 2, 2], [0] * 6
    for keys, values in ((tile, tile), (first, first), (tile, repeat)):
        yield arrays, {}, reference(q, k[:, keys], v[:, values])


@probe
def big(cast):
    q, k, v = normal((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6))
    arrays = cast(1000 * q, k, v)
    yield arrays, {}, np.full((2, 3, 5, 6), np.nan)  # exp without subtracting the maximum
    yield arrays, {}, reference(*cast(q, k, v))


@probe
def one_big_row(cast):
    q, k, v = normal((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6))
    q[1, 1, 3] *= 2000
    arrays = cast(q, k, v)
    s = arrays[0].astype(float) @ arrays[1].astype(float).swapaxes(-1, -2) / math.sqrt(8)
    with np.errstate(all="ignore"):  # one maximum for all rows
        weights = np.exp(s - s.max())
        yield arrays, {}, weights / weights.sum(-1, keepdims=True) @ arrays[2].astype(float)


def _very_negative(level):
    def probe(cast):
        noise, value = normal((7, 1), (7, 6))
        arrays = cast(np.full((3, 1), level), 1 + noise / 64, value)
        yield arrays, {"scale": 1.0}, np.full((3, 6), np.nan)  # the maximum began at 0: exp underflows, 0 / 0
        yield arrays, {"scale": 1.0}, np.zeros((3, 6))

    return probe


PROBES["very_negative"] = _very_negative(-3e4)
PROBES["negative_2000"] = _very_negative(-2e3)


@probe
def tiles_growing(cast):
    """Scores that rise from tile to tile for all rows but one."""
    q = np.array([[1.0], [-1], [0.5]])
    arrays = cast(q, np.linspace(-6, 6, 331)[:, None], *normal((331, 5)))
    v = arrays[2].astype(float)
    weights = _softmax(arrays[0].astype(float) @ arrays[1].astype(float).T)
    last = reference(arrays[0], arrays[1][288:], arrays[2][288:], scale=1.0)
    yield arrays, {"scale": 1.0}, last  # the last tile alone
    yield arrays, {"scale": 1.0}, reference(arrays[0], arrays[1][:288], arrays[2][:288], scale=1.0)  # tail dropped
    s = arrays[0].astype(float) @ arrays[1].astype(float).T
    tiles = [np.s_[t : t + 96] for t in range(0, 331, 96)]
    peaks = np.maximum.accumulate([s[:, t].max(1) for t in tiles])
    parts = [np.exp(s[:, t] - m[:, None]) for t, m in zip(tiles, peaks, strict=True)]
    total = sum(p.sum(1) for p in parts)[:, None]
    yield arrays, {"scale": 1.0}, sum(p @ v[t] for p, t in zip(parts, tiles, strict=True)) / total  # no rescale
    zeros = np.concatenate([weights, np.zeros((3, 53))], 1)  # keys of zeros after the last took weight
    taken = np.exp(-s.max(1, keepdims=True)) * 53 / np.exp(s - s.max(1, keepdims=True)).sum(1, keepdims=True)
    yield arrays, {"scale": 1.0}, zeros[:, :331] @ v / (1 + taken)


@probe
def tiles_falling(cast):
    """Tile maxima that fall by more than exp spans: the running maximum was replaced by the tile's own."""
    key = np.concatenate([np.zeros(64), np.full(266, -2000), [-3000.0]])[:, None]
    arrays = cast(np.ones((3, 1)), key, *normal((331, 5)))
    yield arrays, {"scale": 1.0}, np.full((3, 5), np.nan)
    yield arrays, {"scale": 1.0}, np.broadcast_to(arrays[2].astype(float)[64:330].mean(0), (3, 5))


@probe
def masked_row(cast):
    arrays = cast(*normal((2, 3, 4, 8), (2, 3, 6, 8), (2, 3, 6, 5)))
    mask = np.random.default_rng(3).random((4, 6)) < 0.7
    mask[1] = False
    right = reference(*arrays, mask=mask)
    v = arrays[2].astype(float)
    for wrong in (np.nan, v.mean(2, keepdims=True), v[:, :, :1], reference(*arrays)[:, :, 1:2]):
        yield arrays, {"mask": mask}, np.where((np.arange(4) == 1)[:, None], wrong, right)


@probe
def wide_rows_as_heads(cast):
    """Multi-head attention of 12 features by views of three heads, W_O left out."""
    x, *weights = normal((2, 5, 12), *[(12, 12)] * 3)
    wide = cast(*(x @ w for w in weights))
    arrays = [y.reshape(2, 5, 3, 4).swapaxes(1, 2) for y in wide]
    yield arrays, {}, reference(*(y.reshape(2, 3, 5, 4) for y in wide))  # split without a transpose
    yield arrays, {}, reference(*(y.reshape(2, 5, 4, 3).transpose(0, 3, 1, 2) for y in wide))  # interleaved
    yield arrays, {}, reference(*arrays, scale=12**-0.5)
    yield arrays, {}, np.broadcast_to(reference(*arrays).mean(1, keepdims=True), (2, 3, 5, 4))


@probe
def constants_beyond_float16(cast):
    """q = k = 40 over 64 features: q · k is 102400, above float16; scaled it is 12800."""
    q, k = np.full((3, 64), 40.0), np.full((5, 64), 40.0)
    arrays = cast(q, k, *normal((5, 6)))
    yield arrays, {}, np.full((3, 6), np.nan)


@probe
def scores_of_large_variance(cast):
    """Scores of up to about 70, which lose their digits where they are kept in 16 bits."""
    q, k, v = normal((2, 40, 64), (2, 300, 64), (2, 300, 32))
    arrays = cast(16 * q, k, v)
    s = arrays[0].astype(float) @ arrays[1].astype(float).swapaxes(-1, -2) / 8
    for stored in (np.float16, ml_dtypes.bfloat16):
        yield arrays, {}, _softmax(s.astype(stored).astype(float)) @ arrays[2].astype(float)


def _softmax(s):
    weights = np.exp(s - s.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("name", PROBES)
def test_probe(target, dtype, name):
    def cast(*arrays):
        return [x.astype(dtype) for x in arrays]

    probes = list(PROBES[name](cast))
    assert probes
    with np.errstate(over="ignore"):  # of the bound, see below
        for arrays, options, wrong in probes:
            result = rg.attention_forward(*arrays, **options)
            assert_agrees(result, *arrays, **options)
            spoilt = dataclasses.replace(result, out=np.asarray(wrong).astype(dtype))
            with pytest.raises(AssertionError):
                assert_agrees(spoilt, *arrays, **options)


def test_the_bound_of_a_hidden_key_that_dominates():
    q, k, v = np.ones((1, 1)), np.array([[0.0], [900]]), np.ones((2, 1))
    bounds = rg.numerics.forward_bounds(q, k, v, np.array([[1.0, 0]]), scale=1, tile_keys=96)
    assert np.isfinite(bounds.out).all()


def test_visible_below_a_fill_of_1e9(target, dtype):
    """Scores of -2e9, a product so that float16 reaches it: the bound is wide there, but equal scores are exact."""
    arrays = [x.astype(dtype) for x in (np.full((3, 1), 4e4), np.array([[-5e4]] * 4 + [[0]] * 3), *normal((7, 6)))]
    seen = np.broadcast_to(np.arange(7) < 4, (3, 7))
    out = rg.attention(*arrays, mask=seen, scale=1.0).astype(float)
    v = arrays[2].astype(float)
    tolerance = {"float64": 1e-12, "float32": 1e-6, "float16": 2e-3, "bfloat16": 1.5e-2}[dtype.name]
    for mean, right in ((v[:4], True), (v[4:], False), (v, False)):
        assert (np.abs(out - mean.mean(0)).max() < tolerance) == right


# -- the bound on fixed normal data, constants of random walks ----------------------------------------------------


@pytest.mark.parametrize("sigma", [1, 16])
@pytest.mark.parametrize(("keys", "d"), [(64, 8), (64, 256), (1000, 64), (16384, 64), (4096, 128)])
@pytest.mark.parametrize("mean", [0, 1])
def test_errors_are_those_of_a_random_walk(target, dtype, sigma, keys, d, mean):
    q, k, v = normal((5, d), (keys, d), (keys, 3))
    _held(dtype, sigma * q, k, v + mean, random_walk=True)


@pytest.mark.parametrize("logit", [8, 12, 16, 30])
@pytest.mark.parametrize("at", [0, 480, 575, 999])
def test_one_key_takes_all(target, dtype, logit, at):
    """First in its tile, at full size through the additions of a whole tile: worst-case constants."""
    q, k, v = normal((5, 64), (1000, 64), (1000, 3))
    q[:, 0], k[:, 0], k[at] = 8, 0, 0
    k[at, 0] = logit
    _held(dtype, q, k, v, random_walk=False)


def _held(dtype, q, k, v, random_walk):
    q, k, v = (x.astype(dtype) for x in (q, k, v))
    result = rg.attention_forward(q, k, v)
    assert_agrees(result, q, k, v, random_walk=random_walk)
    # An error that no number of keys excuses. Where weights are rounded, many make an output smaller than the bound.
    coarse = {"float64": 1e-11, "float32": 3e-3, "float16": 2e-2, "bfloat16": 0.1}[dtype.name]
    if (result.plan.target, dtype.name) in _runtime.WEIGHT_UNITS:
        coarse = 1.0
    spoilt = dataclasses.replace(result, out=(result.out.astype(float) * (1 + coarse)).astype(dtype))
    with pytest.raises(AssertionError):
        assert_agrees(spoilt, q, k, v, random_walk=random_walk)
