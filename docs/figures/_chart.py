"""Lines over two logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ._bench import NOT_THERE
from ._draw import Picture

KINDS = ("first", "second", "third")
_LEFT, _TOP, _WIDE, _HIGH, _RIGHT, _BOTTOM = 78, 24, 420, 270, 168, 48


@dataclass
class Axes:
    """Where values of two ranges are in a picture."""

    x: tuple[float, float]
    y: tuple[float, float]

    @staticmethod
    def _share(value: float, ends: tuple[float, float]) -> float:
        return math.log(value / ends[0]) / math.log(ends[1] / ends[0])

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Give the place of a point in pixels."""
        return _LEFT + _WIDE * self._share(x, self.x), _TOP + _HIGH * (1 - self._share(y, self.y))

    def draw(self, picture: Picture, across: str, up: str, number: Callable[[float], str]) -> None:
        """Draw powers of ten up the side, and the frame; what is written below is for who knows the lengths."""
        left, bottom = self.at(self.x[0], self.y[0])
        right, top = self.at(self.x[1], self.y[1])
        for power in range(round(math.log10(self.y[0])), round(math.log10(self.y[1])) + 1):
            y = self.at(self.x[0], 10.0**power)[1]
            picture.line(left, y, right, y, "axis faint")
            picture.text(left - 8, y + 4, number(10.0**power), "end", "small")
        picture.line(left, bottom, right, bottom)
        picture.line(left, bottom, left, top)
        picture.text((left + right) / 2, bottom + 40, across)
        picture.text(8, 14, up, "start")


def decades(values: list[float]) -> tuple[float, float]:
    """Whole powers of ten around the values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return 10.0**low, 10.0 ** max(high, low + 1)


def lines(
    series: Mapping[str, Mapping[int, float]],
    title: str,
    up: str,
    number: Callable[[float], str] = "{:g}".format,
    across: str = "length",
) -> Picture:
    """Draw values against lengths or what else grows, a line per name, labelled at its end."""
    said = "; ".join(
        f"{name} from {number(min(v.values()))} to {number(max(v.values()))} at {max(v):,}"
        for name, v in series.items()
    )
    picture = Picture(_LEFT + _WIDE + _RIGHT, _TOP + _HIGH + _BOTTOM, f"{title}, {up}: {said or NOT_THERE}.")
    if not series:
        picture.text(_LEFT + _WIDE / 2, _TOP + _HIGH / 2, NOT_THERE)
        return picture
    lengths = sorted({n for values in series.values() for n in values})
    axes = Axes((lengths[0], lengths[-1]), decades([x for values in series.values() for x in values.values()]))
    axes.draw(picture, across, up, number)
    for n in lengths:
        x, y = axes.at(n, axes.y[0])
        picture.line(x, y, x, y + 4)
        picture.text(x, y + 18, f"{n:,}" if n < 10_000 else f"{n // 1024}K", kind="small")
    ends: list[tuple[float, float, str]] = []
    for kind, (name, values) in zip(KINDS, series.items(), strict=False):
        points = [axes.at(n, values[n]) for n in sorted(values)]
        picture.path(points, kind)
        for n, (x, y) in zip(sorted(values), points, strict=True):
            picture.rect(x - 2.5, y - 2.5, 5, 5, kind, f"{name}, {n:,}: {number(values[n])}")
        ends.append((points[-1][1], points[-1][0], name))
    below = 0.0
    for y, x, name in sorted(ends):
        below = max(y, below + 15 if below else y)
        picture.text(x + 9, below + 4, name, "start", "small")
    return picture
