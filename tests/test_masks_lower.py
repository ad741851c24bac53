"""What leaves masks/: bands of full rows, spans, bits and bytes, decoded and compared with the formula."""

import math
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from judges import assert_same_bits
from masks_judges import assert_lowers, decode
from masks_random import GENERATORS, assert_same, cases, dense, formula, geometries
from regard._types import Geometry, Offsets
from regard.masks import _evaluate, _lower, _spans
from regard.masks._lower import BAND_ROWS, BITS_ROWS, Band, lower
from regard.masks._spans import RowSpans, runs_of


def test_the_judge_says_no():
    geometry = Geometry((), 1, 2, 3)
    gap = [Band(slice(1, 2), "full", None)]
    wrong = [Band(slice(0, 2), "full", None)]
    stray = [Band(slice(0, 2), "bits", np.full((1, 2, 1), 0xFF, np.uint8))]
    for bands in (gap, wrong, stray):
        with pytest.raises(AssertionError):
            assert_lowers(bands, rg.Causal() if bands is wrong else rg.Full(), geometry)


@settings(max_examples=200)
@given(cases(), st.integers(1, 8), st.sampled_from([0, 1, 8]), st.sampled_from([1, 2, 1 << 14]))
def test_bands_say_what_the_formula_says(case, band_rows, max_spans, piece_rows):
    mask, geometry = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_lower, "MAX_SPANS", max_spans)
        patch.setattr(_evaluate, "MAX_PIECE_ROWS", piece_rows)
        assert_lowers(lower(mask, geometry, band_rows=band_rows), mask, geometry)


@settings(max_examples=100)
@given(cases(), st.integers(1, 8), st.data())
def test_some_rows_lower_to_their_part_of_the_whole(case, band_rows, data):
    mask, geometry = case
    start, stop = sorted(data.draw(st.integers(0, geometry.queries)) for _ in "ab")
    bands = list(lower(mask, geometry, slice(start, stop), band_rows))
    assert [band.rows.start for band in bands] + [stop] == [start] + [band.rows.stop for band in bands]
    want = np.broadcast_to(formula(mask, geometry), geometry.shape)
    for band in bands:
        assert_same(decode(band, geometry), want[..., band.rows, :])


@settings(max_examples=100)
@given(cases(), st.integers(1, 30), st.integers(1, 30), st.integers(1, 8), st.integers(1, 3))
def test_bits_that_are_cut_short_say_the_same(case, band_bytes, chunk_pairs, piece_rows, block_rows):
    mask, geometry = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_lower, "MAX_SPANS", -1)
        patch.setattr(_lower, "MAX_BAND_BYTES", band_bytes)
        patch.setattr(_evaluate, "MAX_CHUNK_PAIRS", chunk_pairs)
        patch.setattr(_evaluate, "MAX_PIECE_ROWS", piece_rows)
        patch.setattr(_lower, "BLOCK_ROWS", block_rows)
        patch.setattr(_lower, "_STEP", 8)
        bands = list(lower(mask, geometry))
        assert_lowers(bands, mask, geometry)
    for band in bands:
        if band.kind == "bits":
            rows = band.rows.stop - band.rows.start
            assert band.data.nbytes <= band_bytes or rows == 1
            assert 2 * band.data.nbytes > band_bytes or band is bands[-1], "shorter than it must be"


@given(geometries(), GENERATORS)
def test_a_lone_dense_is_a_view_of_the_users_array_where_nothing_shares_a_row(geometry, rng):
    mask = dense(rng, geometry)
    table = mask.table(geometry).shape
    shared = math.prod(table[:-2]) != math.prod(geometry.shape[:-2]) and table[-1] == geometry.keys
    bands = list(lower(mask, geometry, band_rows=3))
    assert_lowers(bands, mask, geometry)
    for band in bands:
        if geometry.keys and table[-2] == 1:
            assert band.kind in ("full", "spans")
        elif geometry.keys and shared:
            assert band.kind == "bits"
            assert band.data.shape[:-2] == table[:-2]
        elif geometry.keys:
            assert band.kind == "bytes"
            assert not band.data.flags.owndata
            assert not mask.array.size or np.shares_memory(band.data, mask.array)
            assert band.data.shape[-1] == mask.array.shape[-1]


def test_a_view_keeps_strides():
    array = np.random.default_rng(0).random((7, 2, 5)).transpose(1, 2, 0)[..., ::-1] < 0.5
    geometry = Geometry((), 2, 5, 7, rank=3)
    first, second = lower(rg.Dense(array), geometry, band_rows=3)
    assert first.data.strides == second.data.strides == array.strides
    np.testing.assert_array_equal(second.data, array[:, 3:])


@pytest.mark.parametrize(
    ("mask", "kind", "shape"),
    [
        (rg.Full(), "full", None),
        (rg.Empty() | ~rg.Empty(), "full", None),
        (rg.Window(), "full", None),
        (rg.KeyLengths(40), "full", None),
        (rg.Empty(), "row", None),
        (rg.Causal(), "spans", (1, 1, 20, 1, 2)),
        (rg.Causal() & ~rg.Window(left=3), "spans", (1, 1, 20, 1, 2)),
        (~(rg.Window(left=2, right=2) & rg.KeyLengths([30, 40])), "spans", (2, 1, 20, 2, 2)),
        (rg.KeyLengths([30, 40]), "spans", (2, 1, 1, 1, 2)),
        (rg.Causal() & rg.Dense(np.ones((20, 40), bool)), "bits", (1, 1, 20, 5)),
        (~rg.Dense(np.ones((2, 1, 1, 40), bool)), "spans", (2, 1, 1, 0, 2)),
        (~rg.Dense(np.arange(80).reshape(2, 1, 1, 40) % 2 == 0), "bits", (2, 1, 20, 5)),
        (rg.Causal() | rg.Dense(np.ones((1, 3, 20, 1), bool)), "bits", (1, 3, 20, 5)),
        (~rg.Dense(np.eye(20, 1, dtype=bool)), "bits", (1, 1, 20, 5)),
        (rg.Prefix(30), "row", None),
        (rg.Prefix(30) & ~rg.Prefix(3) | rg.KeyLengths(2), "row", None),
        (rg.Prefix(10**30), "full", None),
        (rg.Global(3), "spans", (1, 1, 20, 1, 2)),
        (rg.Global(20), "full", None),
        (rg.Chunked(8), "spans", (1, 1, 20, 1, 2)),
        (rg.Dilated(2), "bits", (1, 1, 20, 5)),
        (rg.Documents(np.arange(20) // 3, np.arange(40) // 3), "spans", (1, 1, 20, 1, 2)),
        (rg.Documents([[5] * 20, [6] * 20], [5] * 30 + [6] * 10), "spans", (2, 1, 1, 1, 2)),
        (rg.Documents([[5] * 20, [6] * 20], [5, 6] * 20), "bits", (2, 1, 20, 5)),
        (rg.Blocks(np.eye(2, dtype=bool), (10, 20)), "spans", (1, 1, 20, 1, 2)),
        (rg.Blocks(np.arange(48).reshape(1, 3, 4, 4) % 5 > 0, (5, 10)), "spans", (1, 3, 20, 2, 2)),
        (rg.Blocks(np.arange(20) % 2 == [[1]], (20, 2)), "bits", (1, 1, 20, 5)),
        (rg.from_function(lambda b, h, p, j: j <= p), "bits", (1, 1, 20, 5)),
        (rg.from_function(lambda b, h, p, j: h * j <= p), "bits", (1, 3, 20, 5)),
        (rg.from_function(lambda b, h, p, j: b < j), "bits", (2, 1, 20, 5)),
        (rg.Dense(np.ones((2, 1, 1, 40), bool)), "full", None),
        (rg.Dense(np.arange(80).reshape(2, 1, 1, 40) < 60), "spans", (2, 1, 1, 1, 2)),
        (rg.Dense(np.arange(80).reshape(2, 1, 1, 40) % 2 == 0), "bytes", (2, 1, 1, 40)),
        (rg.Dense(np.ones((1, 1), bool)), "full", None),
        (rg.Dense(np.arange(6).reshape(2, 3, 1, 1) % 2 == 0), "spans", (2, 3, 1, 1, 2)),
        (rg.KeyPadding([[True] * 30 + [False] * 10, [False] * 3 + [True] * 37]), "spans", (2, 1, 1, 1, 2)),
        (rg.KeyPadding(np.arange(40) % 2 == 0), "bits", (1, 1, 20, 5)),
        (rg.PerHead([rg.Full(), rg.Prefix(3), rg.Empty()]), "spans", (1, 3, 1, 1, 2)),
        (rg.PerHead([rg.Causal(), ~rg.Window(2, 2), rg.KeyLengths([3, 4])]), "spans", (2, 3, 20, 2, 2)),
        (rg.PerHead([rg.Causal(), rg.Dilated(2), rg.KeyLengths([3, 4])]), "bits", (2, 3, 20, 5)),
        (rg.PerHead([rg.Full()] * 3), "full", None),
        (rg.Dense(np.ones((20, 1), bool)), "bytes", (1, 1, 20, 1)),
    ],
)
def test_each_mask_takes_its_kind(mask, kind, shape):
    (band,) = lower(mask, Geometry((2,), 3, 20, 40))
    assert band.kind == kind
    assert (None if band.data is None else band.data.shape) == shape
    assert_lowers([band], rg.Full() if mask is None else mask, Geometry((2,), 3, 20, 40))


def test_rows_that_agree_are_told_once():
    mask = rg.Causal() & rg.KeyLengths([5, 7])
    before, after = lower(mask, Geometry((2,), 1, 16, 20), band_rows=8)
    assert before.data.shape == (2, 1, 8, 1, 2)
    assert after.data.tolist() == [[[[[0, 5]]]], [[[[0, 7]]]]]


def test_an_offset_per_batch_entry_gives_spans_a_leading_axis():
    geometry = Geometry((2, 3), 4, 2, 9, Offsets((2, 1), (0, 5)), rank=5)
    (band,) = lower(rg.Causal(), geometry)
    assert band.data.tolist() == [[[[[[0, 1]], [[0, 2]]]]], [[[[[0, 6]], [[0, 7]]]]]]
    (band,) = lower(rg.Causal() & rg.Prefix(1), geometry)
    assert band.data.shape == (2, 1, 1, 1, 1, 2)


def test_many_ranges_become_bits():
    def stripes(count):
        mask = rg.Empty()
        for k in range(count):
            mask |= rg.KeyLengths(2 * k + 2) & ~rg.KeyLengths(2 * k + 1)
        return mask

    geometry = Geometry((), 1, 3, 40)
    for count, kind in [(_lower.MAX_SPANS, "row"), (_lower.MAX_SPANS + 1, "bits")]:
        bands = list(lower(stripes(count), geometry))
        assert [band.kind for band in bands] == [kind]
        assert_lowers(bands, stripes(count), geometry)


@pytest.mark.parametrize(
    "mask", [rg.Full(), rg.Empty(), rg.Causal(), rg.KeyLengths(0), rg.Dense(np.ones((5, 0), bool))]
)
def test_no_keys_is_a_row_of_no_range(mask):
    (band,) = lower(mask, Geometry((2,), 3, 5, 0))
    assert (band.kind, band.ranges) == ("row", ())


@pytest.mark.parametrize("mask", [rg.Causal(), ~rg.Dense(np.ones((1, 4), bool)), rg.Dense(np.ones((0, 4), bool))])
def test_no_queries_is_no_bands(mask):
    assert list(lower(mask, Geometry((2,), 3, 0, 4))) == []


@pytest.mark.parametrize("mask", [rg.KeyLengths([]), ~rg.Dense(np.ones((0, 1, 3, 4), bool)), rg.Causal()])
def test_an_empty_batch_lowers(mask):
    geometry = Geometry((0,), 2, 3, 4)
    mask.check(geometry)
    (band,) = lower(mask, geometry)
    assert band.rows == slice(0, 3)
    assert decode(band, geometry).shape == geometry.shape


def test_bands_are_cut_at_the_default():
    bands = list(lower(rg.Causal(), Geometry((), 1, 2 * BAND_ROWS + 1, 64)))
    assert [band.rows.stop for band in bands] == [BAND_ROWS, 2 * BAND_ROWS, 2 * BAND_ROWS + 1]


def test_no_mask_is_one_band():
    (band,) = lower(rg.Full(), Geometry((), 1, 2 * BAND_ROWS + 1, 64))
    assert (band.rows, band.kind) == (slice(0, 2 * BAND_ROWS + 1), "full")


def test_a_band_of_bits_stays_under_its_size_and_so_do_temporaries():
    geometry = Geometry((8,), 8, 1024, 8192)
    mask = rg.Causal() & ~rg.Dense(np.arange(64 * 8192).reshape(8, 8, 1, 8192) % 16 == 0)
    tracemalloc.start()
    band = next(lower(mask, geometry))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert band.rows == slice(0, _lower.MAX_BAND_BYTES // (64 * 1024))
    assert band.data.nbytes <= _lower.MAX_BAND_BYTES
    assert peak - band.data.nbytes < 8 << 20
    row = np.unpackbits(band.data[3, 5, 100], bitorder="little").astype(bool)
    np.testing.assert_array_equal(row, (np.arange(8192) <= 100) & (np.arange(8192) % 16 > 0))


LENGTH = 131072


@pytest.mark.alone
@pytest.mark.parametrize(
    "mask",
    [
        rg.Causal(),
        rg.Causal() & rg.Documents(np.sort(np.random.default_rng(0).integers(0, 300, LENGTH))),
        rg.Causal() & rg.Blocks(np.add.outer(np.arange(1024), np.arange(1024)) % 700 < 300, 128),
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
    band = next(lower(rg.Documents(ids), Geometry((), 1, LENGTH, LENGTH)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (band.kind, band.data.shape) == ("bits", (1, BITS_ROWS, LENGTH // 8))
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

    return rg.from_function(function)


@pytest.mark.parametrize("most", [8, 100, 4096])
@pytest.mark.parametrize("use", ["lower", "materialize", "picture"])
def test_a_function_is_asked_for_bounded_blocks(most, use, monkeypatch):
    def answer(b, h, p, j):
        return (p + j) % 3 > 0

    monkeypatch.setattr(_evaluate, "MAX_CHUNK_PAIRS", most)
    sizes, geometry = [], Geometry((), 1, 70, 301, 240, rank=2)
    mask, plain = rg.Causal() & recorded(sizes, answer), rg.Causal() & rg.from_function(answer)
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

    mask = rg.Causal() & rg.from_function(moody)
    with pytest.raises(rg.MaskError) as error:
        list(lower(mask, Geometry((2,), 1, 10, 3), band_rows=4))
    assert "from_function(moody) tells batch entries or heads apart in rows 4 ... 7, but not in row 4 alone" in str(
        error.value
    )


@pytest.mark.parametrize("keys", [0, 1, 63, 64, 65, 300])
def test_runs_are_found_in_pieces_as_in_one(monkeypatch, keys):
    rng = np.random.default_rng(keys)
    tables = [np.cumsum(rng.random((5, 1, 3, keys)) < share, axis=-1) % 2 == 1 for share in (0, 0.01, 0.03, 0.2)]
    tables += [~table[:, :, ::-1] for table in tables] + [tables[1].T.copy().T, tables[1][:0]]
    whole = [runs_of(table) for table in tables]
    monkeypatch.setattr(_spans, "_PIECE", 1)
    for table, want in zip(tables, whole, strict=True):
        got = runs_of(table)
        turns = np.count_nonzero(np.diff(table, axis=-1, prepend=False, append=False), axis=-1).max(initial=0)
        assert (got is None) == (want is None) == (turns > 2 * _spans.MAX_SPANS)
        if got is not None:
            assert_same_bits(got, want)
            assert np.array_equal(RowSpans.from_edges(got, keys).to_dense(), table)


def test_spans_end_where_a_row_has_too_many(monkeypatch):
    """And begin again after the bits."""
    monkeypatch.setattr(_lower, "MAX_SPANS", 1)
    monkeypatch.setattr(_lower, "BITS_ROWS", 2)
    monkeypatch.setattr(_evaluate, "MAX_PIECE_ROWS", 2)
    geometry = Geometry((), 1, 10, 10)
    mask = rg.Causal() & (rg.Window(left=1) | rg.Prefix(2) & ~rg.Prefix(1) | rg.Prefix(6) & ~rg.Prefix(5))
    bands = list(lower(mask, geometry))
    assert_lowers(bands, mask, geometry)
    assert [(band.kind, band.rows.stop) for band in bands] == [("spans", 4), ("bits", 6), ("bits", 8), ("bits", 10)]
