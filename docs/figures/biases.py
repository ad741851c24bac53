"""Biases of distance: the row of numbers behind them, how fast ALiBi forgets, and T5's buckets."""

from __future__ import annotations

import numpy as np

import regard as rg

from ._draw import Picture, Table, num

_STEPS = 8  # buckets of the small T5 bias, up to distance 16


def diagonals() -> Picture:
    """Draw one row of numbers, and the scores of four queries that are read from it along the diagonals."""
    bias, queries, keys, offset = rg.Alibi([0.5]), 4, 6, 1
    table = bias.materialize(queries, keys, q_offset=offset)
    first, last = -offset - queries + 1, keys - 1 - offset
    row = bias.materialize(1, last - first + 1, q_offset=-first)
    picture = Picture(
        560, 305,
        "A row of nine numbers, one for each distance from -4 to 4, and below it the scores of four queries and six "
        "keys: each diagonal holds one number of the row, and one diagonal is marked in both.",
    )  # fmt: skip
    marked, size = -2, (46, 30)

    def kind(distance: int) -> str:
        return "strong" if distance == marked else "keep" if distance <= 0 else "plain"

    names = [num(d) for d in range(first, last + 1)]
    picture.grid(
        90, 50, row.shape, lambda i, j: (kind(first + j), num(float(row[0, j]))), size=size,
        title="one head's row, by distance j − p", columns=names,
    )  # fmt: skip
    picture.grid(
        90, 155, table.shape, lambda i, j: (kind(j - offset - i), num(float(table[i, j]))), size=size,
        title="laid over the scores, q_offset=1",
        rows=[f"p = {offset + i}" for i in range(queries)], columns=[f"j = {j}" for j in range(keys)],
    )  # fmt: skip
    return picture


def slopes() -> Table:
    """Write down the paper's slopes: for a power of two, and for 12 heads."""
    rows = []
    for heads in (4, 8, 12):
        written = (f"2<sup>{num(float(np.log2(m)))}</sup>" for m in rg.Alibi(heads).slopes)
        rows.append((str(heads), ", ".join(written)))
    return Table(["heads", "slopes"], rows)


def forgetting() -> Picture:
    """Plot what is left of a weight at a distance, for the first, a middle and the last head of eight."""
    heads, reach, wide, high, left, top = (0, 3, 7), 64, 480, 170, 70, 20
    bias = rg.Alibi(8).materialize(1, reach + 1, q_offset=reach, heads=8)[:, 0, ::-1]
    picture = Picture(
        650, 250, "Three falling curves of the factor exp(-slope times distance), for distances from 0 to 64: the head "
        "with slope one half is at zero after ten tokens, the one with slope 1/256 has hardly fallen at 64.",
    )  # fmt: skip
    for share in (0, 0.5, 1):
        y = top + high * (1 - share)
        picture.line(left, y, left + wide, y)
        picture.text(left - 8, y + 4, num(share), "end", "label")
    for distance in range(0, reach + 1, 16):
        picture.text(left + wide * distance / reach, top + high + 18, str(distance), kind="label")
    picture.text(left + wide / 2, top + high + 40, "distance p − j, in tokens", kind="small")
    for head, kind in zip(heads, ("first", "second", "third"), strict=True):
        factor = np.exp(bias[head].astype(float))
        picture.path(((left + wide * d / reach, top + high * (1 - f)) for d, f in enumerate(factor)), kind)
        end = max(min(top + high * (1 - float(factor[-1])), top + high - 6), top) + (-16 if head == 3 else 4)
        picture.text(left + wide + 8, end, f"head {head}: 1/{round(1 / 2.0 ** -(head + 1))}", "start", "small")
    return picture


def _buckets(count: int, distances: range, *, bidirectional: bool, max_distance: int) -> list[int]:
    """Give the bucket of each distance j - p, as the bias that numbers its buckets."""
    bias = rg.T5Bias(np.arange(count, dtype=float)[:, None], bidirectional=bidirectional, max_distance=max_distance)
    found = bias.materialize(1, len(distances), q_offset=-distances[0])
    return [int(bucket) for bucket in found[0]]


def buckets() -> Picture:
    """Draw eight buckets up to distance 16, for a decoder and for an encoder."""
    distances = range(-18, 19)
    picture = Picture(
        760, 175, "Two strips of cells for the distances from -18 to 18. Decoder: buckets 0 to 3 hold one distance "
        "each, 4 to 7 ever more, and all later keys are in bucket 0. Encoder: half of the buckets for each side.",
    )  # fmt: skip
    for top, title, bidirectional in ((50, "bidirectional=False", False), (125, "bidirectional=True", True)):
        found = _buckets(_STEPS, distances, bidirectional=bidirectional, max_distance=16)

        def cell(i: int, j: int, found: list[int] = found) -> tuple[str, str]:
            return ("strong" if distances[j] == 0 else ("keep", "plain")[found[j] % 2]), str(found[j])

        names = [num(d) if d % 3 == 0 else "" for d in distances]
        picture.grid(15, top, (1, len(distances)), cell, size=(19.6, 26), title=title, columns=names)
    return picture


def ranges() -> Table:
    """Write down the distances of each bucket of a T5 decoder, 32 buckets up to 128."""
    away = range(-200, 1)
    found = np.array(_buckets(32, away, bidirectional=False, max_distance=128)[::-1])  # by distance p - j, from 0 on
    rows = []
    for start in range(0, 32, 16):
        cells = []
        for bucket in range(start, start + 16):
            first, last = np.flatnonzero(found == bucket)[[0, -1]]
            cells.append(f"{first} …" if bucket == 31 else str(first) if first == last else f"{first}–{last}")
        rows += [(f"{start} to {start + 15}", ", ".join(cells))]
    return Table(["buckets", "distances p − j, bucket by bucket"], rows)
