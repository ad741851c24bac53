"""Every target against the float64 reference, within the derived bound, over random problems."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from conftest import USABLE
from judges import assert_agrees

# Around one vector, one panel, one block and one tile of every target, and primes.
ROWS = [1, 2, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 47, 48, 49, 63, 64, 65, 67, 95, 96, 97, 130, 193]
KEYS = [1, 2, 5, 6, 7, 47, 48, 49, 95, 96, 97, 191, 192, 193, 389, 401]
WIDTHS = [1, 2, 3, 4, 6, 7, 8, 16, 33, 64, 127, 129, 260]


DTYPES = ["float32", "float64", "float16", ml_dtypes.bfloat16]


@st.composite
def problems(draw):
    """Shapes, dtype, masks and options; arrays come from the seed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    queries, keys = draw(st.sampled_from(ROWS)), draw(st.sampled_from(KEYS))
    d, dv = draw(st.sampled_from(WIDTHS)), draw(st.sampled_from(WIDTHS))
    lead = draw(st.sampled_from([(), (1,), (2,), (2, 1)]))
    kv_heads, group = draw(st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2)]))
    heads, dtype = kv_heads * group, draw(st.sampled_from(DTYPES))
    query = rng.standard_normal((*lead, heads, queries, d)) * draw(st.sampled_from([0.1, 1, 4]))
    key = rng.standard_normal((*lead, kv_heads, keys, d))
    value = rng.standard_normal((*lead, kv_heads, keys, dv)) + draw(st.sampled_from([0, 1]))
    arrays = tuple(x.astype(dtype) for x in (query, key, value))
    options = draw(all_options(rng, lead, heads, queries, keys))
    return arrays, options


@st.composite
def all_options(draw, rng, lead, heads, queries, keys):
    options = {"mask": draw(masks(rng, lead, heads, queries, keys))}
    if options["mask"] is not None:
        per_batch = rng.integers(-5, keys + 1, lead).tolist() if lead else 2
        options["q_offset"] = draw(st.sampled_from([0, keys - queries, -3, 11, per_batch]))
    if draw(st.booleans()):
        options["scale"] = draw(st.sampled_from([0.0, -0.3, 0.7, 1.0]))
    if draw(st.booleans()):
        options["softcap"] = draw(st.sampled_from([0.5, 3.0, 50.0]))
    if draw(st.booleans()):
        options["sinks"] = rng.normal(size=heads).astype("float32") * draw(st.sampled_from([1, 5]))
    if draw(st.booleans()):
        options["bias"] = draw(biases(rng, lead, heads, queries, keys))
        if isinstance(options["bias"], rg.Bias):
            options.setdefault("q_offset", draw(st.sampled_from([0, keys - queries, -40])))
    return options


@st.composite
def biases(draw, rng, lead, heads, queries, keys):
    """An array, one that is computed from distances, or a sum of both."""
    array = draw(bias_arrays(rng, lead, heads, queries, keys))
    formula = [
        rg.Alibi(heads),
        rg.RelativeBias(rng.standard_normal((heads, 2 * int(rng.integers(0, 90)) + 1))),
        rg.T5Bias(rng.standard_normal((16, heads)), bidirectional=bool(rng.integers(2)), max_distance=30),
        rg.RelativeBias(np.where(rng.random(81) < 0.2, -np.inf, 0.5)),
    ][draw(st.integers(0, 3))]
    return draw(st.sampled_from([array, formula, array + formula]))


@st.composite
def bias_arrays(draw, rng, lead, heads, queries, keys):
    full = (*lead, heads, queries, keys)
    shape = draw(st.sampled_from([full, (queries, keys), (1, keys), (queries, 1), (*(1,) * len(lead), heads, 1, keys)]))
    bias = rng.standard_normal(shape) * 2
    if draw(st.booleans()):
        bias[rng.random(shape) < draw(st.sampled_from([0.1, 0.9]))] = -np.inf
    return bias.astype(draw(st.sampled_from(DTYPES)))


def masks(rng, lead, heads, queries, keys):
    lengths = st.sampled_from([rng.integers(0, keys + 1, lead).tolist() if lead else int(rng.integers(0, keys + 1))])
    dense_shapes = st.sampled_from(
        [(queries, keys), (1, keys), (*lead, heads, queries, keys), (*(1,) * len(lead), heads, queries, 1)]
    )
    density = st.sampled_from([0.02, 0.5, 0.97])
    dense = st.builds(lambda shape, p: rg.Dense(rng.random(shape) < p), dense_shapes, density)
    windows = st.builds(rg.Window, st.sampled_from([None, 0, 3, 70]), st.sampled_from([None, 0, 5]))
    leaves = st.one_of(st.just(rg.Causal()), windows, lengths.map(rg.KeyLengths), dense, st.just(rg.Full()))
    pairs = st.builds(lambda a, b, join: a & b if join else a | ~b, leaves, leaves, st.booleans())
    return st.one_of(st.none(), leaves, pairs)


@pytest.mark.parametrize("name", USABLE)
@settings(max_examples=150)
@given(problem=problems())
def test_engine_agrees_with_reference(name, problem):
    arrays, options = problem
    with rg.config(target=name, num_threads=2):
        assert_agrees(rg.attention_forward(*arrays, **options), *arrays, **options)


@settings(max_examples=60)
@given(problem=problems(), rows=st.sampled_from([1, 7, 64]), keys=st.sampled_from([1, 5, 64]))
def test_online_reference_agrees_with_the_materialised_one(problem, rows, keys):
    arrays, options = problem
    wide = [x.astype(np.float64) for x in arrays]
    got = rg.reference.online_attention(*wide, block_rows=rows, block_keys=keys, **options)
    np.testing.assert_allclose(got, rg.reference.attention(*wide, **options), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("sigma", [1, 16])
@pytest.mark.parametrize("mean", [0, 1])
def test_normal_data_stays_within_random_walk_constants(target, normal, sigma, mean):
    q, k, v = (
        normal(2, 200, 64) * np.float32(sigma),
        normal(2, 3000, 64),
        normal(2, 3000, 64) + np.float32(mean),
    )
    assert_agrees(rg.attention_forward(q, k, v), q, k, v, random_walk=True)


def test_dominating_key_and_tiny_rest(target, normal):
    q, k, v = normal(3, 64), normal(500, 64), normal(500, 5)
    k[250] = 30 * q[0]
    assert_agrees(rg.attention_forward(q, k, v), q, k, v)


def test_growing_and_falling_scores_rescale(target):
    """Each tile raises, or never raises, the maximum."""
    key = np.linspace(-60, 60, 1000, dtype=np.float32)[:, None]
    for k in (key, key[::-1]):
        q, v = np.ones((1, 1), np.float32), np.cos(key)
        assert_agrees(rg.attention_forward(q, k, v, scale=1), q, k, v, scale=1)


@pytest.mark.parametrize(
    ("keys", "score", "value"),
    [(2, -32.5, -80), (2, -60, -40), (2, -85, -4), (96, -33, -80), (96, -85, -4), (1000, -32, -80), (1000, -30, -81)],
)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["float32", "bfloat16"])
def test_terms_below_the_normal_numbers(target, dtype, keys, score, value):
    """A column whose values stand beside small weights only."""
    q, k, v = np.zeros((1, 2), dtype), np.zeros((keys, 2), dtype), np.zeros((keys, 1), dtype)
    q[0, 0], k[1:, 0], v[1:] = 1, score, 2.0**value
    assert_agrees(rg.attention_forward(q, k, v, scale=1.0), q, k, v, scale=1.0)
