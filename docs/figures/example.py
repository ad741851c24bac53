"""The example that all lessons share: one query, three keys, three values; and its scores, seen from many sides."""

from __future__ import annotations

import numpy as np

import regard as rg

from ._draw import Picture, Table, num

Q = np.array([[1, 0, 1, 0]], float)
K = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], float)
V = np.array([[1, 0], [0, 1], [1, 1]], float)
KEYS = ["k_1", "k_2", "k_3"]


def products() -> Picture:
    """Each score as the sum of its products."""
    picture = Picture(
        640, 190, "For each of three keys the four products of query and key, their sum, and the sum times one half."
    )
    terms = Q * K
    picture.grid(70, 40, (1, 4), lambda i, j: ("hot" if Q[0, j] else "plain", num(Q[0, j])), rows=["q"])
    picture.grid(70, 80, (3, 4), lambda i, j: ("keep" if K[i, j] else "plain", num(K[i, j])), rows=KEYS)
    picture.text(130, 26, "query and keys", kind="title")
    picture.text(218, 128, "→")
    picture.grid(
        240, 80, (3, 4), lambda i, j: ("strong" if terms[i, j] else "plain", num(terms[i, j])), title="products q_c k_c"
    )
    scores = rg.reference.attention_forward(Q, K, V)
    dots = terms.sum(1)
    picture.text(388, 128, "→")
    picture.grid(410, 80, (3, 1), lambda i, j: ("plain", num(dots[i])), size=(60, 30), title="q · k")
    picture.text(492, 128, "→")
    weights = scores.weights[0]
    s = np.log(weights) + scores.lse[0]
    picture.grid(515, 80, (3, 1), lambda i, j: ("strong", num(s[i].round(12), 1)), size=(60, 30), title="q · k / √4")
    return picture


def other_scales() -> Table:
    """Compute the output of the example under scales that people write by mistake."""
    cases = [
        ("1/√d, right", 1 / np.sqrt(4)),
        ("none", 1.0),
        ("1/d, or applied twice", 1 / 4),
        ("1/√8, the model's width instead of the head's", 1 / np.sqrt(8)),
        ("·√d instead of /√d", np.sqrt(4)),
    ]
    rows = []
    for name, scale in cases:
        two = rg.reference.attention(Q, K[:2], V[:2], scale=scale)[0]
        three = rg.reference.attention_forward(Q, K, V, scale=scale)
        weights = ", ".join(num(w) for w in three.weights[0])
        rows.append((name, num(scale), f"({num(two[0])}, {num(two[1])})", f"({weights})", num(three.out[0, 0])))
    return Table(["scale", "value", "output, two keys", "weights, three keys", "output, each column"], rows)
