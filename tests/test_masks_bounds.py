"""Masks that are partly closed: what is certain is not evaluated, and what is evaluated says the same."""

import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from masks_judges import assert_lowers, assert_normal
from masks_random import CLOSED, GENERATORS, OPEN, assert_same, cases, expression, formula, oracle
from regard._types import Geometry, Offsets
from regard.masks import _lower
from regard.masks._lower import lower
from regard.masks._spans import RowSpans

# Many more keys than a leaf's numbers: most of an expression is certain.
WIDE = [Geometry((), 2, 150, 333, 200, rank=3), Geometry((2,), 1, 70, 200, Offsets((2,), (0, 140)))]
LENGTH = 131072


@settings(max_examples=100)
@given(cases(), st.data())
def test_the_mask_lies_between_its_bounds(case, data):
    mask, geometry = case
    start, stop = sorted(data.draw(st.integers(0, geometry.queries)) for _ in "ab")
    inner, outer = mask.bounds(geometry, slice(start, stop))
    want = oracle(mask, geometry)[..., start:stop, :]
    for spans in (inner, outer):
        assert_normal(spans)
    if stop > start:
        assert not (inner.to_dense() & ~want).any(), "certain, but not kept"
        assert not (want & ~outer.to_dense()).any(), "kept, but excluded"
    assert (inner is outer) == (mask.spans(geometry, slice(start, stop)) is not None)


def open_leaf():
    return rg.from_function(lambda b, h, p, j: (p + j) % 2 == 0)


@pytest.mark.parametrize(
    ("mask", "inner", "outer"),
    [
        (open_leaf(), rg.Empty(), rg.Full()),
        (rg.Causal() & open_leaf(), rg.Empty(), rg.Causal()),
        (rg.Causal() | open_leaf(), rg.Causal(), rg.Full()),
        (~(rg.Causal() & open_leaf()), ~rg.Causal(), rg.Full()),
        (~(rg.Causal() | open_leaf()), rg.Empty(), ~rg.Causal()),
        (rg.Prefix(2) | rg.Causal() & open_leaf(), rg.Prefix(2), rg.Prefix(2) | rg.Causal()),
        (~(~rg.Causal() | ~open_leaf()), rg.Empty(), rg.Causal()),
        (rg.PerHead([rg.Causal(), open_leaf()]), rg.PerHead([rg.Causal(), rg.Empty()]), None),
    ],
)
def test_bounds_follow_the_expression(mask, inner, outer):
    geometry = Geometry((), 2, 5, 9, 3, rank=3)
    found = mask.bounds(geometry, slice(0, 5))
    outer = rg.PerHead([rg.Causal(), rg.Full()]) if outer is None else outer
    for got, want in zip(found, (inner, outer), strict=True):
        assert_same(got.to_dense(), np.broadcast_to(formula(want, geometry), geometry.shape))


@settings(max_examples=60)
@given(GENERATORS, st.sampled_from(WIDE), st.integers(1, 3), st.sampled_from([8, 64]))
def test_certain_keys_and_evaluated_ones_make_the_whole(rng, geometry, depth, step):
    mask = expression(rng, geometry, depth, OPEN + CLOSED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_lower, "_STEP", step)
        assert_lowers(lower(mask, geometry), mask, geometry)


@settings(max_examples=200)
@given(GENERATORS, st.sampled_from([1, 8, 16]), st.integers(0, 70))
def test_what_any_row_keeps(rng, step, keys):
    spans = RowSpans.from_ranges(np.zeros(4, np.int64), 0, keys)
    for _ in range(rng.integers(4)):
        begin = rng.integers(0, keys + 1, 4)
        spans |= RowSpans.from_ranges(begin, begin + rng.integers(0, 12, 4), keys)
    found = spans.anywhere(step)
    assert_normal(found)
    steps = [spans.to_dense()[:, j : j + step].any() for j in range(0, keys, step)]
    np.testing.assert_array_equal(found.to_dense()[0], np.repeat(np.array(steps, bool), step)[:keys])


def asked(mask, geometry):
    """Pairs that the functions of a mask are asked about while it is lowered."""
    pairs = []

    def count(b, h, p, j):
        pairs.append(np.broadcast(p, j).size)
        return (p + j) % 3 > 0

    for _ in lower(mask(rg.from_function(count)), geometry):
        pass
    return sum(pairs)


@pytest.mark.parametrize(
    "mask",
    [
        lambda f: rg.Causal() & rg.Window(left=99) & f,
        lambda f: f & (rg.Causal() & rg.Window(left=99)),
        lambda f: ~(rg.Causal() & rg.Window(left=99) & f),
        lambda f: ~(rg.Causal() & rg.Window(left=99)) | f,
        lambda f: rg.Causal() & rg.Window(left=89) & f | rg.Causal() & rg.Prefix(4),
        lambda f: rg.Documents(np.arange(4096) // 100) & f,
    ],
)
def test_a_function_is_asked_only_where_its_answer_matters(mask):
    geometry = Geometry((), 1, 4096, 4096)
    assert 4096 * 60 < asked(mask, geometry) < 4096 * (100 + 3 * 64 + 64)
    assert asked(lambda f: f, geometry) >= 4096 * 4096


@pytest.mark.alone
@pytest.mark.parametrize("open_part", ["function", "dilated", "dense"])
def test_a_window_of_something_open_lowers_fast_and_small(open_part):
    leaf = {
        "function": rg.from_function(lambda b, h, p, j: (p - j) % 2 == 0),
        "dilated": rg.Dilated(3),
        "dense": rg.Dense(np.arange(LENGTH)[None] % 64 > 0),
    }[open_part]
    mask, start, rows = rg.Causal() & rg.Window(left=1023) & leaf, time.process_time(), 0
    geometry = Geometry((), 1, LENGTH, LENGTH)
    for band in lower(mask, geometry, slice(LENGTH - 8192, LENGTH)):
        assert band.kind == "bits"
        rows += band.rows.stop - band.rows.start
    assert rows == 8192
    assert time.process_time() - start < 2, "all pairs take some ten times as long"
    tracemalloc.start()
    band = next(lower(mask, geometry, slice(70_000, 71_024)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - band.data.nbytes < 8 << 20
