"""The canonical order of docs/contract.md ("In what order") is what runs, bit for bit."""

import numpy as np
import pytest

import regard as rg
from canonical_order import MASKS, drawn, order_of
from judges import assert_same_bits

OTHERS = [
    {"chunk_tiles": 15},
    {"chunk_tiles": 32},
    {"chunk_tiles": 10**6},
    {"tile": 48},
    {"tile": 48, "chunk_tiles": 32},
    {"tile": 192, "chunk_tiles": 8},
    {"first": 100},
    {"backwards": True},
    {"crossed": True},
]


@pytest.fixture(scope="module")
def problem():
    return drawn()


def assert_runs(order, problem, keep, **options):
    """The engine does what the order says, by one thread and by several."""
    q, k, v = problem
    want, lse = order.attention(order.scores(q, k, 0.75, keep), v)
    for threads in (1, 3):
        with rg.config(num_threads=threads):
            got = rg.attention_forward(q, k, v, scale=0.75, **options)
        assert_same_bits(got.out, want)
        assert_same_bits(got.lse, lse)


@pytest.mark.parametrize("name", MASKS)
def test_the_written_order_is_the_one_that_runs(target, problem, name):
    keep = MASKS[name](len(problem[0]), len(problem[1]))
    assert_runs(order_of(target), problem, keep, mask=keep)


@pytest.mark.parametrize("left", [3000, 1000])
def test_chunks_begin_at_key_0_wherever_the_mask_does(target, problem, left):
    """A window, which the kernel knows by its ranges: what comes before is not visited, and is counted for chunks."""
    rows, keys = len(problem[0]), len(problem[1])
    mask, where = rg.Window(left=left), keys - rows
    keep = mask.materialize(rows, keys, q_offset=where)
    assert_runs(order_of(target), problem, keep, mask=mask, q_offset=where)


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_another_order_has_other_bits(target, problem, other):
    """So that the tests above fail where tiles, chunks or the merging of the kernel change."""
    q, k, v = problem
    order, got = order_of(target, **other), rg.attention(q, k, v, scale=0.75)
    differ = order.attention(order.scores(q, k, 0.75, np.True_), v)[0] != got
    if target == "scalar" and "crossed" in other:
        assert not differ.any()  # without fma a sum of two products has one order
    else:
        assert np.mean(differ) > 0.1


# With equal scores every weight and every factor is exactly 1, on every target: sums alone are left.
@pytest.mark.parametrize("width", [9, 257], ids=["tiles of 96", "tiles of 48"])
def test_sums_have_one_order_on_every_target(target, dtype, normal, width):
    q, k = np.zeros((5, width), dtype), np.zeros((3500, width), dtype)
    v = (normal(3500, 13) + 1).astype(dtype)
    carried = v.astype(np.float64 if dtype == np.float64 else np.float32)
    of_float32 = dtype != np.float64 and target in ("amx", "avx512_bf16")
    order = order_of(target if of_float32 else "scalar", dtype, tile=96 if width <= 256 else 48)
    want, _ = order.attention(np.zeros((1, 3500), carried.dtype), carried)
    for threads in (1, 2):
        with rg.config(num_threads=threads):
            assert_same_bits(rg.attention(q, k, v), np.repeat(want, 5, axis=0).astype(dtype))
