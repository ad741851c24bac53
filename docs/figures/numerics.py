"""The error bound, evaluated, and kernels held to it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

import regard as rg
from regard.numerics import forward_bounds

from ._draw import Table, num, sci
from .low import bf16, fp16


def _problem(n: int, d: int, sigma: float, mean: float) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng([n, d, int(sigma)])
    q, k, v = (rng.standard_normal((m, d), dtype=np.float32) for m in (48, n, n))
    return q * np.float32(sigma), k, v + np.float32(mean)


def _worst(out: np.ndarray, exact: Any, q: Any, k: Any, v: Any, tile: int) -> float:
    bounds = forward_bounds(q, k, v, exact.weights, scale=1 / np.sqrt(q.shape[-1]), tile_keys=tile)
    return float((np.abs(out - exact.out) / bounds.out).max())


def _standard(q: np.ndarray, k: np.ndarray, v: np.ndarray, store: Any) -> np.ndarray:
    s = store((q @ k.T) / np.float32(np.sqrt(q.shape[1])))
    P = np.exp(s - s.max(1, keepdims=True))
    return P / P.sum(1, keepdims=True) @ v


@lru_cache
def shares() -> list[tuple[int, int, float, float, float, float, float, float, float]]:
    """For problems of fixed seed: largest score, error of regard's scalar engine, and err / B of several kernels."""
    found = []
    for n, d, sigma, mean in ((64, 8, 1, 0), (1024, 64, 1, 0), (1024, 64, 1, 1), (1024, 64, 16, 0), (4096, 64, 1, 0)):
        q, k, v = _problem(n, d, sigma, mean)
        exact = rg.reference.attention_forward(q, k, v)
        with rg.config(target="scalar"):
            ours = rg.attention(q, k, v)
            tile = rg.plan(q, k, v).tile_keys
        online = rg.reference.online_attention(q, k, v, block_keys=tile)
        largest = float(np.abs(q @ k.T).max() / np.sqrt(d))
        error = float(np.abs(ours - exact.out).max())
        found.append(
            (n, d, mean, largest, error, _worst(ours, exact, q, k, v, tile), _worst(online, exact, q, k, v, tile),
             _worst(_standard(q, k, v, fp16), exact, q, k, v, tile),
             _worst(_standard(q, k, v, bf16), exact, q, k, v, tile))
        )  # fmt: skip
    return found


def measured() -> Table:
    """Largest error, and largest ratio of error to bound, with random-walk constants."""
    rows = []
    for n, d, mean, largest, error, ours, online, half, brain in shares():
        rows.append(
            (f"{n:,} × {d}, v around {num(mean)}", num(largest, 1), sci(error), num(ours, 2), num(online, 2),
             f"{half:,.0f}", f"{brain:,.0f}")
        )  # fmt: skip
    return Table(
        ["keys × head size", "largest score", "regard: error", "regard: error / bound", "NumPy tiles: error / bound",
         "float16 scores: error / bound", "bfloat16 scores: error / bound"],
        rows,
    )  # fmt: skip
