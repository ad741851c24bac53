"""regard.onnx on torch's tensors and JAX's arrays: the same library comes out, with NumPy's bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import regard as rg
import regard.onnx
from judges import assert_same_bits

LIBRARIES = {"torch": (torch.from_numpy, torch.Tensor), "jax": (jnp.asarray, jax.Array)}


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def normal(rng, *shape):
    return rng.standard_normal(shape, dtype=np.float32)


@pytest.fixture(params=LIBRARIES)
def library(request):
    return LIBRARIES[request.param]


@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("past", [0, 3])
def test_attention(rng, library, mode, packed, past):
    take, kind = library
    shapes = [(2, 5, 24), (2, 7, 12), (2, 7, 6)] if packed else [(2, 4, 5, 6), (2, 2, 7, 6), (2, 2, 7, 3)]
    inputs = [normal(rng, *shape) for shape in shapes]
    mask = rng.random((5, 7 + past)) < 0.7
    cache = [normal(rng, 2, 2, past, d) for d in (6, 3)] if past else [None, None]
    heads = {"q_num_heads": 4, "kv_num_heads": 2} if packed else {}
    options = heads | {"is_causal": 1, "want_qk": True, "qk_matmul_output_mode": mode}
    want = regard.onnx.attention(*inputs, mask, *cache, **options)
    taken = [None if x is None else take(x) for x in (*inputs, mask, *cache)]
    got = regard.onnx.attention(*taken, **options)
    for theirs, numpys in zip(got, want, strict=True):
        assert isinstance(theirs, kind)
        assert_same_bits(np.asarray(theirs), numpys)


def test_lengths_and_bfloat16(rng, library):
    take, kind = library
    Q, K, V = normal(rng, 2, 4, 1, 6), normal(rng, 2, 2, 7, 6), normal(rng, 2, 2, 7, 3)
    narrow = "bfloat16"
    if kind is torch.Tensor:
        inputs = [take(x).to(torch.bfloat16) for x in (Q, K, V)]
    else:
        inputs = [take(x).astype(narrow) for x in (Q, K, V)]
    lengths = np.array([3, 7])
    got = regard.onnx.attention(*inputs, nonpad_kv_seqlen=take(lengths), is_causal=1)
    assert isinstance(got.Y, kind)
    assert str(got.Y.dtype).removeprefix("torch.") == narrow
    as_numpy = [x.view(torch.int16).numpy() if kind is torch.Tensor else np.asarray(x) for x in (*inputs, got.Y)]
    *ours, Y = (x.view(rg._libraries.bfloat16()) for x in as_numpy)
    assert_same_bits(Y, regard.onnx.attention(*ours, nonpad_kv_seqlen=lengths, is_causal=1).Y)


def test_without_a_past_keys_are_the_same_memory(rng):
    Q, K, V = (torch.from_numpy(normal(rng, 1, 2, 3, 4)) for _ in range(3))
    got = regard.onnx.attention(Q, K, V)
    assert got.present_key.data_ptr() == K.data_ptr()
    with pytest.raises(rg.UnsupportedError, match="Q requires grad"):
        regard.onnx.attention(Q.requires_grad_(), K, V)


def test_libraries_are_not_mixed(rng, library):
    take, _ = library
    Q, K, V = (normal(rng, 1, 2, 3, 4) for _ in range(3))
    with pytest.raises(rg.UnsupportedError, match=r"Q is a .* and K is a NumPy array"):
        regard.onnx.attention(take(Q), K, V)
    with pytest.raises(rg.UnsupportedError, match=r"X is a .* and cos_cache is a NumPy array"):
        regard.onnx.rotary_embedding(take(Q), normal(rng, 9, 2), normal(rng, 9, 2), np.zeros((1, 3), int))


@pytest.mark.parametrize("packed", [False, True])
def test_rotary_embedding(rng, library, packed):
    take, kind = library
    X = normal(rng, 2, 5, 24) if packed else normal(rng, 2, 4, 5, 6)
    caches, ids = [normal(rng, 9, 3), normal(rng, 9, 3)], rng.integers(0, 9, (2, 5))
    for num_heads in (4,) if packed else (0, None, 4):
        want = regard.onnx.rotary_embedding(X, *caches, ids, num_heads=num_heads)
        got = regard.onnx.rotary_embedding(take(X), *map(take, caches), take(ids), num_heads=num_heads)
        assert isinstance(got, kind)
        assert_same_bits(np.asarray(got), want)
