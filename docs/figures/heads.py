"""Splitting a width into heads, right and wrong, and the scale of a head."""

from __future__ import annotations

import numpy as np

import regard as rg

from ._draw import Picture, Table, num
from .example import K, Q, V

WIDTH, ROWS, KEYS = 512, 500, 64


def split() -> Picture:
    """Three tokens of four numbers, split into two heads with the transpose and without it."""
    names = np.array([[f"{token}{n}" for n in range(1, 5)] for token in "abc"])
    picture = Picture(
        690, 300, "Tokens a, b and c of four numbers each. Split: head 0 has numbers 1 and 2 of each token, head 1 "
        "has 3 and 4. Reshaped without a transpose: head 0 has all of token a and half of b, head 1 the rest.",
    )  # fmt: skip

    def panel(left: float, top: float, table: np.ndarray, title: str, rows: list[str]) -> None:
        def cell(i: int, j: int) -> tuple[str, str]:
            return "strong" if table[i, j][1] in "12" else "keep", str(table[i, j])

        picture.grid(left, top, table.shape, cell, size=(40, 28), title=title, rows=rows)

    panel(60, 110, names, "x, three tokens", list("abc"))
    rows = ["row 1", "row 2", "row 3"]
    for top, title, parts in (
        (36, "split_heads(x, 2)", rg.split_heads(names, 2)),
        (186, "x.reshape(2, 3, 2)", names.reshape(2, 3, 2)),
    ):
        picture.text(260, top + 46, "→")
        for h in (0, 1):
            panel(350 + 190 * h, top, parts[h], f"{title}[{h}]", rows)
    return picture


def _heads(x: np.ndarray) -> np.ndarray:
    return rg.split_heads(x, 2)


def mistakes() -> Table:
    """Compute the example with two heads, and with the mistakes that people make."""
    q, k, v = _heads(Q), _heads(K), _heads(V)
    cases = [
        ("right", q, k, v, 1 / np.sqrt(2)),
        ("reshape without transpose", q, K.reshape(2, 3, 2), V.reshape(2, 3, 1), 1 / np.sqrt(2)),
        ("1/√4, the width's scale", q, k, v, 1 / np.sqrt(4)),
        ("no scale", q, k, v, 1.0),
    ]
    rows = []
    for name, *arrays, scale in cases:
        result = rg.reference.attention_forward(*arrays, scale=scale)
        first, second = (", ".join(num(w) for w in head[0]) for head in result.weights)
        rows.append((name, f"({first})", f"({second})", f"({', '.join(num(o) for o in result.out[:, 0, 0])})"))
    one = rg.reference.attention_forward(Q, K, V)
    rows.append(
        ("one head", f"({', '.join(num(w) for w in one.weights[0])})", "", f"({', '.join(map(num, one.out[0]))})")
    )
    return Table(["how", "weights of head 0", "weights of head 1", "output"], rows)


def scales() -> Table:
    """Scatter of a head's scores and what its softmax makes of them, by its own size and by the width."""
    rows = []
    for heads in (1, 4, 8, 32):
        size = WIDTH // heads
        rng = np.random.default_rng([20261129, heads])
        q, k = rg.split_heads(rng.standard_normal((ROWS, WIDTH)), heads), rng.standard_normal((heads, KEYS, size))
        dots = q @ k.swapaxes(-1, -2)
        cells = [str(heads), str(size), num(dots.var(), 1 if size > 50 else 2)]
        for scale in (size, WIDTH):
            s = dots / np.sqrt(scale)
            P = np.exp(s - s.max(-1, keepdims=True))
            P /= P.sum(-1, keepdims=True)
            cells += [num(s.std(), 3), num(P.max(-1).mean(), 3)]
        rows.append(cells)
    return Table(
        ["heads", "D", "variance of q·k", "1/√D: std of scores", "mean of largest weights", "1/√512: std of scores",
         "mean of largest weights"],
        rows,
    )  # fmt: skip


def meetings() -> Table:
    """Count for each token of six which other tokens it can see, by changing one at a time."""
    x = np.random.default_rng(0).standard_normal((6, 4))

    def right(x: np.ndarray) -> np.ndarray:
        return rg.merge_heads(rg.attention(*[rg.split_heads(x, 2)] * 3))

    def wrong(x: np.ndarray) -> np.ndarray:
        return rg.attention(*[x.reshape(2, 6, 2)] * 3).reshape(6, 4)

    rows = []
    for name, attend in (("split_heads, merge_heads", right), ("reshape, reshape", wrong)):
        seen: list[list[str]] = [[] for _ in range(6)]
        for changed in range(6):
            moved = (attend(x) != attend(x + (np.arange(6) == changed)[:, None])).any(-1)
            for token in np.flatnonzero(moved):
                seen[token].append(str(changed + 1))
        rows.append((name, *(", ".join(tokens) for tokens in seen)))
    return Table(["token", *map(str, range(1, 7))], rows)
