"""Where a multi-head layer's weights come from: other libraries' tensors and their names."""

import functools
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from dense_multihead import dense
from judges import assert_close, assert_same_bits
from multihead_random import EXACT, make


def torch_names(arguments):
    """A state dict as torch.nn.MultiheadAttention has it."""
    three = ("query", "key", "value")
    return {
        "in_proj_weight": np.concatenate([arguments[f"{x}_weight"] for x in three]),
        "in_proj_bias": np.concatenate([arguments[f"{x}_bias"] for x in three]),
        "out_proj.weight": arguments["output_weight"],
        "out_proj.bias": arguments["output_bias"],
    }


def square(rng, **more):
    return make(rng, size=3, value_size=3, widths=(12, 12, 12, 12), **more)


def test_from_torch_state_dict():
    rng = np.random.default_rng(0)
    arguments, x = square(rng), rng.standard_normal((2, 5, 12))
    state = torch_names(arguments)
    want = rg.MultiHeadAttention(**arguments)(x)
    assert_same_bits(rg.MultiHeadAttention.from_torch(state, num_heads=4)(x), want)
    deep = {f"layers.0.self_attn.{name}": t for name, t in state.items()} | {"layers.0.norm1.weight": np.ones(12)}
    assert_same_bits(rg.MultiHeadAttention.from_torch(deep, num_heads=4, prefix="layers.0.self_attn")(x), want)
    apart = dict(
        zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), np.split(state["in_proj_weight"], 3), strict=True)
    )
    apart |= {name: t for name, t in state.items() if name != "in_proj_weight"}
    assert_same_bits(rg.MultiHeadAttention.from_torch(apart, num_heads=4)(x), want)


def test_from_torch_extra_keys_and_dtypes():
    rng = np.random.default_rng(1)
    arguments = square(rng, extra=1)
    wide = {name: np.float32(x) for name, x in torch_names(arguments).items()}
    wide |= {f"bias_{x[0]}": np.float32(arguments[f"extra_{x}"])[None] for x in ("key", "value")}
    layer = rg.MultiHeadAttention.from_torch(wide, num_heads=4, add_zero_attn=True)
    assert layer.extra_key.shape == layer.extra_value.shape == (2, 12)
    assert_same_bits(layer.extra_key[0], np.float32(arguments["extra_key"][0]))
    assert (layer.extra_key[1] == 0).all()
    assert (layer.extra_value[1] == 0).all()
    assert np.shares_memory(layer.output_weight, wide["out_proj.weight"])
    brain = {name: t.astype(ml_dtypes.bfloat16) for name, t in wide.items()}
    half = rg.MultiHeadAttention.from_torch(brain, num_heads=4)
    assert_same_bits(half.query_weight, brain["in_proj_weight"][:12].astype(np.float32))
    assert len(half.extra_key) == 1


def test_from_bert():
    rng = np.random.default_rng(2)
    arguments, x = square(rng), rng.standard_normal((5, 12))
    tensors = {}
    for part, name in (
        ("query", "self.query"),
        ("key", "self.key"),
        ("value", "self.value"),
        ("output", "output.dense"),
    ):
        for kind in ("weight", "bias"):
            tensors[f"encoder.layer.1.attention.{name}.{kind}"] = arguments[f"{part}_{kind}"]
    tensors["encoder.layer.1.attention.output.LayerNorm.weight"] = np.ones(12)
    tensors["encoder.layer.10.attention.self.query.weight"] = np.ones((12, 12))
    layer = rg.MultiHeadAttention.from_bert(tensors, "encoder.layer.1.attention", num_heads=4)
    assert_same_bits(layer(x), rg.MultiHeadAttention(**arguments)(x))
    tensors["encoder.layer.1.attention.self.distance_embedding.weight"] = np.ones((7, 3))
    with pytest.raises(rg.UnsupportedError, match=r"no place for self\.distance_embedding\.weight below 'encoder"):
        rg.MultiHeadAttention.from_bert(tensors, "encoder.layer.1.attention", num_heads=4)


@pytest.mark.parametrize("more", [(), ("bias",), ("bias", "sinks")])
def test_from_llama(more):
    rng = np.random.default_rng(3)
    arguments = make(rng, kv_heads=2, size=4, value_size=4, widths=(12, 12, 12, 12), biases="bias" in more)
    tensors = {"rotary_emb.inv_freq": np.ones(2)}
    for part in ("query", "key", "value", "output"):
        for kind in ("weight", *more[:1]):
            tensors[f"{part[0]}_proj.{kind}"] = arguments[f"{part}_{kind}"]
    if "sinks" in more:
        tensors["sinks"] = arguments["sinks"] = rng.standard_normal(4)
    tensors = {f"model.layers.0.self_attn.{name}": t for name, t in tensors.items()}
    rotary = functools.partial(rg.rotary_embedding, base=100.0)
    load = functools.partial(
        rg.MultiHeadAttention.from_llama, prefix="model.layers.0.self_attn", num_heads=4, num_kv_heads=2, rotary=rotary
    )
    x = rng.standard_normal((2, 6, 12))
    keep = np.broadcast_to(np.tri(6, dtype=bool), (2, 4, 6, 6))
    want = dense(arguments, x, x, x, keep=keep, first=(0, 0), base=100.0)[0]
    assert_close(load(tensors)(x, mask=rg.Causal()), want, EXACT)
    with pytest.raises(rg.UnsupportedError, match=r"no place for q_norm\.weight, k_norm\.weight below"):
        load(tensors | {f"model.layers.0.self_attn.{x}_norm.weight": np.ones(4) for x in "qk"})


def test_no_framework_is_imported():
    code = """
import sys
import numpy as np, regard as rg
eye = np.eye(4, dtype=np.float32)
state = {"in_proj_weight": np.tile(eye, (3, 1)), "out_proj.weight": eye}
rg.MultiHeadAttention.from_torch(state, num_heads=2)(eye)
assert not {"torch", "jax", "transformers", "ml_dtypes", "safetensors"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_messages_of_tensors():
    state = torch_names(square(np.random.default_rng(0)))
    load = rg.MultiHeadAttention.from_torch
    cases = [
        (rg.ShapeError, "number of heads is not among the tensors: pass num_heads=", lambda: load(state)),
        (rg.UnsupportedError, "ndarray is none: pass a state dict", lambda: load(np.ones((3, 3)), num_heads=4)),
        (
            rg.UnsupportedError,
            r"no tensor in_proj_weight; tensors given: weight, bias",
            lambda: load({"weight": np.ones((2, 2)), "bias": np.ones(2)}, num_heads=1),
        ),
        (
            rg.UnsupportedError,
            r"no tensor in_proj_weight; tensors below 'attn': none, of the names in_proj_weight, in_proj_bias, out_",
            lambda: load(state, num_heads=4, prefix="attn"),
        ),
        (
            rg.UnsupportedError,
            r"tensors given: t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11 and 28 more",
            lambda: load({f"t{n}": np.ones(1) for n in range(40)}, num_heads=1),
        ),
        (
            rg.UnsupportedError,
            r"no tensor bias_v; tensors given: .*bias_k",
            lambda: load({**state, "bias_k": np.ones((1, 1, 12))}, num_heads=4),
        ),
        (
            rg.UnsupportedError,
            r"no place for gate given",
            lambda: load({**state, "gate": np.ones(12)}, num_heads=4),
        ),
        (
            rg.ShapeError,
            r"in_proj_weight has shape \(35, 12\); its rows are those of query, key and value, 3 \* width",
            lambda: load({**state, "in_proj_weight": np.ones((35, 12))}, num_heads=4),
        ),
        (
            rg.ShapeError,
            r"query_weight has shape \(12, 12\).*multiple of 5 query heads",
            lambda: load(state, num_heads=5),
        ),
        (
            rg.UnsupportedError,
            r"no tensor self\.query\.weight; tensors below 'x': y",
            lambda: rg.MultiHeadAttention.from_bert({"x.y": np.ones(1)}, "x", num_heads=1),
        ),
        (
            rg.UnsupportedError,
            r"no tensor q_proj\.weight; tensors below 'x': y",
            lambda: rg.MultiHeadAttention.from_llama({"x.y": np.ones(1)}, "x", num_heads=1, rotary=None),
        ),
        (
            rg.DTypeError,
            r"q_proj\.weight has the integer dtype int8|query_weight has the integer dtype int8",
            lambda: load({**state, "in_proj_weight": np.ones((36, 12), np.int8)}, num_heads=4),
        ),
    ]  # fmt: skip
    for kind, message, call in cases:
        with pytest.raises(kind, match=message):
            call()
