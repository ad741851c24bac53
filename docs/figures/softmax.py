"""From scores to shares."""

from __future__ import annotations

import numpy as np

import regard as rg

from ._draw import Picture, Table, num
from .example import KEYS, K, Q, V


def steps() -> Picture:
    """Score, exponential and weight of the three keys, as bars."""
    picture = Picture(
        710, 195, "Three groups of bars for keys 1, 2, 3: the scores, their exponentials after the shift, "
        "and the weights, which sum to one.",
    )  # fmt: skip
    result = rg.reference.attention_forward(Q, K, V)
    w = result.weights[0]
    s = (np.log(w) + result.lse[0]).round(12)
    groups = [("score s", s, 1), ("e to the s − m", np.exp(s - s.max()), 6), ("weight w", w, 6)]
    for n, (title, values, digits) in enumerate(groups):
        left = 25 + 235 * n
        picture.text(left + 95, 20, title, kind="title")
        picture.line(left, 150, left + 195, 150)
        for j, value in enumerate(values):
            high = 100 * value
            picture.rect(left + 12 + 62 * j, 150 - high, 40, high, "first")
            picture.text(left + 32 + 62 * j, 144 - high, num(value, digits), kind="small")
            picture.text(left + 32 + 62 * j, 168, KEYS[j], kind="small")
    picture.text(590, 186, f"sum {num(w.sum(), 6)}", kind="small")
    return picture


def limits() -> Table:
    """Largest score whose exponential is finite, for each dtype."""
    rows = []
    for name in ("float16", "float32", "float64"):
        largest = float(np.finfo(name).max)
        rows.append((name, f"{largest:.5g}".replace("e+", "e"), num(np.log(largest), 2)))
    bf16 = (2 - 2**-7) * 2.0**127
    rows.insert(1, ("bfloat16", f"{bf16:.5g}".replace("e+", "e"), num(np.log(bf16), 2)))
    return Table(["dtype", "largest number", "largest score with a finite exponential"], rows)


def mistakes() -> Table:
    """Compute what the example gives when the softmax is wrong."""
    s = 0.5 * (Q @ K.T)
    e = np.exp(s)
    square = np.exp(0.5 * (K @ K.T))
    over_queries = square / square.sum(0)
    rows = [
        ("right", e / e.sum()),
        ("no division by the sum, but the shift", np.exp(s - s.max())),
        ("exp2 for exp", 2**s / (2**s).sum()),
        ("1 added to the sum, as by one more key of score 0 and value 0", e / (1 + e.sum())),
        ("softmax twice", np.exp(e / e.sum()) / np.exp(e / e.sum()).sum()),
    ]
    out = [(name, num(w.sum()), num((w @ V)[0, 0])) for name, w in rows]
    out.append(
        (
            "over the queries, self-attention of the three keys",
            ", ".join(num(x) for x in over_queries.sum(1)),
            num((over_queries @ V)[2, 0]),
        )
    )
    return Table(["fault", "sum of the weights", "output"], out)
