"""Biases: the formulas, their lowering against the dense arrays that others build, and what they refuse."""

import copy
import math
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from judges import assert_agrees, assert_same_bits, refused

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
OFFSETS = [0, 140, -500, 10**9, np.array([3, 90]), np.array([5, 10**9])]


def every_bias(rng, heads):
    table = rng.standard_normal
    return [
        rg.Alibi(heads),
        rg.Alibi([0.5]),
        rg.RelativeBias(table((heads, 41))),
        rg.RelativeBias(table(1001)),
        rg.T5Bias(table((32, heads)), bidirectional=True),
        rg.T5Bias(table((8, heads)), bidirectional=False, max_distance=20),
    ]


@pytest.mark.parametrize("offset", OFFSETS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_bits_are_those_of_the_dense_array(target, normal, rng, dtype, offset):
    q, k, v = (x.astype(dtype) for x in (normal(2, 4, 70, 8), normal(2, 2, 210, 8), normal(2, 2, 210, 5)))
    wide = np.float64 if dtype == np.float64 else np.float32
    for bias in every_bias(rng, 4):
        dense = bias.materialize(70, 210, q_offset=offset, lead=(2,), heads=4, dtype=wide)
        got = rg.attention_forward(q, k, v, bias=bias, q_offset=offset)
        want = rg.attention_forward(q, k, v, bias=dense)
        assert_same_bits(got.out.view(f"u{got.out.itemsize}"), want.out.view(f"u{got.out.itemsize}"))
        assert_same_bits(got.lse, want.lse)
        assert_same_bits(got.weights[1, 1:3, 5:60, 20:], want.weights[1, 1:3, 5:60, 20:])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_sums_agree_with_the_reference(target, normal, rng, dtype):
    q, k, v = (x.astype(dtype) for x in (normal(2, 4, 70, 8), normal(2, 2, 210, 8), normal(2, 2, 210, 5)))
    row = np.where(rng.random((2, 1, 1, 210)) < 0.2, -np.inf, rng.standard_normal((2, 1, 1, 210))).astype(np.float16)
    for bias in every_bias(rng, 4):
        options = {"bias": row + bias + rg.Alibi(4), "mask": rg.Causal() | rg.Prefix(20), "q_offset": [140, 30]}
        result = rg.attention_forward(q, k, v, softcap=3.0, **options)
        assert_agrees(result, q, k, v, softcap=3.0, **options)


def test_order_of_a_sum_is_the_order_of_additions(target):
    """In float32 (1e8 - 1e8) + 1 is 1, and (1 + 1e8) - 1e8 is 0."""
    q, k, v = np.zeros((1, 1), np.float32), np.zeros((2, 1), np.float32), np.float32([[1], [0]])
    big, small = np.float32([[1e8, 0]]), np.float32([[1, 0]])
    last = rg.attention(q, k, v, bias=rg.DenseBias(big) + -big + small)
    first = rg.attention(q, k, v, bias=rg.DenseBias(small) + big + -big)
    assert last[0, 0] == pytest.approx(math.e / (math.e + 1), abs=1e-6)
    assert first[0, 0] == 0.5


@pytest.mark.parametrize("ask", [rg.attention, rg.reference.attention, rg.reference.online_attention])
def test_a_bias_is_rounded_to_the_dtype_of_the_scores_first(ask):
    """What float32 cannot hold is infinite: -1e39 drops its pair, 1e39 gives NaN; in float64 both are numbers."""
    one, v = np.ones((1, 1), np.float32), np.float32([[3], [5]])
    keys = np.ones((2, 1), np.float32)
    assert ask(one, keys, v, bias=np.array([[-1e39, 0]])) == 5
    assert ask(one, keys, v, bias=np.array([[np.finfo(np.float64).min] * 2])) == 0
    assert np.isnan(ask(one, keys, v, bias=np.array([[1e39, 0]])))
    wide = [x.astype(np.float64) for x in (one, keys, v)]
    assert ask(*wide, bias=np.array([[-1e39, -1e39]])) == 4


@pytest.mark.parametrize("hidden", [0, 1])
def test_minus_infinity_of_any_term_drops(target, normal, hidden):
    """With +inf in the other term too: what one term drops is not added up."""
    q, k, v = normal(2, 30, 8), normal(2, 200, 8), normal(2, 200, 8)
    terms = [np.zeros((30, 200), np.float32), np.zeros((30, 200), np.float32)]
    terms[hidden][:, 77] = -np.inf
    terms[hidden][3] = -np.inf
    terms[1 - hidden][:, 77] = np.inf
    k[:, 77], v[:, 77] = np.nan, np.inf
    result = rg.attention_forward(q, k, v, bias=rg.DenseBias(terms[0]) + terms[1], sinks=np.zeros(2, np.float32))
    keep = np.ones((30, 200), bool)
    keep[:, 77] = keep[3] = False
    want = rg.attention_forward(q, k, v, mask=keep, sinks=np.zeros(2, np.float32))
    assert_same_bits(result.out, want.out)
    assert_same_bits(result.lse, want.lse)
    assert_same_bits(result.weights[...], want.weights[...])
    assert (result.lse[:, 3] == -np.inf).all()


def test_two_terms_that_pass_the_largest_number_drop_nothing(target):
    """-3e38 - 3e38 is -inf as a score, which is a key with weight 0, not a key that is absent."""
    one = np.ones((1, 1), np.float32)
    low = np.full((1, 1), -3e38, np.float32)
    assert np.isnan(rg.attention(one, one, one, bias=rg.DenseBias(low) + low))
    assert rg.attention(one, one, one, bias=low) == 1


def test_online_attention_takes_the_same(normal, rng):
    q, k, v = normal(2, 4, 70, 8), normal(2, 4, 210, 8), normal(2, 4, 210, 5)
    for bias in every_bias(rng, 4):
        options = {"bias": bias + normal(1, 4, 1, 210), "mask": rg.Causal(), "q_offset": 100}
        got = rg.reference.online_attention(q, k, v, block_rows=16, block_keys=50, **options)
        assert np.abs(got - rg.reference.attention(q, k, v, **options)).max() < 1e-5


# -- formulas --------------------------------------------------------------------------------------------------------


def test_alibi_slopes_are_the_papers():
    assert rg.Alibi(8).slopes.tolist() == [2.0**-n for n in range(1, 9)]
    assert rg.Alibi(16).slopes[:2] == pytest.approx([2**-0.5, 0.5])
    # 12 heads: those of 8, and every other one of 16
    assert rg.Alibi(12).slopes == pytest.approx([2.0**-n for n in range(1, 9)] + [2 ** (-n / 2) for n in (1, 3, 5, 7)])
    assert rg.Alibi(1).slopes.tolist() == [2**-8]


def test_alibi_is_the_distance_times_the_slope():
    got = rg.Alibi([0.5, 0.25]).materialize(3, 4, q_offset=1, heads=2)
    want = [[[-m * abs(1 + i - j) for j in range(4)] for i in range(3)] for m in (0.5, 0.25)]
    assert got.tolist() == want


def test_relative_bias_clips_to_its_ends():
    got = rg.RelativeBias([[10, 20, 30, 40, 50], [1, 2, 3, 4, 5]]).materialize(1, 9, q_offset=4, heads=2)
    assert got[:, 0].tolist() == [[10, 10, 10, 20, 30, 40, 50, 50, 50], [1, 1, 1, 2, 3, 4, 5, 5, 5]]


def bucket(distance, buckets, bidirectional, furthest):
    """T5's rule for one distance: bucket b begins at exact * (furthest / exact)^((b - exact) / n)."""
    shift = 0
    if bidirectional:
        buckets //= 2
        shift = buckets if distance > 0 else 0
        away = abs(distance)
    else:
        away = max(-distance, 0)
    exact = buckets // 2
    if away < exact:
        return shift + away
    grown = math.floor(math.log(away / exact) / math.log(furthest / exact) * (buckets - exact) + 1e-9)
    return shift + min(exact + grown, buckets - 1)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (8, 16), (64, 1000), (4, 3)])
def test_t5_buckets(bidirectional, buckets, furthest):
    bias = rg.T5Bias(np.arange(float(buckets))[:, None], bidirectional=bidirectional, max_distance=furthest)
    got = bias.materialize(1, 601, q_offset=300)[0]
    want = [bucket(j - 300, buckets, bidirectional, furthest) for j in range(601)]
    differ = [(j - 300, g, w) for j, (g, w) in enumerate(zip(got, want, strict=True)) if g != w]
    # T5 takes its logarithms in float32, which may put the edge of a bucket one distance late.
    assert all(abs(g - w) == 1 and bucket(d - np.sign(d), buckets, bidirectional, furthest) == g for d, g, w in differ)
    assert len(differ) <= 4


@given(
    queries=st.integers(0, 40), keys=st.integers(0, 40), offsets=st.lists(st.integers(-90, 90), min_size=1, max_size=5)
)
def test_tables_of_any_offsets_hold_every_distance(queries, keys, offsets):
    """The lowered table, read as the engine reads it, against the formula."""
    bias = rg.RelativeBias(np.arange(-200.0, 201))
    shape = {"q_offset": offsets, "lead": (len(offsets),)}
    dense = bias.materialize(queries, keys, **shape)
    geometry = rg._fit.as_geometry(queries, keys, offsets, (len(offsets),))
    (table,) = bias.lower(geometry, np.float32)
    i, j = np.arange(queries)[:, None], np.arange(keys)
    at = np.reshape(table.starts, (-1, 1, 1, 1)) + j - i
    read = table.values[0, at] if queries and keys else dense
    assert_same_bits(read, dense)


def test_tables_of_far_apart_entries_are_not_stretched():
    bias = rg.Alibi(4)
    x = np.broadcast_to(np.float32(0), (3, 4, 100, 8))
    near = rg.plan(x, x, x, bias=bias, q_offset=[0, 50, 120]).tiles.bias_bytes
    far = rg.plan(x, x, x, bias=bias, q_offset=[0, 10**6, 10**9]).tiles.bias_bytes
    assert near == 4 * 4 * (199 + 120)
    assert far == 4 * 4 * 3 * 199
    assert "bias tables 9,552 bytes" in repr(rg.plan(x, x, x, bias=bias, q_offset=[0, 10**6, 10**9]))


def test_no_batch_entries(target):
    q = np.ones((0, 2, 3, 4), np.float32)
    assert rg.attention(q, q, q, bias=rg.Alibi(2), q_offset=np.zeros(0, int)).shape == q.shape
    assert rg.plan(q, q, q, bias=rg.Alibi(2)).tiles.bias_bytes == 0


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (1, 1)])
def test_empty_sizes(target, shape):
    q, k = np.ones((2, shape[0], 4), np.float32), np.ones((2, shape[1], 4), np.float32)
    out = rg.attention(q, k, k, bias=rg.Alibi(2), q_offset=0)
    assert out.shape == q.shape
    assert (out == (shape[1] > 0)).all()


def test_shifting_all_positions_changes_nothing(target, normal):
    """Biases see differences of positions: padding in front and a larger offset are the same problem."""
    q, k, v = normal(4, 30, 8), normal(4, 30, 8), normal(4, 30, 8)
    front = np.zeros((4, 96, 8), np.float32)  # one tile: the tiles of the rest stay as they are
    padded = [np.concatenate([front, x], axis=1) for x in (k, v)]
    for bias in every_bias(np.random.default_rng(1), 4):
        alone = rg.attention(q, k, v, bias=bias, mask=rg.Causal())
        shifted = rg.attention(q, *padded, bias=bias, mask=rg.Causal() & ~rg.Prefix(96), q_offset=96)
        assert_same_bits(shifted, alone)


# -- as values -------------------------------------------------------------------------------------------------------


def test_biases_are_values(rng):
    for bias in every_bias(rng, 4):
        again = pickle.loads(pickle.dumps(bias))
        assert not again.table.flags.writeable
        assert not copy.deepcopy(bias).table.flags.writeable
        assert again == bias
        assert hash(again) == hash(bias)
        assert again + bias == bias + again
        assert bias != rg.Alibi([7.0])
    assert rg.T5Bias(np.ones((8, 1)), bidirectional=True) != rg.T5Bias(np.ones((8, 1)), bidirectional=False)
    assert repr(rg.RelativeBias([1, 2, 3]) + rg.Alibi([0.5])) == "RelativeBias([[1.0, 2.0, 3.0]]) + Alibi([0.5])"
    with pytest.raises(ValueError, match="read-only"):
        rg.Alibi(4).slopes[0] = 1
    slopes = np.array([1.0, 2.0])
    bias = rg.Alibi(slopes)
    slopes[0] = 9
    assert bias.slopes.tolist() == [1, 2]


def test_numbers_beyond_float32_are_infinite_without_a_warning(target):
    one, v = np.ones((1, 2, 1), np.float32), np.float32([[[3], [5]]])
    assert rg.attention(one, one, v, bias=rg.RelativeBias([-1e300, 0, -1e300])).ravel().tolist() == [3, 5]


def test_materialize_takes_the_heads_of_the_bias():
    assert rg.Alibi(8).materialize(2, 3).shape == (8, 2, 3)
    assert (rg.RelativeBias([1, 2, 3]) + np.zeros((4, 1, 3))).materialize(2, 3).shape == (4, 2, 3)
    assert rg.RelativeBias([1, 2, 3]).materialize(2, 3).shape == (2, 3)


def test_array_plus_bias_is_a_bias():
    row = np.zeros((1, 4), np.float32)
    assert repr(row + rg.Alibi([0.5])) == "DenseBias(<float32 (1, 4)>) + Alibi([0.5])"
    assert repr(rg.Alibi([0.5]) + row) == "Alibi([0.5]) + DenseBias(<float32 (1, 4)>)"
    assert (row + rg.Alibi([0.5])).materialize(1, 4).tolist() == [[0, -0.5, -1, -1.5]]
    assert repr(rg.Alibi([0.5]) + [[0, 1]]) == "Alibi([0.5]) + DenseBias(<float64 (1, 2)>)"  # noqa: RUF005


# -- refusals --------------------------------------------------------------------------------------------------------

X = np.ones((4, 6, 8), np.float32)
BAD = {
    "heads": (lambda: rg.attention(X, X, X, bias=rg.Alibi(3)), rg.ShapeError, "holds 3 heads and the scores have 4"),
    "class": (lambda: rg.attention(X, X, X, bias=rg.Alibi), rg.DTypeError, "the class Alibi: write Alibi(...)"),
    "function": (lambda: rg.attention(X, X, X, bias=lambda b: b), rg.DTypeError, "such as rg.Alibi(heads)"),
    "mask": (lambda: rg.attention(X, X, X, bias=rg.Causal()), rg.DTypeError, "pass mask=Causal()"),
    "mask + bias": (lambda: rg.Causal() + rg.Alibi(8), rg.DTypeError, "pass mask=Causal()"),
    "bool": (lambda: rg.attention(X, X, X, bias=rg.Alibi(4) + np.ones((6, 6), bool)), rg.MaskError, "pass mask="),
    "ints": (lambda: rg.attention(X, X, X, bias=rg.Alibi(4) + np.ones((6, 6), int)), rg.DTypeError, "integer dtype"),
    "shape": (lambda: rg.attention(X, X, X, bias=rg.Alibi(4) + np.ones(6)), rg.ShapeError, "bias[None, None, :]"),
    "no heads": (lambda: rg.Alibi(0), rg.ShapeError, "1 to 65536"),
    "many heads": (lambda: rg.Alibi(2**62), rg.ShapeError, "1 to 65536"),
    "infinite slope": (lambda: rg.Alibi([1.0, 1e39]), rg.ShapeError, "must be finite"),
    "far": (
        lambda: rg.T5Bias(np.ones((32, 4)), bidirectional=True, max_distance=10**400), rg.ShapeError, "below 2**31",
    ),
    "direction": (lambda: rg.T5Bias(np.ones((8, 1)), bidirectional="no"), rg.ShapeError, "bidirectional is 'no'"),
    "no slopes": (lambda: rg.Alibi([]), rg.ShapeError, "(Hq,)"),
    "matrix": (lambda: rg.Alibi(np.ones((2, 2))), rg.ShapeError, "(2, 2)"),
    "words": (lambda: rg.Alibi("abc"), rg.DTypeError, "it holds floats"),
    "ragged": (lambda: rg.RelativeBias([[1], [2, 3]]), rg.DTypeError, "not an array of numbers"),
    "even": (lambda: rg.RelativeBias([1, 2]), rg.ShapeError, "2 distances; it holds an odd number"),
    "buckets": (lambda: rg.T5Bias(np.ones((6, 4)), bidirectional=True), rg.ShapeError, "a multiple of 4"),
    "rank": (lambda: rg.T5Bias(np.ones(8), bidirectional=True), rg.ShapeError, "(buckets, Hq)"),
    "near": (
        lambda: rg.T5Bias(np.ones((32, 4)), bidirectional=True, max_distance=8), rg.ShapeError, "an integer above 8",
    ),
    "align": (
        lambda: rg.attention(X, X[:, :3], X[:, :3], bias=rg.Alibi(4)), rg.AlignmentError, "the bias depends on",
    ),
    "align mask": (
        lambda: rg.attention(X, X[:, :3], X[:, :3], bias=rg.Alibi(4), mask=rg.Causal()),
        rg.AlignmentError, "Causal() depends on positions",
    ),
    "end of lengths": (
        lambda: rg.attention(
            X[None], X[None], X[None], bias=rg.Alibi(4), mask=rg.KeyLengths([3]), q_offset="end"
        ), rg.AlignmentError, "q_offset=lengths - Sq",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_refusals(case):
    call, error, words = case
    refused(error, words, call=call)


def test_a_bias_without_positions_needs_no_alignment(normal):
    q, k = normal(2, 5, 4), normal(2, 7, 4)
    rg.attention(q, k, k, bias=rg.DenseBias(normal(5, 7)) + normal(2, 1, 7))
