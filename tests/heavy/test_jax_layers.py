"""JAX arrays through the layer, its heads, the rotation and packed sequences: JAX arrays with NumPy's bits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import regard as rg
from judges import assert_same_bits
from multihead_random import make


def same(got, want):
    assert isinstance(got, jax.Array)
    assert_same_bits(np.asarray(got), want)


def narrow_layer(rng, take, **more):
    drawn = make(rng, kv_heads=2, size=8, value_size=6, widths=(10, 10, 10, 7), **more)
    layer = {name: take(np.float32(x)) if isinstance(x, np.ndarray) else x for name, x in drawn.items()}
    return rg.MultiHeadAttention(**layer, rotary=functools.partial(rg.rotary_embedding, base=50.0))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("extra", [0, 2])
def test_layer(dtype, extra):
    """Weights of JAX as well as inputs; the mask is JAX's, the bias in the layer's library."""
    ours = narrow_layer(np.random.default_rng(0), np.asarray, extra=extra)
    layer = narrow_layer(np.random.default_rng(0), jnp.asarray, extra=extra)
    rng = np.random.default_rng(1)
    x = jnp.asarray(rng.standard_normal((2, 5, 10)), dtype)
    mask, bias = rng.random((5, 5)) < 0.7, rng.standard_normal((4, 5, 5), dtype=np.float32)[None]
    options = {"mask": rg.Dense(mask) & rg.Causal(), "bias": rg.DenseBias(bias) + rg.Alibi(4)}
    result = layer.forward(x, mask=rg.Dense(jnp.asarray(mask)) & rg.Causal(), bias=jnp.asarray(bias))
    want = ours.forward(np.asarray(x), mask=options["mask"], bias=bias)
    same(result.out, want.out)
    assert result.out.dtype == dtype
    assert_same_bits(result.heads, want.heads)
    assert_same_bits(result.weights[...], want.weights[...])
    same(layer(x, **options), ours(np.asarray(x), **options))
    same(layer(x[:, -1:], x, q_offset=jnp.asarray([4, 2])), ours(np.asarray(x[:, -1:]), np.asarray(x), q_offset=[4, 2]))


def test_what_the_layer_refuses():
    layer = narrow_layer(np.random.default_rng(0), np.asarray)
    x = jnp.ones((2, 5, 10))
    with pytest.raises(rg.UnsupportedError, match="query is a JAX tracer"):
        jax.jit(layer)(x)
    with pytest.raises(rg.UnsupportedError, match="query is a JAX array and key is a NumPy array"):
        layer(x, np.ones((2, 5, 10), np.float32))


def test_heads():
    x = jnp.arange(24.0).reshape(2, 3, 4)
    same(rg.split_heads(x, 2), rg.split_heads(np.asarray(x), 2))
    same(rg.merge_heads(rg.split_heads(x, 2)), np.asarray(x))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary(dtype, interleaved):
    x = jax.random.normal(jax.random.key(0), (2, 3, 5, 8)).astype(dtype)
    numpys = np.asarray(x)
    for options in ({}, {"dim": 4}, {"base": 50.0, "offset": [3, 7]}):
        options["interleaved"] = interleaved
        want = rg.rotary_embedding(numpys, np.arange(5), **options)
        same(rg.rotary_embedding(x, jnp.arange(5), **options), want)
    angles = np.arange(15.0).reshape(5, 3)
    cos, sin = np.cos(angles), np.sin(angles)
    same(
        rg.positions.rotate(x, jnp.asarray(cos), jnp.asarray(sin), interleaved=interleaved),
        rg.positions.rotate(numpys, np.float32(cos), np.float32(sin), interleaved=interleaved),
    )
    table = rg.sinusoidal_positions(jnp.arange(5), 8, dtype=jnp.dtype(dtype))
    assert_same_bits(table, rg.sinusoidal_positions(np.arange(5), 8, dtype=numpys.dtype))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_packed_sequences(dtype):
    keys = jax.random.split(jax.random.key(1), 3)
    shapes = (4, 9, 8), (2, 9, 8), (2, 9, 6)
    q, k, v = (jax.random.normal(key, shape).astype(dtype) for key, shape in zip(keys, shapes, strict=True))
    starts = [0, 4, 4, 9]
    options = {"mask": rg.Causal() & rg.Window(left=2), "bias": rg.Alibi(4), "sinks": jnp.zeros(4, dtype)}
    got = rg.varlen_attention(q, k, v, jnp.asarray(starts), **options)
    options["sinks"] = np.asarray(options["sinks"])
    want = rg.varlen_attention(*map(np.asarray, (q, k, v)), np.array(starts), **options)
    same(got, want)
    same(got[:, :4], rg.attention(*(np.asarray(x[:, :4]) for x in (q, k, v)), **options))
