"""`config(row_invariant=False)`: one query row may be added in another order; errors, laws and all other calls stay."""

from __future__ import annotations

import numpy as np
import pytest

import regard as rg
from judges import assert_close, assert_same_bits, refused
from regard.numerics import forward_bounds

FREE = ("avx2", "avx512", "avx512_bf16")  # the targets that have another order


def free(*arrays, **options):
    with rg.config(row_invariant=False):
        return rg.attention(*arrays, **options)


def decoding(normal, heads, keys, d, dv=16):
    return normal(heads, 1, d), normal(heads, keys, d), normal(heads, keys, dv)


def test_it_is_another_order(target, normal):
    arrays = decoding(normal, 4, 500, 128)
    assert (free(*arrays) != rg.attention(*arrays)).any() == (target in FREE)


@pytest.mark.parametrize("keys", [1, 15, 16, 17, 95, 96, 97, 300])
@pytest.mark.parametrize("d", [8, 16, 48, 64, 128, 144, 512, 528])
def test_within_the_bound(target, normal, keys, d):
    q, k, v = decoding(normal, 2, keys, d)
    want = rg.reference.attention_forward(q, k, v)
    for head, got in enumerate(free(q, k, v)):
        bounds = forward_bounds(
            q[head], k[head], v[head], want.weights[head], scale=d**-0.5, tile_keys=96 if d <= 256 else 48
        )
        assert_close(got, want.out[head], bounds.out)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "queries"),
    [(2, 2, 97), (2, 2, 193), (97, 1, 1), (194, 2, 1), (2, 2, 2), (2, 1, 1)],
)
def test_rows_in_company_keep_their_bits(target, normal, heads, kv_heads, queries):
    """Also the last of 97, which is the only one in its block."""
    arrays = normal(heads, queries, 64), normal(kv_heads, 300, 64), normal(kv_heads, 300, 16)
    assert_same_bits(free(*arrays), rg.attention(*arrays))
    causal = {"mask": rg.Causal(), "q_offset": "end"}
    assert_same_bits(free(*arrays, **causal), rg.attention(*arrays, **causal))


def test_batch_entries_that_share_their_keys_keep_their_bits(target, normal):
    q, k, v = normal(97, 1, 64), *(np.broadcast_to(normal(1, 300, 64), (97, 300, 64)) for _ in range(2))
    assert_same_bits(free(q, k, v), rg.attention(q, k, v))


OPTIONS = {
    "mask": lambda: {"mask": rg.Window(left=300) & ~rg.Prefix(500), "q_offset": "end"},
    "array": lambda: {"mask": np.random.default_rng(1).random((1, 700)) < 0.5},
    "bias": lambda: {"bias": rg.Alibi(3), "softcap": 3.0, "q_offset": "end"},
    "sinks": lambda: {"sinks": np.float32([0.3, -1, 2])},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_with_options(target, normal, options):
    q, k, v = decoding(normal, 3, 700, 64)
    assert_close(free(q, k, v, **options()), rg.attention(q, k, v, **options()), 2e-6)


def test_threads_and_batch_change_nothing(target, normal):
    q, k, v = decoding(normal, 3, 20_000, 64)
    whole = free(q, k, v)
    for threads in (1, 2, 5):
        with rg.config(num_threads=threads):
            assert_same_bits(free(q, k, v), whole)
    for head in range(3):
        assert_same_bits(free(q[head], k[head], v[head]), whole[head])


def test_a_hidden_key_changes_nothing(target, normal):
    q, k, v = decoding(normal, 2, 200, 64)
    mask = (np.arange(200) % 7 != 3)[None]
    want = free(q, k, v, mask=mask)
    k[:, ~mask[0]], v[:, ~mask[0]] = np.nan, np.inf
    assert_same_bits(free(q, k, v, mask=mask), want)
    k[:, 0] = np.nan
    assert np.isnan(free(q, k, v, mask=mask)).all()


def others(normal):
    q, k, v = decoding(normal, 4, 200, 64)
    yield "grouped heads", (q, k[:2], v[:2])
    yield "two rows", (normal(4, 2, 64), k, v)
    yield "D that fills no vector", (q[..., :60], k[..., :60], v)
    yield "D over 512", decoding(normal, 2, 200, 528)
    yield "float64", tuple(x.astype(np.float64) for x in (q, k, v))
    yield "float16", tuple(x.astype(np.float16) for x in (q, k, v))


def test_all_other_calls_have_the_same_bits(target, normal):
    for what, arrays in others(normal):
        assert (free(*arrays) == rg.attention(*arrays)).all(), what


def test_what_is_more_than_the_output_is_invariant(target, normal):
    q, k, v = decoding(normal, 2, 500, 128)
    with rg.config(row_invariant=False):
        got = rg.attention_forward(q, k, v, aux=rg.Aux(lse=True, state=True))
    want = rg.attention_forward(q, k, v, aux=rg.Aux(lse=True, state=True))
    for a, b in ((got.out, want.out), (got.lse, want.lse), (got.weights[:], want.weights[:])):
        assert_same_bits(a, b)


def test_the_innermost_setting_counts(target, normal):
    arrays = decoding(normal, 4, 500, 128)
    want = rg.attention(*arrays)
    with rg.config(row_invariant=False):
        with rg.config(row_invariant=True, num_threads=1):
            assert_same_bits(rg.attention(*arrays), want)
        with rg.config(num_threads=1):
            assert (rg.attention(*arrays) != want).any() == (target in FREE)


def test_it_must_be_a_bool():
    refused(rg.UnsupportedError, "row_invariant is 0; it is True or False", call=rg.config, row_invariant=0)
