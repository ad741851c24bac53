"""Why the scores are divided by √d: the variance of q · k, and what it does to the softmax and its gradient."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ._draw import Picture, Table, num, percent, sci

SIZES = (4, 16, 64, 256, 1024)
ROWS, KEYS = 4000, 64


class Measured(NamedTuple):
    """What happens to rows of a softmax over 64 keys."""

    max_weight: float
    entropy: float
    saturated: float
    mean_gradient: float
    median_gradient: float
    dead: float


@lru_cache
def scores(d: int) -> np.ndarray:
    """Draw q · k for 4000 queries, 64 keys each; entries of q and k are independent, mean 0, variance 1."""
    rng = np.random.default_rng([20261129, d])
    out = np.empty((ROWS, KEYS))
    for first in range(0, ROWS, 250):
        q = rng.standard_normal((250, d, 1), dtype=np.float32)
        k = rng.standard_normal((250, KEYS, d), dtype=np.float32)
        out[first : first + 250] = (k @ q)[..., 0]
    return out


@lru_cache
def measure(d: int, scaled: bool) -> Measured:
    """Take the softmax of `scores` and look at its rows."""
    s = scores(d) / (np.sqrt(d) if scaled else 1)
    P = np.exp(s - s.max(1, keepdims=True))
    P /= P.sum(1, keepdims=True)
    dP = np.random.default_rng(d).standard_normal(P.shape)
    dS = P * (dP - (P * dP).sum(1, keepdims=True))  # the Jacobian of the softmax, applied
    passed = np.linalg.norm(dS, axis=1) / np.linalg.norm(dP, axis=1)
    return Measured(
        P.max(1).mean(), -(P * np.log(np.maximum(P, 1e-300))).sum(1).mean(), (P.max(1) > 0.99).mean(),
        passed.mean(), float(np.median(passed)), (passed < 1e-3).mean(),
    )  # fmt: skip


def variance() -> Table:
    """Variance of q · k and the rows of the softmax, without the scale and with it."""
    rows = []
    for d in SIZES:
        raw, scaled = measure(d, False), measure(d, True)
        rows.append(
            (
                str(d), num(scores(d).var(), 2 if d < 100 else 1), num(raw.max_weight, 3), num(raw.entropy, 2),
                percent(raw.saturated), num(scaled.max_weight, 3), num(scaled.entropy, 2), percent(scaled.saturated),
            )
        )  # fmt: skip
    return Table(
        ["d", "variance of q·k", "raw: mean largest weight", "raw: entropy", "raw: rows above 0.99",
         "scaled: mean largest weight", "scaled: entropy", "scaled: rows above 0.99"],
        rows,
    )  # fmt: skip


def gradient() -> Table:
    """How much gradient a row of the softmax lets through."""
    rows = []
    for d in (64, 256, 1024):
        for scaled in (False, True):
            m = measure(d, scaled)
            median = num(m.median_gradient, 4) if m.median_gradient > 1e-3 else sci(m.median_gradient)
            rows.append((str(d), "1/√d" if scaled else "none", num(m.mean_gradient, 3), median, percent(m.dead)))
    return Table(["d", "scale", "mean of |ds| / |dw|", "median", "dead rows (below 0.001)"], rows)


def histogram() -> Picture:
    """Draw the distribution of q · k for three head sizes, before and after division by √d."""
    picture = Picture(
        700, 290,
        "Histograms of q times k for head sizes 4, 64 and 1024. Without the scale they get wider and wider; "
        "divided by the square root of d all three lie on each other.",
    )  # fmt: skip
    styles = {4: "first", 64: "second", 1024: "third"}
    for left, title, scaled, reach in ((45, "q · k", False, 80), (400, "q · k / √d", True, 4)):
        picture.text(left + 130, 20, title, kind="title")
        base, wide, high = 230, 260, 180
        picture.line(left, base, left + wide, base)
        edges = np.linspace(-reach, reach, 81)
        for d, style in styles.items():
            s = scores(d) / (np.sqrt(d) if scaled else 1)
            density = np.histogram(s, edges)[0] / s.size
            top = 0.4 if not scaled else 0.05
            heights = np.minimum(density / top, 1) * high
            middle = (edges[1:] + edges[:-1]) / 2
            points = [(left + (m + reach) / (2 * reach) * wide, base - h) for m, h in zip(middle, heights, strict=True)]
            picture.path(points, style)
        for tick in (-reach, -reach // 2, 0, reach // 2, reach):
            x = left + (tick + reach) / (2 * reach) * wide
            picture.line(x, base, x, base + 4)
            picture.text(x, base + 18, num(tick), kind="small")
    for n, (d, style) in enumerate(styles.items()):
        x = 180 + 130 * n
        picture.path([(x, 272), (x + 34, 272)], style)
        picture.text(x + 40, 276, f"d = {d}", "start")
    return picture


def two_keys() -> Table:
    """Gradient of a two-key softmax against the gap between its scores."""
    gaps = (0, 1, 2, 4, 8, 16)
    p = 1 / (1 + np.exp(-np.array(gaps, float)))
    slopes = p * (1 - p)
    cells = [num(s, 3) if s > 0.01 else sci(s) for s in slopes]
    return Table(["gap", *map(str, gaps)], [("p (1 − p)", *cells)])
