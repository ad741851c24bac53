"""The canonical order of the target amx is what its loops do over the exact model of its instruction, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest

from by_model import DTYPES, Model, as_dtype
from canonical_order import MASKS, by_order, drawn, tile_order
from conftest import USABLE
from judges import assert_same_bits

pytestmark = pytest.mark.skipif("avx2" not in USABLE, reason="the model of AMX has the vectors of AVX2")


@pytest.fixture(scope="module")
def by_model(tmp_path_factory):
    return Model("amx_model", "REGARD_TILES", tmp_path_factory.mktemp("model"))


def assert_runs(by_model, arrays, keep, scale=0.75):
    want = by_order(tile_order("avx2", arrays[0].dtype), *arrays, keep, scale)
    for threads in (1, 3):
        for got, expected in zip(by_model(*arrays, keep, threads, scale), want, strict=True):
            assert_same_bits(got, expected)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_written_order_is_the_one_that_runs(by_model, dtype, name):
    arrays = as_dtype(drawn(), dtype)
    assert_runs(by_model, arrays, MASKS[name](11, 4700))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(35, 300, 70, 37), (3, 130, 257, 5), (1, 97, 64, 64), (2, 40, 32, 33)], ids=str)
def test_sizes(by_model, dtype, sizes):
    """Features of several instructions, tiles of 48 keys, rows and columns over one tile, whole ones."""
    rows, keys, d, dv = sizes
    q, k, v = as_dtype(drawn(rows, keys, d, dv), dtype)
    order = tile_order("avx2", dtype, tile=96 if d <= 256 else 48)
    keep = np.tri(rows, keys, keys - rows, dtype=bool)
    got, want = by_model(q, k, v, keep, scale=0.2), by_order(order, q, k, v, keep, 0.2)
    for x, y in zip(got, want, strict=True):
        assert_same_bits(x, y)


def large_rows(of, small):
    """Some rows have a number over 2^58; their scores are as large as the others."""
    of[2:90, 5] *= 2.0**60
    small[:, 5] *= 2.0**-60


def large_scale(q, k, v):
    q *= 2.0**-10
    k *= 2.0**-24


def values(rows, factor):
    def change(q, k, v):
        v[rows, 1] *= factor

    return change


RANGES = {
    "query": lambda q, k, v: large_rows(q, k),
    "key": lambda q, k, v: large_rows(k, q),
    "scale": large_scale,
    "large values": values(slice(40, 90), 2.0**122),
    "small values": values(slice(None), 2.0**-85),
}


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_out_of_range_is_computed_apart(by_model, dtype, name):
    """By tiles float32 would have other bits; bfloat16 may hide them."""
    arrays = drawn(20, 210)
    RANGES[name](*arrays)
    arrays, scale = as_dtype(arrays, dtype), 2.0**34 if name == "scale" else 0.75
    assert_runs(by_model, arrays, True, scale)
    by_tiles = by_order(tile_order("avx2", dtype, apart=False), *arrays, True, scale)
    got = by_model(*arrays, True, scale=scale)
    assert dtype == "bfloat16" or any((x != y).any() for x, y in zip(got, by_tiles, strict=True))


@pytest.mark.parametrize(
    "other",
    [{"chunk_tiles": 15}, {"tile": 48}, {"first": 100}, {"backwards": True}, {"crossed": True}, {"deep": 16}],
    ids=str,
)
def test_another_order_has_other_bits(by_model, other):
    arrays = drawn()
    got, want = by_model(*arrays, True)[0], by_order(tile_order("avx2", np.float32, **other), *arrays, True)[0]
    assert np.mean(got != want) > 0.1


@pytest.mark.parametrize(
    "other",
    [{"deep": 16}, {"parts": 1}, {"chained": True}, {"largest_first": True}, {"right_first": True}, {"stored": 2}],
    ids=str,
)
def test_another_product_has_other_bits(by_model, other):
    """Seen where there is one key, for then the logsumexp is its score."""
    arrays = drawn(8192, 1, 33)
    assert_runs(by_model, arrays, True)
    order = tile_order("avx2", np.float32)
    assert (by_model(*arrays, True)[1] != by_order(replace(order, **other), *arrays, True)[1]).any()
