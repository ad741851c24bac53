"""Masks as values, and the two forms of every expression: spans and formula must name the same pairs."""

import copy
import dataclasses
import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard.masks as masks
from regard._types import Geometry
from regard.masks import Causal, Dense, Empty, Full, KeyLengths, Mask, Window
from regard.masks._base import And, Not, Or
from regard.masks._spans import RowSpans

thorough = settings(max_examples=400, deadline=None)

# Hypothesis draws geometry, depth and seed. Node by node it repeats itself: few rows with several ranges.
GENERATORS = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@st.composite
def geometries(draw):
    lead = draw(st.sampled_from([(), (2,), (2, 3)]))
    return Geometry(
        lead,
        heads=draw(st.integers(1, 2)),
        queries=draw(st.sampled_from([3, 5, 7, 1, 0])),
        keys=draw(st.sampled_from([5, 7, 8, 9, 1, 0])),
        q_offset=draw(st.sampled_from([0, 3, -2, 8, -9])),
        rank=len(lead) + 3,
    )


def one_or_full(rng, axes):
    return tuple(1 if rng.random() < 0.3 else axis for axis in axes)


def dense_mask(rng, geometry):
    full = geometry.shape if rng.random() < 0.7 else geometry.shape[-2:]
    return Dense(rng.random(one_or_full(rng, full)) < 0.7)


def key_lengths(rng, geometry):
    lead = geometry.lead[rng.integers(len(geometry.lead) + 1) :]
    return KeyLengths(rng.integers(0, geometry.keys + 1, one_or_full(rng, lead)))


def window(rng):
    bounds = [None, 0, 1, 2, 3, 5]
    return Window(bounds[rng.integers(6)], bounds[rng.integers(6)])


def expression(rng, geometry, depth, dense):
    """Any mask with at most ``depth`` operators above each leaf."""
    kind = rng.choice(["&", "|", "~", "leaf"], p=[0.35, 0.35, 0.2, 0.1]) if depth else "leaf"
    if kind == "~":
        return ~expression(rng, geometry, depth - 1, dense)
    if kind != "leaf":
        left, right = (expression(rng, geometry, depth - 1, dense) for _ in "ab")
        return left & right if kind == "&" else left | right
    leaves = [Full, Empty, Causal, Causal, *[lambda: window(rng), lambda: key_lengths(rng, geometry)] * 4]
    leaves += [lambda: dense_mask(rng, geometry)] * (4 * dense)
    return leaves[rng.integers(len(leaves))]()


@st.composite
def cases(draw, dense=False):
    geometry = draw(geometries())
    return expression(draw(GENERATORS), geometry, draw(st.sampled_from([4, 2, 1, 3, 0])), dense), geometry


@st.composite
def row_spans(draw, keys, rows=3):
    """Some union of up to three ranges per row, as RowSpans makes it; sometimes one row for all."""
    rng = draw(GENERATORS)
    rows = draw(st.sampled_from([1, rows]))
    total = RowSpans.from_ranges(np.zeros(rows, np.int64), 0, keys)
    for _ in range(draw(st.integers(0, 3))):
        begin, end = rng.integers(-2, keys + 3, (2, rows))
        total |= RowSpans.from_ranges(begin, end, keys)
    return total


def keeps(mask, geometry, lead, head, i, j):
    """One pair, straight from the table of leaves in the design: no arrays, no spans."""
    p = geometry.q_offset + i
    match mask:
        case And(left, right):
            return keeps(left, geometry, lead, head, i, j) and keeps(right, geometry, lead, head, i, j)
        case Or(left, right):
            return keeps(left, geometry, lead, head, i, j) or keeps(right, geometry, lead, head, i, j)
        case Not(operand):
            return not keeps(operand, geometry, lead, head, i, j)
        case Causal():
            return j <= p
        case Window(left, right):
            return (left is None or p - left <= j) and (right is None or j <= p + right)
        case KeyLengths():
            return j < np.broadcast_to(mask.n, geometry.lead)[lead]
        case Dense():
            return np.broadcast_to(mask.array, geometry.shape)[(*lead, head, i, j)]
    return isinstance(mask, Full)


def oracle(mask, geometry):
    table = np.zeros(geometry.shape, bool)
    for *lead, head, i, j in product(*map(range, geometry.shape)):
        table[(*lead, head, i, j)] = keeps(mask, geometry, tuple(lead), head, i, j)
    return table


def formula(mask, geometry):
    return mask.keep(geometry, np.arange(geometry.queries), np.arange(geometry.keys))


def assert_same(got, want):
    np.testing.assert_array_equal(np.broadcast_to(got, want.shape), want)


def assert_normal(spans):
    begin, end = spans.data[..., 0], spans.data[..., 1]
    unused = begin == spans.keys
    assert spans.data.dtype == np.int64
    assert ((begin < end) | (unused & (end == spans.keys))).all(), "an empty range that is not (keys, keys)"
    assert (begin >= 0).all()
    assert (end <= spans.keys).all()
    assert ((end[..., :-1] < begin[..., 1:]) | unused[..., 1:]).all(), "ranges out of order, or touching"
    assert not (unused[..., :-1] & ~unused[..., 1:]).any(), "an unused slot before a used one"
    if spans.width:
        assert not unused[..., -1].all(), "wider than any row needs"


@pytest.mark.parametrize(
    "data",
    [
        [[[0, 2], [2, 3]]],  # touching
        [[[3, 4], [0, 2]]],  # out of order
        [[[5, 5], [0, 2]]],  # unused first
        [[[0, 2], [5, 5]]],  # too wide
        [[[2, 2]]],  # empty, not at the end
        [[[0, 6]]],  # past the keys
    ],
)
def test_the_judge_of_normal_form_says_no(data):
    with pytest.raises(AssertionError):
        assert_normal(RowSpans(np.array(data), keys=5))


def test_the_judge_of_equality_says_no():
    with pytest.raises(AssertionError):
        assert_same(np.zeros((1, 3), bool), np.eye(2, 3, dtype=bool))


@thorough
@given(cases(dense=True))
def test_formula_agrees_with_the_pairs_one_by_one(case):
    mask, geometry = case
    mask.check(geometry)
    kept = formula(mask, geometry)
    assert kept.dtype == np.bool_
    assert kept.ndim == len(geometry.shape)
    assert_same(kept, oracle(mask, geometry))


@thorough
@given(cases(), st.data())
def test_spans_agree_with_the_formula(case, data):
    mask, geometry = case
    start, stop = sorted(data.draw(st.integers(0, geometry.queries)) for _ in "ab")
    spans = mask.spans(geometry, slice(start, stop))
    assert_normal(spans)
    assert spans.data.ndim == len(geometry.shape) + 1
    want = oracle(mask, geometry)[..., start:stop, :]
    if stop > start:
        assert_same(spans.to_dense(), want)
    assert_same(mask.keep(geometry, np.arange(start, stop), np.arange(geometry.keys)), want)


@settings(max_examples=100, deadline=None)
@given(cases(dense=True), st.data())
def test_formula_takes_any_rows_and_keys(case, data):
    mask, geometry = case
    rows = data.draw(st.lists(st.integers(0, geometry.queries - 1)) if geometry.queries else st.just([]))
    keys = data.draw(st.lists(st.integers(0, geometry.keys - 1)) if geometry.keys else st.just([]))
    rows, keys = np.array(rows, np.int64), np.array(keys, np.int64)
    assert_same(mask.keep(geometry, rows, keys), oracle(mask, geometry)[..., rows[:, None], keys])


@thorough
@given(st.integers(0, 9).flatmap(lambda keys: st.tuples(*[row_spans(keys)] * 3)))
def test_laws_of_row_spans(abc):
    a, b, c = abc

    def same(x, y):
        return np.array_equal(*np.broadcast_arrays(x.data, y.data)) if x.width == y.width else False

    for spans in (a, ~a, a & b, a | b):
        assert_normal(spans)
    np.testing.assert_array_equal((a & b).to_dense(), a.to_dense() & b.to_dense())
    np.testing.assert_array_equal((a | b).to_dense(), a.to_dense() | b.to_dense())
    np.testing.assert_array_equal((~a).to_dense(), ~a.to_dense())
    assert same(~~a, a)
    assert same(a & a, a)
    assert same(a | a, a)
    assert same(a & b, b & a)
    assert same(a | b, b | a)
    assert same(~(a & b), ~a | ~b)
    assert same(~(a | b), ~a & ~b)
    assert same(a & (b | c), (a & b) | (a & c))
    assert (a & ~a).width == 0
    assert (a | ~a).is_full() == (a.keys > 0)


def test_ranges_that_touch_are_fused_and_slots_trimmed():
    one = RowSpans.from_ranges(np.array([0, 4]), np.array([3, 4]), keys=8)
    two = RowSpans.from_ranges(np.array([3, 6]), np.array([5, 99]), keys=8)
    assert (one | two).data.tolist() == [[[0, 5]], [[6, 8]]]
    assert (one & two).data.shape == (2, 0, 2)


@pytest.mark.parametrize("q_offset", [-3, 0, 5])
@pytest.mark.parametrize("bound", [2**62 - 1, 2**62, 2**63 - 1, 2**63, 10**30])
def test_a_window_wider_than_int64_keeps_all(bound, q_offset):
    geometry = Geometry((), 1, 3, 4, q_offset)
    mask = Window(left=bound, right=bound)
    assert formula(mask, geometry).all()
    assert mask.spans(geometry, slice(0, 3)).is_full()


def test_dense_has_no_spans_and_neither_has_what_contains_it():
    geometry = Geometry((), 1, 2, 3)
    dense = Dense(np.ones((2, 3), bool))
    for mask in (dense, ~dense, dense & Full(), Full() | dense):
        assert mask.spans(geometry, slice(0, 2)) is None


def test_flags():
    dense = Dense(np.ones((2, 2), bool))
    assert not (Full() | Empty() & KeyLengths(3) | dense).positional
    assert Causal().positional
    assert (Full() & ~(KeyLengths(3) | Window(left=1))).positional
    assert (Full() & ~(KeyLengths(3) | Causal())).cacheable
    assert not (Full() & ~(Causal() | dense)).cacheable


def test_equality_and_hash_are_structural():
    def build(n):
        return Causal() & (Window(left=4) | ~KeyLengths(n))

    assert build([3, 5]) == build(np.array([3, 5], np.uint8))
    assert hash(build([3, 5])) == hash(build(np.array([3, 5])))
    assert len({build([3, 5]), build((3, 5)), build([3, 6])}) == 2
    different = [
        *(Full(), Empty(), Causal(), Window(), Window(left=1), Window(right=1)),
        *(KeyLengths(3), KeyLengths([3]), KeyLengths([[3]]), KeyLengths([3, 5])),
        *(~Causal(), Causal() & Full(), Full() & Causal(), Causal() | Full()),
    ]
    assert len(set(different)) == len(different)


def test_equality_and_hash_of_dense_are_by_identity():
    array = np.ones((2, 2), bool)
    one, other = Dense(array), Dense(array)
    assert one == one
    assert one != other
    assert len({one, other, one}) == 2
    assert Causal() & one == Causal() & one
    assert Causal() & one != Causal() & other


def test_masks_are_frozen():
    lengths = np.array([3, 5])
    mask = KeyLengths(lengths)
    lengths[0] = 7
    assert mask.n.tolist() == [3, 5]
    with pytest.raises(ValueError, match="read-only"):
        mask.n[0] = 1
    for leaf, name in [(mask, "n"), (Window(left=1), "left"), (Dense(np.ones((1, 1), bool)), "array")]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(leaf, name, None)


def test_dense_does_not_copy():
    array = np.ones((4, 4), bool)[::2, ::-1]
    assert Dense(array).array is array


@given(cases())
def test_pickle_and_repr_give_the_mask_back(case):
    mask, _ = case
    for twin in (pickle.loads(pickle.dumps(mask)), copy.deepcopy(mask), eval(repr(mask), vars(masks).copy())):
        assert twin == mask
        assert hash(twin) == hash(mask)
        assert repr(twin) == repr(mask)


def test_pickle_keeps_lengths_read_only_and_dense_arrays():
    assert not pickle.loads(pickle.dumps(KeyLengths([3, 5]))).n.flags.writeable
    array = np.eye(3, dtype=bool)
    twin = pickle.loads(pickle.dumps(~Dense(array)))
    np.testing.assert_array_equal(twin.operand.array, array)


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (
            Causal() & (Window(left=256) | ~KeyLengths([3, 5])),
            "Causal() & (Window(left=256) | ~KeyLengths([3, 5]))",
        ),
        (Causal() & Full() & Empty(), "Causal() & Full() & Empty()"),
        (Causal() & (Full() & Empty()), "Causal() & (Full() & Empty())"),
        (Causal() | Full() & Empty(), "Causal() | Full() & Empty()"),
        (~(Causal() & Full()), "~(Causal() & Full())"),
        (~~Causal() | Window(np.int64(1), 2), "~~Causal() | Window(left=1, right=2)"),
        (Window(), "Window()"),
        (KeyLengths(4), "KeyLengths(4)"),
        (Full() & Dense(np.ones((2, 3), bool)), "Full() & Dense(<bool (2, 3)>)"),
    ],
)
def test_repr_reads_like_the_expression(mask, text):
    assert repr(mask) == text


def test_public_names():
    public = {name for name in vars(masks) if not name.startswith("_")}
    assert public == {"Mask", "Full", "Empty", "Causal", "Window", "KeyLengths", "Dense"}
    assert all(issubclass(getattr(masks, name), Mask) for name in public)
