"""Masks of many parts: what a loop makes is long and not deep, and what is deep is refused with a way out."""

import copy
import operator
import pickle
from functools import reduce

import numpy as np
import pytest

import regard as rg
from judges import assert_same_bits
from masks_random import formula, oracle
from regard._types import Geometry
from regard.masks._base import MAX_DEPTH, MAX_LOOKS

COUNT = 3000
X = np.random.default_rng(0).standard_normal((1, 9, 4)).astype(np.float32)
LONG = {
    "and": (lambda mask, n: mask & rg.Window(left=n + 1), rg.Window(left=1)),
    "or": (lambda mask, n: mask | rg.Chunked(n + 1) & rg.Causal(), rg.Chunked(COUNT) & rg.Causal()),
    "open": (lambda mask, n: mask & rg.Dilated(1 + n % 2), rg.Dilated(2)),
}


@pytest.mark.parametrize("kind", LONG)
def test_a_loop_of_thousands(kind):
    add, alone = LONG[kind]
    mask = reduce(add, range(COUNT), rg.Empty() if kind == "or" else rg.Full())
    assert mask.depth == alone.depth + 1
    assert mask == copy.deepcopy(mask) == pickle.loads(pickle.dumps(mask))
    assert hash(mask) == hash(copy.copy(mask))
    assert repr(mask).count(" & " if kind != "or" else " | ") == COUNT
    assert (mask.materialize(9, 9) == alone.materialize(9, 9)).all()
    assert_same_bits(rg.attention(X, X, X, mask=mask), rg.attention(X, X, X, mask=alone))
    step = {"q_offset": "end"}
    assert_same_bits(rg.attention(X[:, 8:], X, X, mask=mask, **step), rg.attention(X[:, 8:], X, X, mask=alone, **step))
    assert rg.plan(X, X, X, mask=mask).tiles.visited == 1


@pytest.mark.parametrize("combine", [operator.and_, operator.or_])
def test_groups_stay_as_they_were_written(combine):
    a, b, c = rg.Causal(), rg.Dilated(2), rg.Prefix(3)
    left, right = combine(combine(a, b), c), combine(a, combine(b, c))
    assert left.parts == (a, b, c)
    assert right.parts == (a, combine(b, c))
    assert left != right
    assert repr(left) != repr(right)
    geometry = Geometry((), 1, 5, 7, rank=3)
    assert (oracle(left, geometry) == oracle(right, geometry)).all()
    for mask in (left, right):
        assert (formula(mask, geometry) == oracle(mask, geometry)).all()


def test_a_mask_of_itself_is_not_looked_at_for_ever():
    """Each doubling costs twice the time, and there is none without an end."""
    mask = rg.Causal()
    for turn in range(16):
        mask = mask | mask if turn % 2 else mask & mask
    assert mask.looks == MAX_LOOKS
    with pytest.raises(rg.MaskError, match=r"up to 65,536 masks, and this one of 131,072, .*Dense\(array\)"):
        mask & mask
    for larger in (lambda: ~(mask | rg.Full()), lambda: rg.PerHead([mask, mask]), lambda: rg.Prefix(1) & mask):
        with pytest.raises(rg.MaskError, match="masks are made of up to"):
            larger()


TOO_DEEP = r"masks go up to 100 deep.*mask & more or mask \| more.*combine parts first"
DEEP = {
    "grown on the right": lambda mask: rg.Causal() & mask,
    "not": lambda mask: ~mask,
    "in turn": lambda mask: ~(mask | rg.Prefix(1)),
    "per head": lambda mask: rg.PerHead([mask]),
}


@pytest.mark.parametrize("kind", DEEP)
def test_depth_is_refused_where_it_is_made(kind):
    last = rg.Window(left=2)
    while last.depth < MAX_DEPTH - 1:
        last = DEEP[kind](last)
    with pytest.raises(rg.MaskError, match=TOO_DEEP):
        DEEP[kind](DEEP[kind](last))
    assert MAX_DEPTH - 1 <= last.depth <= MAX_DEPTH
    # All that is asked of the deepest ends well.
    assert last == copy.deepcopy(last) == pickle.loads(pickle.dumps(last))
    assert hash(last) == hash(copy.copy(last))
    assert repr(last).count("Window(left=2)") == 1
    assert rg.attention(X, X, X, mask=last).shape == X.shape
    assert rg.plan(X, X, X, mask=last).tiles.skipped <= 1
    assert last.materialize(9, 9).shape[-2:] == (9, 9)
