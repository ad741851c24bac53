"""Packed sequences: each is a call of its own, bit for bit."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from judges import assert_same_bits, refused
from regard import _engine

LENGTHS = [5, 0, 1, 130, 64, 0]
X = np.ones((2, 6, 4), np.float32)


def begins(lengths):
    return np.cumsum([0, *lengths])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mask": rg.Causal() & rg.Window(left=20)},
        {"mask": rg.Causal(), "bias": rg.Alibi(4), "softcap": 5.0, "sinks": np.ones(4, np.float32)},
        {"mask": rg.Prefix(3), "scale": 2.0},
    ],
    ids=["plain", "window", "alibi", "prefix"],
)
def test_each_sequence_has_the_bits_of_its_own_call(target, normal, options):
    total = sum(LENGTHS)
    q, k, v = normal(4, total, 8), normal(2, total, 8), normal(2, total, 5)
    got = rg.varlen_attention(q, k, v, begins(LENGTHS), **options)
    for a, b in itertools.pairwise(begins(LENGTHS)):
        assert_same_bits(got[:, a:b], rg.attention(q[:, a:b], k[:, a:b], v[:, a:b], **options))


def test_other_numbers_of_keys(target, normal):
    q, k = normal(2, sum(LENGTHS), 8), normal(2, 60, 8)
    keys = [10, 7, 0, 20, 3, 20]
    options = {"mask": rg.Causal(), "q_offset": "end"}
    got = rg.varlen_attention(q, k, k, begins(LENGTHS), begins(keys), **options)
    at = zip(itertools.pairwise(begins(LENGTHS)), itertools.pairwise(begins(keys)), strict=True)
    for (a, b), (c, d) in at:
        assert_same_bits(got[:, a:b], rg.attention(q[:, a:b], k[:, c:d], k[:, c:d], **options))
    assert (got[:, 5:6] == 0).all()  # a query without keys


def test_packing_of_others_is_a_view(target, normal):
    x = normal(20, 3, 8)
    packed = rg.varlen_attention(*(x.swapaxes(0, 1),) * 3, [0, 8, 20])
    assert_same_bits(packed[:, 8:], rg.attention(*(x[8:].swapaxes(0, 1),) * 3))


def test_garbage_of_a_neighbour_stays_there(target, normal):
    q, k, v = normal(2, 30, 8), normal(2, 30, 8), normal(2, 30, 8)
    clean = rg.varlen_attention(q, k, v, [0, 12, 30])
    k[:, 12:], v[:, 12:] = np.nan, np.inf
    assert_same_bits(rg.varlen_attention(q, k, v, [0, 12, 30])[:, :12], clean[:, :12])


def test_all_sequences_are_checked_before_one_is_computed(monkeypatch):
    computed = []
    monkeypatch.setattr(_engine.Prepared, "run", lambda call, *arrays: computed.append(arrays))
    rg.varlen_attention(X, X, X, [0, 3, 6])
    assert len(computed) == 2
    computed.clear()
    with pytest.raises(rg.AlignmentError):
        rg.varlen_attention(X, X[:, :5], X[:, :5], [0, 3, 6], [0, 3, 5], mask=rg.Causal())
    assert computed == []


@settings(max_examples=40)
@given(lengths=st.lists(st.integers(0, 9), max_size=6), seed=st.integers(0, 99))
def test_as_the_mask_of_documents(lengths, seed):
    """The same set of pairs as one call with Documents, within rounding."""
    x = np.random.default_rng(seed).standard_normal((2, sum(lengths), 4), dtype=np.float32)
    ids = np.repeat(np.arange(len(lengths)), lengths)
    got = rg.varlen_attention(x, x, x, begins(lengths), mask=rg.Causal())
    want = rg.attention(x, x, x, mask=rg.Causal() & rg.Documents(ids))
    assert np.abs(got - want).max(initial=0) < 1e-5


BAD = {
    "rank": (lambda: rg.varlen_attention(X[None], X, X, [0, 6]), rg.ShapeError, "three axes, (H, T, D)"),
    "values": (lambda: rg.varlen_attention(X, X, np.concatenate([X, X], 1), [0, 6]), rg.ShapeError, "value has 12"),
    "short": (lambda: rg.varlen_attention(X, X, X, [0, 5]), rg.ShapeError, "from 0 to 5, ascending, and query has 6"),
    "order of axes": (
        lambda: rg.varlen_attention(*[X.swapaxes(0, 1)] * 3, [0, 6]), rg.ShapeError, "pass query.swapaxes(0, 1)",
    ),
    "start": (lambda: rg.varlen_attention(X, X, X, [1, 6]), rg.ShapeError, "runs from 1 to 6"),
    "back": (lambda: rg.varlen_attention(X, X, X, [0, 4, 3, 6]), rg.ShapeError, "not ascending"),
    "lengths": (lambda: rg.varlen_attention(X, X, X, [2, 4]), rg.ShapeError, "np.cumsum([0, *lengths])"),
    "floats": (lambda: rg.varlen_attention(X, X, X, [0.0, 6.0]), rg.ShapeError, "holds integers"),
    "none": (lambda: rg.varlen_attention(X, X, X, []), rg.ShapeError, "holds integers"),
    "ragged": (lambda: rg.varlen_attention(X, X, X, [[0], [1, 2]]), rg.ShapeError, "holds integers"),
    "keys": (lambda: rg.varlen_attention(X, X[:, :5], X[:, :5], [0, 6]), rg.ShapeError, "begin with cu_seqlens_k="),
    "other keys": (
        lambda: rg.varlen_attention(X, X[:, :5], X[:, :5], [0, 6], [0, 6]), rg.ShapeError, "key has 5 rows",
    ),
    "array": (
        lambda: rg.varlen_attention(X, X, X, [0, 3, 6], mask=np.tri(3, dtype=bool)), rg.MaskError, "rg.Documents(ids)",
    ),
    "lengths of keys": (
        lambda: rg.varlen_attention(X, X, X, [0, 3, 6], mask=rg.Causal() & ~rg.KeyLengths(2)), rg.MaskError, "from 0",
    ),
    "bias array": (
        lambda: rg.varlen_attention(X, X, X, [0, 3, 6], bias=np.ones((3, 3))), rg.ShapeError, "rg.Alibi(heads)",
    ),
    "counts": (lambda: rg.varlen_attention(X, X, X, [0, 6], [0, 2, 6]), rg.ShapeError, "cu_seqlens_k of 2"),
    "align": (
        lambda: rg.varlen_attention(X, X, X, [0, 3, 6], [0, 1, 6], mask=rg.Causal()), rg.AlignmentError, "start",
    ),
    "checked": (lambda: rg.varlen_attention(X[:, :0], X[:, :0], X[:, :0], [0], scale="x"), rg.UnsupportedError, "'x'"),
    "peer": (lambda: rg.varlen_attention(X, X, X, [0, 6], causal=True), TypeError, "mask=rg.Causal()"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_refusals(case):
    call, error, words = case
    refused(error, words, call=call)
