"""What the contract promises of shapes, empty rows, containment, strides and sizes of zero."""

import numpy as np
import pytest

import regard as rg
from judges import assert_agrees, assert_same_bits, ones_bound


@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 5), (7, 5), (7, 2)),
        ((2, 3, 5), (2, 7, 5), (2, 7, 2)),
        ((4, 6, 3, 5), (4, 2, 7, 5), (4, 2, 7, 9)),
        ((4, 1, 6, 3, 5), (1, 3, 2, 7, 5), (1, 1, 2, 7, 1)),
        ((2, 6, 3, 5), (3, 7, 5), (3, 7, 4)),
        ((3, 5), (2, 1, 7, 5), (2, 1, 7, 4)),
    ],
)
def test_shapes(target, normal, shapes):
    q, k, v = (normal(*shape) for shape in shapes)
    result = rg.attention_forward(q, k, v)
    assert result.out.dtype == np.float32
    assert result.lse.shape == result.out.shape[:-1]
    assert_agrees(result, q, k, v)


@pytest.mark.parametrize(
    ("shapes", "out"),
    [
        (((0, 5), (7, 5), (7, 2)), (0, 2)),
        (((3, 5), (0, 5), (0, 2)), (3, 2)),
        (((3, 5), (7, 5), (7, 0)), (3, 0)),
        (((0, 4, 3, 5), (0, 2, 7, 5), (0, 2, 7, 2)), (0, 4, 3, 2)),
        (((2, 0, 3, 5), (2, 0, 7, 5), (2, 0, 7, 2)), (2, 0, 3, 2)),
        (((0, 0), (0, 0), (0, 0)), (0, 0)),
    ],
)
@pytest.mark.parametrize("mask", [None, rg.Causal(), rg.Empty(), rg.KeyLengths(0), ~rg.Window(2, 2)])
def test_sizes_of_zero(target, shapes, out, mask):
    q, k, v = (np.ones(shape, np.float32) for shape in shapes)
    result = rg.attention_forward(q, k, v, mask=mask, q_offset=0, scale=1)
    assert result.out.shape == out
    assert result.weights[...].shape == (*out[:-1], k.shape[-2])
    if k.shape[-2] == 0:
        assert not result.out.any()
        assert (result.lse == -np.inf).all()


def test_head_size_zero_averages(target):
    v = np.float32([[1], [2], [6]])
    out = rg.attention(np.ones((2, 0), np.float32), np.ones((3, 0), np.float32), v, scale=1)
    np.testing.assert_allclose(out, [[3], [3]], rtol=1e-6)


def test_empty_rows_are_zero_and_not_the_mean(target, normal):
    q, k, v = normal(2, 4, 8), normal(2, 6, 8), normal(2, 6, 3) + 5
    mask = np.ones((2, 4, 6), bool)
    mask[1, 2] = False
    result = rg.attention_forward(q, k, v, mask=mask)
    assert_same_bits(result.out[1, 2], np.zeros(3, np.float32))
    assert result.lse[1, 2] == -np.inf
    assert not result.weights[1, 2].any()
    assert_agrees(result, q, k, v, mask=mask)


GARBAGE = [np.nan, np.inf, -np.inf, 3e38]


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize(
    "mask",
    [
        rg.Causal(),
        rg.KeyLengths(150),
        rg.Window(9, 0),
        rg.Dense(np.tri(300, dtype=bool)),
        ~rg.Dense(~np.tri(300, dtype=bool)),
    ],
    ids=repr,
)
def test_garbage_behind_a_mask_is_never_read(target, normal, mask, garbage):
    """Bit for bit: rows that do not see a key do not tell what it holds."""
    q, k, v = normal(2, 300, 16), normal(2, 300, 16), normal(2, 300, 16)
    clean = rg.attention_forward(q, k, v, mask=mask)
    hidden = 200
    k2, v2 = k.copy(), v.copy()
    k2[0, hidden], v2[0, hidden, ::3] = garbage, garbage
    dirty = rg.attention_forward(q, k2, v2, mask=mask)
    blind = ~mask.keep(clean.plan.problem.geometry, np.arange(300), np.array([hidden]))
    blind = np.broadcast_to(blind[..., 0], (2, 300)).copy()
    blind[1] = True
    assert blind.sum() > 300
    assert_same_bits(dirty.out[blind], clean.out[blind])
    assert_same_bits(dirty.lse[blind], clean.lse[blind])
    assert_same_bits(dirty.weights[...][blind], clean.weights[...][blind])


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf])
def test_rows_that_see_a_bad_value_show_it_in_its_columns_only(target, normal, garbage):
    q, k, v = normal(40, 8), normal(40, 8), normal(40, 5)
    clean = rg.attention(q, k, v, mask=rg.Causal())
    v[20, 3] = garbage
    out = rg.attention(q, k, v, mask=rg.Causal())
    assert not np.isfinite(out[20:, 3]).any()
    expected = clean.copy()
    expected[20:, 3] = out[20:, 3]
    assert_same_bits(out, expected)
    want = rg.reference.attention(q, k, v, mask=rg.Causal())
    np.testing.assert_array_equal(out[20:, 3], want[20:, 3])


def test_nan_query_spoils_its_own_row_only(target, normal):
    q, k, v = normal(70, 8), normal(90, 8), normal(90, 8)
    clean = rg.attention_forward(q, k, v)
    q[33, 2] = np.nan
    result = rg.attention_forward(q, k, v)
    others = np.arange(70) != 33
    assert np.isnan(result.out[33]).all()
    assert np.isnan(result.lse[33])
    assert_same_bits(result.out[others], clean.out[others])


def test_scores_of_minus_infinity_are_not_an_empty_row(target):
    """Emptiness is the mask's word: all visible scores -inf is 0/0."""
    q, k = np.float32([[1e30]]), np.float32([[-1e30], [-1e30]])
    result = rg.attention_forward(q, k, np.ones((2, 1), np.float32), scale=1)
    assert np.isnan(result.out).all()
    assert np.isnan(result.lse).all()  # and a merge does not take the row for an empty one


def test_an_infinite_value_under_a_weight_of_0_is_nan(target):
    for dtype, least in ((np.float32, 87), (np.float64, 708)):
        one, value = np.ones((1, 1), dtype), np.array([[1], [np.inf]], dtype)
        for below, want in ((least - 1, np.inf), (least + 1, np.nan)):
            got = rg.attention(one, np.array([[0], [-below]], dtype), value)
            assert_same_bits(np.abs(got), np.full((1, 1), want, dtype))


STRIDED = {
    "transposed axes": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "heads inside": lambda x: np.ascontiguousarray(np.moveaxis(x, -3, -2)).swapaxes(-2, -3),
    "every second row": lambda x: np.repeat(x, 2, axis=-2)[..., ::2, :],
    "every third column": lambda x: np.repeat(x, 3, axis=-1)[..., ::3],
    "reversed": lambda x: x[..., ::-1, ::-1].copy()[..., ::-1, ::-1],
    "read-only": lambda x: (y := x.copy(), y.setflags(write=False))[0],
    "unaligned": lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape),
    "field of records": lambda x: _field(x),
}


def _field(x):
    records = np.zeros(x.shape, np.dtype([("pad", "u1"), ("x", "f4")]))
    records["x"] = x
    return records["x"]


@pytest.mark.parametrize("layout", STRIDED)
def test_strides_change_no_bit(target, normal, layout):
    q, k, v = normal(2, 4, 70, 24), normal(2, 2, 210, 24), normal(2, 2, 210, 20)
    want = rg.attention_forward(q, k, v, mask=rg.Causal(), q_offset="end")
    views = [STRIDED[layout](x) for x in (q, k, v)]
    copies = [x.copy() for x in views]
    got = rg.attention_forward(*views, mask=rg.Causal(), q_offset="end")
    assert_same_bits(got.out, want.out)
    assert_same_bits(got.lse, want.lse)
    assert_same_bits(got.weights[1, 3, 5:9, 100:], want.weights[...][1, 3, 5:9, 100:])
    for view, copy in zip(views, copies, strict=True):
        np.testing.assert_array_equal(view, copy)


@pytest.mark.parametrize("layout", STRIDED)
@pytest.mark.parametrize("mask", [rg.Causal(), rg.Window(left=30), rg.Dense(np.tri(150, 150, dtype=bool))], ids=repr)
def test_nonfinite_values_in_any_layout(target, normal, layout, mask):
    """A tile that one panel sees in part and another in whole: what is zeroed for the one is there for the other."""
    q, k, v = normal(2, 1, 150, 16), normal(2, 1, 150, 16), normal(2, 1, 150, 12)
    v[0, 0, 10, 3], v[0, 0, 99, 5], v[1, 0, 100, 0] = np.nan, np.inf, -np.inf
    want = rg.attention(q, k, v, mask=mask)
    assert np.isnan(want[0, 0, 10:40, 3]).all()
    assert_same_bits(rg.attention(*(STRIDED[layout](x) for x in (q, k, v)), mask=mask), want)
    blind = rg.reference.attention(q, k, v, mask=mask)
    np.testing.assert_array_equal(np.isfinite(want), np.isfinite(blind))


def test_empty_batch(target):
    q, k = np.ones((0, 4, 3, 5), np.float32), np.ones((0, 4, 7, 5), np.float32)
    assert rg.attention(q, k, k, mask=rg.KeyLengths([])).shape == (0, 4, 3, 5)
    assert rg.plan(q, k, k, mask=rg.KeyLengths([])).tiles.visited == 0


def test_broadcast_batch_is_read_in_place(target, normal):
    q, k, v = normal(3, 2, 5, 8), normal(1, 2, 9, 8), normal(1, 2, 9, 8)
    wide = [np.broadcast_to(x, (3, *x.shape[1:])) for x in (k, v)]
    assert_same_bits(rg.attention(q, k, v), rg.attention(q, *wide))
    assert_same_bits(rg.attention(q, k, v), rg.attention(q, *(x.copy() for x in wide)))


@pytest.mark.parametrize("strided", ["rows", "keys", "both reversed", "broadcast"])
def test_bool_arrays_of_any_strides(target, normal, rng, strided):
    q, k, v = normal(2, 40, 8), normal(2, 230, 8), normal(2, 230, 8)
    mask = {
        "rows": rng.random((2, 80, 230))[:, ::2],
        "keys": rng.random((2, 230, 40)).swapaxes(1, 2),
        "both reversed": rng.random((2, 40, 230))[:, ::-1, ::-1],
        "broadcast": np.broadcast_to(rng.random((1, 1, 230)), (2, 40, 230)),
    }[strided] < 0.4
    result = rg.attention_forward(q, k, v, mask=mask)
    assert_agrees(result, q, k, v, mask=mask)


def test_row_sums_and_single_keys_are_exact(target, normal):
    q, k = normal(50, 16), normal(700, 16)
    ones = rg.attention(q, k, np.ones((700, 1), np.float32))
    assert (np.abs(ones - 1) <= ones_bound(target, np.float32, 700)).all()
    v = normal(1, 9)
    assert_same_bits(rg.attention(q, k[:1], v), np.broadcast_to(v, (50, 9)).copy())


def test_subnormal_and_huge_values(target, normal):
    q, k = normal(5, 8), normal(9, 8)
    for size in (1e-40, 1e38):
        v = (normal(9, 3) * np.float32(size)).astype(np.float32)
        assert_agrees(rg.attention_forward(q, k, v), q, k, v)
