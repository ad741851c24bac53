"""Biases against the dense arrays that the models of transformers build."""

import numpy as np
import pytest
import torch
from transformers import T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

import regard as rg
from judges import assert_same_bits


@pytest.mark.parametrize("decoder", [False, True])
@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (8, 20), (64, 500), (12, 77)])
def test_t5_bias_is_that_of_t5(decoder, buckets, furthest):
    torch.manual_seed(0)
    config = T5Config(
        d_model=16, d_kv=4, num_heads=4, relative_attention_num_buckets=buckets,
        relative_attention_max_distance=furthest, is_decoder=decoder,
    )  # fmt: skip
    layer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    with torch.no_grad():
        want = layer.compute_bias(700, 700)[0].numpy()
        table = layer.relative_attention_bias.weight.detach().numpy()
    bias = rg.T5Bias(table, bidirectional=not decoder, max_distance=furthest)
    assert_same_bits(bias.materialize(700, 700, heads=4), want)


@pytest.mark.parametrize("heads", [1, 2, 8, 12, 16, 20])
def test_alibi_is_blooms_under_a_causal_mask(heads):
    """Bloom adds slope * j, which differs from slope * (j - p) by a constant of each row."""
    want = build_alibi_tensor(torch.ones(1, 50), heads, torch.float32).numpy()
    rows = rg.Alibi(heads).materialize(50, 50, heads=heads).reshape(heads, 50, 50)
    moved = rows - rows[..., :1]
    lower = np.tril(np.ones((50, 50), bool))
    np.testing.assert_allclose(
        np.where(lower, moved, 0), np.where(lower, want, 0), rtol=1e-6, atol=2**-17
    )  # 50 * 0.7, rounded


def test_attention_with_alibi_is_that_of_torch_with_the_dense_array():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 4, 60, 8), dtype=np.float32) for _ in range(3))
    i, j = np.arange(60)[:, None], np.arange(60)
    slopes = torch.tensor([0.25, 0.0625, 0.015625, 0.00390625])
    dense = -slopes[:, None, None] * torch.tensor(np.abs(i - j))
    want = torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, (q, k, v)), attn_mask=dense)
    assert np.abs(rg.attention(q, k, v, bias=rg.Alibi(4)) - want.numpy()).max() < 1e-6
