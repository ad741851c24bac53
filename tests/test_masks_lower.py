"""What leaves masks/: bands of full rows, spans, bits and bytes, decoded and compared with the formula."""

import math
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masks_random import GENERATORS, assert_same, cases, dense, formula, geometries
from regard._errors import MaskError
from regard._types import Geometry, Offsets
from regard.masks import (
    Blocks,
    Causal,
    Chunked,
    Dense,
    Dilated,
    Documents,
    Empty,
    Full,
    Global,
    KeyLengths,
    Prefix,
    Window,
    _evaluate,
    _lower,
    from_function,
)
from regard.masks._lower import BAND_ROWS, Band, lower


def decode(band, geometry):
    """The band as bool of the full shape, range by range and bit by bit, without RowSpans."""
    rows = band.rows.stop - band.rows.start
    shape = (*geometry.shape[:-2], rows, geometry.keys)
    if band.kind == "full":
        assert band.data is None
        return np.ones(shape, bool)
    if band.kind == "bytes":
        assert band.data.dtype == np.bool_
        return np.broadcast_to(band.data, shape)
    assert band.data.flags.c_contiguous
    if band.kind == "bits":
        assert band.data.dtype == np.uint8
        assert band.data.shape[-2:] == (rows, -(-geometry.keys // 8))
        bits = np.unpackbits(band.data, axis=-1, bitorder="little").astype(bool)
        assert not bits[..., geometry.keys :].any()
        return np.broadcast_to(bits[..., : geometry.keys], shape)
    assert band.kind == "spans"
    assert band.data.dtype == np.int64
    ranges = np.broadcast_to(band.data, (*shape[:-1], *band.data.shape[-2:]))
    kept = np.zeros(shape, bool)
    for row in np.ndindex(shape[:-1]):
        for begin, end in ranges[row]:
            kept[row][begin:end] = True
    return kept


def assert_lowers(bands, mask, geometry):
    """The bands cover all rows once, in order, and say what the formula says."""
    bands = list(bands)
    edges = [band.rows.start for band in bands] + [geometry.queries]
    assert edges[0] == 0
    assert [band.rows.stop for band in bands] == edges[1:]
    assert all(band.rows.start < band.rows.stop for band in bands)
    assert all(band.data is None or band.data.ndim >= len(geometry.shape) for band in bands)
    if bands:
        decoded = np.concatenate([decode(band, geometry) for band in bands], axis=-2)
        assert_same(decoded, np.broadcast_to(formula(mask, geometry), geometry.shape))


def test_the_judge_says_no():
    geometry = Geometry((), 1, 2, 3)
    gap = [Band(slice(1, 2), "full", None)]
    wrong = [Band(slice(0, 2), "full", None)]
    stray = [Band(slice(0, 2), "bits", np.full((1, 2, 1), 0xFF, np.uint8))]
    for bands in (gap, wrong, stray):
        with pytest.raises(AssertionError):
            assert_lowers(bands, Causal() if bands is wrong else Full(), geometry)


@settings(max_examples=200, deadline=None)
@given(cases(), st.integers(1, 8), st.sampled_from([0, 1, 8]))
def test_bands_say_what_the_formula_says(case, band_rows, max_spans):
    mask, geometry = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_lower, "MAX_SPANS", max_spans)
        assert_lowers(lower(mask, geometry, band_rows=band_rows), mask, geometry)


@settings(max_examples=100, deadline=None)
@given(cases(), st.integers(1, 8), st.data())
def test_some_rows_lower_to_their_part_of_the_whole(case, band_rows, data):
    mask, geometry = case
    start, stop = sorted(data.draw(st.integers(0, geometry.queries)) for _ in "ab")
    bands = list(lower(mask, geometry, slice(start, stop), band_rows))
    assert [band.rows.start for band in bands] + [stop] == [start] + [band.rows.stop for band in bands]
    want = np.broadcast_to(formula(mask, geometry), geometry.shape)
    for band in bands:
        assert_same(decode(band, geometry), want[..., band.rows, :])


@settings(max_examples=100, deadline=None)
@given(cases(), st.integers(1, 30), st.integers(1, 30), st.integers(1, 3))
def test_bits_that_are_cut_short_say_the_same(case, band_bytes, chunk_pairs, min_rows):
    mask, geometry = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_lower, "MAX_SPANS", -1)
        patch.setattr(_lower, "MAX_BAND_BYTES", band_bytes)
        patch.setattr(_evaluate, "MAX_CHUNK_PAIRS", chunk_pairs)
        patch.setattr(_lower, "MIN_BAND_ROWS", min_rows)
        bands = list(lower(mask, geometry))
        assert_lowers(bands, mask, geometry)
    for band in bands:
        if band.kind == "bits":
            rows = band.rows.stop - band.rows.start
            assert band.data.nbytes <= band_bytes or rows <= min_rows
            assert rows >= min_rows or band is bands[-1]


@given(geometries(), GENERATORS)
def test_a_lone_dense_is_a_view_of_the_users_array(geometry, rng):
    mask = dense(rng, geometry)
    bands = list(lower(mask, geometry, band_rows=3))
    assert_lowers(bands, mask, geometry)
    for band in bands:
        if geometry.keys:
            assert band.kind == "bytes"
            assert band.data.base is mask.array
            assert not mask.array.size or np.shares_memory(band.data, mask.array)
            assert band.data.shape[-1] == mask.array.shape[-1]


def test_a_view_keeps_strides():
    array = np.random.default_rng(0).random((7, 2, 5)).transpose(1, 2, 0)[..., ::-1] < 0.5
    geometry = Geometry((), 2, 5, 7, rank=3)
    first, second = lower(Dense(array), geometry, band_rows=3)
    assert first.data.strides == second.data.strides == array.strides
    np.testing.assert_array_equal(second.data, array[:, 3:])


@pytest.mark.parametrize(
    ("mask", "kind", "shape"),
    [
        (None, "full", None),
        (Full(), "full", None),
        (Empty() | ~Empty(), "full", None),
        (Window(), "full", None),
        (KeyLengths(40), "full", None),
        (Empty(), "spans", (1, 1, 1, 0, 2)),
        (Causal(), "spans", (1, 1, 20, 1, 2)),
        (Causal() & ~Window(left=3), "spans", (1, 1, 20, 1, 2)),
        (~(Window(left=2, right=2) & KeyLengths([30, 40])), "spans", (2, 1, 20, 2, 2)),
        (KeyLengths([30, 40]), "spans", (2, 1, 1, 1, 2)),
        (Causal() & Dense(np.ones((20, 40), bool)), "bits", (1, 1, 20, 5)),
        (~Dense(np.ones((2, 1, 1, 40), bool)), "bits", (2, 1, 20, 5)),
        (Causal() | Dense(np.ones((1, 3, 20, 1), bool)), "bits", (1, 3, 20, 5)),
        (~Dense(np.eye(20, 1, dtype=bool)), "bits", (1, 1, 20, 5)),
        (Prefix(30), "spans", (1, 1, 1, 1, 2)),
        (Prefix(10**30), "full", None),
        (Global(3), "spans", (1, 1, 20, 1, 2)),
        (Global(20), "full", None),
        (Chunked(8), "spans", (1, 1, 20, 1, 2)),
        (Dilated(2), "bits", (1, 1, 20, 5)),
        (Documents(np.arange(20) // 3, np.arange(40) // 3), "spans", (1, 1, 20, 1, 2)),
        (Documents([[5] * 20, [6] * 20], [5] * 30 + [6] * 10), "spans", (2, 1, 1, 1, 2)),
        (Documents([[5] * 20, [6] * 20], [5, 6] * 20), "bits", (2, 1, 20, 5)),
        (Blocks(np.eye(2, dtype=bool), (10, 20)), "spans", (1, 1, 20, 1, 2)),
        (Blocks(np.arange(48).reshape(1, 3, 4, 4) % 5 > 0, (5, 10)), "spans", (1, 3, 20, 2, 2)),
        (Blocks(np.arange(20) % 2 == [[1]], (20, 2)), "bits", (1, 1, 20, 5)),
        (from_function(lambda b, h, p, j: j <= p), "bits", (1, 1, 20, 5)),
        (from_function(lambda b, h, p, j: h * j <= p), "bits", (1, 3, 20, 5)),
        (from_function(lambda b, h, p, j: b < j), "bits", (2, 1, 20, 5)),
        (Dense(np.ones((2, 1, 1, 40), bool)), "bytes", (2, 1, 1, 40)),
        (Dense(np.ones((20, 1), bool)), "bytes", (1, 1, 20, 1)),
    ],
)
def test_each_mask_takes_its_kind(mask, kind, shape):
    (band,) = lower(mask, Geometry((2,), 3, 20, 40))
    assert band.kind == kind
    assert (None if band.data is None else band.data.shape) == shape
    assert_lowers([band], Full() if mask is None else mask, Geometry((2,), 3, 20, 40))


def test_rows_that_agree_are_told_once():
    mask = Causal() & KeyLengths([5, 7])
    before, after = lower(mask, Geometry((2,), 1, 16, 20), band_rows=8)
    assert before.data.shape == (2, 1, 8, 1, 2)
    assert after.data.tolist() == [[[[[0, 5]]]], [[[[0, 7]]]]]


def test_an_offset_per_batch_entry_gives_spans_a_leading_axis():
    geometry = Geometry((2, 3), 4, 2, 9, Offsets((2, 1), (0, 5)), rank=5)
    (band,) = lower(Causal(), geometry)
    assert band.data.tolist() == [[[[[[0, 1]], [[0, 2]]]]], [[[[[0, 6]], [[0, 7]]]]]]
    (band,) = lower(Causal() & Prefix(1), geometry)
    assert band.data.shape == (2, 1, 1, 1, 1, 2)


def test_many_ranges_become_bits():
    def stripes(count):
        mask = Empty()
        for k in range(count):
            mask |= KeyLengths(2 * k + 2) & ~KeyLengths(2 * k + 1)
        return mask

    geometry = Geometry((), 1, 3, 40)
    for count, kind in [(_lower.MAX_SPANS, "spans"), (_lower.MAX_SPANS + 1, "bits")]:
        bands = list(lower(stripes(count), geometry))
        assert [band.kind for band in bands] == [kind]
        assert_lowers(bands, stripes(count), geometry)


@pytest.mark.parametrize("mask", [None, Full(), Empty(), Causal(), KeyLengths(0), Dense(np.ones((5, 0), bool))])
def test_no_keys_is_spans_of_width_0(mask):
    (band,) = lower(mask, Geometry((2,), 3, 5, 0))
    assert (band.kind, band.data.shape) == ("spans", (1, 1, 1, 0, 2))


@pytest.mark.parametrize("mask", [None, Causal(), ~Dense(np.ones((1, 4), bool)), Dense(np.ones((0, 4), bool))])
def test_no_queries_is_no_bands(mask):
    assert list(lower(mask, Geometry((2,), 3, 0, 4))) == []


@pytest.mark.parametrize("mask", [KeyLengths([]), ~Dense(np.ones((0, 1, 3, 4), bool)), Causal()])
def test_an_empty_batch_lowers(mask):
    geometry = Geometry((0,), 2, 3, 4)
    mask.check(geometry)
    (band,) = lower(mask, geometry)
    assert band.rows == slice(0, 3)
    assert decode(band, geometry).shape == geometry.shape


def test_bands_are_cut_at_the_default():
    bands = list(lower(Causal(), Geometry((), 1, 2 * BAND_ROWS + 1, 64)))
    assert [band.rows.stop for band in bands] == [BAND_ROWS, 2 * BAND_ROWS, 2 * BAND_ROWS + 1]


@pytest.mark.parametrize("mask", [None, Full()])
def test_no_mask_is_one_band(mask):
    (band,) = lower(mask, Geometry((), 1, 2 * BAND_ROWS + 1, 64))
    assert (band.rows, band.kind) == (slice(0, 2 * BAND_ROWS + 1), "full")


def test_a_band_of_bits_stays_under_its_size_and_so_do_temporaries():
    geometry = Geometry((8,), 8, 1024, 8192)
    mask = Causal() & ~Dense(np.zeros((8, 8, 1, 8192), bool))
    tracemalloc.start()
    band = next(lower(mask, geometry))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert band.rows == slice(0, _lower.MAX_BAND_BYTES // (64 * 1024))
    assert band.data.nbytes <= _lower.MAX_BAND_BYTES
    assert peak - band.data.nbytes < 8 << 20
    row = np.unpackbits(band.data[3, 5, 100], bitorder="little").astype(bool)
    np.testing.assert_array_equal(row, formula(Causal(), geometry)[0, 0, 100])


LENGTH = 131072


@pytest.mark.parametrize(
    "mask",
    [
        Causal(),
        Causal() & Documents(np.sort(np.random.default_rng(0).integers(0, 300, LENGTH))),
        Causal() & Blocks(np.add.outer(np.arange(1024), np.arange(1024)) % 700 < 300, 128),
    ],
)
def test_long_sequences_lower_fast_and_small(mask):
    start = time.process_time()
    tracemalloc.start()
    bands = [(band.kind, band.rows, band.data.shape[-2]) for band in lower(mask, Geometry((), 1, LENGTH, LENGTH))]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.process_time() - start < 2
    assert peak < 16 << 20
    assert {kind for kind, _, _ in bands} == {"spans"}
    assert sum(rows.stop - rows.start for _, rows, _ in bands) == LENGTH
    assert max(width for _, _, width in bands) <= 2


def test_documents_in_pieces_lower_in_bounded_memory():
    ids = np.random.default_rng(0).integers(0, 3, LENGTH)
    tracemalloc.start()
    band = next(lower(Documents(ids), Geometry((), 1, LENGTH, LENGTH)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (band.kind, band.data.shape) == ("bits", (1, BAND_ROWS, LENGTH // 8))
    assert peak - band.data.nbytes < 8 << 20
    row = np.unpackbits(band.data[0, 77], bitorder="little").astype(bool)
    np.testing.assert_array_equal(row, ids == ids[77])


def recorded(sizes, answer):
    """A function that notes how many pairs each call is about."""

    def function(b, h, p, j):
        kept = answer(b, h, p, j)
        sizes.append(math.prod(np.broadcast_shapes(*(a.shape for a in (b, h, p, j)), kept.shape)[-2:]))
        assert kept.size <= _evaluate.MAX_CHUNK_PAIRS
        return kept

    return from_function(function)


@pytest.mark.parametrize("most", [8, 100, 4096])
@pytest.mark.parametrize("use", ["lower", "materialize", "picture"])
def test_a_function_is_asked_for_bounded_blocks(most, use, monkeypatch):
    def answer(b, h, p, j):
        return (p + j) % 3 > 0

    monkeypatch.setattr(_evaluate, "MAX_CHUNK_PAIRS", most)
    sizes, geometry = [], Geometry((), 1, 70, 301, 240, rank=2)
    mask, plain = Causal() & recorded(sizes, answer), Causal() & from_function(answer)
    want = formula(plain, geometry)[0]
    if use == "lower":
        assert_lowers(lower(mask, geometry), plain, geometry)
    elif use == "materialize":
        np.testing.assert_array_equal(mask.materialize(70, 301, q_offset=240), want)
    else:
        assert mask.picture(70, 301, q_offset=240).kept.sum() == want.sum()
    assert max(sizes) <= most
    assert 70 * 301 <= sum(sizes) <= 70 * 301 + 70  # each pair once; one pair more for each band


def test_the_blocks_of_a_function_shrink_with_batch_and_heads():
    sizes = []
    mask = recorded(sizes, lambda b, h, p, j: (b + h + p + j) % 3 > 0)
    list(lower(mask, Geometry((16,), 32, 40, 5000)))
    assert max(sizes) <= _evaluate.MAX_CHUNK_PAIRS // 512
    assert sum(sizes) == 40 * 5000 + 1


def test_a_function_that_gains_axes_by_value_is_refused():
    def moody(b, h, p, j):
        return (b + j >= 0) if p.max() > 5 else j >= 0

    mask = Causal() & from_function(moody)
    with pytest.raises(MaskError) as error:
        list(lower(mask, Geometry((2,), 1, 10, 3), band_rows=4))
    assert "from_function(moody) tells batch entries or heads apart in rows 4 ... 7, but not in row 4 alone" in str(
        error.value
    )
