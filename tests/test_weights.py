"""Weights on demand: any block, the same numbers, rows that sum to one."""

import numpy as np
import pytest

import regard as rg
from judges import assert_same_bits


@pytest.fixture
def result(target, normal):
    return rg.attention_forward(
        normal(2, 4, 90, 16), normal(2, 2, 410, 16), normal(2, 2, 410, 3), mask=rg.Causal(), q_offset=300
    )


INDICES = [
    np.s_[...],
    np.s_[1],
    np.s_[1, 3],
    np.s_[0, 2, 5],
    np.s_[0, 2, 5, 17],
    np.s_[:, 1, 60:70, 190:200],
    np.s_[-1, -1, -1, -200:-100],
    np.s_[..., 3],
    np.s_[::-1, ::2, 10:20],
    np.s_[0, ..., 5:5, :],
    np.s_[0, 0, 80:, 300:1000],
    np.s_[np.int64(1), 0],
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_blocks_are_blocks_of_the_whole(result, index):
    whole = result.weights[...]
    assert_same_bits(result.weights[index], whole[index])


def test_rows_sum_to_one_and_masked_pairs_are_zero(result):
    weights = result.weights[...]
    np.testing.assert_allclose(weights.sum(-1, dtype=np.float64), 1, atol=1e-6)
    keep = np.tri(90, 410, 300, dtype=bool)
    assert (weights[..., ~keep] == 0).all()


def test_weights_times_value_is_the_output(target, normal):
    q, k, v = normal(4, 50, 16), normal(4, 60, 16), normal(4, 60, 3)
    result = rg.attention_forward(q, k, v)
    np.testing.assert_allclose(result.weights[...] @ v.astype(np.float64), result.out, atol=1e-6)


@pytest.mark.parametrize("size", [1e3, 1e7])
def test_large_scores_keep_their_row_sums(target, normal, size):
    """The logsumexp of such a row has lost log(sum) to rounding; maximum and sum have not."""
    q = np.full((1, 1), size, np.float32)
    k = np.float32([[1], [1], [1], [0.5]])
    result = rg.attention_forward(q, k, k, scale=1)
    np.testing.assert_allclose(result.weights[0], [1 / 3, 1 / 3, 1 / 3, 0], rtol=1e-6)


def test_two_dimensional_weights(target, normal):
    q, k = normal(5, 8), normal(9, 8)
    weights = rg.attention_forward(q, k, k).weights
    assert weights.shape == (5, 9)
    assert "(5, 9)" in repr(weights)
    assert_same_bits(weights[2], weights[...][2])
    assert weights[2, 3].shape == ()
    assert_same_bits(weights[2, 3], weights[...][2, 3])
    assert_same_bits(np.asarray(weights), weights[...])
    assert np.asarray(weights, np.float64).dtype == np.float64


def test_a_block_of_a_long_problem_is_cheap(target):
    """Asking for 10 x 10 of a 200,000 x 200,000 matrix allocates nothing of its size."""
    x = np.broadcast_to(np.float32(0.5), (4, 200_000, 8))
    with rg.config(target=target, num_threads=1):
        short = rg.attention_forward(x[:, :10], x, x[:, :, :1])
    assert short.weights.shape == (4, 10, 200_000)
    block = short.weights[3, 2:4, 150_000:150_010]
    np.testing.assert_allclose(block, 1 / 200_000, rtol=1e-5)
