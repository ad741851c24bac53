"""Multi-head layers and calls at random, for the tests of the layer, and what the oracle makes of them."""

import functools
import math

import numpy as np

import regard as rg
from dense_multihead import dense

# Values are of order 1 to 30 and pass through some hundred operations; float64 rounds by 1.1e-16 of them.
EXACT = 1e-13


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


def square(rng, **more):
    return make(rng, size=3, value_size=3, widths=(12, 12, 12, 12), **more)
