"""Tiles and the online softmax: the running maximum, sum and output after each tile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import regard as rg

from ._draw import Picture, Table, kept, num
from .example import K, Q, V


class Step(NamedTuple):
    """State after a tile of one key."""

    s: float
    m: float
    alpha: float
    p: float
    sum: float
    out: np.ndarray


def steps(order: tuple[int, ...] = (0, 1, 2)) -> list[Step]:
    """Fold the three keys of the example one by one.

    The state after a tile is read off the library: attention over the keys so far has lse = m + log l and output O / l.
    """
    s = 0.5 * (Q @ K.T)[0]
    before, out = -np.inf, []
    for n, j in enumerate(order):
        seen = list(order[: n + 1])
        so_far = rg.reference.attention_forward(Q, K[seen], V[seen])
        m = float(s[seen].max())
        total = float(np.exp(so_far.lse[0] - m))
        out.append(Step(s[j], m, float(np.exp(before - m)), float(np.exp(s[j] - m)), total, so_far.out[0] * total))
        before = m
    return out


def trace() -> Picture:
    """Draw the three tiles of the example as a table, with what each step does."""
    heads = ["tile", "s", "m", "α", "p", "l", "O", "O / l"]
    wide = [44, 50, 50, 84, 40, 84, 170, 170]
    picture = Picture(
        sum(wide) + 20, 170, "For each of three tiles the score, the running maximum, the factor alpha, the new "
        "weight, the running sum, the running output and their quotient. At the last tile the maximum rises and alpha "
        "is 0.606531.",
    )  # fmt: skip
    lefts = 10 + np.concatenate([[0], np.cumsum(wide)[:-1]])
    for x, w, head in zip(lefts, wide, heads, strict=True):
        picture.text(x + w / 2, 22, head, kind="title")
    for n, step in enumerate(steps()):
        y = 34 + 42 * n
        pair = f"({num(step.out[0])}, {num(step.out[1])})"
        mean = step.out / step.sum
        cells = [
            (str(n), "plain"), (num(step.s, 1), "plain"), (num(step.m, 1), "keep"),
            ("0" if n == 0 else num(step.alpha), "hot" if 0 < step.alpha < 1 else "plain"), (num(step.p), "plain"),
            (num(step.sum), "keep"), (pair, "keep"),
            (f"({num(mean[0])}, {num(mean[1])})", "strong" if n == 2 else "plain"),
        ]  # fmt: skip
        for x, w, (words, kind) in zip(lefts, wide, cells, strict=True):
            picture.rect(x, y, w, 38, f"cell {kind}")
            picture.text(x + w / 2, y + 24, words, kind=f"in {kind}")
    return picture


def faults() -> Table:
    """Fold the example, one key per tile, with a line of the online softmax left out."""
    s = 0.5 * (Q @ K.T)[0]

    def fold(order: list[int], rescale_l: bool = True, rescale_o: bool = True, each: bool = False) -> float:
        m, total, out = -np.inf, 0.0, 0.0
        for j in order:
            new = max(m, s[j])
            alpha, p = np.exp(m - new), np.exp(s[j] - new)
            total = (alpha if rescale_l else 1) * total + p
            out = (alpha if rescale_o else 1) * out + p * V[j, 0]
            m = new
        return float(np.mean(V[order, 0])) if each else float(out / total)

    cases = [
        ("right", {}),
        ("no rescale of l and O", {"rescale_l": False, "rescale_o": False}),
        ("O is not rescaled", {"rescale_o": False}),
        ("l is not rescaled", {"rescale_l": False}),
        ("each tile normalised alone, then averaged", {"each": True}),
    ]
    rows = []
    for name, options in cases:
        rising, falling = fold([0, 1, 2], **options), fold([2, 1, 0], **options)
        rows.append((name, num(rising), num(falling)))
    return Table(["fault", "largest score last", "largest score first"], rows)


def tiles() -> Picture:
    """Draw what a causal mask makes of tiles: skipped, computed with the mask, computed without."""
    n, size = 12, 3
    keep = rg.Causal().materialize(n, n)
    picture = Picture(
        520, 300, "A causal mask over 12 queries and 12 keys in tiles of 3 by 3: six tiles above the diagonal are "
        "skipped, four on it are masked, six below are full.",
    )  # fmt: skip
    picture.grid(30, 30, (n, n), lambda i, j: (kept(keep[i, j]), ""), size=(21, 21), title="")
    counts = {"full": 0, "partial": 0, "empty": 0}
    for i in range(0, n, size):
        for j in range(0, n, size):
            part = keep[i : i + size, j : j + size]
            name = "full" if part.all() else "partial" if part.any() else "empty"
            counts[name] += 1
            picture.rect(30 + j * 21, 30 + i * 21, size * 21, size * 21, f"tile {name}")
    words = {"full": "computed, no mask", "partial": "computed and masked", "empty": "never visited"}
    for n_, (name, count) in enumerate(counts.items()):
        picture.rect(310, 60 + 50 * n_, 24, 24, f"cell {'keep' if name != 'empty' else 'drop'}")
        picture.rect(310, 60 + 50 * n_, 24, 24, f"tile {name}")
        picture.text(342, 77 + 50 * n_, f"{count}: {words[name]}", "start")
    return picture


def cost() -> Table:
    """Memory of the scores, memory of a tile's state, and operations, for one head."""

    def size(bytes_: float) -> str:
        for unit, power in (("GiB", 30), ("MiB", 20)):
            if bytes_ >= 2**power:
                return f"{bytes_ / 2**power:g} {unit}"
        return f"{bytes_ / 1024:g} KiB"

    d = 64
    state = 4 * (64 * 64 + 2 * 64 * d + 2 * 64)  # S or P, O and the transposed block of queries, m and l
    rows = []
    for n in (1024, 4096, 16384, 65536):
        rows.append((f"{n:,}", size(4 * n * n), size(state), f"{4 * n * n * d / 1e9:.1f}"))
    return Table(["n", "all scores, float32", "one tile of 64 × 64 and its state", "10⁹ operations, 4 n² d"], rows)
