"""Pictures of masks, drawn from the masks themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

import regard as rg

from ._draw import Drawn, Picture, Table, kept, num
from .example import K, V


def _draw(*panels: tuple[str, Any], alt: str, cell: float = 21, gap: float = 55) -> Picture:
    rows, columns = panels[0][1].shape
    wide, high = columns * cell, rows * cell
    picture = Picture(20 + len(panels) * (wide + gap), high + 66, alt)
    for n, (title, keep) in enumerate(panels):
        left = 40 + n * (wide + gap)
        picture.grid(
            left, 50, keep.shape, lambda i, j, keep=keep: (kept(keep[i, j]), str(int(keep[i, j]))),
            size=(cell, cell), title=title, rows=[str(i) for i in range(rows)],
            columns=[str(j) for j in range(columns)],
        )  # fmt: skip
    return picture


def _panels(*shown: rg.Mask, alt: str, gap: float = 55) -> Picture:
    return _draw(*((repr(mask), mask.materialize(6, 6)) for mask in shown), alt=alt, gap=gap)


def full() -> Picture:
    """Everything and nothing."""
    return _panels(rg.Full(), rg.Empty(), alt="Full keeps every pair of query and key, Empty none.")


def causal() -> Picture:
    """Draw the lower triangle."""
    return _panels(rg.Causal(), alt="The lower triangle is kept, its diagonal included.")


def window() -> Picture:
    """Bands."""
    return _panels(
        rg.Window(left=2, right=0), rg.Window(left=1, right=1), rg.Window(left=0), gap=80,
        alt="Three windows: a band of three keys that ends at the query; a band of one key to each side; "
        "the query's own key and all later ones.",
    )  # fmt: skip


def first_keys() -> Picture:
    """Prefix and Global."""
    return _panels(
        rg.Prefix(2), rg.Causal() | rg.Prefix(2), rg.Global(1), gap=65,
        alt="Prefix keeps the first two columns; together with the causal triangle it is a prefix language model; "
        "Global keeps the first row and the first column.",
    )  # fmt: skip


def key_lengths() -> Picture:
    """Draw padding at the end of each batch entry."""
    keep = rg.KeyLengths([2, 5, 0]).materialize(6, 6, lead=(3,))
    left = rg.KeyPadding(np.arange(6) >= 2)
    return _draw(
        *((f"entry {b}: n = {n}", keep[b, 0]) for b, n in enumerate((2, 5, 0))),
        ("KeyPadding", left.materialize(6, 6)),
        alt="Three batch entries with two, five and no keys, and one with padding in front of its keys: the columns of "
        "padding are dropped for every query.",
    )


def documents() -> Picture:
    """Sequences packed into one."""
    ids = rg.Documents([0, 0, 1, 1, 1, 2])
    return _draw(
        ("Documents(ids)", ids.materialize(6, 6)),
        ("Causal() & Documents(ids)", (rg.Causal() & ids).materialize(6, 6)),
        alt="Blocks on the diagonal, one per document; and their lower triangles.",
        gap=85,
    )


def chunked() -> Picture:
    """Chunks and strides of positions."""
    return _panels(
        rg.Chunked(3), rg.Causal() & rg.Chunked(3), rg.Causal() & rg.Dilated(2), gap=75,
        alt="Chunked keeps blocks on the diagonal; with the causal triangle, their lower halves; Dilated keeps every "
        "second key before the query, its own among them.",
    )  # fmt: skip


def tables() -> Picture:
    """Any table of booleans, for pairs or for blocks of pairs."""
    cross = np.eye(6, dtype=bool) | np.eye(6, dtype=bool)[::-1]
    return _draw(
        ("Dense(cross)", rg.Dense(cross).materialize(6, 6)),
        ("Blocks([[1, 0], [1, 1]], 3)", rg.Blocks(np.array([[1, 0], [1, 1]], bool), 3).materialize(6, 6)),
        alt="Dense: here both diagonals are kept. Blocks: three of four blocks of three by three are kept.",
    )


def function() -> Picture:
    """Any rule."""

    def stairs(b: Any, h: Any, p: Any, j: Any) -> Any:
        return j // 2 <= p // 2

    return _panels(rg.from_function(stairs), alt="Stairs: blocks of two by two on and below the diagonal.")


def per_head() -> Picture:
    """Two heads with masks of their own."""
    masks = rg.Causal(), rg.Causal() & rg.Window(left=2)
    keep = rg.PerHead(masks).materialize(6, 6)
    return _draw(
        *((f"head {h}: {mask!r}", keep[h]) for h, mask in enumerate(masks)),
        alt="Head 0 keeps the lower triangle, head 1 a band of three keys that ends at the query.", gap=110,
    )  # fmt: skip


def combined() -> Picture:
    """And, or, not."""
    shown = {
        "Causal() & Window(left=2)": rg.Causal() & rg.Window(left=2),
        "… | Prefix(1)": (rg.Causal() & rg.Window(left=2)) | rg.Prefix(1),
        "~Window(left=0, right=0)": ~rg.Window(left=0, right=0),
    }
    return _draw(
        *((name, m.materialize(6, 6)) for name, m in shown.items()),
        alt="A causal window of three keys; the same and the first key for everybody; everything but the diagonal.",
    )


def alignment() -> Picture:
    """Draw the three places where three queries can stand among seven keys."""
    panels = [
        (f"q_offset={name}", rg.Causal().materialize(3, 7, q_offset=offset))
        for name, offset in (('"start"', 0), ("2", 2), ('"end"', 4))
    ]
    return _draw(
        *panels,
        alt="Causal attention of three queries over seven keys. Start: query 0 sees key 0 only. Offset 2: query 0 sees "
        "keys 0 to 2. End: the last query sees all seven keys.",
    )


def long() -> Drawn:
    """Let the library draw a long mask, tile by tile."""
    mask = rg.Causal() & (rg.Window(left=1024) | rg.Prefix(96))
    return Drawn(mask.picture(4096, 4096).svg)


def lesson() -> Picture:
    """Draw weights of the causal self-attention of the lesson: right, and wrong in four ways."""
    S = 0.5 * (K @ K.T)
    keep = np.tril(np.ones((3, 3), bool))
    plain = rg.reference.attention_forward(K, K, V).weights
    right = rg.reference.attention_forward(K, K, V, mask=rg.Causal()).weights
    zeroed = np.exp(S * keep)
    panels = [
        ("right", right),
        ("masked after the softmax", np.where(keep, plain, 0)),
        ("score times 0", zeroed / zeroed.sum(1, keepdims=True)),
        ("transposed", rg.reference.attention_forward(K, K, V, mask=keep.T.copy()).weights),
    ]
    picture = Picture(
        755, 175, "Weights of three queries over three keys: right; masked after the softmax, so that rows do not sum "
        "to one; scores times zero, so that hidden keys keep weight; and the mask transposed.",
    )  # fmt: skip
    for n, (title, w) in enumerate(panels):
        left = 30 + 185 * n

        def cell(i: int, j: int, w: Any = w) -> tuple[str, str]:
            kind = kept(keep[i, j])
            if not keep[i, j] and w[i, j]:
                kind = "bad"
            return kind, num(w[i, j], 3)

        picture.grid(left, 40, (3, 3), cell, size=(48, 34), title=title)
        picture.text(left + 72, 162, "row sums " + ", ".join(num(x, 3) for x in w.sum(1).round(9)), kind="small")
    return picture


def faults() -> Table:
    """Compute outputs of the causal self-attention of the lesson under faults that people make."""
    S = 0.5 * (K @ K.T)
    keep = np.tril(np.ones((3, 3), bool))
    reference = rg.reference.attention
    after = np.where(keep, rg.reference.attention_forward(K, K, V).weights, 0)
    zeroed = np.exp(S * keep)
    strict = np.tril(np.ones((3, 3), bool), -1)
    cases = [
        ("right", reference(K, K, V, mask=rg.Causal())),
        ("no mask", reference(K, K, V)),
        ("masked after the softmax", after @ V),
        ("score times 0", zeroed / zeroed.sum(1, keepdims=True) @ V),
        ("transposed: queries see the future only", reference(K, K, V, mask=keep.T.copy())),
        ("strict: a query does not see itself", reference(K, K, V, mask=strict)),
        ("one key too many", reference(K, K, V, mask=rg.Window(right=1))),
    ]
    rows = [(name, *(f"({num(a)}, {num(b)})" for a, b in out.round(12))) for name, out in cases]
    return Table(["fault", "query 1", "query 2", "query 3"], rows)
