"""Padding of keys: by a leaf of its own, from torch's inverted mask, and as a bool array of one row."""

import numpy as np
import pytest

import regard as rg
from judges import assert_agrees, assert_same_bits
from masks_random import formula
from regard._types import Geometry
from regard.masks._lower import lower
from regard.masks._spans import MAX_SPANS, RowSpans

# Right, left, both, in between, none kept, all kept.
KEPT = np.array(
    [[int(bit) for bit in row] for row in ("11100000", "00011111", "01111100", "11011011", "0" * 8, "1" * 8)]
)
KEPT = KEPT.astype(bool)


class Tensor:
    """What torch's tensor is to NumPy: something that turns into an array."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


def test_padding_may_be_anywhere():
    mask, geometry = rg.KeyPadding(KEPT), Geometry((6,), 2, 3, 8)
    mask.check(geometry)
    np.testing.assert_array_equal(formula(mask, geometry)[:, 0, 0], KEPT)
    np.testing.assert_array_equal(mask.spans(geometry, slice(0, 3)).to_dense()[:, 0, 0], KEPT)
    assert not mask.positional
    assert mask.cacheable


@pytest.mark.parametrize("form", ["array", "lists", "tensor", "float32", "float64", "float tensor"])
def test_torchs_mask_is_turned_round(form):
    ignored = ~KEPT
    added = np.where(ignored, -np.inf, 0)
    given = {
        "array": ignored,
        "lists": ignored.tolist(),
        "tensor": Tensor(ignored),
        "float32": added.astype(np.float32),
        "float64": -0.0 + added,
        "float tensor": Tensor(added.astype(np.float16)),
    }[form]
    mask = rg.KeyPadding.from_torch(given)
    assert mask == rg.KeyPadding(KEPT)
    assert mask != rg.KeyPadding(~KEPT)
    np.testing.assert_array_equal(ignored, ~KEPT, "what was given is left as it was")


def test_one_sequence_has_no_batch_axis():
    assert rg.KeyPadding.from_torch([False, True]).materialize(2, 2).tolist() == [[True, False]] * 2


def test_many_runs_have_no_spans():
    geometry = Geometry((), 1, 2, 2 * MAX_SPANS + 2)
    kept = np.arange(geometry.keys) % 2 == 0
    assert rg.KeyPadding(kept).spans(geometry, slice(0, 2)) is None
    kept[0] = False
    assert rg.KeyPadding(kept).spans(geometry, slice(0, 2)).width == MAX_SPANS


@pytest.mark.parametrize("mask", ["padding", "row", "row per head"])
def test_the_engine_agrees_with_the_reference(target, normal, rng, mask):
    q, k, v = normal(6, 4, 70, 16), normal(6, 2, 130, 16), normal(6, 2, 130, 8)
    kept = np.repeat(KEPT, 17, axis=1)[:, :130]
    made = {
        "padding": rg.Causal() & rg.KeyPadding(kept),
        "row": rg.Causal() & rg.Dense(kept[:, None, None]),
        "row per head": rg.Dense(np.stack([kept, ~kept, kept[::-1], ~kept[::-1]], axis=1)[:, :, None]),
    }[mask]
    options = {"mask": made, "q_offset": 60}
    assert_agrees(rg.attention_forward(q, k, v, **options), q, k, v, **options)


def test_ranges_and_bits_give_the_same_bits(target, normal, monkeypatch):
    """A row of a bool array is lowered to ranges; the same pairs in an array of all rows become a bit each."""
    q, k, v = normal(6, 4, 70, 16), normal(6, 2, 136, 16), normal(6, 2, 136, 8)
    kept = np.repeat(KEPT, 17, axis=1)[:, None, None]
    every_row = np.repeat(kept, 70, axis=2)
    kinds = [[band.kind for band in lower(rg.Dense(a), Geometry((6,), 4, 70, 136))] for a in (kept, every_row)]
    assert kinds == [["spans"], ["bits"]]
    want = rg.attention_forward(q, k, v, mask=every_row)
    for mask in (kept, rg.KeyPadding(kept[:, 0, 0]), rg.KeyPadding.from_torch(~kept[:, 0, 0])):
        got = rg.attention_forward(q, k, v, mask=mask)
        assert_same_bits(got.out, want.out)
        assert_same_bits(got.lse, want.lse)


def test_a_row_of_an_array_may_change_between_calls(normal):
    x = normal(1, 2, 9, 4)
    row = np.ones((1, 1, 1, 9), bool)
    before = rg.attention(x, x, x, mask=row)
    row[..., 3:] = False
    assert_same_bits(rg.attention(x, x, x, mask=row), rg.attention(x, x, x, mask=rg.KeyLengths(3)))
    assert not np.array_equal(rg.attention(x, x, x, mask=row), before)


def test_rows_that_agree_are_one_band_however_many():
    geometry = Geometry((2,), 1, 10_000, 8)
    for mask in (rg.KeyPadding(KEPT[:2]), rg.Dense(KEPT[:2, None, None]), rg.KeyLengths([3, 5]) & rg.Prefix(4)):
        (band,) = lower(mask, geometry)
        assert (band.rows, band.kind, band.data.shape[:3]) == (slice(0, 10_000), "spans", (2, 1, 1))


def test_the_judge_of_ranges_says_no():
    spans = RowSpans.from_ranges(np.array([0]), np.array([3]), 8)
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(spans.to_dense()[0], KEPT[1])


def test_a_function_that_returns_a_masked_array():
    mask = rg.from_function(lambda b, h, p, j: np.ma.masked_array(j + 0 * p <= p, j + 0 * p == p))
    with pytest.raises(rg.MaskError, match="it must return a bool array"):
        mask.materialize(3, 3)
