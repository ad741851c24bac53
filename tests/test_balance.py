"""Threads get equal work, shown by counting: tasks are dealt out as the engine does, and no clock is read."""

import heapq
import math

import numpy as np
import pytest

import regard as rg
from conftest import USABLE
from regard import _engine, _native, _runtime
from regard.masks._lower import lower

# Query, and keys where there are others.
PROBLEMS = {
    "full": ((1, 8, 2048, 64), None, {}),
    "causal": ((1, 8, 2048, 64), None, {"mask": rg.Causal()}),
    "sizes that divide nothing": ((1, 7, 1999, 64), None, {}),
    "the same, causal": ((1, 7, 1999, 64), None, {"mask": rg.Causal()}),
    "causal window": ((1, 4, 8192, 64), None, {"mask": rg.Causal() & rg.Window(left=256)}),
    "grouped heads": ((1, 32, 1024, 128), (1, 8, 1024, 128), {"mask": rg.Causal()}),
    "one head": ((1, 1, 8192, 64), None, {"mask": rg.Causal()}),
    "decoding, one kv head": ((1, 8, 1, 128), (1, 1, 65536, 128), {}),
    "decoding, 8 kv heads": ((1, 32, 1, 128), (1, 8, 32768, 128), {}),
    "64 rows over very many keys": ((1, 1, 64, 64), (1, 1, 800_000, 64), {}),
    "64 rows of 8 kv heads": ((1, 8, 64, 64), (1, 8, 131_072, 64), {}),
    "decoding, one long sequence of 64": (
        (64, 4, 1, 128),
        (64, 1, 65536, 128),
        {"mask": rg.KeyLengths([65536] + [1024] * 63)},
    ),
    "decoding, one long sequence of 40": (
        (40, 4, 1, 128),
        (40, 1, 32768, 128),
        {"mask": rg.KeyLengths([32768] + [1024] * 39)},
    ),
    "decoding, the same sequence last": (
        (40, 4, 1, 128),
        (40, 1, 32768, 128),
        {"mask": rg.KeyLengths([1024] * 39 + [32768])},
    ),
    "decoding, lengths by Zipf's law": (
        (64, 8, 1, 128),
        (64, 1, 65536, 128),
        {"mask": rg.KeyLengths([max(64, 65536 // n) for n in range(1, 65)])},
    ),
    "some rows keep all keys": ((1, 8, 4096, 64), None, {"mask": rg.Global(96) | rg.Window(64, 64)}),
    "blocks one too many": ((1, 17, 64, 64), (1, 17, 16384, 64), {}),
}
# With no more keys than a chunk has.
SHORT = {"one short head": ((1, 1, 576, 64), None, {}), "16 short heads": ((1, 16, 192, 128), None, {})}
# Keys that no row reaches lie between those that some do.
HOLES = {
    "first keys and a window": (
        (1, 8, 1, 128),
        (1, 8, 1_000_000, 128),
        {"mask": rg.Prefix(4) | rg.Window(left=20_000), "q_offset": "end"},
    ),
}


def tasks_of(name, threads):
    """Pairs that each task computes, in the order in which tasks are handed out, band by band of the mask."""
    query, keys, options = (PROBLEMS | HOLES | SHORT)[name]
    arrays = [np.broadcast_to(np.float32(0), shape) for shape in (query, keys or query, keys or query)]
    with rg.config(num_threads=threads):
        plan = rg.plan(*arrays, **options)
    problem = plan.problem
    key, value = (_native.View(offsets, offsets, 0, 0) for offsets in _engine.kv_heads_assumed(problem))
    kernel, sizes = (plan.target, _engine.dtype_number(problem), threads), _engine.sizes(problem)
    bands = [_engine.native_band(band, problem) for band in lower(problem.mask, problem.geometry)]
    return [_native.Question(*kernel, key, value, sizes, band).task_pairs() for band in bands], plan


def excess(bands, threads):
    """How far the most loaded thread is above the mean, where each task goes to the thread that is free first."""
    most = 0
    for tasks in bands:  # a band is a call: all threads wait for its last
        loads = [0] * threads
        for pairs in tasks:
            heapq.heapreplace(loads, loads[0] + pairs)
        most += max(loads)
    return most / (sum(map(sum, bands)) / threads) - 1


@pytest.mark.parametrize("threads", [2, 3, 4])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_most_loaded_thread_is_near_the_mean(name, threads):
    bands, _ = tasks_of(name, threads)
    assert excess(bands, threads) <= 0.05


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_keys_that_no_row_reaches_are_no_tasks(threads):
    (tasks,), _ = tasks_of("first keys and a window", threads)
    assert min(tasks) > 0
    assert len(tasks) == 8 * (1 + 1_000_000 // 1536 - (1_000_000 - 20_001) // 1536 + 1)
    assert excess([tasks], threads) <= 0.05


def test_threads_are_as_many_as_what_a_mask_keeps_is_worth():
    """A window over a million keys is little work; and as much as a thread is worth is looked at, no more."""
    q, k = (np.broadcast_to(np.float32(0), (8, n, 128)) for n in (1, 1_000_000))
    for mask, threads in (
        (rg.Window(left=100), 1),
        (rg.Window(left=20_000), 2),
        (rg.Prefix(4) | rg.Window(left=100), 1),
    ):
        with rg.config(num_threads=2):
            made = rg.plan(q, k, k, mask=mask, q_offset="end")
        assert (made.tiles.chunk_bytes > 0) == (threads == 2)


@pytest.mark.parametrize("threads", [6, 8, 16])
def test_many_threads_share_few_rows(threads):
    """However much the states of all chunks would take together."""
    bands, _ = tasks_of("64 rows of 8 kv heads", threads)
    assert len(bands[0]) == 8 * -(-131_072 // 1536)
    assert excess(bands, threads) <= 0.05


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_pair_is_counted(name, threads):
    bands, plan = tasks_of(name, threads)
    g, total = plan.problem.geometry, sum(map(sum, bands))
    mask = plan.problem.mask
    lead = g.lead if isinstance(mask, rg.KeyLengths) else ()
    kept = mask.materialize(g.queries, g.keys, lead=lead).sum() * plan.problem.total_heads // math.prod(lead)
    if isinstance(mask, (rg.Full, rg.KeyLengths)):
        assert total == kept
    else:
        assert kept < total <= plan.tiles.visited * plan.block_rows * plan.tile_keys


def test_few_blocks_are_cut_and_many_are_not():
    assert len(tasks_of("decoding, one kv head", 1)[0][0]) == 1
    assert len(tasks_of("decoding, one kv head", 2)[0][0]) == -(-65536 // 1536)
    (tasks,), _ = tasks_of("full", 4)
    rows = max(tasks) // 2048
    assert rows == (192 if _runtime.chosen()[0] == "avx2" else 96)
    # The last block of each head has what is left.
    assert [pairs // 2048 for pairs in tasks] == 8 * ([2048 % rows] + 2048 // rows * [rows])


@pytest.mark.skipif("avx2" not in USABLE, reason="a target of whose blocks there are two sizes")
@pytest.mark.parametrize(
    ("name", "threads", "rows"),
    [("one short head", 1, 192), ("one short head", 2, 96), ("16 short heads", 2, 192), ("16 short heads", 3, 96)],
)
def test_blocks_are_small_where_large_ones_would_be_few(name, threads, rows):
    """Fewer than eight for each thread."""
    with rg.config(target="avx2"):
        (tasks,), plan = tasks_of(name, threads)
    g = plan.problem.geometry
    assert max(tasks) == rows * g.keys
    assert len(tasks) == plan.problem.total_heads * -(-g.queries // rows)


def test_this_test_can_fail():
    assert excess([[3, 1, 1, 1]], 2) == 0
    assert excess([[1, 1, 1, 3]], 2) == pytest.approx(1 / 3)
    assert excess([[5, 5], [5]], 2) == pytest.approx(1 / 3)
