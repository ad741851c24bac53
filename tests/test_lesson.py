"""The worked example of the lesson, to six digits, on every target and on both references."""

import numpy as np
import pytest

import regard as rg

KEY = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], np.float32)
VALUE = np.array([[1, 0], [0, 1], [1, 1]], np.float32)
QUERY = np.array([[1, 0, 1, 0]], np.float32)
FORWARDS = {
    "engine": rg.attention,
    "reference": rg.reference.attention,
    "online": lambda *a, **o: rg.reference.online_attention(*a, block_rows=2, block_keys=1, **o),
}


@pytest.fixture(params=FORWARDS)
def forward(request, target):
    return FORWARDS[request.param]


def close(got, want):
    np.testing.assert_allclose(got, want, atol=6e-7)


def test_two_keys_share_equally(forward):
    close(forward(QUERY, KEY[:2], VALUE[:2]), [[0.5, 0.5]])


def test_three_keys(forward):
    close(forward(QUERY, KEY, VALUE), [[0.725931, 0.725931]])


@pytest.mark.parametrize(
    ("scale", "out"),
    [(1, 0.788058), (1 / 4, 0.695496), (1 / np.sqrt(8), 0.707954), (2, 0.893493), (0, 2 / 3)],
)
def test_other_scales_are_told_apart(forward, scale, out):
    close(forward(QUERY, KEY, VALUE, scale=scale), [[out, out]])


def test_weights_and_lse(target):
    res = rg.attention_forward(QUERY, KEY, VALUE)
    close(res.weights[...], [[0.274069, 0.274069, 0.451863]])
    close(res.lse, [1.794377])
    want = rg.reference.attention_forward(QUERY, KEY, VALUE)
    close(want.weights, [[0.274069, 0.274069, 0.451863]])
    close(want.lse, [1.794377])


def test_two_dimensional_call(forward):
    """A seed-style call: three tokens, no batch, no heads."""
    out = forward(KEY, KEY, VALUE)
    assert out.shape == (3, 2)
    close(out, [[0.813676, 0.493520], [0.493520, 0.813676], [0.725931, 0.725931]])


def test_tril_as_mask(forward):
    """A seed-style call: np.tril is the causal mask."""
    want = [[1, 0], [0.268941, 0.731059], [0.725931, 0.725931]]
    close(forward(KEY, KEY, VALUE, mask=np.tril(np.ones((3, 3), bool))), want)
    close(forward(KEY, KEY, VALUE, mask=rg.Causal()), want)


def test_hide_a_key_before_the_softmax(forward):
    close(forward(QUERY, KEY, VALUE, mask=rg.KeyLengths(2)), [[0.5, 0.5]])


def test_two_heads(forward):
    heads = [x.reshape(3, 2, 2).swapaxes(0, 1) for x in (KEY, KEY)]
    query = QUERY.reshape(1, 2, 2).swapaxes(0, 1)
    value = VALUE.T[:, :, None]
    close(forward(query, heads[0], value)[:, 0, 0], [0.802224, 0.802224])
    close(forward(query, heads[0][:, :2], value[:, :2])[:, 0, 0], [0.669762, 0.669762])


def test_merging_halves(target):
    left = rg.attention_forward(QUERY, KEY[:2], VALUE[:2], aux=rg.Aux(state=True)).state
    right = rg.attention_forward(QUERY, KEY[2:], VALUE[2:], aux=rg.Aux(state=True)).state
    close(left.lse, [1.193147])
    close(right.lse, [1.0])
    both = rg.merge_states(left, right)
    close(both.out, [[0.725931, 0.725931]])
    close(both.lse, [1.794377])


def test_grouped_heads_read_their_own_kv_head(forward):
    """4 query heads, 2 kv heads: 0, 0, 1, 1 and not 0, 1, 0, 1."""
    query, key = np.ones((4, 1, 2), np.float32), np.ones((2, 3, 2), np.float32)
    value = np.arange(2, dtype=np.float32).reshape(2, 1, 1).repeat(3, 1)
    assert forward(query, key, value)[:, 0, 0].tolist() == [0, 0, 1, 1]


def test_eight_equal_keys_have_natural_lse(target):
    ones = np.ones((8, 4), np.float32)
    close(rg.attention_forward(ones[:1], ones, ones, scale=0).lse, [np.log(8)])


def test_animal_not_street(forward):
    query, key = [[2, 1, 0, 0]], [[2, 1, 0, 0], [0, 1, 2, 0], [0, 0, 0, 2]]
    got = forward(np.float32(query), np.float32(key), np.eye(3, dtype=np.float32))
    close(got, [[0.821409, 0.111166, 0.067425]])
    got = forward(np.float32(query), np.float32(key), np.eye(3, dtype=np.float32), scale=1)
    close(got, [[0.975559, 0.017868, 0.006573]])


def test_large_logits_do_not_overflow(forward):
    query = np.float32([[1]])
    got = forward(query, np.float32([[100], [101], [102]]), np.eye(3, dtype=np.float32), scale=1)
    close(got, [[0.090031, 0.244728, 0.665241]])
