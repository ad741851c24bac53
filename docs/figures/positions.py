"""What positions do to scores, and what float32 does to angles."""

from __future__ import annotations

import numpy as np

import regard as rg
from regard.positions import rotary_frequencies, rotate

from ._draw import Picture, Table, num, sci
from .example import K, Q, V


def _score(first: int, second: int) -> float:
    """Scaled product of the example's query, at two positions, with itself."""
    turned = rg.rotary_embedding(np.repeat(Q, 2, axis=0), [first, second])
    return float(turned[0] @ turned[1] / 2)


def distances() -> Picture:
    """Draw the scores of one query and six equal keys, one per position, and the same from position 1000 on."""
    picture = Picture(
        710, 250,
        "Two tables of six by six scores: the left for positions 0 to 5, the right for positions 1000 to 1005. "
        "Both are equal, and each diagonal holds one number.",
    )  # fmt: skip
    for left, start in ((60, 0), (415, 1000)):
        names = [str(start + i) for i in range(6)]
        cells = [[_score(start + i, start + j) for j in range(6)] for i in range(6)]

        def cell(i: int, j: int, cells: list[list[float]] = cells) -> tuple[str, str]:
            kind = "strong" if i == j else "keep" if abs(i - j) == 1 else "plain"
            return kind, num(round(cells[i][j], 3), 3)

        title = f"positions {names[0]} to {names[-1]}"
        picture.grid(left, 50, (6, 6), cell, size=(47, 30), title=title, rows=names, columns=names)
    return picture


def turns() -> Table:
    """Compute how far each pair of a head of 8 features turns per token, and after how many tokens it is round."""
    rates = rotary_frequencies(8)
    rows = [("radians per token", *(num(f, 3) for f in rates))]
    rows.append(("tokens per turn", *(f"{2 * np.pi / f:,.1f}" for f in rates)))
    return Table(["pair", *map(str, range(4))], rows)


def precision() -> Table:
    """Worst error of an angle and of a product that are computed in float32, and of ours, by position; 128 features."""
    rates, rows = rotary_frequencies(128), []
    rng = np.random.default_rng(20261129)
    q, k = rng.standard_normal((2, 1000, 1, 128), dtype=np.float32)
    for start in (100, 10**4, 10**5, 10**6, 10**7):
        pair = np.array([start + 3, start])
        low = np.float32(pair)[:, None] * rates.astype(np.float32)
        angle = abs(low.astype(np.float64) - pair[:, None] * rates).max()
        exact = _product(*(rg.rotary_embedding(x.astype(float), [p]) for x, p in ((q, 3), (k, 0))))
        naive = _product(*(rotate(x, np.cos(a[None]), np.sin(a[None])) for x, a in zip((q, k), low, strict=True)))
        ours = _product(*(rg.rotary_embedding(x, [p]) for x, p in zip((q, k), pair, strict=True)))
        size = np.linalg.norm(q, axis=-1)[:, 0] * np.linalg.norm(k, axis=-1)[:, 0]
        worst = [sci((abs(x - exact) / size).max()) for x in (naive, ours)]
        rows.append((f"{start:,}", sci(angle), *worst))
    return Table(["position", "float32: worst angle, in radians", "float32: worst q·k", "regard: worst q·k"], rows)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.sum(a.astype(float) * b, axis=(-2, -1))


def forgotten() -> Table:
    """Weights of a third token in decoding: with its offset, without it, and with the key in the other layout."""
    keys = rg.rotary_embedding(K)
    cases = [
        ("query at position 2, right", rg.rotary_embedding(Q, offset=2), keys),
        ("offset forgotten: query at position 0", rg.rotary_embedding(Q), keys),
        ("query interleaved, keys in halves", rg.rotary_embedding(Q, offset=2, interleaved=True), keys),
        ("no positions", Q, K),
    ]
    rows = []
    for name, query, key in cases:
        result = rg.reference.attention_forward(query, key, V)
        weights = ", ".join(num(w) for w in result.weights[0])
        out = ", ".join(num(x) for x in result.out[0])
        rows.append((name, f"({weights})", f"({out})"))
    return Table(["what is done", "weights", "output"], rows)


def mixed() -> Table:
    """Compute one product at the same distance from several starts, in one layout and with the two mixed."""
    x = np.array([[1.0, 2.0, 3.0, 4.0]])
    rows = []
    for interleaved, name in ((False, "both in halves"), (True, "query interleaved, key in halves")):
        cells = []
        for start in (0, 1, 2, 3):
            query = rg.rotary_embedding(x, offset=start + 1, interleaved=interleaved)
            cells.append(num((query @ rg.rotary_embedding(x, offset=start).T).item(), 3))
        rows.append((name, *cells))
    return Table(["q · k at distance 1", "1 and 0", "2 and 1", "3 and 2", "4 and 3"], rows)
