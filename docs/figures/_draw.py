"""Pictures as SVG whose colours are those of the page (`_static/regard.css`), and tables as Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


def num(x: float, digits: int = 6) -> str:
    """Write a number with six or so many decimals, 0.5 and 3 as they are, and a true minus sign."""
    if np.isnan(x):
        return "NaN"
    if np.isinf(x):
        return "∞" if x > 0 else "−∞"
    x = round(x, 12)
    if x == int(x) and abs(x) < 1e6:
        text = str(int(x))
    else:
        text = f"{x:g}" if digits == 6 and x == round(x, 3) else f"{x:.{digits}f}"
    return text.replace("-", "−")


def sci(x: float, digits: int = 1) -> str:
    """Write a small or large number as 1.2e−7; 0 as 0."""
    mantissa, _, power = f"{x:.{digits}e}".partition("e")
    return "0" if x == 0 else f"{mantissa}e{int(power)}".replace("-", "−")


def percent(x: float, digits: int = 1) -> str:
    """Write a share as a percentage; none at all as 0."""
    if 0 < 100 * x < 0.5 * 10**-digits:
        return f"< {10**-digits:g} %"
    return "0" if x == 0 else f"{100 * x:.{digits}f} %"


@dataclass
class Table:
    """Rows of cells, each cell Markdown; the first row is the head."""

    head: Sequence[str]
    rows: list[Sequence[str]]

    def markdown(self) -> str:
        """Write the table as Markdown."""
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)

    @property
    def texts(self) -> list[str]:
        """Every cell."""
        return [cell for row in [self.head, *self.rows] for cell in row]


@dataclass
class Picture:
    """A drawing of a given size in pixels; ``alt`` says what it shows to those who do not see it."""

    width: float
    height: float
    alt: str
    parts: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def svg(self) -> str:
        """Write the drawing as one SVG element."""
        alt = html.escape(self.alt, quote=True)
        return (
            f'<svg class="rg" role="img" aria-label="{alt}" xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}" height="{self.height:g}">'
            + "".join(self.parts)
            + "</svg>"
        )

    def rect(self, x: float, y: float, width: float, height: float, kind: str, tip: str = "") -> None:
        """Draw a box of a kind that the style sheet knows."""
        title = f"<title>{html.escape(tip)}</title>" if tip else ""
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}">{title}</rect>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "axis") -> None:
        """Draw a straight line."""
        self.parts.append(f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>')

    def path(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """Draw a polygon through the points."""
        where = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
        self.parts.append(f'<polyline class="{kind}" points="{where}"/>')

    def text(self, x: float, y: float, words: str, anchor: str = "middle", kind: str = "") -> None:
        """Write words; ``q_i`` and ``s_{ij}`` are a letter and its index."""
        self.texts.append(words)
        name = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text{name} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{_indices(words)}</text>')

    def grid(
        self,
        x: float,
        y: float,
        shape: tuple[int, int],
        cell: Callable[[int, int], tuple[str, str]],
        *,
        size: tuple[float, float] = (30, 30),
        title: str = "",
        rows: Sequence[str] = (),
        columns: Sequence[str] = (),
    ) -> None:
        """Draw a table of cells; ``cell(i, j)`` gives the kind and the words of one."""
        wide, high = size
        if title:
            self.text(x + shape[1] * wide / 2, y - (24 if columns else 8), title, kind="title")
        for i, label in enumerate(rows):
            self.text(x - 7, y + (i + 0.5) * high + 4, label, "end", "label")
        for j, label in enumerate(columns):
            self.text(x + (j + 0.5) * wide, y - 7, label, kind="label")
        for i in range(shape[0]):
            for j in range(shape[1]):
                kind, words = cell(i, j)
                self.rect(x + j * wide, y + i * high, wide, high, f"cell {kind}")
                if words:
                    self.text(x + (j + 0.5) * wide, y + (i + 0.5) * high + 4, words, kind=f"in {kind}")


_INDEX = re.compile(r"(?<!\w)(\w)_(?:\{([^}]*)\}|(\w)(?!\w))")


def _indices(words: str) -> str:
    def lower(match: re.Match[str]) -> str:
        index = match[2] or match[3]
        return f'{match[1]}<tspan dy="3" font-size="80%">{index}</tspan><tspan dy="-3">\u200b</tspan>'

    return _INDEX.sub(lower, html.escape(words))


@dataclass
class Drawn:
    """A picture that the library has drawn itself."""

    drawing: str

    def svg(self) -> str:
        """Give the drawing."""
        return self.drawing

    @property
    def texts(self) -> list[str]:
        """Every text of the drawing."""
        return [html.unescape(text) for text in re.findall(r">([^<>]+)</(?:text|title|desc)>", self.drawing)]


def kept(value: Any) -> str:
    """Name the kind of a cell that is kept or dropped."""
    return "keep" if value else "drop"
