"""Ratios as bars on a logarithmic scale, as SVG: no script, no font, no network."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from regard.masks._svg import STYLE, text

from ._rounds import disturbed

Scale = Callable[[float], float]

# In pixels.
_WIDTH, _LEFT, _RIGHT, _ROW, _HEAD, _TOP = 760, 236, 132, 18, 26, 58
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class Bar:
    """One contestant: its time over regard's with the middle half of the rounds, and what it must and should be.

    `own` is regard in another way, or a loop that only measures the machine.
    """

    name: str
    value: float
    low: float
    high: float
    own: bool = False
    must: float | None = None
    goal: float | None = None

    @property
    def told(self) -> str:
        """Say the value; a must that is missed is said too."""
        missed = self.must is not None and self.value < self.must
        return f"{number(self.value)} ×" + (f", must {number(self.must)}: missed" if missed and self.must else "")


@dataclass(frozen=True)
class Group:
    """The contestants of one problem, and how long regard took."""

    title: str
    note: str
    bars: tuple[Bar, ...]


def number(value: float) -> str:
    """Three digits that matter."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def median_and_half(row: Mapping[str, Any]) -> str:
    """Milliseconds: the median, and the middle half of the rounds, marked where that is wide."""
    low, high = number(row["low_ms"]), number(row["high_ms"])
    return f"{number(row['median_ms'])} ({low} – {high})" + (", disturbed" if disturbed(row) else "")


def bars(groups: Sequence[Group], title: str) -> str:
    """Draw the groups below each other as one SVG element."""
    known = [bar for group in groups for bar in group.bars]
    ends = [x for bar in known for x in (bar.low, bar.high, bar.must, bar.goal) if x]
    low, high = min([0.8, *ends]), max([2.0, *ends])
    low, high = max([t for t in _TICKS if t <= low] or [low]), min([t for t in _TICKS if t >= high] or [high])

    def at(x: float) -> float:
        share = math.log(min(max(x, low), high) / low) / math.log(high / low)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    parts, y = [], float(_TOP)
    for group in groups:
        parts += [text(8, y + 17, group.title, "mask"), text(_WIDTH - 8, y + 17, group.note, anchor="end")]
        y += _HEAD
        for bar in group.bars:
            parts += _bar(bar, y, at)
            y += _ROW
        y += 8
    ticks = [t for t in _TICKS if low <= t <= high]
    lines = "".join(f"M{at(t):.1f} {_TOP - 6}V{y:.0f}" for t in ticks)
    axis = [f'<path class="marks" d="{lines}" opacity="0.2"/>', _line("marks", at(1), _TOP - 6, y, 1)]
    axis += [text(at(t), _TOP - 12, f"{t:g}", anchor="middle") for t in ticks]
    said = "; ".join(f"{group.title}: " + ", ".join(f"{bar.name} {bar.told}" for bar in group.bars) for group in groups)
    head = [
        f"<title>{escape(title)}</title>", f"<desc>{escape(said)}</desc>", f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{_WIDTH}" height="{y + 8:.0f}"/>', *_legend(aims=any(bar.goal for bar in known)),
    ]  # fmt: skip
    size = f'width="{_WIDTH}" height="{y + 8:.0f}" viewBox="0 0 {_WIDTH} {y + 8:.0f}"'
    body = "".join([*head, *axis, *parts])
    return f'<svg xmlns="http://www.w3.org/2000/svg" class="regard-picture" role="img" {size}>{body}</svg>'


def _bar(bar: Bar, y: float, at: Scale) -> list[str]:
    """Draw from 1 to the value, and over it the middle half of the rounds."""
    left, right = sorted((at(1), at(bar.value)))
    kind = "partial" if bar.own else "full"
    parts = [
        text(_LEFT - 8, y + 13, bar.name, anchor="end"),
        f'<rect class="{kind}" x="{left:.1f}" y="{y + 3:.0f}" width="{max(right - left, 1):.1f}" height="11"/>',
        f'<path class="tiles" d="M{at(bar.low):.1f} {y + 8.5:g}H{at(bar.high):.1f}"/>',
    ]
    if bar.must:
        parts.append(_line("tiles", at(bar.must), y, y + 17, 3))
    if bar.goal:
        parts.append(_line("tiles", at(bar.goal), y, y + 17, 1.5, dashed=True))
    end = max(at(x) for x in (1, bar.value, bar.high, bar.must, bar.goal) if x)
    return [*parts, text(end + 6, y + 13, bar.told)]


def _legend(*, aims: bool) -> list[str]:
    """Say what is drawn; must and goal only where one is."""
    y = 20
    parts = [
        text(8, y, "time of each over regard's; right of 1 regard is faster"),
        f'<path class="tiles" d="M520 {y - 4}h24"/>', text(550, y, "middle half of the rounds"),
    ]  # fmt: skip
    if aims:
        parts += [_line("tiles", 420, y - 11, y + 2, 3), text(426, y, "must")]
        parts += [_line("tiles", 470, y - 11, y + 2, 1.5, dashed=True), text(476, y, "goal")]
    return parts


def _line(kind: str, x: float, top: float, bottom: float, width: float, *, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="3 2"' if dashed else ""
    return f'<path class="{kind}" d="M{x:.1f} {top:g}V{bottom:g}" stroke-width="{width:g}"{dash}/>'
