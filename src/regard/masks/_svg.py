"""A picture as SVG: shades that differ in lightness, and text; no script, no font, no network."""

from __future__ import annotations

from html import escape

import numpy as np

from regard._types import Array, BoolArray, IntArray

from ._grid import EMPTY, FULL, PARTIAL, Grid, gather

# In pixels: the grid's longer side at most, and a cell's side where there are few and where there are many.
_SIDE, _CELL, _LEAST = 448, 28, 10
_LEFT, _TOP, _RIGHT, _BOTTOM = 76, 76, 20, 76
_NARROWEST = 440  # room for the legend
_GAPS_FROM = 5  # smaller cells would be all gap
_LETTER, _DIGIT = 7.3, 7  # widths, of the title's font and of the other
_SHADES = (("empty", EMPTY), ("partial", PARTIAL), ("full", FULL))
STYLE = """
.regard-picture text { font: 12px system-ui, sans-serif; fill: #59636e }
.regard-picture .mask { font: 600 12px ui-monospace, monospace; fill: #1f2328 }
.regard-picture .paper { fill: #ffffff }
.regard-picture .empty { fill: #eceff2 }
.regard-picture .partial { fill: #8fbbea }
.regard-picture .full { fill: #174a8c }
.regard-picture .gaps { stroke: #ffffff; fill: none }
.regard-picture .marks { stroke: #174a8c; fill: none }
.regard-picture .tiles { stroke: #d97b00; fill: none }
@media (prefers-color-scheme: dark) {
.regard-picture text { fill: #9198a1 }
.regard-picture .mask { fill: #f0f6fc }
.regard-picture .paper { fill: #0d1117 }
.regard-picture .empty { fill: #1f2630 }
.regard-picture .partial { fill: #2f5f9e }
.regard-picture .full { fill: #a9d1ff }
.regard-picture .gaps { stroke: #0d1117 }
.regard-picture .marks { stroke: #a9d1ff }
.regard-picture .tiles { stroke: #ffb454 }
}
"""


def render(picture: Grid) -> str:
    """Draw a picture as one SVG element."""
    x, y = _edges(picture)
    width, height = max(_NARROWEST, x[-1] + _RIGHT), y[-1] + _BOTTOM
    shades = _shades(picture)
    parts = [
        f"<title>{escape(picture.title())}</title>",
        f"<desc>{escape(f'{picture.share()}; {picture.tally()}')}</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width:g}" height="{height:g}"/>',
        text(16, 24, _clipped(repr(picture.mask), width - 32), "mask"),
        *(_path(name, _boxes(shades == shade, x, y)) for name, shade in _SHADES),
        *_lines(picture, shades, x, y),
        *_axes(picture, x, y),
        *_legend(picture, y[-1] + 24),
    ]
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" class="regard-picture" role="img" {size}>{"".join(parts)}</svg>'


def _edges(picture: Grid) -> tuple[Array, Array]:
    """Where the columns and the rows of the grid have their edges; to scale, unless cells would be too thin."""
    side = min(_SIDE, _CELL * max(picture.kept.shape))
    sizes = picture.geometry.keys, picture.geometry.queries
    edges = []
    borders = picture.borders(*picture.cell)[::-1]
    for start, size, border in zip((_LEFT, _TOP), sizes, borders, strict=True):
        length = max(side * size / max(*sizes, 1), min(side, _LEAST * (len(border) - 1)))
        edges.append(np.round(start + border * (length / max(size, 1)), 2))
    return edges[0], edges[1]


def _shades(picture: Grid) -> IntArray:
    """Shade each cell; a pair that is not kept by its tile, which is partial or empty."""
    if not picture.pairs:
        return picture.verdicts
    rows, columns = picture.borders(*picture.tile)
    empty = gather(picture.kept, rows, columns) == 0
    skipped = np.repeat(np.repeat(empty, np.diff(rows), axis=0), np.diff(columns), axis=1)
    return np.where(picture.kept == 1, FULL, np.where(skipped, EMPTY, PARTIAL))


def _boxes(cells: BoolArray, x: Array, y: Array) -> str:
    """Outline each run of cells along a row."""
    boxes = []
    for i, row in enumerate(cells):
        runs = np.flatnonzero(np.diff(row, prepend=False, append=False))
        boxes += [f"M{x[begin]:g} {y[i]:g}H{x[end]:g}V{y[i + 1]:g}H{x[begin]:g}z" for begin, end in runs.reshape(-1, 2)]
    return "".join(boxes)


def _lines(picture: Grid, shades: IntArray, x: Array, y: Array) -> list[str]:
    """Draw gaps between cells; tiles around pairs; a stroke, the second cue, in partial tiles."""
    lines = []
    fine = picture.kept.size and min(x[1] - x[0], y[1] - y[0]) >= _GAPS_FROM
    if fine and not picture.pairs:
        cells = np.argwhere(shades == PARTIAL)
        lines.append(_path("marks", "".join(f"M{x[j]:g} {y[i + 1]:g}L{x[j + 1]:g} {y[i]:g}" for i, j in cells)))
    if fine:
        lines.append(_path("gaps", _grid(x[1:-1], y[1:-1], x, y)))
    if picture.pairs and picture.kept.size:
        rows, columns = picture.borders(*picture.tile)
        lines.append(_path("tiles", _grid(x[columns], y[rows], x, y)))
    return lines


def _grid(at_x: Array, at_y: Array, x: Array, y: Array) -> str:
    upright = [f"M{at:g} {y[0]:g}V{y[-1]:g}" for at in at_x]
    return "".join(upright + [f"M{x[0]:g} {at:g}H{x[-1]:g}" for at in at_y])


def _axes(picture: Grid, x: Array, y: Array) -> list[str]:
    """Write numbers of keys and queries at round places: at the middle of a pair, or where a tile begins."""
    queries, keys = picture.geometry.queries, picture.geometry.keys
    middle = 0.5 if picture.pairs else 0
    parts = [text(x[0], y[0] - 26, "keys →"), text(x[0] - 10, y[0] - 26, "queries ↓", anchor="end")]
    for j in _ticks(keys, x[-1] - x[0], room=_DIGIT * len(str(keys)) + 14):
        at = x[0] + (j + middle) * (x[-1] - x[0]) / keys
        parts.append(text(at, y[0] - 8, str(j), anchor="middle"))
    for i in _ticks(queries, y[-1] - y[0], room=16):
        at = y[0] + (i + middle) * (y[-1] - y[0]) / queries
        parts.append(text(x[0] - 10, at + (4 if picture.pairs else 9), str(i), anchor="end"))
    return parts


def _ticks(size: int, length: float, room: float) -> range:
    """Multiples of a power of two, as many as there is room for, up to 8."""
    count = min(8, max(1, int(length / room)))
    return range(0, size, 1 << ((size - 1) // count).bit_length())


def _legend(picture: Grid, y: float) -> list[str]:
    rows, keys = picture.tile
    entries = [
        ("full", "kept" if picture.pairs else f"{picture.full:,} full"),
        ("partial", "not kept" if picture.pairs else f"{picture.partial:,} partial"),
        ("empty", "not kept, in an empty tile" if picture.pairs else f"{picture.empty:,} empty"),
    ]
    parts, x = [], 16.0
    for name, label in entries:
        parts.append(f'<rect class="{name}" x="{x:g}" y="{y - 10:g}" width="12" height="12"/>')
        if name == "partial" and not picture.pairs:
            parts.append(_path("marks", f"M{x:g} {y + 2:g}l12 -12"))
        parts.append(text(x + 18, y, label))
        x += 18 + _DIGIT * len(label) + 18
    what = picture.tally() if picture.pairs else f"tiles of {rows} x {keys}, {picture.scale()}"
    return [*parts, text(16, y + 20, picture.sizes()), text(16, y + 40, f"{picture.share()}; {what}")]


def _clipped(text: str, width: float) -> str:
    most = int(width / _LETTER)
    return text if len(text) <= most else text[: most - 1] + "…"


def _path(name: str, data: str) -> str:
    return f'<path class="{name}" d="{data}"/>' if data else ""


def text(x: float, y: float, text: str, name: str = "", anchor: str = "start") -> str:
    kind = f' class="{name}"' if name else ""
    return f'<text{kind} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
