"""A plan, and what it says of itself: in words, and in values."""

import dataclasses
import json

import numpy as np
import pytest

import regard as rg


def like(*shape, dtype=np.float32):
    return np.broadcast_to(np.zeros((), dtype), shape)


CALLS = [
    ([(5, 64)] * 3, {}),
    ([(0, 64)] * 3, {}),
    ([(2, 8, 1, 64), (2, 2, 400, 64), (2, 2, 400, 32)], {}),
    ([(2, 8, 300, 300), (1, 2, 2100, 300), (2, 2, 2100, 9)], {"mask": rg.Causal(), "q_offset": "end"}),
    ([(2, 6, 1100, 16)] * 3, {"mask": rg.Window(left=9), "q_offset": [3, -4], "softcap": 30, "bias": rg.Alibi(6)}),
    ([(3, 4, 70, 8), (1, 1, 70, 8), (1, 1, 70, 8)], {"sinks": np.zeros(4)}),
]


@pytest.mark.parametrize(("shapes", "options"), CALLS, ids=str)
def test_facts_are_json_and_leave_nothing_out(shapes, options):
    made = rg.plan(*(like(*shape) for shape in shapes), **options)
    facts, problem = json.loads(json.dumps(made.facts())), made.problem
    for name in ("target", "why", "threads", "block_rows", "tile_keys", "scratch_bytes", "workspace_bytes"):
        assert facts.pop(name) == getattr(made, name)
    for name in ("kv_heads", "d", "dv", "dtype", "scale", "bias", "sinks"):
        assert facts.pop(name) == getattr(problem, name)
    tiles = facts.pop("tiles") | {name: facts.pop(name) for name in ("mask_bytes", "bias_bytes", "chunk_bytes")}
    assert tiles == dataclasses.asdict(made.tiles)
    assert facts.pop("scores") == list(problem.geometry.user_shape)
    assert facts.pop("scores_bytes") == made.scores_bytes == np.prod(problem.geometry.shape) * 4
    offset = options.get("q_offset", 0)
    assert facts.pop("q_offset") == (1800 if offset == "end" else offset)
    assert (facts.pop("softcap"), facts.pop("mask")) == (options.get("softcap"), repr(problem.mask))
    assert facts == {}


@pytest.mark.parametrize(("shapes", "options"), CALLS, ids=str)
def test_the_workspace_is_scratch_mask_and_tables(shapes, options):
    with rg.config(num_threads=3):
        made = rg.plan(*(like(*shape) for shape in shapes), **options)
    tiles = made.tiles
    assert made.workspace_bytes == 3 * made.scratch_bytes + tiles.mask_bytes + tiles.bias_bytes + tiles.chunk_bytes
    assert f"{made.workspace_bytes:,} bytes at most besides inputs and output" in made.told()["memory"]
    assert f"all scores would be {made.scores_bytes:,} bytes" in made.told()["memory"]
    uncounted = dataclasses.replace(made, tiles=None)
    assert uncounted.workspace_bytes is None
    assert uncounted.facts()["tiles"] is None
    assert set(made.told()) - set(uncounted.told()) == {"tiles", "memory"}


def test_states_of_chunks_are_counted():
    """Two blocks of 4 rows, each over 27 chunks of 1536 keys, if two threads are to share them."""

    def planned(threads, queries=1, keys=40_000, **options):
        with rg.config(num_threads=threads):
            return rg.plan(like(8, queries, 64), *[like(2, keys, 64)] * 2, **options)

    assert planned(1).tiles.chunk_bytes == 0
    made = planned(2)
    output, numbers = 4 * 64 * 4, 3 * 64  # maximum, sum and whether a key is kept: a line of memory each
    assert made.tiles.chunk_bytes == 2 * 27 * (output + numbers)
    assert made.workspace_bytes == 2 * made.scratch_bytes + made.tiles.chunk_bytes
    assert f"states of chunks {made.tiles.chunk_bytes:,} bytes" in made.told()["memory"]
    assert planned(2, mask=rg.KeyLengths(3000)).tiles.chunk_bytes == 2 * 2 * (output + numbers)
    assert planned(2, keys=1536).tiles.chunk_bytes == 0
    assert planned(2, queries=1000).tiles.chunk_bytes == 0  # enough blocks
    sizes = [planned(4, queries=150, keys=n).tiles.chunk_bytes for n in (1537, 10_000, 60_000, 120_000)]
    assert sizes[:3] == sorted(sizes[:3])
    assert 0 < sizes[0] < 1 << 20 < sizes[2] == sizes[3] <= 1 << 22  # however many keys there are


def test_states_of_many_columns_are_four_per_thread():
    """64 rows of 20,000 columns are 5 MB."""
    for threads in (2, 5):
        with rg.config(num_threads=threads):
            made = rg.plan(like(1, 64, 8), like(1, 100_000, 8), like(1, 100_000, 20_000))
        assert made.tiles.chunk_bytes == 4 * threads * (64 * 20_000 * 4 + 2 * 64 * 4 + 64)


@pytest.mark.parametrize(("shapes", "options"), CALLS, ids=str)
def test_all_tiles_are_no_more_than_the_bound(shapes, options):
    made = rg.plan(*(like(*shape) for shape in shapes), **options)
    every = made.tiles.visited + made.tiles.skipped
    assert every <= made.most_tiles
    shared = made.problem.kv_leads[0] != (*made.problem.geometry.lead, made.problem.kv_heads)
    assert every == made.most_tiles or (shared and made.problem.geometry.rank > 2)


def test_a_plan_of_float64_and_of_few_bytes():
    made = rg.plan(*[like(2, 3, 8, dtype=np.float64)] * 3)
    assert made.scores_bytes == 2 * 3 * 3 * 8
    assert made.told()["memory"].count("bytes") == 3  # neither mask nor tables
    assert "mask bands" not in repr(made)


def test_printed_it_says_every_line_by_its_name():
    made = rg.plan(
        like(1, 8, 200, 64),
        *[like(1, 2, 4000, 64)] * 2,
        mask=rg.Causal(),
        q_offset="end",
        bias=rg.Alibi(8),
        softcap=9.5,
    )
    lines = repr(made).splitlines()
    assert [line[:12].strip() for line in lines] == list(made.told())
    assert [line[12:] for line in lines] == list(made.told().values())
    assert lines[0].endswith("(1, 8, 200, 4000), 8 heads, 2 of key and value, D 64, Dv 64, float32")
    assert lines[1] == f"{'scale':<12}0.125, softcap 9.5, bias"
    assert lines[2].endswith("Causal(), query 0 at position 3800")
    assert f"mask bands {made.tiles.mask_bytes:,} bytes, bias tables {made.tiles.bias_bytes:,} bytes" in lines[-1]
