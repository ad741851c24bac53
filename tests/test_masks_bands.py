"""Bands in the engine: bounded whatever the number of heads, and lowered once."""

import tracemalloc

import numpy as np
import pytest

import regard as rg
from judges import assert_same_bits
from regard import _engine
from regard._types import Geometry, Offsets
from regard.masks import _evaluate, _lower
from regard.masks._lower import lower

MASKS = {
    "function": rg.from_function(lambda b, h, p, j: (b + 2 * h + p + j) % 3 > 0),
    "bits": rg.Causal() & rg.Dense(np.random.default_rng(5).random((2, 4, 90, 150)) < 0.4),
    "spans": rg.Causal() & ~rg.PerHead([rg.Window(left=n) for n in (3, 9, 20, 50)]),
    "both": rg.Causal() | rg.Dilated(3),
}


@pytest.mark.parametrize("name", MASKS)
def test_bands_of_any_height_give_the_same_bits(target, normal, monkeypatch, name):
    q, k, v = normal(2, 4, 90, 16), normal(2, 2, 150, 16), normal(2, 2, 150, 8)
    want = rg.attention_forward(q, k, v, mask=MASKS[name], q_offset=60)
    weights = want.weights[...]
    _engine._prepared.clear()
    for most, piece in ((1, 1), (2000, 100), (20_000, 300)):
        monkeypatch.setattr(_lower, "MAX_BAND_BYTES", most)
        monkeypatch.setattr(_evaluate, "MAX_PIECE_ROWS", piece)
        got = rg.attention_forward(q, k, v, mask=MASKS[name], q_offset=60)
        assert_same_bits(got.out, want.out)
        assert_same_bits(got.lse, want.lse)
        assert_same_bits(got.weights[...], weights)
        _engine._prepared.clear()


def peak(work):
    tracemalloc.start()
    band = work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return band, most


@pytest.mark.parametrize(("batch", "heads", "keys"), [(16, 16, 131072), (1, 1024, 65536), (1024, 1, 32768)])
def test_bits_of_many_planes_are_bounded(batch, heads, keys):
    """16 rows of 256 heads of 131072 keys were 67 MB."""
    mask, geometry = rg.from_function(lambda b, h, p, j: (b + h + p + j) % 2 == 0), Geometry((batch,), heads, 64, keys)
    band, most = peak(lambda: next(lower(mask, geometry)))
    assert band.kind == "bits"
    assert band.data.nbytes <= _lower.MAX_BAND_BYTES
    assert 2 * band.data.nbytes > _lower.MAX_BAND_BYTES
    assert most - band.data.nbytes < 32 << 20  # of which the function's own int64 take 8 for each pair


@pytest.mark.parametrize("batch", [1, 4096, 32768])
@pytest.mark.parametrize(
    "mask",
    [
        rg.Causal() & rg.Window(left=100),
        rg.Causal() & ~rg.Window(left=3),  # no range in the first rows
        rg.Causal() & (rg.Window(left=100) | rg.Prefix(4)),
    ],
)
def test_spans_of_many_batch_entries_are_bounded(mask, batch):
    """1024 rows of 4096 entries took 164 MB."""
    geometry = Geometry((batch,), 1, 1024, 1024, Offsets((batch,), tuple(range(batch))))
    band, most = peak(lambda: next(lower(mask, geometry)))
    assert band.kind == "spans"
    assert band.data.nbytes <= _lower.MAX_BAND_BYTES
    assert band.rows.stop == 1024 or 3 * band.data.nbytes > _lower.MAX_BAND_BYTES
    # The band, what it is joined from, and what & and ~ need meanwhile: four bands; NumPy 1.26 takes up to 4.2.
    assert most < 5 * _lower.MAX_BAND_BYTES


def test_a_range_that_appears_late_does_not_burst_the_band(monkeypatch):
    monkeypatch.setattr(_lower, "MAX_BAND_BYTES", 100 * 16)
    monkeypatch.setattr(_evaluate, "MAX_PIECE_ROWS", 7)
    table = np.zeros((20, 16), bool)
    table[:, 0], table[6:, ::2] = True, True
    mask, geometry = rg.Blocks(table, (10, 4)), Geometry((), 1, 200, 64)
    bands = list(lower(mask, geometry))
    assert {band.kind for band in bands} == {"spans"}
    assert max(band.data.nbytes for band in bands) <= 100 * 16
    assert sum(band.rows.stop - band.rows.start for band in bands) == 200


@pytest.fixture
def lowered(monkeypatch):
    """Bands that the engine made."""
    made = []

    def recorded(*arguments):
        for band in lower(*arguments):
            made.append(band)
            yield band

    monkeypatch.setattr(_engine, "lower", recorded)
    _engine._prepared.clear()
    return made


def call(mask, queries, keys):
    x = np.ones((queries, 1), np.float32)
    return rg.attention(x, np.ones((keys, 1), np.float32), np.ones((keys, 1), np.float32), mask=mask, q_offset="end")


def test_a_large_mask_is_lowered_once_for_each_call(lowered):
    mask = rg.Causal() & rg.Dilated(2)
    for calls in (1, 2):
        call(mask, 512, 32768)
        assert [band.rows for band in lowered] == [slice(0, 512)] * calls


@pytest.mark.parametrize(
    ("kind", "queries", "keys", "bands"),
    [(rg.Window, 100, 3000, 1), (rg.Window, 2500, 3000, 1), (rg.Dilated, 2500, 120, 3)],
)
def test_a_small_mask_is_lowered_once_for_all_calls(lowered, kind, queries, keys, bands):
    for _ in range(3):
        call(rg.Causal() & kind(50), queries, keys)
        assert len(lowered) == bands
    call(rg.Causal() & kind(51), queries, keys)
    assert len(lowered) == 2 * bands


def test_a_small_mask_over_many_heads_is_not_kept(lowered):
    """Where each head begins in a band takes 8 bytes: 64 calls over a million heads kept 535 MB."""
    x = np.ones((_engine.MAX_KEPT_BYTES // 8, 2, 1), np.float32)
    for heads, bands in ((len(x) - 4, 1), (len(x), 3)):
        for _ in range(2):
            rg.attention(*[x[:heads]] * 3, mask=rg.Causal())
        assert len(lowered) == bands


@pytest.mark.parametrize("wrap", [lambda mask: mask, lambda mask: ~~mask, lambda mask: rg.Causal() & mask])
def test_a_mask_that_may_change_is_lowered_for_each_call(lowered, wrap):
    array = np.ones((100, 3000), bool)
    mask = wrap(rg.Dense(array))
    call(mask, 100, 3000)
    array[:, 1:] = False
    assert call(mask, 100, 3000).tolist() == [[1.0]] * 100
    array[...] = False
    assert call(mask, 100, 3000).tolist() == [[0.0]] * 100
    assert len(lowered) == 3
