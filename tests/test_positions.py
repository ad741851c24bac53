"""Rotations and sinusoids: against exact angles, by their laws, and what a user reads when a call is wrong."""

from decimal import Decimal, localcontext
from functools import lru_cache

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from judges import assert_close, assert_same_bits
from regard.positions import rotary_frequencies, rotate

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
UNIT = {"float32": 2.0**-24, "float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}
FAR = (0, 1, -7, 4095, 10**6, 10**6 + 1, 123456789)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=[np.dtype(d).name for d in DTYPES])
both_layouts = pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "interleaved"])


# -- exact angles, in fifty digits -------------------------------------------------------------------------------------


@lru_cache
def pi():
    """Sixteen arctangents of 1/5 less four of 1/239, by their series."""

    def arctan(n):
        total, term, k = Decimal(0), Decimal(1) / n, 0
        while abs(term) > Decimal(10) ** -70:
            total += term / (2 * k + 1)
            term, k = -term / (n * n), k + 1
        return total

    return 16 * arctan(5) - 4 * arctan(239)


def circle(angle):
    """Cosine and sine of a Decimal, by their series after whole turns are taken off."""
    angle = angle % (2 * pi())
    sums, term = [Decimal(0)] * 4, Decimal(1)
    for k in range(90):
        sums[k % 4] += term
        term = term * angle / (k + 1)
    return float(sums[0] - sums[2]), float(sums[1] - sums[3])


@lru_cache
def exact_circles(where, dim, base=10000):
    """Cosines and sines of p * base ** (-2c / dim), (S, ceil(dim / 2)) each."""
    with localcontext() as context:
        context.prec = 75
        rates = [Decimal(base) ** (Decimal(-2 * c) / Decimal(dim)) for c in range((dim + 1) // 2)]
        return np.moveaxis(np.array([[circle(Decimal(p) * f) for f in rates] for p in where]), -1, 0)


def exact_rotation(x, where, interleaved, base=10000):
    """The rotation of float64 rows in the formula's words, with the sizes |a| + |b| of the pairs."""
    dim = x.shape[-1]
    cos, sin = exact_circles(tuple(where), dim, base)
    pairs = [(2 * c, 2 * c + 1) if interleaved else (c, c + dim // 2) for c in range(dim // 2)]
    out, size = np.empty(x.shape), np.empty(x.shape)
    for c, (i, j) in enumerate(pairs):
        a, b = x[..., i], x[..., j]
        out[..., i], out[..., j] = a * cos[:, c] - b * sin[:, c], a * sin[:, c] + b * cos[:, c]
        size[..., i] = size[..., j] = abs(a) + abs(b)
    return out, size


def rounding(want, size, dtype, angle=0.0):
    """Bound of an error: the angle's, four roundings per product in the wide dtype, one of the result."""
    wide = UNIT["float64" if dtype == "float64" else "float32"]
    narrow = UNIT[dtype] * abs(want) + (2.0**-25 if dtype == "float16" else 0)
    return size * (angle + 4.1 * wide) + (narrow if dtype in ("float16", "bfloat16") else 0)


def test_the_oracle_is_right():
    assert abs(pi() - Decimal("3.14159265358979323846264338327950288419716939937510")) < Decimal(10) ** -25
    angles = np.array([0, 1, -2, 3.5, 100])
    got = np.array([circle(Decimal(a)) for a in angles]).T
    np.testing.assert_allclose(got, [np.cos(angles), np.sin(angles)], atol=1e-15)


@every_dtype
@both_layouts
@pytest.mark.parametrize(("dim", "base"), [(2, 10000), (6, 10000), (80, 10000), (64, 500000)])
def test_rotation_against_exact_angles(dtype, interleaved, dim, base, normal):
    x = normal(2, 3, len(FAR), dim).astype(dtype)
    want, size = exact_rotation(x.astype(np.float64), FAR, interleaved, base)
    got = rg.rotary_embedding(x, np.array(FAR), base=base, interleaved=interleaved)
    assert got.dtype == x.dtype
    angle = np.abs(np.array(FAR))[:, None] * 2.0**-51
    assert_close(got, want, rounding(want, size, x.dtype.name, angle))


@both_layouts
def test_float32_at_a_million_is_as_good_as_at_one(interleaved, normal):
    where = (10**6 - 1, 10**6, 3 * 10**6 + 7)
    x = normal(len(where), 128)
    want, size = exact_rotation(x.astype(np.float64), where, interleaved)
    bound = rounding(want, size, "float32", 2.0**-28)
    assert_close(rg.rotary_embedding(x, where, interleaved=interleaved), want, bound)
    angles = np.float32(where)[:, None] * rotary_frequencies(128).astype(np.float32)
    naive = rotate(x, np.cos(angles), np.sin(angles), interleaved=interleaved)
    with pytest.raises(AssertionError, match="of the bound"):
        assert_close(naive, want, bound)
    assert (abs(naive - want) / size).max() > 0.01


# -- laws --------------------------------------------------------------------------------------------------------------


@every_dtype
@both_layouts
def test_position_zero_changes_nothing(dtype, interleaved, normal):
    x = normal(2, 5, 8).astype(dtype)
    np.testing.assert_array_equal(rg.rotary_embedding(x, np.zeros(5), interleaved=interleaved), x)


@both_layouts
def test_lengths_stay(interleaved, normal):
    x = normal(4, 9, 32).astype(np.float64)
    turned = rg.rotary_embedding(x, offset=10**6, interleaved=interleaved)
    length = np.linalg.norm(x, axis=-1)
    assert_close(np.linalg.norm(turned, axis=-1), length, 32 * UNIT["float64"] * length)


@both_layouts
@pytest.mark.parametrize("shift", [1, -3, 10**6])
def test_products_depend_on_distances_only(interleaved, shift, normal):
    q, k = normal(2, 7, 32).astype(np.float64)
    here = rg.rotary_embedding(q, interleaved=interleaved) @ rg.rotary_embedding(k, interleaved=interleaved).T
    there = [rg.rotary_embedding(x, offset=shift, interleaved=interleaved) for x in (q, k)]
    size = np.linalg.norm(q, axis=-1)[:, None] * np.linalg.norm(k, axis=-1)
    assert_close(there[0] @ there[1].T, here, size * (2 * (abs(shift) + 7) * 2.0**-51 + 64 * UNIT["float64"]))
    with pytest.raises(AssertionError, match="of the bound"):
        assert_close(there[0] @ rg.rotary_embedding(k, interleaved=interleaved).T, here, 1e-6 * size)


@both_layouts
@pytest.mark.parametrize(("first", "then"), [(3, 4), (-5, 5), (12345, 10**6)])
def test_rotations_add(interleaved, first, then, normal):
    x = normal(6, 16).astype(np.float64)

    def turn(x, by):
        return rg.rotary_embedding(x, np.full(6, by), interleaved=interleaved)

    bound = np.linalg.norm(x, axis=-1, keepdims=True) * (2 * (abs(first) + abs(then)) * 2.0**-51 + 2.0**-49)
    assert_close(turn(turn(x, first), then), turn(x, first + then), bound)


def test_layouts_differ_by_a_permutation(normal):
    x = normal(2, 5, 12)
    order = np.arange(12).reshape(2, 6).T.ravel()  # 0 6 1 7 2 8 ...
    halves = rg.rotary_embedding(x, offset=9)
    assert_same_bits(rg.rotary_embedding(x[..., order], offset=9, interleaved=True), halves[..., order])
    assert (rg.rotary_embedding(x, offset=9, interleaved=True) != halves).any()


def test_attention_does_not_change_when_all_positions_shift(normal):
    q, k, v = (normal(2, 3, 10, 16).astype(np.float64) for _ in range(3))

    def attend(shift):
        turned = (rg.rotary_embedding(x, offset=shift) for x in (q, k))
        return rg.reference.attention(*turned, v, mask=rg.Causal())

    longest = np.linalg.norm(q, axis=-1).max() * np.linalg.norm(k, axis=-1).max()
    score = longest / 4 * (2 * 10**6 * 2.0**-51 + 128 * UNIT["float64"])
    assert_close(attend(10**6), attend(0), 4 * score * abs(v).max())


def test_a_decoding_step_is_the_row_of_the_prefill(target, normal):
    q, k, v = normal(2, 4, 33, 16), normal(2, 2, 33, 16), normal(2, 2, 33, 16)
    keys = rg.rotary_embedding(k)
    whole = rg.attention(rg.rotary_embedding(q), keys, v, mask=rg.Causal())
    step = rg.rotary_embedding(q[:, :, 32:], offset=32)
    assert_same_bits(rg.attention(step, keys, v, mask=rg.Causal(), q_offset=32), whole[:, :, 32:])


def test_the_lesson_worked_out_by_hand(target):
    """Query (1, 0, 1, 0) at 2: its first pair (1, 1) is turned against (1, 0) by 2, against (0, 1) by 1, else by 0."""
    k = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], np.float32)
    query, keys = rg.rotary_embedding(k[2:], offset=2), rg.rotary_embedding(k)
    scores = [(np.cos(2) - np.sin(2)) / 2, (np.cos(1) + np.sin(1)) / 2, 1]
    weights = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(rg.attention_forward(query, keys, k).weights[0], weights, atol=6e-7)
    np.testing.assert_allclose(weights, [0.098571, 0.381603, 0.519826], atol=6e-7)


# -- bits --------------------------------------------------------------------------------------------------------------


@every_dtype
@both_layouts
def test_a_row_has_the_same_bits_alone_and_in_any_strides(dtype, interleaved, normal):
    x = normal(3, 4, 37, 22).astype(dtype)
    x.flags.writeable = False
    before = x.copy()
    turned = rg.rotary_embedding(x, offset=10**6, interleaved=interleaved)
    for b, h, i in [(0, 0, 0), (2, 3, 36), (1, 2, 17)]:
        alone = rg.rotary_embedding(x[b, h, i : i + 1], offset=10**6 + i, interleaved=interleaved)
        assert_same_bits(alone, turned[b, h, i : i + 1])
    strided = np.zeros((37, 3, 44, 4), dtype)[::-1, :, ::2].transpose(1, 3, 0, 2)
    strided[...] = x
    got = rg.rotary_embedding(strided, offset=10**6, interleaved=interleaved)
    assert_same_bits(got, turned)
    assert got.flags.c_contiguous
    assert_same_bits(x, before)


def test_ways_to_say_where_rows_stand(normal):
    x = normal(2, 3, 5, 8)
    want = np.stack([rg.rotary_embedding(x[0], offset=40), rg.rotary_embedding(x[1], offset=-2)])
    starts = np.array([40, -2])
    assert_same_bits(rg.rotary_embedding(x, offset=starts), want)
    assert_same_bits(rg.rotary_embedding(x, offset=[40, -2]), want)
    assert_same_bits(rg.rotary_embedding(x, starts[:, None] + np.arange(5)), want)
    assert_same_bits(rg.rotary_embedding(x, starts[:, None] + np.arange(5, dtype=np.float32)), want)
    assert_same_bits(rg.rotary_embedding(x, np.arange(5) + 1, offset=starts - 1), want)
    assert_same_bits(rg.rotary_embedding(x[:1], [range(40, 45)]), want[:1])
    five = normal(2, 4, 3, 5, 8)
    apart = np.stack([rg.rotary_embedding(row, offset=s) for row, s in zip(five, starts, strict=True)])
    assert_same_bits(rg.rotary_embedding(five, offset=starts[:, None]), apart)


@pytest.mark.parametrize("dtype", DTYPES[2:], ids=["float16", "bfloat16"])
def test_half_results_are_the_float32_results_rounded_once(dtype, normal):
    x = normal(2, 9, 16).astype(dtype)
    wide = rg.rotary_embedding(x.astype(np.float32), offset=77)
    assert_same_bits(rg.rotary_embedding(x, offset=77).view(np.uint16), wide.astype(dtype).view(np.uint16))


@every_dtype
@both_layouts
def test_the_rest_is_copied(dtype, interleaved, normal):
    x = normal(2, 5, 11).astype(dtype)
    x[0, 1, 9] = np.nan
    turned = rg.rotary_embedding(x, dim=6, offset=3, interleaved=interleaved)
    bits = f"u{x.dtype.itemsize}"
    assert_same_bits(turned[..., 6:].copy().view(bits), x[..., 6:].copy().view(bits))
    assert_same_bits(turned[..., :6], rg.rotary_embedding(x[..., :6], offset=3, interleaved=interleaved))
    assert_same_bits(rg.rotary_embedding(x, dim=0).view(bits), x.view(bits))


def test_tables_are_the_same_path(normal):
    x, ids = normal(2, 3, 5, 8), np.array([[3, 4, 5, 6, 7], [0, 0, 2, 9, 1]])
    angles = np.arange(10)[:, None] * rotary_frequencies(6)
    cos, sin = np.cos(angles), np.sin(angles)
    want = rg.rotary_embedding(x, ids, dim=6, interleaved=True)
    assert_same_bits(rotate(x, cos[ids], sin[ids], interleaved=True), want)
    assert_same_bits(rotate(x, cos.astype(np.float32)[ids], sin.astype(np.float32)[ids], interleaved=True), want)
    assert_same_bits(rotate(x[0, 0], cos[:5], sin[:5]), rg.rotary_embedding(x[0, 0], dim=6))


def test_other_frequencies(normal):
    x = normal(3, 5, 8)
    assert_same_bits(rg.rotary_embedding(x, frequencies=rotary_frequencies(8)), rg.rotary_embedding(x))
    assert_same_bits(
        rg.rotary_embedding(x, frequencies=rotary_frequencies(8, base=500.0)), rg.rotary_embedding(x, base=500)
    )
    linear = rg.rotary_embedding(x, frequencies=rotary_frequencies(8) / 4)
    assert_same_bits(linear, rg.rotary_embedding(x, np.arange(5) / 4))
    turned = rg.rotary_embedding(x, dim=6, attention_factor=0.5)
    assert_same_bits(turned[..., :6], rg.rotary_embedding(x, dim=6)[..., :6] / 2)
    assert_same_bits(turned[..., 6:], x[..., 6:])


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (2, 0, 5, 8), (0, 2, 5, 8), (2, 3, 0, 8), (2, 3, 5, 0)])
def test_empty_arrays(shape):
    assert rg.rotary_embedding(np.ones(shape, np.float16), offset=4).shape == shape
    assert rg.rotary_embedding([[1, 2]], [0]).dtype == np.float64


def test_tables_beyond_float32_are_infinite():
    table = np.array([[1e300, 1]])
    assert np.isposinf(rotate(np.ones((1, 4), np.float32), table, 0 * table)[0, 0])


def test_what_is_not_finite_stays_in_its_pair():
    x = np.ones((2, 3, 4), np.float16)
    x[0, 1, 0], x[1, 2, 1] = np.nan, np.inf
    odd = ~np.isfinite(rg.rotary_embedding(x, offset=1))
    assert np.argwhere(odd).tolist() == [[0, 1, 0], [0, 1, 2], [1, 2, 1], [1, 2, 3]]
    large = np.float16([[60000, -60000]])
    assert rg.rotary_embedding(large, [1]).tolist() == [[np.inf, rg.rotary_embedding(large, [1])[0, 1]]]


# -- sinusoids ---------------------------------------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize("dim", [1, 2, 7, 48])
def test_sinusoids_against_exact_angles(dtype, dim):
    cos, sin = exact_circles(FAR, dim)
    got = rg.sinusoidal_positions(np.array(FAR), dim, dtype=dtype)
    want = np.empty((len(FAR), dim))
    want[:, ::2], want[:, 1::2] = sin, cos[:, : dim // 2]
    bound = abs(np.array(FAR))[:, None] * 2.0**-51 + UNIT[np.dtype(dtype).name] * 1.01 + 2.0**-52
    assert got.dtype == dtype
    assert_close(got, want, bound)


def test_sinusoids_in_halves():
    where = np.arange(6).reshape(2, 3) - 2
    mixed = rg.sinusoidal_positions(where, 8)
    halves = rg.sinusoidal_positions(where, 8, interleaved=False)
    assert mixed.shape == (2, 3, 8)
    assert_same_bits(halves, np.concatenate([mixed[..., ::2], mixed[..., 1::2]], axis=-1))
    assert_same_bits(rg.sinusoidal_positions(where[0], 8), mixed[0])
    assert_same_bits(
        rg.sinusoidal_positions(where, 8, base=50),
        rg.sinusoidal_positions(where, 8, frequencies=rotary_frequencies(8, base=50)),
    )
    assert rg.sinusoidal_positions([], 4).shape == (0, 4)
    assert rg.sinusoidal_positions([1], 0).shape == (1, 0)


def test_sinusoids_of_tensor2tensor():
    """Frequencies from 1 to 1/10000, both ends among them."""
    got = rg.sinusoidal_positions(np.arange(50), 8, frequencies=10000.0 ** (-np.arange(4) / 3), interleaved=False)
    angles = np.arange(50)[:, None] / np.array([1, 10 ** (4 / 3), 10 ** (8 / 3), 10000])
    np.testing.assert_allclose(got, np.concatenate([np.sin(angles), np.cos(angles)], axis=1), atol=1e-7)


# -- messages ----------------------------------------------------------------------------------------------------------

X, Y = np.ones((2, 3, 5, 8), np.float32), np.ones((5, 7))
EVERY_CALL = [
    (rg.ShapeError, lambda: rg.rotary_embedding(X[0, 0, 0]), ["x has shape (8,)", "at least two axes"]),
    (rg.DTypeError, lambda: rg.rotary_embedding(np.ones((2, 2), int)),
     ["x has the integer dtype", "astype(np.float32)"]),
    (rg.ShapeError, lambda: rg.rotary_embedding(Y), ["x has 7 features", "takes pairs", "dim=6", "copy the rest"]),
    (rg.ShapeError, lambda: rg.rotary_embedding(X, dim=3), ["dim is 3", "takes pairs", "dim=2"]),
    (rg.ShapeError, lambda: rg.rotary_embedding(Y, dim=8), ["dim is 8", "7 features", "dim=6 at most"]),
    (rg.ShapeError, lambda: rg.rotary_embedding(X, dim=-2), ["dim is -2", "an integer, 0 or more"]),
    (rg.ShapeError, lambda: rg.rotary_embedding(X, dim=4.0), ["dim is 4.0", "an integer"]),
    (rg.ShapeError, lambda: rg.rotary_embedding(X, dim=True), ["dim is True"]),
    (rg.ShapeError, lambda: rg.rotary_embedding(X, range(4)), ["positions has shape (4,)", "5 rows", "(5,)", "(2, 5)"]),
    (rg.ShapeError, lambda: rg.rotary_embedding(X, 3), ["positions has shape ()", "(5,)"]),
    (rg.ShapeError, lambda: rg.rotary_embedding(X, np.ones((3, 5))), ["positions has shape (3, 5)", "axes (2,)"]),
    (rg.ShapeError, lambda: rg.rotary_embedding(X[0], np.ones((2, 5))), ["positions has shape (2, 5)", "axes ()"]),
    (rg.ShapeError, lambda: rg.rotary_embedding(X, offset=[1, 2, 3]), ["offset has shape (3,)", "(2,)", "one number"]),
    (rg.DTypeError, lambda: rg.rotary_embedding(X, offset="end"), ["offset has dtype <U3", "integers"]),
    (rg.DTypeError, lambda: rg.rotary_embedding(X, offset=True), ["offset has dtype bool"]),
    (rg.DTypeError, lambda: rg.rotary_embedding(X, np.ones(5, np.float16)),
     ["float16 counts to 2048 only", "np.arange"]),
    (rg.DTypeError, lambda: rg.rotary_embedding(X, np.ones(5, ml_dtypes.bfloat16)), ["dtype bfloat16", "256"]),
    (rg.UnsupportedError, lambda: rg.rotary_embedding(X, offset=2**60), ["offset has the entry 1.15", "2**53"]),
    (rg.UnsupportedError, lambda: rg.rotary_embedding(X, [0, 1, np.nan, 3, 4]),
     ["positions has the entry nan", "finite"]),
    (rg.UnsupportedError, lambda: rg.rotary_embedding(X, base=0), ["base is 0", "10000"]),
    (rg.UnsupportedError, lambda: rg.rotary_embedding(X, base="1"), ["base is '1'", "finite"]),
    (rg.UnsupportedError, lambda: rg.rotary_embedding(X, base=5e5, frequencies=[1, 1, 1, 1]),
     ["base=500000.0", "one of"]),
    (rg.ShapeError, lambda: rg.rotary_embedding(X, frequencies=[1, 2]),
     ["frequencies has shape (2,)", "8 features", "(4,)"]),
    (rg.DTypeError, lambda: rg.rotary_embedding(X, frequencies=[True] * 4), ["frequencies has dtype bool", "radians"]),
    (rg.UnsupportedError, lambda: rg.rotary_embedding(X, frequencies=[1, 1, 1, np.inf]), ["1 entries", "not finite"]),
    (rg.UnsupportedError, lambda: rg.rotary_embedding(X, attention_factor=np.inf), ["attention_factor is inf"]),
    (rg.UnsupportedError, lambda: rg.rotary_embedding(X, attention_factor=-1e300),
     ["attention_factor is -1e+300", "float32, in which x is turned, goes up to 3.4e+38"]),
    (rg.UnsupportedError, lambda: rg.rotary_embedding(X, offset=1e15, frequencies=[1, 1, 1, 1e308]),
     ["a position of 1e+15 times a frequency of 1e+308 is beyond float64", "pass smaller ones"]),
    (rg.UnsupportedError, lambda: rg.sinusoidal_positions([-1e15], 2, frequencies=[1e308]), ["position of 1e+15"]),
    (rg.UnsupportedError, lambda: rg.rotary_embedding(X, interleaved="no"), ["interleaved is 'no'", "True or False"]),
    (rg.UnsupportedError, lambda: rotate(X, np.ones((5, 4)), np.ones((5, 4)), interleaved=None),
     ["interleaved is None"]),
    (rg.UnsupportedError, lambda: rg.sinusoidal_positions([1], 2, interleaved=1), ["interleaved is 1;"]),
    (rg.ShapeError, lambda: rotate(X, np.ones((4, 4)), np.ones((4, 4))),
     ["cos has shape (4, 4)", "(5, r / 2)", "[position_ids]"]),
    (rg.ShapeError, lambda: rotate(X, np.ones((5, 5)), np.ones((5, 5))), ["cos has 5 pairs", "4 pairs at most"]),
    (rg.ShapeError, lambda: rotate(X, np.ones((5, 4)), np.ones((5, 3))), ["cos has 4 pairs and sin has 3", "equal"]),
    (rg.ShapeError, lambda: rotate(X, np.ones((3, 5, 4)), np.ones((3, 5, 4))), ["cos has shape (3, 5, 4)"]),
    (rg.DTypeError, lambda: rotate(X, np.ones((5, 4)), np.ones((5, 4), int)), ["sin has the integer dtype"]),
    (rg.ShapeError, lambda: rg.sinusoidal_positions(512, 8), ["number 512", "np.arange(512)", "[512]"]),
    (rg.ShapeError, lambda: rg.sinusoidal_positions([1], 7, interleaved=False),
     ["dim is 7", "dim=6", "interleaved=True"]),
    (rg.ShapeError, lambda: rg.sinusoidal_positions([1], -1), ["dim is -1"]),
    (rg.ShapeError, lambda: rg.sinusoidal_positions([1], 5, frequencies=[1, 1]), ["5 features", "3 pairs"]),
    (rg.DTypeError, lambda: rg.sinusoidal_positions([1], 4, dtype=int), ["dtype is", "int", "float32"]),
    (rg.DTypeError, lambda: rg.sinusoidal_positions([1], 4, dtype="float33"), ["'float33'", "np.float32"]),
    (rg.DTypeError, lambda: rg.sinusoidal_positions([[1], [2, 3]], 4), ["positions is not an array of numbers"]),
]  # fmt: skip


@pytest.mark.parametrize(("error", "call", "parts"), EVERY_CALL, ids=[parts[0] for _, _, parts in EVERY_CALL])
def test_messages(error, call, parts):
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert all(part in text for part in parts), text
    assert "\n" not in text
