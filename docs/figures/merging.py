"""Partial results and how they are joined."""

from __future__ import annotations

import numpy as np

import regard as rg

from ._draw import Picture, Table, num
from .example import K, Q, V


def _state(cut: slice) -> rg.AttentionState:
    result = rg.reference.attention_forward(Q, K[cut], V[cut])
    return rg.AttentionState(result.out, result.lse)


def halves() -> Picture:
    """Two parts of the example and what becomes of them."""
    left, right = _state(slice(0, 2)), _state(slice(2, 3))
    both = rg.merge_states(left, right)
    factors = [float(np.exp(part.lse[0] - both.lse[0])) for part in (left, right)]
    picture = Picture(
        690, 200, "Keys 1 and 2 give output (0.5, 0.5) and lse 1.193147, key 3 gives (1, 1) and lse 1. Their factors "
        "are 0.548137 and 0.451863; merged they give 0.725931 and lse 1.794377.",
    )  # fmt: skip
    for n, (name, part, factor) in enumerate((("keys 1, 2", left, factors[0]), ("key 3", right, factors[1]))):
        y = 20 + 90 * n
        picture.rect(10, y, 240, 66, "cell keep")
        picture.text(130, y + 20, name, kind="title in keep")
        picture.text(130, y + 39, f"out ({num(part.out[0, 0])}, {num(part.out[0, 1])})", kind="in keep")
        picture.text(130, y + 57, f"lse {num(part.lse[0])}", kind="in keep")
        picture.line(250, y + 33, 440, 98)
        picture.text(330, y + (22 if n == 0 else 60), f"× {num(factor)}")
    picture.rect(440, 62, 240, 72, "cell strong")
    picture.text(560, 84, "all keys", kind="title in strong")
    picture.text(560, 104, f"out ({num(both.out[0, 0])}, {num(both.out[0, 1])})", kind="in strong")
    picture.text(560, 123, f"lse {num(both.lse[0])}", kind="in strong")
    return picture


def faults() -> Table:
    """Merge the example's two parts in ways that people write."""
    left, right = _state(slice(0, 2)), _state(slice(2, 3))
    a, b = left.out[0, 0], right.out[0, 0]
    la, lb = left.lse[0], right.lse[0]
    two, one = np.exp(la), np.exp(lb)
    cases = [
        ("right", (two * a + one * b) / (two + one)),
        ("mean of the outputs", (a + b) / 2),
        ("mean weighted by the number of keys", (2 * a + b) / 3),
        ("2 to the power of a natural lse", (2**la * a + 2**lb * b) / (2**la + 2**lb)),
        ("lse with the wrong sign", (a / two + b / one) / (1 / two + 1 / one)),
        ("outputs that are not normalised, added", 2 * np.exp(0.5 - 1) * a + b),
    ]
    return Table(["how", "output"], [(name, num(float(x))) for name, x in cases])
