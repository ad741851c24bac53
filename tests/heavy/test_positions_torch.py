"""Rotations against those of transformers' Llama, GPT-NeoX, GPT-J and RoFormer, and scaled frequencies.

They compute angles in float32, so each is given what that costs: two roundings of position times frequency.
"""

import numpy as np
import pytest
import torch
from transformers import GPTJConfig, GPTNeoXConfig, LlamaConfig
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.roformer import modeling_roformer as roformer
from transformers.models.whisper import modeling_whisper as whisper

import regard as rg
from judges import assert_close, assert_same_bits
from regard.positions import rotary_frequencies

B, H, S, D = 2, 3, 40, 64
IDS = np.stack([np.arange(S), 900 + 3 * np.arange(S)])
U = 2.0**-24


def bound(x, dim, interleaved, rates=None, factor=1.0):
    """Two roundings of the angle, and of each product three by us and four by them."""
    rates = rotary_frequencies(dim) if rates is None else rates
    angle = IDS[:, None, :, None] * np.abs(rates) * 3 * U
    pairs = [x[..., 0:dim:2], x[..., 1:dim:2]] if interleaved else [x[..., : dim // 2], x[..., dim // 2 : dim]]
    each = factor * sum(map(abs, pairs)) * (angle + 8 * U)
    turned = np.repeat(each, 2, axis=-1) if interleaved else np.concatenate([each, each], axis=-1)
    return np.concatenate([turned, np.zeros((*x.shape[:-1], x.shape[-1] - dim))], axis=-1)


def both(module, x, cos, sin):
    return module.apply_rotary_pos_emb(torch.tensor(x), torch.tensor(x), cos, sin)[0].numpy()


@pytest.fixture
def x():
    return np.random.default_rng(20261129).standard_normal((B, H, S, D), dtype=np.float32)


def llama_rotary(**rope):
    config = LlamaConfig(hidden_size=H * D, num_attention_heads=H, max_position_embeddings=8192, rope_parameters=rope)
    return llama.LlamaRotaryEmbedding(config)


def test_llama(x):
    rotary = llama_rotary(rope_type="default", rope_theta=10000.0)
    want = both(llama, x, *rotary(torch.tensor(x), torch.tensor(IDS)))
    assert_close(rg.rotary_embedding(x, IDS), want, bound(x, D, False))
    with pytest.raises(AssertionError, match="of the bound"):
        assert_close(rg.rotary_embedding(x, IDS, interleaved=True), want, bound(x, D, False))


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 1024,
        },
    ],
    ids=lambda rope: rope["rope_type"],
)
def test_scaled_variants_are_other_frequencies(x, rope):
    rotary = llama_rotary(rope_theta=10000.0, **rope)
    rates, factor = rotary.inv_freq.numpy(), float(rotary.attention_scaling)
    assert (factor != 1) == (rope["rope_type"] == "yarn")
    want = both(llama, x, *rotary(torch.tensor(x), torch.tensor(IDS)))
    got = rg.rotary_embedding(x, IDS, frequencies=rates, attention_factor=factor)
    assert_close(got, want, bound(x, D, False, rates, factor))
    if rope["rope_type"] == "linear":
        linear = rg.rotary_embedding(x, IDS, frequencies=rotary_frequencies(D) / 4)
        assert_close(linear, want, bound(x, D, False, rates, factor))


def test_partial_rotation_of_gpt_neox(x):
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}
    config = GPTNeoXConfig(hidden_size=H * D, num_attention_heads=H, rope_parameters=rope)
    want = both(neox, x, *neox.GPTNeoXRotaryEmbedding(config)(torch.tensor(x), torch.tensor(IDS)))
    got = rg.rotary_embedding(x, IDS, dim=16)
    assert_close(got, want, bound(x, 16, False))
    assert np.array_equal(got[..., 16:], x[..., 16:])


def test_interleaved_pairs_of_gptj(x):
    rotary = gptj.GPTJRotaryEmbedding(GPTJConfig(n_embd=H * D, n_head=H, rotary_dim=32, n_positions=2048))
    rows = torch.tensor(x).transpose(1, 2)  # theirs is (B, S, H, D)
    turned = gptj.apply_rotary_pos_emb(rows[..., :32], *rotary(rows, torch.tensor(IDS)))
    want = torch.cat([turned, rows[..., 32:]], dim=-1).transpose(1, 2).numpy()
    assert_close(rg.rotary_embedding(x, IDS, dim=32, interleaved=True), want, bound(x, 32, True))


def test_interleaved_pairs_of_roformer(x):
    """Its table is that of the sinusoids in halves."""
    table = np.stack([rg.sinusoidal_positions(row, D, interleaved=False) for row in IDS])[:, None]
    apply = roformer.RoFormerSelfAttention.apply_rotary_position_embeddings
    want = apply(torch.tensor(table), torch.tensor(x), torch.tensor(x))[0].numpy()
    assert_close(rg.rotary_embedding(x, IDS, interleaved=True), want, bound(x, D, True))


def test_sinusoids_of_roformer():
    theirs = roformer.RoFormerSinusoidalPositionalEmbedding(64, 32)
    theirs.weight.data.copy_(theirs.create_weight())
    got = rg.sinusoidal_positions(np.arange(64), 32, interleaved=False)
    np.testing.assert_allclose(got, theirs.weight.detach().numpy(), atol=2.0**-23)


def test_sinusoids_of_whisper():
    want = whisper.sinusoids(1500, 384).numpy()
    rates = 10000.0 ** (-np.arange(192) / 191)
    got = rg.sinusoidal_positions(np.arange(1500), 384, frequencies=rates, interleaved=False)
    assert_close(got, want, np.arange(1, 1501)[:, None] * 2 * U)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_sinusoids_take_torchs_names_of_dtypes(dtype):
    got = rg.sinusoidal_positions(np.arange(5), 6, dtype=getattr(torch, dtype))
    assert got.dtype.name == dtype
    assert_same_bits(got, rg.sinusoidal_positions(np.arange(5), 6, dtype=got.dtype))
    with pytest.raises(rg.DTypeError, match=r"dtype is torch\.int32; sinusoids come as float32"):
        rg.sinusoidal_positions(np.arange(5), 6, dtype=torch.int32)
    with pytest.raises(rg.DTypeError, match=r"dtype is torch\.qint8"):
        rg.sinusoidal_positions(np.arange(5), 6, dtype=torch.qint8)
