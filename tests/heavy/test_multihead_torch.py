"""The layer beside torch.nn.MultiheadAttention, in every setting of constructor and call that has a meaning here."""

import contextlib
import functools

import numpy as np
import pytest
import torch
import transformers

import regard as rg

# float64 on both sides: values of order 1 to 10 through some hundred operations, each rounding by 1.1e-16.
EXACT = 1e-13


def rms(x):
    return float(np.sqrt(np.mean(np.square(np.asarray(x, np.float64)))))


def draw_module(rng, dtype=torch.float64):
    def coin():
        return bool(rng.random() < 0.5)

    heads = int(rng.integers(1, 5))
    settings = {"embed_dim": heads * int(rng.integers(1, 6)), "num_heads": heads}
    settings |= {"bias": coin(), "add_bias_kv": coin(), "add_zero_attn": coin(), "batch_first": coin(), "dropout": 0.3}
    settings |= {"kdim": int(rng.integers(1, 12))} if coin() else {}
    settings |= {"vdim": int(rng.integers(1, 12))} if coin() else {}
    module = torch.nn.MultiheadAttention(**settings, dtype=dtype).eval()
    for parameter in module.parameters():  # biases start as 0 there
        parameter.data = torch.from_numpy(rng.standard_normal(parameter.shape)).to(dtype)
    return module


def draw_call(rng, module):
    """Inputs, torch's masks, and ours; True hides there and keeps here."""
    batch, queries, keys = (int(n) for n in rng.integers(1, 7, 3))
    heads, batched = module.num_heads, rng.random() < 0.7
    batch = batch if batched else 1
    widths = (module.embed_dim, module.kdim, module.vdim)
    if len(set(widths)) == 1 and rng.random() < 0.5:
        keys = queries
        inputs = [rng.standard_normal((batch, queries, widths[0]))] * 3
    else:
        sizes = zip((queries, keys, keys), widths, strict=True)
        inputs = [rng.standard_normal((batch, size, width)) for size, width in sizes]
    theirs, keep, bias = {}, np.ones((batch, heads, queries, keys), bool), np.zeros((batch, heads, queries, keys))
    kind = "bool" if rng.random() < 0.5 else "float"
    if rng.random() < 0.6:
        shape = [(queries, keys), (batch * heads, queries, keys)][int(rng.integers(0, 2))]
        hidden, added = rng.random(shape) < 0.3, rng.standard_normal(shape)
        theirs["attn_mask"] = hidden if kind == "bool" else added
        full = keep.shape if len(shape) == 3 else shape
        keep, bias = (keep & ~hidden.reshape(full), bias) if kind == "bool" else (keep, bias + added.reshape(full))
    if rng.random() < 0.6:
        hidden, added = rng.random((batch, keys)) < 0.4, rng.standard_normal((batch, keys))
        theirs["key_padding_mask"] = hidden if kind == "bool" else added
        over = np.s_[:, None, None, :]
        keep, bias = (keep & ~hidden[over], bias) if kind == "bool" else (keep, bias + added[over])
    if not batched:
        inputs, keep, bias = [x[0] for x in inputs], keep[0], bias[0]
        if "key_padding_mask" in theirs:
            theirs["key_padding_mask"] = theirs["key_padding_mask"][0]
    return inputs, theirs, {"mask": keep, "bias": bias}


def run_torch(module, inputs, masks, **options):
    swap = not module.batch_first and inputs[0].ndim == 3
    tensors = {id(x): torch.from_numpy(x.swapaxes(0, 1).copy() if swap else x) for x in inputs}
    masks = {name: torch.from_numpy(mask) for name, mask in masks.items()}
    with contextlib.nullcontext() if options.pop("grad", False) else torch.no_grad():
        out, weights = module(*(tensors[id(x)] for x in inputs), **masks, **options)
    out = out.detach().numpy()
    return (out.swapaxes(0, 1) if swap else out), None if weights is None else weights.detach().numpy()


@pytest.mark.parametrize("seed", range(150))
def test_equals_torch(seed):
    rng = np.random.default_rng(seed)
    module = draw_module(rng)
    inputs, masks, ours = draw_call(rng, module)
    loaded = rg.MultiHeadAttention.from_torch(module)
    state = rg.MultiHeadAttention.from_torch(
        module.state_dict(), num_heads=module.num_heads, add_zero_attn=module.add_zero_attn
    )
    result = loaded.forward(*inputs, **ours)
    np.testing.assert_array_equal(result.out, state(*inputs, **ours))
    appended = result.weights.shape[-1] - ours["mask"].shape[-1]
    assert appended == (module.bias_k is not None) + module.add_zero_attn
    empty = ~ours["mask"].any(-1) & (appended == 0)
    # A row of one head that sees nothing spoils the whole row of torch's output, and leaves a head of zeros here.
    touched = empty.any(-2)
    for options in (
        {"average_attn_weights": False},
        {},
        {"need_weights": False},
        {"need_weights": False, "grad": True},
    ):
        out, weights = run_torch(module, inputs, masks, **options)
        np.testing.assert_allclose(result.out[~touched], out[~touched], atol=EXACT, rtol=EXACT)
        assert np.isfinite(result.out).all()
        odd = np.isnan(out).any(-1)
        assert not odd[~touched].any()
        if weights is not None:
            want = result.weights[...] if options else result.weights[...].mean(-3)
            rows = ~empty if options else ~touched
            np.testing.assert_allclose(want[rows], weights[rows], atol=EXACT)
            assert odd[touched].all()  # NaN in torch ...
    assert (result.heads[empty] == 0).all()  # ... and 0 here
    assert (result.weights[...][empty] == 0).all()


def test_causal():
    rng = np.random.default_rng(0)
    module = torch.nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64).eval()
    x = rng.standard_normal((2, 7, 12))
    hidden = {"attn_mask": ~np.tri(7, dtype=bool)}
    ours = rg.MultiHeadAttention.from_torch(module)(x, mask=rg.Causal())
    for need_weights in (True, False):
        out, _ = run_torch(module, [x] * 3, hidden, is_causal=True, need_weights=need_weights)
        np.testing.assert_allclose(ours, out, atol=EXACT)


def test_what_torch_does_with_is_causal_and_appended_keys():
    """The hint replaces the mask, and hides the keys that add_bias_kv appends; the mask alone shows them."""
    rng = np.random.default_rng(0)
    module = torch.nn.MultiheadAttention(12, 3, batch_first=True, add_bias_kv=True, dtype=torch.float64).eval()
    x = rng.standard_normal((2, 7, 12))
    hidden = {"attn_mask": ~np.tri(7, dtype=bool)}
    ours = rg.MultiHeadAttention.from_torch(module).forward(x, mask=rg.Causal())
    seen, _ = run_torch(module, [x] * 3, hidden, need_weights=False)
    hint, _ = run_torch(module, [x] * 3, hidden, need_weights=False, is_causal=True)
    np.testing.assert_allclose(ours.out, seen, atol=EXACT)
    assert np.abs(hint - seen).max() > 1e-3
    alone = rg.merge_heads(ours.attention.out) @ module.out_proj.weight.detach().numpy().T
    np.testing.assert_allclose(hint, alone, atol=EXACT)  # out_proj's bias starts as 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_error_is_no_larger_than_torchs(dtype):
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(96, 6, batch_first=True, add_bias_kv=True, dtype=dtype).eval()
    x = torch.randn(3, 80, 96).to(dtype)
    with torch.no_grad():
        theirs = module(x, x, x, need_weights=False)[0].double().numpy()
        exact = module.double()(x.double(), x.double(), x.double(), need_weights=False)[0].numpy()
    module = module.to(dtype)  # float64 holds them exactly
    layer = rg.MultiHeadAttention.from_torch(module)
    if dtype == torch.bfloat16:
        import ml_dtypes

        ours = layer(x.float().numpy().astype(ml_dtypes.bfloat16))
    else:
        ours = layer(x.numpy())
    assert rms(ours.astype(np.float64) - exact) <= 1.1 * rms(theirs - exact)


def test_parts_of_an_encoder_layer():
    torch.manual_seed(1)
    encoder = torch.nn.TransformerEncoderLayer(16, 4, dtype=torch.float64, batch_first=True).eval()
    layer = rg.MultiHeadAttention.from_torch(encoder.state_dict(), num_heads=4, prefix="self_attn")
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    with torch.no_grad():
        want = encoder.self_attn(x, x, x, need_weights=False)[0]
    np.testing.assert_allclose(layer(x.numpy()), want.numpy(), atol=EXACT)
    around = rg.MultiHeadAttention.from_torch(encoder, num_heads=4, prefix="self_attn")
    np.testing.assert_array_equal(around(x.numpy()), layer(x.numpy()))
    with pytest.raises(
        rg.UnsupportedError, match=r"no tensor in_proj_weight; tensors given: self_attn\.in_proj_weight"
    ):
        rg.MultiHeadAttention.from_torch(encoder)
    with pytest.raises(rg.ShapeError, match="num_heads is 2 and the module has 4 heads"):
        rg.MultiHeadAttention.from_torch(encoder.self_attn, num_heads=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_tensors_go_in_and_come_out(dtype):
    torch.manual_seed(4)
    module = torch.nn.MultiheadAttention(12, 3, batch_first=True, add_zero_attn=True).eval()
    layer = rg.MultiHeadAttention.from_torch(module)
    x, bias, hidden = torch.randn(2, 5, 12).to(dtype), torch.randn(5, 5), torch.rand(2, 5) < 0.3
    got = layer(x, mask=rg.KeyPadding.from_torch(hidden), bias=bias)
    assert (type(got), got.dtype) == (torch.Tensor, dtype)
    wide = layer(x.float().numpy(), mask=~hidden.numpy()[:, None, None, :], bias=bias.numpy())
    assert torch.equal(got, torch.from_numpy(wide).to(dtype))
    with pytest.raises(rg.UnsupportedError, match="query requires grad"):
        layer(x.requires_grad_())


def test_heads_of_tensors():
    x = torch.arange(24).reshape(2, 3, 4)
    parts = rg.split_heads(x, 2)
    assert torch.equal(parts[1, 1], x[1, :, 2:])
    assert parts.data_ptr() == x.data_ptr()
    assert torch.equal(rg.merge_heads(parts), x)
    w = torch.ones(3, 4, requires_grad=True)
    rg.merge_heads(2 * rg.split_heads(w, 2)).sum().backward()
    assert (w.grad == 2).all()
    with pytest.raises(rg.ShapeError, match=r"4 is not a multiple of 3 heads \(x has shape \(2, 3, 4\)"):
        rg.split_heads(x, 3)


def test_tensors_that_cannot_be_read_are_refused():
    """What is copied or moved would be another layer's memory, or another device's: that is for the caller to say."""
    module = torch.nn.MultiheadAttention(8, 2, device="meta")
    with pytest.raises(rg.UnsupportedError, match=r"in_proj_weight is a torch tensor on device meta.*\.cpu\(\)"):
        rg.MultiHeadAttention.from_torch(module)
    sparse = torch.nn.MultiheadAttention(8, 2).state_dict()
    sparse["out_proj.weight"] = sparse["out_proj.weight"].to_sparse()
    with pytest.raises(rg.UnsupportedError, match=r"out_proj\.weight is a tensor of layout .*to_dense"):
        rg.MultiHeadAttention.from_torch(sparse, num_heads=2)


def test_bfloat16_is_widened():
    module = torch.nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True).bfloat16()
    layer = rg.MultiHeadAttention.from_torch(module)
    assert layer.query_weight.dtype == layer.extra_key.dtype == np.float32
    np.testing.assert_array_equal(layer.query_weight, module.in_proj_weight[:8].detach().float().numpy())
    np.testing.assert_array_equal(layer.extra_key[:1], module.bias_k[0].detach().float().numpy())


def test_memory_is_shared():
    module = torch.nn.MultiheadAttention(8, 2)
    layer = rg.MultiHeadAttention.from_torch(module)
    module.in_proj_weight.data[8, 0] = 7.0
    assert layer.key_weight[0, 0] == 7


def test_bert_of_transformers():
    torch.manual_seed(2)
    config = transformers.BertConfig(hidden_size=24, num_attention_heads=3, num_hidden_layers=1, intermediate_size=8)
    config._attn_implementation = "eager"
    theirs = transformers.models.bert.modeling_bert.BertSelfAttention(config).double().eval()
    mix = torch.nn.Linear(24, 24, dtype=torch.float64)
    tensors = {f"self.{name}": t for name, t in theirs.state_dict().items()}
    tensors |= {f"output.dense.{name}": t for name, t in mix.state_dict().items()}
    layer = rg.MultiHeadAttention.from_bert(tensors, "", num_heads=3)
    x = torch.randn(2, 5, 24, dtype=torch.float64)
    with torch.no_grad():
        want = mix(theirs(x)[0])
    np.testing.assert_allclose(layer(x.numpy()), want.numpy(), atol=EXACT)


def llama_like(family, config, **more):
    """The attention of a model's first layer, all parameters drawn, and its cosines and sines for 9 positions."""
    torch.manual_seed(3)
    settings = {
        "hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "num_hidden_layers": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100.0}, "attn_implementation": "eager",
    }  # fmt: skip
    module = getattr(transformers.models, family)
    module = getattr(module, f"modeling_{family}")
    config = getattr(transformers, f"{config}Config")(**settings | more)
    name = type(config).__name__.removesuffix("Config")
    theirs = getattr(module, f"{name}Attention")(config, 0).double().eval()
    for parameter in theirs.parameters():
        parameter.data.normal_()
    x = torch.randn(2, 9, 24, dtype=torch.float64)
    return theirs, x, getattr(module, f"{name}RotaryEmbedding")(config)(x, torch.arange(9)[None])


@pytest.mark.parametrize(
    ("family", "config", "more", "biases", "sinks", "window"),
    [
        ("llama", "Llama", {"attention_bias": False}, "", False, None),
        ("llama", "Llama", {"attention_bias": True}, "qkvo", False, None),
        ("mistral", "Mistral", {"sliding_window": 3}, "", False, 2),
        ("qwen2", "Qwen2", {}, "qkv", False, None),
        ("gpt_oss", "GptOss", {"layer_types": ["sliding_attention"], "sliding_window": 3}, "qkvo", True, 2),
        ("gpt_oss", "GptOss", {"layer_types": ["full_attention"]}, "qkvo", True, None),
    ],
)
def test_llama_and_its_like_of_transformers(family, config, more, biases, sinks, window):
    theirs, x, turns = llama_like(family, config, **more)
    rotary = functools.partial(rg.rotary_embedding, base=100.0)
    layer = rg.MultiHeadAttention.from_llama(theirs.state_dict(), "", num_heads=6, num_kv_heads=2, rotary=rotary)
    assert "".join(
        part[0] for part in ("query", "key", "value", "output") if getattr(layer, f"{part}_bias") is not None
    ) == (biases)
    assert (layer.sinks is not None) == sinks
    mask = rg.Causal() if window is None else rg.Causal() & rg.Window(left=window)
    hidden = torch.zeros((9, 9), dtype=torch.float64)
    hidden[torch.from_numpy(~mask.materialize(9, 9))] = -torch.inf
    with torch.no_grad():
        want, _ = theirs(x, turns, hidden[None, None])
    got = layer(x.numpy(), mask=mask)
    # Their cosines and sines are float32: 6e-8 of queries and keys of size 5, in scores of size 25.
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-5 * np.abs(got).max())
    assert np.abs(layer(x.numpy()) - want.numpy()).max() > 0.1
