"""Judges of spans and of bands: each one asserts, and the tests that use it show that it can say no."""

from itertools import pairwise

import numpy as np

from masks_random import assert_same, formula


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


def decode_row(band, shape):
    """A row of edges, which are checked."""
    edges, keys = [-1, *band.ranges, shape[-1] + 1], np.zeros(shape[-1], bool)
    assert len(band.ranges) % 2 == 0
    assert band.ranges != (0, shape[-1]), "a full band that does not say so"
    assert all(type(edge) is int for edge in band.ranges)
    assert all(a < b for a, b in pairwise(edges)), "ranges out of order, empty, or touching"
    for begin, end in zip(band.ranges[::2], band.ranges[1::2], strict=True):
        keys[begin:end] = True
    return np.broadcast_to(keys, shape)


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
    if band.kind == "row":
        assert band.data is None
        return decode_row(band, shape)
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
