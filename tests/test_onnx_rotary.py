"""regard.onnx.rotary_embedding against the turn of each pair written down, in all layouts."""

import ml_dtypes
import numpy as np
import pytest

import regard as rg
import regard.onnx
from judges import assert_close, assert_same_bits

UNITS = {np.float64: 2.0**-53, np.float32: 2.0**-24, np.float16: 2.0**-11, ml_dtypes.bfloat16: 2.0**-8}


def turned(X, cos, sin, interleaved, dim):
    """Pair by pair, in float64: X (B, H, L, D), cos and sin (B, L, dim / 2)."""
    out, size = X.astype(np.float64), np.abs(X).astype(np.float64)
    for b, h, i, c in np.ndindex(*X.shape[:3], dim // 2):
        one, two = (2 * c, 2 * c + 1) if interleaved else (c, c + dim // 2)
        x, y, C, S = (float(n) for n in (X[b, h, i, one], X[b, h, i, two], cos[b, i, c], sin[b, i, c]))
        out[b, h, i, [one, two]] = x * C - y * S, x * S + y * C
        size[b, h, i, [one, two]] = abs(x * C) + abs(y * S), abs(x * S) + abs(y * C)
    return out, size


@pytest.mark.parametrize("dtype", UNITS, ids=str)
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("dim", [0, 2, 6, 8])
@pytest.mark.parametrize("cached", [False, True])
def test_against_the_turn_written_down(dtype, interleaved, dim, cached):
    rng = np.random.default_rng(dim)
    X = rng.standard_normal((2, 3, 5, 8)).astype(dtype)
    r = dim or 8
    ids = rng.integers(0, 11, (2, 5))
    cos_cache, sin_cache = rng.standard_normal((2, 11, r // 2)).astype(dtype)
    cos, sin = cos_cache[ids], sin_cache[ids]
    call = (cos_cache, sin_cache, ids) if cached else (cos, sin)
    got = regard.onnx.rotary_embedding(X, *call, interleaved=interleaved, rotary_embedding_dim=dim)
    want, size = turned(X, cos, sin, interleaved, r)
    carried = UNITS[np.float64 if dtype == np.float64 else np.float32]
    assert got.dtype == X.dtype
    assert_close(
        got, want, 3 * carried * size + UNITS[dtype] * np.abs(want) * (1 + 2**-6) + 2.0**-24 * (dtype == np.float16)
    )
    assert_same_bits(got[..., r:], X[..., r:])
    packed = X.swapaxes(1, 2).reshape(2, 5, 24)
    flat = regard.onnx.rotary_embedding(
        packed, *call, interleaved=interleaved, rotary_embedding_dim=dim, num_heads=3
    )  # fmt: skip
    assert_same_bits(flat, got.swapaxes(1, 2).reshape(2, 5, 24))


def test_with_tables_of_angles_it_is_regards_own():
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 8), dtype=np.float32)
    angles = np.arange(9)[:, None] * 10000.0 ** (-np.arange(0, 8, 2) / 8)
    ids = np.broadcast_to(np.arange(4, 9), (2, 5))
    got = regard.onnx.rotary_embedding(x, np.cos(angles), np.sin(angles), ids)
    assert_same_bits(got, rg.positions.rotary_embedding(x, offset=4))
