"""Masks as values, and the two forms of every expression: spans and formula must name the same pairs."""

import ast
import copy
import dataclasses
import functools
import math
import operator
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from masks_judges import assert_normal
from masks_random import CLOSED, FARTHEST, GENERATORS, OPEN, assert_same, cases, closed_cases, formula, oracle
from regard import masks
from regard._types import Geometry, Offsets
from regard.masks._expression import MAX_CACHED_BYTES
from regard.masks._lower import lower
from regard.masks._spans import MAX_SPANS, OneRow, RowSpans

thorough = settings(max_examples=400)
ARRAY = np.ones((2, 2), bool)


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
@given(cases())
def test_formula_agrees_with_the_pairs_one_by_one(case):
    mask, geometry = case
    mask.check(geometry)
    kept = formula(mask, geometry)
    assert kept.dtype == np.bool_
    assert kept.ndim == len(geometry.shape)
    assert_same(kept, oracle(mask, geometry))


@thorough
@given(closed_cases(), st.data())
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


@settings(max_examples=100)
@given(cases(), st.data())
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


@st.composite
def one_rows(draw, keys):
    """Some union of ranges, in Python's integers and as an array."""
    geometry = Geometry((2,), 1, 3, keys)
    begins, ends = (draw(st.lists(st.integers(-2, keys + 2), min_size=4, max_size=4)) for _ in range(2))
    row, array = RowSpans.between(geometry, 0, 0), RowSpans.from_ranges(np.zeros((1, 1, 1), np.int64), 0, keys)
    for begin, end in zip(begins, ends, strict=True):
        row = row | RowSpans.between(geometry, begin, end)
        array = array | RowSpans.from_ranges(np.full((1, 1, 1), begin), end, keys)
    assert isinstance(row, OneRow)
    return row, array


@thorough
@given(st.data(), st.integers(0, 12))
def test_a_row_of_integers_is_the_array(data, keys):
    """Operator by operator; with an array on either side it is one, too."""
    (a, wide_a), (b, wide_b) = data.draw(one_rows(keys)), data.draw(one_rows(keys))
    for of in (operator.and_, operator.or_, lambda x, y: ~x, lambda x, y: y & ~x):
        want = of(wide_a, wide_b)
        assert_normal(want)
        assert isinstance(of(a, b), OneRow)
        for got in (of(a, b), of(a, wide_b), of(wide_a, b)):
            assert_same(got.data, want.data)
            assert got.keys == keys
            assert (got.width, got.alike, got.is_full()) == (want.width, want.alike, want.is_full())
            assert_same(got.edges, want.edges)
            assert_same(got.anywhere(4).data, want.anywhere(4).data)


@pytest.mark.parametrize("leaf", [*CLOSED, *OPEN])
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_each_leaf_agrees_with_the_pairs_one_by_one(leaf, lead):
    rng = np.random.default_rng(7)
    for q_offset in (0, -3, FARTHEST, -FARTHEST, Offsets(lead, tuple(range(-2, math.prod(lead) - 2)))):
        geometry = Geometry(lead, 2, 5, 9, q_offset, len(lead) + 3)
        mask = leaf(rng, geometry)
        mask.check(geometry)
        assert_same(formula(mask, geometry), oracle(mask, geometry))
        for rows in (slice(1, 4), slice(3, 4)):
            spans = mask.spans(geometry, rows)
            if leaf in CLOSED:
                assert_normal(spans)
                assert_same(spans.to_dense(), oracle(mask, geometry)[..., rows, :])


@pytest.mark.parametrize("q_offset", [-3, 0, 5, FARTHEST, -FARTHEST])
@pytest.mark.parametrize("bound", [2**62 + 3, 2**63 - 1, 2**63, 10**30])
def test_a_window_wider_than_int64_keeps_all(bound, q_offset):
    geometry = Geometry((), 1, 3, 4, q_offset)
    mask = rg.Window(left=bound, right=bound)
    assert formula(mask, geometry).all()
    assert mask.spans(geometry, slice(0, 3)).is_full()


def ones(b, h, p, j):
    return np.full(np.broadcast_shapes(p.shape, j.shape), True)


@pytest.mark.parametrize(
    "leaf", [rg.Dense(np.ones((2, 3), bool)), rg.Dilated(1), rg.Documents([0, 0], [1, 0, 1]), rg.from_function(ones)]
)
def test_what_has_no_closed_form_has_no_spans_and_neither_has_what_contains_it(leaf):
    geometry = Geometry((), 1, 2, 3)
    for mask in (leaf, ~leaf, leaf & rg.Full(), rg.Full() | leaf):
        assert mask.spans(geometry, slice(0, 2)) is None


def test_blocks_with_many_runs_in_a_row_have_no_spans():
    for runs in (MAX_SPANS, MAX_SPANS + 1):
        striped = rg.Blocks(np.arange(2 * runs) % 2 == [[0], [1]], (3, 2))
        spans = striped.spans(Geometry((), 1, 6, 4 * runs), slice(0, 6))
        assert (spans is None) == (runs > MAX_SPANS)


def test_a_function_is_not_asked_about_no_pairs():
    def last(b, h, p, j):
        return (p == p.max()) & (j == j.max()) & (b == b.max()) & (h == h.max())

    for sizes in ({"queries": 0}, {"keys": 0}, {"heads": 0}, {"lead": (2, 0)}):
        sizes = {"queries": 3, "keys": 5, **sizes}
        assert not rg.from_function(last).materialize(**sizes).size
    geometry = Geometry((0,), 2, 3, 5)
    assert [band.rows for band in lower(rg.from_function(last), geometry)] == [slice(0, 3)]
    assert rg.from_function(last).materialize(2, 3).tolist() == [[False] * 3, [False, False, True]]


def test_a_function_cannot_spoil_the_indices_of_others():
    def vandal(b, h, p, j):
        for array in (b, h, p, j):
            array[...] = 7
        return np.ones(np.broadcast_shapes(p.shape, j.shape), bool)

    mask = rg.from_function(vandal) & rg.Causal() & rg.from_function(vandal) & rg.KeyLengths(2)
    assert mask.materialize(3, 3).astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 0]]


def test_flags():
    dense = rg.Dense(np.ones((2, 2), bool))
    by_index = rg.Documents([1, 2]) & rg.Blocks([[True]], 2) | rg.Prefix(3)
    assert not (rg.Full() | rg.Empty() & rg.KeyLengths(3) | dense | by_index).positional
    for leaf in (rg.Causal(), rg.Window(left=1), rg.Global(1), rg.Chunked(2), rg.Dilated(2), rg.from_function(ones)):
        assert leaf.positional
        assert (rg.Full() & ~(rg.KeyLengths(3) | leaf)).positional
    assert (rg.Full() & ~(rg.KeyLengths(3) | rg.Causal() | by_index | rg.Dilated(2))).cacheable
    for leaf in (dense, rg.from_function(ones), rg.Documents(np.zeros(MAX_CACHED_BYTES // 8 + 1, int))):
        assert not (rg.Full() & ~(rg.Causal() | leaf)).cacheable


def test_what_a_cache_would_hold_is_summed_over_the_parts():
    half = [rg.Documents(np.full(MAX_CACHED_BYTES // 16, n)) for n in (1, 2, 3)]
    assert (half[0] | half[1]).cacheable
    for large in (half[0] | half[1] | half[2], rg.PerHead(half), ~(half[0] & rg.PerHead(half[1:]))):
        assert not large.cacheable
    assert rg.PerHead([half[0]] * 3).cacheable  # one array


def test_equality_and_hash_are_structural():
    def build(n):
        return rg.Causal() & (
            rg.Window(left=4) | ~rg.KeyLengths(n) | rg.Documents(n, [n]) | rg.Blocks(np.array([n]) > 3, 4)
        )

    assert build([3, 5]) == build(np.array([3, 5], np.uint8))
    assert hash(build([3, 5])) == hash(build(np.array([3, 5])))
    assert len({build([3, 5]), build((3, 5)), build([3, 6])}) == 2
    different = [
        *(rg.Full(), rg.Empty(), rg.Causal(), rg.Window(), rg.Window(left=1), rg.Window(right=1)),
        *(rg.Prefix(3), rg.Prefix(4), rg.Global(3), rg.Chunked(3), rg.Dilated(3)),
        *(rg.KeyLengths(3), rg.KeyLengths([3]), rg.KeyLengths([[3]]), rg.KeyLengths([3, 5])),
        *(
            rg.Documents([3]),
            rg.Documents([[3]]),
            rg.Documents([3], [3]),
            rg.Documents([3, 5]),
            rg.Documents([3], [3, 5]),
        ),
        *(rg.Blocks([[True]], 3), rg.Blocks([[False]], 3), rg.Blocks([[True]], 4), rg.Blocks([[True]], (3, 4))),
        *(~rg.Causal(), rg.Causal() & rg.Full(), rg.Full() & rg.Causal(), rg.Causal() | rg.Full()),
    ]
    assert len(set(different)) == len(different)
    assert all((one == other) == (one is other) for one in different for other in different)


@pytest.mark.parametrize("make", [lambda: rg.Dense(ARRAY), lambda: rg.from_function(ones)])
def test_equality_and_hash_of_dense_and_functions_are_by_identity(make):
    one, other = make(), make()
    assert one == one
    assert one != other
    assert len({one, other, one}) == 2
    assert rg.Causal() & one == rg.Causal() & one
    assert rg.Causal() & one != rg.Causal() & other


@pytest.mark.parametrize(
    ("leaf", "name", "array"),
    [
        (rg.KeyLengths, "n", np.array([3, 5])),
        (rg.Documents, "ids", np.array([3, 5])),
        (lambda array: rg.Documents([0], array), "key_ids", np.array([3, 5])),
        (lambda array: rg.Blocks(array, 4), "array", np.array([[True, False]])),
    ],
)
def test_masks_copy_and_stay(leaf, name, array):
    mask = leaf(array)
    before, text = hash(mask), repr(mask)
    array[...] = array[..., ::-1].copy()
    assert (hash(mask), repr(mask)) == (before, text)
    for twin in (mask, pickle.loads(pickle.dumps(mask)), copy.copy(mask)):
        with pytest.raises(ValueError, match="read-only"):
            getattr(twin, name)[...] = 0


@pytest.mark.parametrize(
    ("leaf", "name"),
    [
        *(
            (rg.KeyLengths(3), "n"),
            (rg.Window(left=1), "left"),
            (rg.Dense(ARRAY), "array"),
            (rg.from_function(ones), "function"),
        ),
        *((rg.Prefix(1), "n"), (rg.Chunked(2), "size"), (rg.Documents([1]), "key_ids"), (rg.Blocks(ARRAY, 2), "block")),
    ],
)
def test_masks_are_frozen(leaf, name):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(leaf, name, None)


def test_dense_does_not_copy():
    array = np.ones((4, 4), bool)[::2, ::-1]
    assert rg.Dense(array).array is array


@given(closed_cases())
def test_pickle_and_repr_give_the_mask_back(case):
    mask, _ = case
    spelled = [] if "<" in repr(mask) else [eval(repr(mask), vars(masks).copy())]
    for twin in (pickle.loads(pickle.dumps(mask)), copy.deepcopy(mask), *spelled):
        assert twin == mask
        assert hash(twin) == hash(mask)
        assert repr(twin) == repr(mask)


def test_pickle_keeps_dense_arrays_and_functions():
    array = np.eye(3, dtype=bool)
    twin = pickle.loads(pickle.dumps(~rg.Dense(array)))
    np.testing.assert_array_equal(twin.operand.array, array)
    assert pickle.loads(pickle.dumps(~rg.from_function(ones))).operand.function is ones


def test_pickle_leaves_out_what_can_be_found_again():
    mask = rg.Documents(np.zeros(4096, int))
    before = len(pickle.dumps(mask))
    assert mask.spans(Geometry((), 1, 4096, 4096), slice(0, 1)).data.tolist() == [[[[0, 4096]]]]
    assert len(pickle.dumps(mask)) == before


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (
            rg.Causal() & (rg.Window(left=256) | ~rg.KeyLengths([3, 5])),
            "Causal() & (Window(left=256) | ~KeyLengths([3, 5]))",
        ),
        (rg.Causal() & rg.Full() & rg.Empty(), "Causal() & Full() & Empty()"),
        (rg.Causal() & (rg.Full() & rg.Empty()), "Causal() & (Full() & Empty())"),
        (rg.Causal() | rg.Full() & rg.Empty(), "Causal() | Full() & Empty()"),
        (~(rg.Causal() & rg.Full()), "~(Causal() & Full())"),
        (~~rg.Causal() | rg.Window(np.int64(1), 2), "~~Causal() | Window(left=1, right=2)"),
        (rg.Window(), "Window()"),
        (rg.KeyLengths(4), "KeyLengths(4)"),
        (rg.Prefix(np.int8(4)) | rg.Global(10**30), f"Prefix(4) | Global({10**30})"),
        (rg.Chunked(4) & rg.Dilated(2), "Chunked(4) & Dilated(2)"),
        (rg.Documents([1, 2]) & rg.Documents([1], [1, 2]), "Documents([1, 2]) & Documents([1], [1, 2])"),
        (rg.Blocks([[True, False]], (64, 64)), "Blocks([[True, False]], 64)"),
        (rg.Blocks([[True]], (64, 32)), "Blocks([[True]], (64, 32))"),
        (rg.Documents(np.arange(64)), f"Documents({list(range(64))})"),
        (rg.Documents(np.arange(65, dtype=np.int8)), "Documents(<int64 (65,)>)"),
        (rg.Blocks(np.ones((9, 9), bool), 2), "Blocks(<bool (9, 9)>, 2)"),
        (rg.Blocks(np.ones((0, 9), bool), 2), "Blocks(<bool (0, 9)>, 2)"),
        (
            rg.from_function(ones) & rg.from_function(lambda b, h, p, j: p),
            "from_function(ones) & from_function(<lambda>)",
        ),
        (rg.from_function(functools.partial(ones)), "from_function(partial)"),
        (rg.Full() & rg.Dense(np.ones((2, 3), bool)), "Full() & Dense(<bool (2, 3)>)"),
    ],
)
def test_repr_reads_like_the_expression(mask, text):
    assert repr(mask) == text


def test_public_names():
    public = {name for name in vars(masks) if not name.startswith("_")}
    leaves = {"Mask", "Full", "Empty", "Causal", "Window", "Prefix", "Global", "Chunked", "Dilated", "KeyLengths"}
    assert public == {*leaves, "KeyPadding", "Documents", "Blocks", "Dense", "PerHead", "from_function"}
    assert all(issubclass(getattr(masks, name), rg.Mask) for name in public - {"from_function"})


def test_modules_of_masks_import_no_circle():
    """At the top of a file, where Python would stumble over a circle, and not for types only."""
    for path in sorted(Path(masks.__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text())
        everywhere, top = (
            {node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)}
            for nodes in (ast.walk(tree), tree.body)
        )
        assert everywhere == top, f"{path.name} imports in line {min(node.lineno for node in everywhere - top)}"
