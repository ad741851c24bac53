"""A mask per query head: what it keeps, in the algebra, in pictures and in the engine."""

import copy
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings

import regard as rg
from judges import assert_agrees, assert_same_bits
from masks_judges import assert_lowers, assert_normal
from masks_random import assert_same, cases, formula, oracle
from regard._types import Geometry
from regard.masks._lower import lower

TWO = rg.PerHead([rg.Causal(), rg.Window(left=1, right=1)])
NAMED = {
    "closed": rg.PerHead([rg.Causal(), rg.Window(left=40), rg.Empty(), rg.Full()]),
    "bits": rg.PerHead([rg.Causal(), rg.Dilated(3), rg.Causal() & rg.Dilated(2), rg.Prefix(70)]),
    "combined": rg.Causal() & ~rg.PerHead([rg.Window(left=30), rg.Empty(), rg.Prefix(9), rg.KeyLengths([150, 99])]),
    "of arrays": rg.PerHead([rg.Dense(np.random.default_rng(3).random((2, 4, 130, 200)) < 0.4), *[rg.Causal()] * 3]),
}


@settings(max_examples=150)
@given(cases())
def test_the_same_mask_for_every_head_is_the_mask(case):
    mask, geometry = case
    each = rg.PerHead([mask] * geometry.heads)
    each.check(geometry)
    want = oracle(mask, geometry)
    assert_same(formula(each, geometry), want)
    assert_lowers(lower(each, geometry, band_rows=4), each, geometry)
    assert (each.positional, each.cacheable) == (mask.positional, mask.cacheable)


def test_each_head_has_its_own():
    text = (TWO & rg.Prefix(2) | ~TWO).materialize(3, 3).astype(int).tolist()
    assert text == [[[1, 1, 1], [1, 1, 1], [1, 1, 0]], [[1, 1, 1], [1, 1, 0], [1, 1, 0]]]


def test_spans_are_as_wide_as_the_widest_head():
    geometry = Geometry((2,), 2, 5, 9)
    spans = rg.PerHead([~rg.Window(1, 1), rg.KeyLengths([3, 9])]).spans(geometry, slice(2, 5))
    assert spans.data.shape == (2, 2, 3, 2, 2)
    assert_normal(spans)
    nested = rg.PerHead([rg.Causal(), rg.PerHead([~rg.Window(1, 1), rg.Prefix(3)])])
    assert nested.spans(geometry, slice(2, 5)).width == 1, "head 0 of the second is not asked for"
    for part in (rg.Dilated(2), rg.Dense(np.eye(5, 9, dtype=bool))):
        assert rg.PerHead([rg.Causal(), part]).spans(geometry, slice(0, 5)) is None


def test_a_part_that_tells_heads_apart_is_asked_about_its_own_head():
    """And not about head 0, nor about all: number h of PerHead is about head h."""
    by_head = rg.from_function(lambda b, h, p, j: j <= h)
    blocks = rg.Blocks(np.arange(3).reshape(3, 1, 1) == [[1]], 4)
    mask = rg.PerHead([by_head, by_head | blocks, rg.PerHead([rg.Empty(), rg.Empty(), rg.Prefix(2)])])
    assert mask.materialize(1, 4).astype(int)[:, 0].tolist() == [[1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0]]


def test_equality_hash_pickle_and_repr():
    twin = rg.PerHead((rg.Causal(), rg.Window(1, 1)))
    assert twin == TWO
    assert hash(TWO) == hash(twin)
    assert rg.PerHead([rg.Causal()]) != rg.PerHead([rg.Causal()] * 2) != TWO
    assert rg.Causal() != rg.PerHead([rg.Causal()])
    for same in (pickle.loads(pickle.dumps(TWO)), copy.deepcopy(TWO), eval(repr(TWO), vars(rg.masks).copy())):
        assert same == TWO
    assert repr(~TWO & rg.Full()) == "~PerHead([Causal(), Window(left=1, right=1)]) & Full()"
    array = rg.Dense(np.ones((2, 2), bool))
    assert rg.PerHead([array]) == rg.PerHead([array]) != rg.PerHead([rg.Dense(array.array)])


def test_equal_parts_are_asked_once():
    asked = []

    def function(b, h, p, j):
        asked.append(1)
        return j <= p

    one = rg.from_function(function)
    rg.PerHead([one, rg.Full(), one, one]).materialize(3, 3)
    assert len(asked) == 1


# pictures


def test_a_picture_is_of_one_head():
    assert str(TWO.picture(3, 3, head=1)) == (
        "PerHead([Causal(), Window(left=1, right=1)]): 3 queries down, 3 keys across, head 1\n"
        "■ ■ ·\n■ ■ ■\n· ■ ■\n■ kept  · not kept\n"
        "7 of 9 pairs kept; tiles of 96 x 96: 0 full, 1 partial, 0 empty"
    )
    assert "head 0" in str(TWO.picture(3, 3))
    assert "3 keys across, head 1" in TWO.picture(3, 3, head=1).svg
    assert "head" not in str(rg.Causal().picture(3, 3))


def test_a_picture_of_an_array_has_its_heads():
    array = np.random.default_rng(0).random((2, 4, 3, 3)) < 0.5
    mask = rg.masks.Dense(array)
    assert (mask.picture(3, 3, batch=1, head=2).kept == array[1, 2]).all()
    assert mask.materialize(3, 3, lead=(2,)).shape == array.shape
    with pytest.raises(
        rg.ShapeError, match=re.escape("there is no head 7 in Dense(<bool (2, 4, 3, 3)>), which is made for 4")
    ):
        mask.picture(3, 3, head=7)
    assert rg.masks.Dense(array[:, :1]).picture(3, 3, head=7).kept.any()


def test_lead_is_a_tuple():
    with pytest.raises(
        rg.ShapeError, match=re.escape("lead is 5; it must be a tuple, the sizes of the axes before heads")
    ):
        rg.Causal().materialize(3, 3, lead=5)


@pytest.mark.parametrize("extra", [rg.Full(), rg.Dilated(2)])
@pytest.mark.parametrize("head", [0, 1])
def test_a_picture_of_many_tiles_is_of_one_head(head, extra):
    kept = (TWO & extra).picture(200, 200, head=head, block_rows=16, tile_keys=16).kept.sum()
    assert kept == (TWO & extra).materialize(200, 200)[head].sum()


def test_a_function_is_drawn_for_any_head():
    mask = rg.from_function(lambda b, h, p, j: j <= h)
    assert [mask.picture(1, 4, head=head).kept.sum() for head in (0, 2)] == [1, 3]
    assert "4 keys across, head 2" in str(mask.picture(1, 4, head=2))


def test_there_is_no_head_beyond_the_last():
    with pytest.raises(rg.ShapeError) as error:
        (rg.Causal() & TWO).picture(3, 3, head=2)
    assert "there is no head 2 in Causal() & PerHead(" in str(error.value)
    assert "made for 2, from 0 on" in str(error.value)


# the engine


@pytest.fixture
def arrays(normal):
    return normal(2, 4, 130, 24), normal(2, 2, 200, 24), normal(2, 2, 200, 16)


@pytest.mark.parametrize("name", NAMED)
def test_the_engine_agrees_with_the_reference(target, arrays, name):
    """Heads in groups of two, each with another mask than its neighbour."""
    options = {"mask": NAMED[name], "q_offset": 65}
    assert_agrees(rg.attention_forward(*arrays, **options), *arrays, **options)


@pytest.mark.parametrize("name", ["closed", "bits"])
def test_a_head_alone_has_the_same_bits(target, arrays, name):
    q, k, v = arrays
    want = rg.attention(q, k, v, mask=NAMED[name], q_offset=65)
    for h, mask in enumerate(NAMED[name].masks):
        got = rg.attention(q[:, h : h + 1], k[:, [h // 2]], v[:, [h // 2]], mask=mask, q_offset=65)
        assert_same_bits(got[:, 0], want[:, h])
