"""The multi-head layer against attention written out in loops; where its weights come from; what it refuses."""

import copy
import dataclasses
import functools
import math
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from dense_multihead import dense, turned
from judges import assert_agrees, assert_close, assert_same_bits

# --- heads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 12), (2, 3, 12), (2, 1, 5, 12), (0, 12), (4, 0), (2, 0, 12)])
@pytest.mark.parametrize("heads", [1, 2, 3, 12])
def test_split_and_merge(shape, heads):
    x = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    parts = rg.split_heads(x, heads)
    size = shape[-1] // heads
    assert parts.shape == (*shape[:-2], heads, shape[-2], size)
    for at in np.ndindex(parts.shape):
        *lead, h, s, d = at
        assert parts[at] == x[(*lead, s, h * size + d)]
    assert_same_bits(rg.merge_heads(parts), x)
    assert_same_bits(rg.merge_heads(np.ascontiguousarray(parts)), x)


@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x[:, ::2], lambda x: x[..., ::-3], lambda x: x.T, lambda x: x.swapaxes(0, 1)]
)
def test_split_is_a_view_of_any_strides(view):
    x = view(np.arange(6 * 12 * 12.0).reshape(6, 12, 12))
    parts = rg.split_heads(x, 2)
    assert np.shares_memory(parts, x)
    assert np.shares_memory(rg.merge_heads(parts), x)
    parts[..., 1, 2, 0] = -1
    assert (x[..., 2, x.shape[-1] // 2] == -1).all()


def test_messages_of_heads():
    with pytest.raises(rg.ShapeError, match=r"width of 10 is not a multiple of 4 heads.*\(3, 10\), 10 % 4 = 2"):
        rg.split_heads(np.zeros((3, 10)), 4)
    with pytest.raises(rg.ShapeError, match=r"shape \(12,\); it needs at least two axes, \(\.\.\., S, heads \* D\)"):
        rg.split_heads(np.zeros(12), 4)
    assert rg.split_heads([[1, 2], [3, 4]], 2).tolist() == [[[1], [3]], [[2], [4]]]
    with pytest.raises(rg.ShapeError, match=r"shape \(3, 4\); it needs at least three axes"):
        rg.merge_heads(np.zeros((3, 4)))
    for heads in (0, -1, True, 2.0, None, "2"):
        with pytest.raises(rg.ShapeError, match=r"heads is .*integer, 1 or more"):
            rg.split_heads(np.zeros((3, 12)), heads)


# --- against loops --------------------------------------------------------------------------------


def make(rng, *, heads=4, kv_heads=None, size=6, value_size=5, widths=(10, 9, 7, 8), biases=True, extra=0, **more):
    """Arguments of a layer whose queries, keys and values are of order 1; widths of query, key, value and output."""
    kv_heads = kv_heads or heads
    shapes = {
        "query": (heads * size, widths[0]),
        "key": (kv_heads * size, widths[1]),
        "value": (kv_heads * value_size, widths[2]),
        "output": (widths[3], heads * value_size),
    }
    draw = rng.standard_normal
    layer = {f"{name}_weight": draw(shape) / math.sqrt(shape[1]) for name, shape in shapes.items()}
    if biases:
        layer |= {f"{name}_bias": draw(shape[0]) for name, shape in shapes.items()}
    if extra:
        layer["extra_key"], layer["extra_value"] = (draw((extra, shapes[x][0])) for x in ("key", "value"))
    return layer | {"num_heads": heads, "num_kv_heads": kv_heads} | more


def draw_case(seed):
    """A layer and a call, both drawn: every option is there or not by itself."""
    rng = np.random.default_rng(seed)

    def coin():
        return rng.random() < 0.5

    kv_heads = int(rng.integers(1, 4))
    heads = kv_heads * int(rng.integers(1, 4))
    batch, queries, keys = (int(n) for n in rng.integers(1, 7, 3))
    size, value_size = 2 * int(rng.integers(1, 5)), int(rng.integers(1, 9))
    self_attention, rotary = coin(), coin()
    widths = rng.integers(1, 12, 4).tolist()
    if self_attention:
        keys, widths[1], widths[2] = queries, widths[0], widths[0]
    layer = make(
        rng, heads=heads, kv_heads=kv_heads, size=size, value_size=value_size, widths=widths, biases=coin(),
        extra=int(rng.integers(0, 3)),
    )  # fmt: skip
    layer |= {"scale": float(rng.normal())} if coin() else {}
    layer |= {"softcap": 2.0} if coin() else {}
    layer |= {"sinks": rng.standard_normal(heads)} if coin() else {}
    query = rng.standard_normal((batch, queries, widths[0]))
    inputs = [query]
    if not self_attention:
        inputs += [rng.standard_normal((batch, keys, width)) for width in widths[1:3]]
    offsets = [0, "end", rng.integers(-2, 5, batch), "start"]
    offset = offsets[int(rng.integers(0, 4))]
    masks = [
        rg.Full(),
        rg.Causal(),
        rg.Window(left=1, right=2) | rg.Prefix(1),
        rg.Dense(rng.random((batch, 1, queries, keys)) < 0.5),
        rg.Dense(rng.random((queries, keys)) < 0.3),
        rg.Empty(),
    ]
    mask = masks[int(rng.integers(0, len(masks)))]
    if not isinstance(offset, str) and coin():
        mask = rg.KeyLengths(rng.integers(0, keys + 1, batch)) & mask
    call = {
        "mask": mask,
        "q_offset": offset,
        "bias": rng.standard_normal((1, heads, queries, keys)) if coin() else None,
    }
    return layer, inputs, call, 100.0 if rotary else None


def expected(layer, inputs, call, base):
    query, key, value = inputs if len(inputs) == 3 else inputs * 3
    batch, queries, keys, heads = len(query), query.shape[1], key.shape[1], layer["num_heads"]
    first = {"start": 0, "end": keys - queries}.get(call["q_offset"]) if isinstance(call["q_offset"], str) else None
    first = np.broadcast_to(call["q_offset"] if first is None else first, batch)
    keep = call["mask"].materialize(queries, keys, q_offset=first, lead=(batch,), heads=heads)
    bias = None if call["bias"] is None else np.broadcast_to(call["bias"], keep.shape)
    return dense(layer, query, key, value, keep=keep, bias=bias, first=first, base=base)


def build(layer, base):
    rotary = None if base is None else functools.partial(rg.rotary_embedding, base=base)
    return rg.MultiHeadAttention(**layer, rotary=rotary)


# Values are of order 1 to 30 and pass through some hundred operations; float64 rounds by 1.1e-16 of them.
EXACT = 1e-13


@pytest.mark.parametrize("seed", range(60))
def test_equals_loops(seed):
    layer, inputs, call, base = draw_case(seed)
    out, weights, lse = expected(layer, inputs, call, base)
    result = build(layer, base).forward(*inputs, **call)
    assert_close(result.out, out, EXACT)
    assert_close(result.weights[...], weights, EXACT)
    assert_close(result.lse, lse, EXACT)
    assert_same_bits(build(layer, base)(*inputs, **call), result.out)


@pytest.mark.parametrize("seed", range(12))
def test_float32(seed):
    """Scores are a few units at most here; three sums in a row, each within 50 units of 6e-8 of what they sum."""
    layer, inputs, call, base = draw_case(seed)
    narrow = {name: np.float32(x) if isinstance(x, np.ndarray) else x for name, x in layer.items()}
    inputs = [np.float32(x) for x in inputs]
    want = expected(narrow, inputs, call, base)[0]
    got = build(narrow, base)(*inputs, **call)
    assert got.dtype == np.float32
    assert_close(got, want, 150 * 2.0**-24 * (1 + np.abs(want).max()))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=lambda d: d.__name__)
@pytest.mark.parametrize("weights", ["narrow", "wide"])
def test_16_bit_is_rounded_once(dtype, weights):
    layer, inputs, call, base = draw_case(3)
    stored = dtype if weights == "narrow" else np.float32
    narrow = {name: x.astype(stored) if isinstance(x, np.ndarray) else x for name, x in layer.items()}
    inputs = [x.astype(dtype) for x in inputs]
    got = build(narrow, base)(*inputs, **call)
    assert got.dtype == dtype
    wide = {name: x.astype(np.float32) if isinstance(x, np.ndarray) else x for name, x in narrow.items()}
    assert_same_bits(got, build(wide, base)(*(x.astype(np.float32) for x in inputs), **call).astype(dtype))


def test_float16_overflow_is_inf():
    layer = rg.MultiHeadAttention(
        num_heads=1, query_weight=np.eye(2, dtype=np.float32), key_weight=np.eye(2, dtype=np.float32),
        value_weight=np.eye(2, dtype=np.float32), output_weight=2 * np.eye(2, dtype=np.float32),
    )  # fmt: skip
    assert np.isposinf(layer(np.full((1, 2), 4e4, np.float16))).all()


def test_unbatched_and_many_batch_axes():
    rng = np.random.default_rng(0)
    layer = rg.MultiHeadAttention(**make(rng, widths=(10, 10, 10, 10), extra=1))
    x = rng.standard_normal((2, 3, 5, 10))
    whole = layer.forward(x, mask=rg.Causal())
    assert whole.heads.shape == (2, 3, 4, 5, 5)
    one = layer.forward(x[1, 2], mask=rg.Causal())
    assert_close(one.out, whole.out[1, 2], EXACT)
    assert one.weights.shape == (4, 5, 6)
    assert_close(one.weights[2], whole.weights[1, 2, 2], EXACT)
    assert layer(x[:0]).shape == (0, 3, 5, 10)
    assert layer(x[:, :, :0]).shape == (2, 3, 0, 10)


@pytest.mark.parametrize("extra", [0, 2])
@pytest.mark.parametrize("base", [None, 50.0])
@pytest.mark.parametrize(("queries", "memories"), [(3, 1), (1, 3)])
def test_batch_axes_broadcast(extra, base, queries, memories):
    rng = np.random.default_rng(0)
    layer = build(make(rng, extra=extra), base)
    query, key, value = (rng.standard_normal(s) for s in ((queries, 2, 10), (memories, 6, 9), (memories, 6, 7)))
    got = layer.forward(query, key, value, mask=rg.Causal(), q_offset=[0, 2, 4])
    for b, offset in enumerate((0, 2, 4)):
        own = [x[b % len(x)] for x in (query, key, value)]
        alone = layer.forward(*own, mask=rg.Causal(), q_offset=offset)
        assert_close(got.out[b], alone.out, EXACT)
        assert_close(got.weights[b], alone.weights[...], EXACT)


def test_the_head_parts_are_attentions():
    layer, inputs, call, base = draw_case(5)
    result = build(layer, base).forward(*inputs, **call)
    options = {name: layer.get(name) for name in ("scale", "softcap", "sinks") if layer.get("extra_key") is None}
    options |= {name: layer.get(name) for name in ("scale", "softcap")}
    assert_agrees(result.attention, result.query, result.key, result.value, **call, **options)


# --- extra keys -----------------------------------------------------------------------------------


def test_an_extra_key_is_seen_through_every_mask():
    rng = np.random.default_rng(1)
    arguments = make(rng, extra=2)
    layer = rg.MultiHeadAttention(**arguments)
    inputs = [rng.standard_normal((2, 4, width)) for width in (10, 9, 7)]
    result = layer.forward(*inputs, mask=rg.Empty())
    assert result.weights.shape == (2, 4, 4, 6)
    assert (result.weights[..., :4] == 0).all()
    assert_close(result.weights[..., 4:].sum(-1), np.ones((2, 4, 4)), EXACT)
    assert np.isneginf(result.attention.lse).all()
    assert np.isfinite(result.lse).all()


def test_no_extra_keys_at_all():
    rng = np.random.default_rng(1)
    arguments = make(rng)
    inputs = [rng.standard_normal((2, 4, width)) for width in (10, 9, 7)]
    rows = {"extra_key": np.zeros((0, 24)), "extra_value": np.zeros((0, 20))}
    mask = np.tri(4, dtype=bool)[::-1] & (np.arange(4)[:, None] != 2)
    got, want = (rg.MultiHeadAttention(**arguments, **more).forward(*inputs, mask=mask) for more in (rows, {}))
    assert_close(got.out, want.out, EXACT)
    assert_close(got.weights[...], want.weights[...], EXACT)
    assert np.isneginf(got.lse[..., 2]).all()


def test_a_zero_extra_key_is_a_sink_at_zero():
    """torch's add_zero_attn: a key of zeros has score 0, and its value adds nothing."""
    rng = np.random.default_rng(2)
    arguments = make(rng)
    rows = {"extra_key": np.zeros((1, 24)), "extra_value": np.zeros((1, 20))}
    inputs = [rng.standard_normal((2, 4, width)) for width in (10, 9, 7)]
    zero = rg.MultiHeadAttention(**arguments, **rows).forward(*inputs)
    sink = rg.MultiHeadAttention(**arguments, sinks=np.zeros(4)).forward(*inputs)
    assert_close(zero.out, sink.out, EXACT)
    assert_close(zero.weights[..., :4], sink.weights[...], EXACT)


def test_nan_in_a_row_stays_there():
    rng = np.random.default_rng(3)
    layer = rg.MultiHeadAttention(**make(rng, widths=(10, 10, 10, 10), extra=1))
    x = rng.standard_normal((2, 5, 10))
    spoilt = x.copy()
    spoilt[0, 3:] = np.nan
    mask = rg.KeyLengths([3, 5])
    clean, got = layer.forward(x, mask=mask), layer.forward(spoilt, mask=mask)
    assert np.isnan(got.out[0, 3:]).all()
    assert_same_bits(got.out[0, :3], clean.out[0, :3])
    assert_same_bits(got.out[1], clean.out[1])
    assert_same_bits(got.weights[0, :, :3], clean.weights[0, :, :3])
    assert np.isnan(got.weights[0, :, 3:]).any(axis=-1).all()


def test_what_is_infinite_is_answered_without_a_warning():
    rng = np.random.default_rng(3)
    layer = rg.MultiHeadAttention(**make(rng, widths=(10, 10, 10, 10), extra=1))
    x = rng.standard_normal((3, 10))
    for number in (np.inf, 1e308):
        spoilt = np.where(np.arange(3)[:, None] == 2, number, x)
        result = layer.forward(spoilt, mask=rg.Causal())
        assert not np.isfinite(result.out[2]).any()
        assert_same_bits(result.out[:2], layer(x, mask=rg.Causal())[:2])


def test_a_row_that_sees_nothing_gives_the_output_bias():
    arguments = make(np.random.default_rng(4), widths=(10, 10, 10, 10))
    x = np.random.default_rng(5).standard_normal((3, 10))
    mask = np.ones((3, 3), bool)
    mask[1] = False
    for sinks in (None, np.zeros(4)):
        result = rg.MultiHeadAttention(**arguments, sinks=sinks).forward(x, mask=mask)
        assert_same_bits(result.out[1], arguments["output_bias"])
        assert (result.weights[:, 1] == 0).all()
        assert np.isneginf(result.lse[:, 1]).all()


def test_joined_weights_are_indexed_like_an_array():
    rng = np.random.default_rng(6)
    layer = rg.MultiHeadAttention(**make(rng, widths=(10, 10, 10, 10), extra=2))
    weights = layer.forward(rng.standard_normal((2, 5, 10)), mask=rg.Causal()).weights
    whole = np.asarray(weights)
    assert (weights.ndim, len(weights), weights.dtype) == (4, 2, np.float64)
    indices = [
        (0, 1, 2, 3), (0, 1, 2, 6), (0, 1, 2, -1), (0, 1, 2), (..., 5), (..., slice(3, 6)), (..., slice(5, None)),
        (..., slice(0, 2)), (..., slice(4, 4)), (..., slice(6, 2)), (1,),
        (slice(None, None, -1), slice(1, 3), slice(1, 4)), (slice(None), 0, slice(2, 3), slice(-3, -1)), ...,
    ]  # fmt: skip
    for index in indices:
        assert_same_bits(weights[index], whole[index])
    with pytest.raises(IndexError, match="index 7 is out of range for an axis of size 7"):
        weights[0, 0, 0, 7]
    with pytest.raises(IndexError, match="too many"):
        weights[0, 0, 0, 0, 0]
    with pytest.raises(ValueError, match="always new"):
        np.array(weights, copy=False)
    assert np.asarray(weights, np.float32).dtype == np.float32
    assert repr(weights) == "weights float64 (2, 4, 5, 7) computed when indexed"


# --- positions ------------------------------------------------------------------------------------


def test_rotary_gets_heads_and_positions():
    seen = []

    def rotary(x, positions):
        seen.append((x.shape, positions.tolist()))
        return x

    rng = np.random.default_rng(7)
    layer = rg.MultiHeadAttention(**make(rng, kv_heads=2, widths=(10, 10, 10, 8)), rotary=rotary)
    x = rng.standard_normal((2, 5, 10))
    layer(x[:, :3], x, q_offset="end")
    layer(x[:, :1], x, q_offset=[2, 4])
    layer(x[0, :1], x, q_offset=[2, 4])
    layer(x[0])
    keys = ((2, 2, 5, 6), [0, 1, 2, 3, 4])
    assert seen[:2] == [((2, 4, 3, 6), [2, 3, 4]), keys]
    assert seen[2:4] == [((2, 4, 1, 6), [[2], [4]]), keys]
    assert seen[4:6] == [((2, 4, 1, 6), [[2], [4]]), keys]
    assert seen[6:] == [((4, 5, 6), [0, 1, 2, 3, 4]), ((2, 5, 6), [0, 1, 2, 3, 4])]


def test_decoding_equals_the_whole():
    rng = np.random.default_rng(8)
    layer = build(make(rng, widths=(10, 10, 10, 8), extra=1), 50.0)
    x = rng.standard_normal((2, 6, 10))
    whole = layer(x, mask=rg.Causal())
    assert_close(layer(x[:, -2:], x, mask=rg.Causal(), q_offset="end"), whole[:, -2:], EXACT)
    ragged = layer(x[:, 2:4], x, mask=rg.Causal() & rg.KeyLengths([4, 6]), q_offset=[2, 2])
    assert_close(ragged, whole[:, 2:4], EXACT)


def test_messages_of_positions():
    rng = np.random.default_rng(9)
    layer = build(make(rng, widths=(10, 10, 10, 8)), 50.0)
    x = rng.standard_normal((2, 6, 10))
    with pytest.raises(
        rg.AlignmentError,
        match=r'this layer turns.*2 queries.*6 keys.*q_offset="start".*q_offset="end".*position 4 \+ i',
    ):
        layer(x[:, :2], x)
    with pytest.raises(rg.AlignmentError, match=r"q_offset=lengths - Sq"):
        layer(x[:, :2], x, mask=rg.KeyLengths([3, 6]), q_offset="end")
    for wrong in (lambda x, p: x.astype(np.float32), lambda x, p: x[..., :2], lambda x, p: None):
        with pytest.raises(rg.ShapeError, match=r"rotary got float64 \(2, 4, 6, 6\) and positions \(6,\), and gave"):
            dataclasses.replace(layer, rotary=wrong)(x)


# --- the object -----------------------------------------------------------------------------------


def test_repr():
    rng = np.random.default_rng(0)
    layer = rg.MultiHeadAttention(**make(rng, kv_heads=2, extra=1, softcap=30.0, scale=0.5, sinks=np.zeros(4)))
    assert repr(layer) == (
        "MultiHeadAttention(4 heads of 6, 2 kv heads, values of 5; query 10, key 9, value 7 -> 8; float64; "
        "extra keys: 1; scale 0.5; softcap 30.0; sinks)"
    )
    inputs = [rng.standard_normal((3, width)) for width in (10, 9, 7)]
    assert repr(layer.forward(*inputs)) == (
        "MultiHeadResult: out float64 (3, 8), weights float64 (4, 3, 4) computed when indexed"
    )


def test_frozen_and_copied():
    rng = np.random.default_rng(0)
    arguments = make(rng, widths=(10, 10, 10, 8), extra=1)
    layer = rg.MultiHeadAttention(**arguments)
    with pytest.raises(dataclasses.FrozenInstanceError):
        layer.scale = 2.0
    with pytest.raises(ValueError, match="read-only"):
        layer.query_weight[0] = 0
    assert np.shares_memory(layer.query_weight, arguments["query_weight"])
    assert arguments["query_weight"].flags.writeable
    x = rng.standard_normal((3, 10))
    for twin in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer), dataclasses.replace(layer)):
        assert_same_bits(twin(x), layer(x))
    assert not np.array_equal(dataclasses.replace(layer, scale=2.0)(x), layer(x))


def test_inputs_are_not_changed():
    rng = np.random.default_rng(0)
    layer = build(make(rng, widths=(10, 10, 10, 8), extra=1), 10.0)
    x = rng.standard_normal((2, 3, 10))
    kept = x.copy()
    x.flags.writeable = False
    layer(x, mask=rg.Causal())
    assert_same_bits(x, kept)


# --- other libraries' tensors ---------------------------------------------------------------------


class Tensor:
    """As much of a torch tensor as is used; bfloat16 has no NumPy form, as there."""

    def __init__(self, array, dtype="torch.float32"):
        self.array, self.dtype = array, dtype

    def detach(self):
        return Tensor(self.array, self.dtype)

    cpu = detach

    def float(self):
        return Tensor(self.array.astype(np.float32))

    def numpy(self):
        assert self.dtype != "torch.bfloat16"
        return self.array


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
    wide = {name: Tensor(np.float32(x)) for name, x in torch_names(arguments).items()}
    wide |= {f"bias_{x[0]}": Tensor(np.float32(arguments[f"extra_{x}"])[None]) for x in ("key", "value")}
    layer = rg.MultiHeadAttention.from_torch(wide, num_heads=4, add_zero_attn=True)
    assert layer.extra_key.shape == layer.extra_value.shape == (2, 12)
    assert_same_bits(layer.extra_key[0], np.float32(arguments["extra_key"][0]))
    assert (layer.extra_key[1] == 0).all()
    assert (layer.extra_value[1] == 0).all()
    assert np.shares_memory(layer.output_weight, wide["out_proj.weight"].array)
    brain = {name: Tensor(t.array.astype(ml_dtypes.bfloat16), "torch.bfloat16") for name, t in wide.items()}
    half = rg.MultiHeadAttention.from_torch(brain, num_heads=4)
    assert_same_bits(half.query_weight, brain["in_proj_weight"].array[:12].astype(np.float32))
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


# --- what is refused ------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"num_heads": 0}, rg.ShapeError, "num_heads is 0; it must be an integer, 1 or more"),
        ({"num_kv_heads": 3}, rg.ShapeError, r"4 query heads cannot share 3 kv heads, 4 % 3 = 1"),
        ({"query_weight": np.ones((25, 10))}, rg.ShapeError, r"shape \(25, 10\).*multiple of 4 query heads"),
        ({"query_weight": np.ones(24)}, rg.ShapeError, r"query_weight has shape \(24,\); it must have two axes"),
        ({"query_weight": np.ones((0, 10))}, rg.ShapeError, r"query_weight has shape \(0, 10\)"),
        ({"query_weight": None}, rg.DTypeError, "query_weight is None"),
        (
            {"key_weight": np.ones((12, 9))},
            rg.ShapeError,
            r"key_weight has shape \(12, 9\) and must have \(24, any\), 4 kv heads of 6 \(grouped.*num_kv_heads=2\)",
        ),
        (
            {"key_weight": np.ones((9, 24))},
            rg.ShapeError,
            r"key_weight has shape \(9, 24\).*\(outputs, inputs\).*pass key_weight\.T",
        ),
        ({"value_weight": np.ones((19, 7))}, rg.ShapeError, r"value_weight has shape \(19, 7\).*of 4 kv heads"),
        (
            {"output_weight": np.ones((20, 8))},
            rg.ShapeError,
            r"output_weight has shape \(20, 8\) and must have \(any, 20\), inputs for 4 heads with values of 5; .*\.T",
        ),
        ({"value_bias": np.ones(19)}, rg.ShapeError, r"value_bias has shape \(19,\).* \(20,\), a number per row"),
        ({"output_bias": np.ones((8, 1))}, rg.ShapeError, r"output_bias has shape \(8, 1\) and must have \(8,\)"),
        ({"sinks": np.ones(3)}, rg.ShapeError, r"sinks has shape \(3,\) and must have \(4,\), a logit per query head"),
        ({"extra_key": np.ones((1, 24))}, rg.ShapeError, "extra_key and extra_value come together"),
        (
            {"extra_key": np.ones(24), "extra_value": np.ones(20)},
            rg.ShapeError,
            r"extra_key has shape \(24,\) and must have \(24, 24\), rows of 4 kv heads of 6",
        ),
        (
            {"extra_key": np.ones((2, 24)), "extra_value": np.ones((1, 20))},
            rg.ShapeError,
            r"extra_value has shape \(1, 20\) and must have \(2, 20\), a row per extra key, 4 of 5",
        ),
        ({"scale": np.nan}, rg.UnsupportedError, "scale is nan"),
        ({"softcap": -1}, rg.UnsupportedError, "softcap is -1"),
        ({"key_bias": np.ones(24, np.float32)}, rg.DTypeError, "query_weight is float64.*key_bias is float32.*cast"),
        ({"key_weight": np.ones((24, 9), int)}, rg.DTypeError, "key_weight has the integer dtype int64"),
    ],
    ids=str,
)  # fmt: skip
def test_messages_of_the_constructor(change, kind, message):
    with pytest.raises(kind, match=message):
        rg.MultiHeadAttention(**{**make(np.random.default_rng(0)), **change})


def test_messages_of_a_call():
    rng = np.random.default_rng(0)
    layer = rg.MultiHeadAttention(**make(rng))
    q, k, v = (rng.standard_normal((2, 5, width)) for width in (10, 9, 7))
    cases = [
        (
            rg.ShapeError,
            r"key has shape \(2, 5, 10\) and must have \(\.\.\., S, 9\).*key_weight of shape \(24, 9\)",
            (q,),
        ),
        (rg.ShapeError, r"query has shape \(2, 5, 9\) and must have \(\.\.\., S, 10\)", (k, k, v)),
        (rg.ShapeError, r"value has shape \(2, 5, 9\) and must have \(\.\.\., S, 7\)", (q, k)),
        (rg.ShapeError, r"query has shape \(10,\) and must have \(\.\.\., S, 10\)", (q[0, 0], k, v)),
        (rg.ShapeError, r"key has 5 rows and value has 4", (q, k, v[:, :4])),
        (rg.ShapeError, r"leading \(batch\) axes", (q, k[[0, 1, 1]], v)),
        (rg.DTypeError, "query is float64, key is float32, value is float64", (q, np.float32(k), v)),
        (
            rg.DTypeError,
            r"query is float32 and the layer's weights are float64: cast query to float64",
            tuple(map(np.float32, (q, k, v))),
        ),
        (rg.DTypeError, "query has the integer dtype", (q.astype(int), k.astype(int), v.astype(int))),
        (rg.DTypeError, "key is None", (q, None, v)),
    ]
    for kind, message, inputs in cases:
        with pytest.raises(kind, match=message):
            layer(*inputs)
    with pytest.raises(rg.MaskError, match=r"mask has shape \(2, 5\) and the scores have shape \(2, 4, 5, 5\)"):
        layer(q, k, v, mask=np.ones((2, 5), bool))
    for name, way in (("key_padding_mask", "KeyLengths"), ("is_causal", "Causal"), ("need_weights", "weights")):
        with pytest.raises(TypeError, match=f"{name}= is another library's argument.*{way}"):
            layer(q, k, v, **{name: None})
    with pytest.raises(
        TypeError, match=r"scale belongs to the layer: write dataclasses\.replace\(layer, scale=\.\.\.\)"
    ):
        layer(q, k, v, scale=1.0)


# --- the oracle can say no ------------------------------------------------------------------------


def test_the_rotation_of_the_oracle():
    row = np.array([1.0, 2.0, 3.0, 4.0])
    assert_close(turned(row, 3, 100.0), rg.rotary_embedding(row[None], [3], base=100.0)[0], EXACT)
    assert not np.allclose(turned(row, 3, 100.0), turned(row, 4, 100.0))
