"""The row that keeps no key, under the conventions that exist."""

from __future__ import annotations

import numpy as np

import regard as rg

from ._draw import Picture, Table, num

V = np.array([[10.0], [20.0], [60.0]])
KEYS = np.array([[0.0], [1.0], [2.0]])
SCORES = KEYS[:, 0]


def _softmax(s: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        e = np.exp(s - s.max())
        return e / e.sum()


def results() -> dict[str, tuple[float, float]]:
    """Output and row sum of a fully masked row with scores 0, 1, 2 and values 10, 20, 60, by convention."""
    hidden = np.ones(3, bool)
    f32 = SCORES.astype(np.float32)
    weights = {
        "replace": _softmax(np.where(hidden, np.float32(-1e9), f32)),
        "add32": _softmax(f32 + np.float32(-1e9)),
        "add64": _softmax(SCORES + -1e4),
        "nan": _softmax(np.where(hidden, -np.inf, SCORES)),
    }
    out = {name: (float(w @ V[:, 0]), float(w.sum())) for name, w in weights.items()}
    ours = rg.reference.attention_forward(np.ones((1, 1)), KEYS, V, mask=rg.Empty(), scale=1)
    out["zero"] = (float(ours.out[0, 0]), float(ours.weights.sum()))
    return out


def conventions() -> Table:
    """Compute the same fully masked row under each convention."""
    names = {
        "replace": "replace the scores by −1e9 (or by the smallest finite number)",
        "add32": "add −1e9 in float32: it absorbs the scores",
        "add64": "add −1e4, where the dtype has the digits",
        "nan": "replace the scores by −∞, and no rule",
        "zero": "regard: −∞, and the rule that an empty row is zero",
    }
    means = {
        "replace": "the mean of all values, padding too",
        "add32": "the mean again",
        "add64": "attention as if nothing were masked",
        "nan": "0/0",
        "zero": "nothing",
    }
    found = results()
    rows = [(names[k], num(round(found[k][0], 4), 4), num(round(found[k][1], 6)), means[k]) for k in names]
    return Table(["what is done", "output for v = 10, 20, 60", "sum of the weights", "what it is"], rows)


def picture() -> Picture:
    """One empty row among others: the weights and the output."""
    keep = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1]], bool)
    ours = rg.reference.attention_forward(np.ones((3, 1)), KEYS, V, mask=keep, scale=1)
    S = np.broadcast_to(SCORES, (3, 3))
    filled = np.stack([_softmax(row) for row in np.where(keep, S, -1e9)])
    nothing = np.stack([_softmax(row) for row in np.where(keep, S, -np.inf)])
    image = Picture(
        740, 165, "Weights of three queries; query 2 may attend nowhere. With a fill of minus 1e9 its row is one third "
        "everywhere, with minus infinity and no rule it is NaN, in regard it is zero.",
    )  # fmt: skip
    for n, (title, w, out) in enumerate(
        [("fill −1e9", filled, filled @ V), ("−∞, no rule", nothing, nothing @ V), ("regard", ours.weights, ours.out)]
    ):
        left = 50 + 235 * n

        def cell(i: int, j: int, w: np.ndarray = w) -> tuple[str, str]:
            if keep[i, j]:
                return "keep", num(w[i, j], 3)
            return "drop" if w[i, j] == 0 else "bad", num(w[i, j], 3)

        image.grid(
            left, 40, (3, 3), cell, size=(44, 36), title=title,
            rows=["q_1", "q_2", "q_3"] if n == 0 else (),
        )  # fmt: skip
        for i in range(3):
            image.text(left + 140, 62 + 36 * i, "→ " + num(round(out[i, 0], 2), 2), "start")
    return image
