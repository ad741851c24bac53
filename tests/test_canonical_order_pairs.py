"""The canonical order of bfloat16 on avx512_bf16 is what its loops do, with the instruction and over its model."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from by_model import Model, as_dtype
from canonical_order import MASKS, PairOrder, by_order, drawn
from conftest import USABLE
from judges import assert_same_bits

pytestmark = pytest.mark.skipif("avx2" not in USABLE, reason="the model of AVX-512 BF16 has the vectors of AVX2")
HERE = "avx512_bf16" in USABLE


@pytest.fixture(scope="module")
def by_model(tmp_path_factory):
    return Model("pairs_model", "REGARD_PAIRS", tmp_path_factory.mktemp("model"))


def by_machine(q, k, v, keep, threads=1, scale=0.75):
    with rg.config(target="avx512_bf16", num_threads=threads):
        mask = np.broadcast_to(keep, (len(q), len(k)))
        got = rg.attention_forward(q, k, v, mask=mask, scale=scale, aux=rg.Aux(lse=True, state=True))
    return got.out, got.lse, got.state.out


def assert_runs(by_model, arrays, keep, scale=0.75, **options):
    for run, vectors in [(by_model, "avx2"), *([(by_machine, "avx512")] if HERE else [])]:
        want = by_order(PairOrder(vectors, **options), *arrays, keep, scale)
        for threads in (1, 3):
            for got, expected in zip(run(*arrays, keep, threads, scale), want, strict=True):
                assert_same_bits(got, expected)


def in_bfloat16(*sizes):
    return as_dtype(drawn(*sizes), "bfloat16")


@pytest.mark.parametrize("rows", [11, 3], ids=["keys packed", "a few rows"])
@pytest.mark.parametrize("name", MASKS)
def test_the_written_order_is_the_one_that_runs(by_model, name, rows):
    assert_runs(by_model, in_bfloat16(rows), MASKS[name](rows, 4700))


@pytest.mark.parametrize(
    "sizes", [(35, 300, 70, 37), (3, 130, 257, 5), (1, 97, 64, 64), (2, 192, 32, 33), (100, 40, 8, 16)], ids=str
)
def test_sizes(by_model, sizes):
    """Odd counts of features and of keys, tiles of 48 keys, rows that lie in pairs and that do not."""
    rows, keys, d, _ = sizes
    keep = np.tri(rows, keys, keys - rows, dtype=bool)
    assert_runs(by_model, in_bfloat16(*sizes), keep, 0.2, tile=96 if d <= 256 else 48)


def large_queries(q, k, v):
    q[2:9, 5] *= 2.0**124
    k[:, 5] *= 2.0**-127


def small_queries(q, k, v):
    q[:, 5] *= 2.0**-127
    k[:, 5] *= 2.0**124


def large_keys(q, k, v):
    k[2:90, 5] *= 2.0**70
    q[:, 5] *= 2.0**-70


def large_scale(q, k, v):
    q *= 2.0**-64
    k *= 2.0**-64


def values(rows, factor):
    def change(q, k, v):
        v[rows, 1] *= factor

    return change


def edges(k):
    """Of q what is just in range, beside a k of any size."""

    def change(q, keys, v):
        q[2:9, 5], q[9:16, 5] = 2.0**58, 2.0**-126
        keys[3::7, 5] = k

    return change


# What a row of the product holds, and whether the instruction alone would do otherwise.
RANGES = {
    "large queries": (large_queries, True),
    "small queries": (small_queries, True),
    "large keys": (large_keys, False),
    "large values": (values(slice(40, 90), 2.0**122), True),
    "small values": (values(slice(None), 2.0**-125), True),
    "a few small values": (values(slice(7, 9), 2.0**-85), False),
    "large scale": (large_scale, True),
    **{f"edges beside {k:g}": (edges(k), False) for k in (np.inf, -np.inf, np.nan, 2.0**127, 2.0**-130)},
}


@pytest.mark.parametrize("rows", [20, 4], ids=["keys packed", "a few rows"])
@pytest.mark.parametrize("name", RANGES)
@pytest.mark.filterwarnings("ignore:(invalid|overflow)")
def test_what_the_instruction_flushes_is_computed_apart(by_model, name, rows):
    change, loses = RANGES[name]
    arrays = drawn(rows, 192, 9, 16)
    change(*arrays)
    arrays, scale = as_dtype(arrays, "bfloat16"), 2.0**124 if name == "large scale" else 0.75
    assert_runs(by_model, arrays, True, scale)
    if loses and rows > 4:
        flushing = by_order(PairOrder("avx2", apart=False), *arrays, True, scale)
        assert any((x != y).any() for x, y in zip(by_model(*arrays, True, scale=scale), flushing, strict=True))


@pytest.mark.parametrize("rows", [20, 4], ids=["keys packed", "a few rows"])
@pytest.mark.parametrize("odd", [np.nan, np.inf, 2.0**-130, 0.0], ids=str)
def test_a_value_that_a_row_drops_changes_none_of_its_bits(by_model, odd, rows):
    q, k, v = in_bfloat16(rows, 192, 9, 16)
    keep = np.ones((rows, 192), bool)
    keep[::2, 50] = False
    for run in [by_model, *([by_machine] if HERE else [])]:
        want, other = run(q, k, v, keep)[0], v.copy()
        other[50] = odd
        got = run(q, k, other, keep)[0]
        assert_same_bits(got[::2], want[::2])
        assert (got[1::2] != want[1::2]).any()


@pytest.mark.parametrize(
    "other",
    [
        {"chunk_tiles": 15},
        {"tile": 48},
        {"first": 100},
        {"backwards": True},
        {"second_first": False},
        {"first_pair": 1},
        {"weights_apart": False},
    ],
    ids=str,
)
def test_another_order_has_other_bits(by_model, other):
    """Seen before the output is rounded: bfloat16 hides them."""
    q, k, v = in_bfloat16(40, 4700, 33, 5)
    if "weights_apart" in other:
        v[:, 1] *= 2.0**-85
    want = by_order(replace(PairOrder("avx2"), **other), q, k, v, True)[2]
    assert np.mean(by_model(q, k, v, True)[2] != want) > 0.05


def test_a_product_of_another_order_is_seen(by_model):
    """Of scores alone: where there is one key, the logsumexp is its score."""
    arrays = in_bfloat16(512, 1, 33, 1)
    assert_runs(by_model, arrays, True)
    want = by_order(PairOrder("avx2", second_first=False), *arrays, True)[1]
    assert (by_model(*arrays, True)[1] != want).any()


def test_weights_are_rounded_to_bfloat16():
    """The output of one key's weight p beside the rest, on a machine that has the instruction."""
    if not HERE:
        pytest.skip("needs AVX-512 BF16; its model is held to the order above")
    q = np.zeros((1, 2), ml_dtypes.bfloat16)
    q[0, 0] = 1
    k = np.zeros((2, 2), ml_dtypes.bfloat16)
    k[1, 0] = -0.3
    v = np.float32([[0], [1]]).astype(ml_dtypes.bfloat16)
    with rg.config(target="avx512_bf16"):
        got = rg.attention_forward(q, k, v, scale=1.0, aux=rg.Aux(state=True))
    p = np.exp(np.float32(k[1, 0]), dtype=np.float32)
    rounded = np.float32(p.astype(ml_dtypes.bfloat16))
    np.testing.assert_allclose(got.state.out[0, 0], rounded / (1 + p), rtol=3e-7)
    assert abs(rounded - p) > 1e-4
