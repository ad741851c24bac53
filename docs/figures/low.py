"""What float16 and bfloat16 do to scores, weights and sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ._draw import Picture, Table, num, percent, sci

Rounding = Callable[[np.ndarray], np.ndarray]


def bf16(x: np.ndarray | float) -> np.ndarray:
    """Round float32 to bfloat16, to nearest and ties to even, and back."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32).reshape(np.shape(x))


def fp16(x: np.ndarray | float) -> np.ndarray:
    """Round to float16 and back."""
    return np.asarray(x, np.float32).astype(np.float16).astype(np.float32)


def fp32(x: np.ndarray | float) -> np.ndarray:
    """Round to float32."""
    return np.asarray(x, np.float32)


ROUND: dict[str, Rounding] = {"float16": fp16, "bfloat16": bf16, "float32": fp32}


def formats() -> Table:
    """Digits and range of the dtypes."""
    rows = []
    for name, digits, largest in (
        ("float64", 53, float(np.finfo(np.float64).max)),
        ("float32", 24, float(np.finfo(np.float32).max)),
        ("float16", 11, float(np.finfo(np.float16).max)),
        ("bfloat16", 8, (2 - 2**-7) * 2.0**127),
    ):
        shown = f"{largest:.0f}" if largest < 1e6 else f"{largest:.2g}".replace("e+", "e")
        rows.append((name, str(digits), f"2⁻{_high(digits)} = {sci(2.0**-digits)}", shown))
    return Table(["dtype", "significant bits", "unit roundoff u", "largest number"], rows)


def _high(n: int) -> str:
    return str(n).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def logits() -> Table:
    """How wrong a weight can be when its score is stored in a dtype: e to the half step of the dtype, minus 1."""
    rows = []
    for size in (8, 64, 256):
        cells = [f"{size // 2} to {size}"]
        for digits in (8, 11, 24):
            worst = np.expm1(size / 2 * 2.0 ** (1 - digits) / 2)
            cells.append(percent(worst) if worst > 1e-4 else f"{100 * worst:.1g} %".replace("e-0", "e−"))
        rows.append(cells)
    return Table(["|s|", "bfloat16", "float16", "float32"], rows)


def rounding() -> Picture:
    """Draw the numbers that exist between 60 and 64, and what rounding a score to them does to its weight."""
    picture = Picture(
        660, 250, "The representable numbers from 60 to 64: every quarter in bfloat16, every thirty-second in float16, "
        "a continuum in float32. The score 62.4 becomes 62.5 in bfloat16.",
    )  # fmt: skip
    low, high, left, wide = 60.0, 64.0, 90, 520
    score = 62.4

    def at(x: float) -> float:
        return left + (x - low) / (high - low) * wide

    for n, (name, digits) in enumerate((("bfloat16", 8), ("float16", 11), ("float32", 24))):
        y = 60 + 66 * n
        step = 32 * 2.0 ** (1 - digits)
        picture.text(left - 12, y + 4, name, "end")
        picture.line(left, y, left + wide, y)
        if step > 0.01:
            for x in np.arange(low, high + step / 2, step):
                picture.line(at(x), y - 8, at(x), y + 8, "mark first")
        else:
            picture.rect(left, y - 8, wide, 16, "cell keep")
        value = float(ROUND[name](score))
        picture.line(at(score), y - 16, at(score), y + 16, "mark second")
        error = np.expm1(value - score)
        sign = "+" if error > 0 else "−"
        shown = f"{100 * abs(error):.1f} %" if abs(error) > 1e-4 else f"{100 * abs(error):.1g} %".replace("e-0", "e−")
        picture.text(
            left + wide, y + 30, f"{score} is stored as {f'{value:.6g}'}: its weight changes by {sign}{shown}",
            "end", "small",
        )  # fmt: skip
    for x in range(60, 65):
        picture.text(at(x), 32, str(x), kind="small")
    return picture


def ones() -> Table:
    """Sum 4096 ones one by one in a dtype; the attention of 4096 equal keys with value 1 divides by it."""
    rows = []
    for name, rounding_ in ROUND.items():
        total = np.float32(0)
        for _ in range(4096):
            total = np.float32(rounding_(total + np.float32(1)))
        rows.append((name, num(float(total)), num(4096 / float(total), 2)))
    return Table(["running sum kept in", "after 4096 ones", "4096 ÷ that sum (right: 1)"], rows)


def fold(q: np.ndarray, k: np.ndarray, v: np.ndarray, tile: int, carry: Rounding) -> np.ndarray:
    """Online softmax over tiles with m, l and O rounded by ``carry`` after each tile; all else in float32."""
    s = (q @ k.T) / np.float32(np.sqrt(q.shape[1]))
    m = np.full((len(q), 1), -np.inf, np.float32)
    total, out = np.zeros_like(m), np.zeros((len(q), v.shape[1]), np.float32)
    for first in range(0, len(k), tile):
        part = s[:, first : first + tile]
        new = carry(np.maximum(m, part.max(1, keepdims=True)))
        alpha, p = np.exp(m - new), np.exp(part - new)
        total = carry(alpha * total + p.sum(1, keepdims=True))
        out = carry(alpha * out + p @ v[first : first + tile])
        m = new
    return out / total


@lru_cache
def carried(keys: tuple[int, ...] = (256, 1024, 4096)) -> list[tuple[int, float, dict[int, float], float]]:
    """Root mean square error against float64: float32 carry, bfloat16 carry by tile size, and the output itself."""
    rng = np.random.default_rng(20261129)
    out = []
    for n in keys:
        q, k, v = (bf16(rng.standard_normal((m, 64))) for m in (64, n, n))
        s = (q.astype(float) @ k.astype(float).T) / 8
        P = np.exp(s - s.max(1, keepdims=True))
        exact = P / P.sum(1, keepdims=True) @ v

        def rms(x: np.ndarray, exact: np.ndarray = exact) -> float:
            return float(np.sqrt(np.mean((x - exact) ** 2)))

        low = {tile: rms(fold(q, k, v, tile, bf16)) for tile in (16, 64, 256)}
        out.append((n, rms(bf16(fold(q, k, v, 64, fp32))), low, float(np.sqrt(np.mean(exact**2)))))
    return out


def carry() -> Table:
    """Error of the output when the state between tiles is kept in float32 and in bfloat16."""
    rows = [
        (f"{n:,}", sci(high), *(sci(low[tile]) for tile in (16, 64, 256)), sci(size))
        for n, high, low, size in carried()
    ]
    return Table(
        ["keys", "float32 state", "bfloat16 state, tiles of 16", "tiles of 64", "tiles of 256", "size of the output"],
        rows,
    )
