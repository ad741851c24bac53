"""The layer with every kind of mask and bias: each head's attention is regard's own, and the loops agree."""

import functools

import numpy as np
import pytest

import regard as rg
from dense_multihead import dense
from judges import assert_close, assert_same_bits
from multihead_random import EXACT, make

BATCH, HEADS, QUERIES, KEYS = 2, 4, 5, 7
OFFSET = KEYS - QUERIES
HIDDEN = np.array([[False] * 5 + [True] * 2, [True] * 3 + [False] * 4])

MASKS = {
    "none": lambda rng: None,
    "padding of torch": lambda rng: rg.KeyPadding.from_torch(HIDDEN),
    "padding and causal": lambda rng: rg.KeyPadding(~HIDDEN) & rg.Causal(),
    "per head": lambda rng: rg.PerHead([rg.Window(left=n) for n in range(HEADS)]),
    "per head and padding": lambda rng: (
        rg.PerHead([rg.Full(), rg.Causal(), rg.Empty(), rg.Prefix(2)]) & rg.KeyPadding(~HIDDEN)
    ),
}
BIASES = {
    "none": lambda rng: None,
    "alibi": lambda rng: rg.Alibi(HEADS),
    "t5": lambda rng: rg.T5Bias(rng.standard_normal((8, HEADS)), bidirectional=True, max_distance=10),
    "relative": lambda rng: rg.RelativeBias(rng.standard_normal((HEADS, 7))),
    "table": lambda rng: rg.DenseBias(rng.standard_normal((BATCH, 1, QUERIES, KEYS))),
    "sum": lambda rng: rg.Alibi(HEADS) + rg.DenseBias(rng.standard_normal((QUERIES, KEYS))),
}


@pytest.mark.parametrize("extra", [0, 2])
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("mask", MASKS)
def test_masks_and_biases(mask, bias, extra):
    rng = np.random.default_rng(5)
    arguments = make(rng, kv_heads=2, extra=extra)
    mask, bias = MASKS[mask](rng), BIASES[bias](rng)
    inputs = [rng.standard_normal((BATCH, n, width)) for n, width in ((QUERIES, 10), (KEYS, 9), (KEYS, 7))]
    result = rg.MultiHeadAttention(**arguments).forward(*inputs, mask=mask, bias=bias, q_offset="end")
    call = {"q_offset": OFFSET, "lead": (BATCH,), "heads": HEADS}
    keep = None if mask is None else np.broadcast_to(
        mask.materialize(QUERIES, KEYS, **call), (BATCH, HEADS, QUERIES, KEYS)
    )  # fmt: skip
    added = None if bias is None else np.broadcast_to(
        bias.materialize(QUERIES, KEYS, dtype=np.float64, **call), (BATCH, HEADS, QUERIES, KEYS)
    )  # fmt: skip
    out, weights, lse = dense(arguments, *inputs, keep=keep, bias=added, first=(OFFSET,) * BATCH)
    assert_close(result.out, out, EXACT)
    assert_close(result.weights[...], weights, EXACT)
    assert_close(result.lse, lse, EXACT)
    alone = rg.attention_forward(result.query, result.key, result.value, mask=mask, bias=bias, q_offset="end")
    assert_same_bits(result.attention.out, alone.out)


class Still:
    def __call__(self, x, positions):
        return x

    def __repr__(self):
        return "Still()"


@pytest.mark.parametrize(
    ("rotary", "name"),
    [
        (rg.rotary_embedding, "rotary_embedding"),
        (functools.partial(rg.rotary_embedding, base=5e5, dim=4), "rotary_embedding(base=500000.0, dim=4)"),
        (functools.partial(rg.rotary_embedding, frequencies=np.ones(3)), "rotary_embedding(frequencies=...)"),
        (functools.partial(functools.partial(pow, 2), mod=3), "pow(2, mod=3)"),
        (Still(), "Still()"),
    ],
)
def test_the_rotary_has_its_name(rotary, name):
    layer = rg.MultiHeadAttention(**make(np.random.default_rng(0)), rotary=rotary)
    assert repr(layer).endswith(f"float64; rotary {name})")


class Module:
    """What is read of a torch module around an attention: it has no num_heads of its own."""

    def __init__(self, tensors, **own):
        self.tensors = tensors
        vars(self).update(own)

    def state_dict(self):
        return self.tensors


def test_a_module_around_the_attention_is_told_its_heads():
    rng = np.random.default_rng(0)
    eye, x = rng.standard_normal((12, 12)), rng.standard_normal((5, 12))
    tensors = {"self_attn.in_proj_weight": np.tile(eye, (3, 1)), "self_attn.out_proj.weight": eye, "norm": eye}
    load = functools.partial(rg.MultiHeadAttention.from_torch, prefix="self_attn")
    want = load(tensors, num_heads=4)(x)
    assert_same_bits(load(Module(tensors), num_heads=4)(x), want)
    assert_same_bits(load(Module(tensors, num_heads=4))(x), want)
    assert_same_bits(load(Module(tensors, num_heads=4), num_heads=4)(x), want)
    with pytest.raises(rg.ShapeError, match=r"not among the tensors: pass num_heads="):
        load(Module(tensors))
    with pytest.raises(rg.ShapeError, match="num_heads is 3 and the module has 4 heads: leave num_heads out"):
        load(Module(tensors, num_heads=4), num_heads=3)
