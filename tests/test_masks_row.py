"""One row in integers, as a step of decoding has it: what masks say of themselves must be what their formulas say."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings

import regard as rg
from judges import refused
from masks_judges import decode_row
from masks_random import FARTHEST, assert_same, cases, closed_cases, oracle
from regard._types import Geometry, Offsets
from regard.masks._lower import Band, lower, lower_row

thorough = settings(max_examples=400)


def spelled_out(ranges, geometry):
    return decode_row(Band(slice(0, 1), "row", None, ranges), geometry.shape)


@thorough
@given(cases())
def test_a_row_is_what_every_query_keeps(case):
    mask, geometry = case
    if not geometry.keys or not geometry.queries:
        return
    want, offset = oracle(mask, geometry), geometry.q_offset
    ranges = mask.row(None, geometry.keys)
    if ranges == (0, geometry.keys):
        assert want.all()
    elif ranges is not None:
        assert_same(spelled_out(ranges, geometry), want)
    for i in range(geometry.queries if isinstance(offset, int) else 0):
        ranges = mask.row(offset + i, geometry.keys)
        if ranges == (0, geometry.keys):
            assert want[..., i, :].all()
        elif ranges is not None:
            assert_same(spelled_out(ranges, geometry)[..., i, :], want[..., i, :])


@pytest.mark.parametrize("p", [0, 7, -1, 12, 13, 40, FARTHEST, -FARTHEST])
@pytest.mark.parametrize(
    "mask",
    [
        *(rg.Full(), rg.Empty(), rg.Causal(), rg.Window(), rg.Window(3, 2), rg.Window(left=10**30), rg.Prefix(4)),
        *(rg.Global(3), rg.Global(10**30), rg.Chunked(4), rg.Chunked(10**30), ~rg.Window(1, 1)),
        rg.Causal() & (rg.Window(left=3) | rg.Prefix(2)),
        rg.Prefix(4) | rg.Causal() & ~rg.Prefix(4),  # ranges that touch are one
        rg.Causal() & ~rg.Prefix(4) | rg.Prefix(3),
    ],
    ids=repr,
)
def test_a_rule_of_positions_has_a_row_everywhere(mask, p):
    """And the spans of the same row are the same, found by the same formula with or without arrays."""
    geometry = Geometry((2,), 3, 2, 12, p)
    for row in range(2):
        ranges = mask.row(p + row, 12)
        assert ranges is not None
        if ranges != (0, 12):
            spelled_out(ranges, geometry)  # in normal form
        spans = mask.spans(geometry, slice(row, row + 1))
        assert spans.edges.ravel().tolist() == list(ranges)
        dense = mask.keep(geometry, np.array([row]), np.arange(12))
        assert_same(
            np.broadcast_to(spans.to_dense(), (*geometry.shape[:2], 1, 12)), np.broadcast_to(dense, (2, 3, 1, 12))
        )


@given(closed_cases())
def test_a_row_of_all_queries_is_the_one_band_and_what_the_formula_keeps(case):
    mask, geometry = case
    if not geometry.queries:
        return
    ranges = lower_row(mask, geometry, 0, geometry.queries)
    if ranges is None:
        return
    (band,) = lower(mask, geometry)
    assert band.rows == slice(0, geometry.queries)
    assert ranges == ((0, geometry.keys) if band.kind == "full" else band.ranges)
    want = oracle(mask, geometry)
    if ranges == (0, geometry.keys):
        assert want.all()
    else:
        assert_same(spelled_out(ranges, geometry), want)


def test_positions_that_differ_have_no_row():
    several = [Geometry((2,), 1, 1, 9, Offsets((2,), (3, 4))), Geometry((2,), 1, 2, 9, 3)]
    for geometry in several:
        assert lower_row(rg.Causal(), geometry, 0, geometry.queries) is None
        assert lower_row(rg.Prefix(4), geometry, 0, geometry.queries) == (0, 4)
    assert lower_row(rg.Causal(), several[1], 1, 2) == (0, 5)
    for mask in (rg.KeyLengths([3, 4]), rg.Dilated(2), rg.Dense(np.ones((1, 9), bool)), rg.PerHead([rg.Full()])):
        assert lower_row(rg.Causal() & mask, Geometry((2,), 1, 1, 9, 3), 0, 1) is None


class Odd(rg.Causal):
    """A rule that a user has made of another: it says by itself what it keeps."""

    def keep(self, geometry, rows, keys):
        return super().keep(geometry, rows, keys) & (keys % 2 == 1)

    def spans(self, geometry, rows):
        return None


def test_a_rule_made_of_another_is_asked_itself():
    x = np.random.default_rng(0).standard_normal((1, 9, 4), dtype=np.float32)
    for mask in (Odd(), rg.Window(left=5) & Odd()):
        whole = rg.attention(x, x, x, mask=mask)
        assert (whole != rg.attention(x, x, x, mask=rg.Causal())).any()
        for n in range(1, 10):
            step = rg.attention(x[:, n - 1 : n], x[:, :n], x[:, :n], mask=mask, q_offset=n - 1)
            assert (step == whole[:, n - 1 : n]).all()


# -- what is asked of a mask once ------------------------------------------------------------------------------------


class Picky(rg.Full):
    """A rule with a check of its own."""

    def check(self, geometry):
        raise rg.MaskError("not today")


def test_a_check_is_never_left_out():
    x = np.ones((1, 3, 2), np.float32)
    for mask in (Picky(), rg.Causal() & ~Picky(), rg.PerHead([Picky()])):
        assert not mask.fits_all
        for _ in range(2):
            refused(rg.MaskError, "not today", args=(x[:, :1], x, x), mask=mask, q_offset=0)
    for mask in (rg.KeyLengths(3), rg.KeyPadding([True] * 3), rg.Dense(np.ones((1, 3), bool)), rg.PerHead([rg.Full()])):
        assert not (rg.Causal() | mask).fits_all
    assert (rg.Causal() & ~(rg.Window(left=3) | rg.Chunked(2) | rg.Dilated(2))).fits_all


def test_masks_that_end_early_say_so():
    assert (rg.Causal() | ~(rg.Full() & rg.KeyLengths(3))).ends_early
    assert rg.PerHead([rg.Full(), rg.KeyLengths(3)]).ends_early
    assert not (rg.Causal() & rg.KeyPadding([True])).ends_early


def test_a_long_union_is_no_deeper_than_its_own_calls():
    """Each operator takes a call of Python's to lower; what is asked beforehand takes none."""
    mask = rg.Window(left=0)
    for n in range(400):
        mask |= rg.Chunked(n + 1) & rg.Causal()
    x = np.ones((1, 3, 2), np.float32)

    def asked():
        assert (mask.positional, mask.ends_early, mask.fits_all, mask.heads) == (True, False, True, None)
        assert mask.held_bytes == 0
        assert len(mask.leaves) == 801
        assert repr(mask).endswith("| Chunked(399) & Causal() | Chunked(400) & Causal()")
        return rg.attention(x[:, :1], x, x, mask=mask, q_offset="end").shape

    # A thread of its own has all of the stack, whatever runs the tests.
    with ThreadPoolExecutor(1) as own:
        assert own.submit(asked).result() == (1, 1, 2)
