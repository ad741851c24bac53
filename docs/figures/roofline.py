"""Counted work against measured ceilings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from regard import bench

from ._bench import NOT_THERE, kind, raced, result
from ._chart import Axes, decades
from ._draw import Picture, Table, percent


@dataclass
class Workload:
    """A problem, what it must do, what the machine gives, and how long regard took."""

    number: int
    name: str
    work: bench.Work
    rates: bench.Rates
    loop: str
    took_ms: float
    outcome: dict[str, Any]

    @property
    def share(self) -> float:
        """How much of the ceiling was reached."""
        return self.work.least_ms(self.rates) / self.took_ms

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.work.flops / self.work.bytes

    @property
    def reached(self) -> float:
        """GFLOP/s."""
        return self.work.flops / self.took_ms / 1e6

    def missed(self) -> Iterator[tuple[str, float]]:
        """Musts over another's time that were missed: over whom, and the milliseconds that they ask for."""
        for goal in self.outcome.get("goals", ()):
            if goal["mark"] == "missed" and goal["sign"] == "≥":
                yield goal["what"], self.outcome["contestants"][goal["peer"]]["median_ms"] / goal["must"]


def _workloads() -> Iterator[Workload]:
    """Problems of one thread with enough work that a ceiling means something."""
    found = result()
    number = 0
    for name, outcome in raced():
        row = outcome["contestants"].get("regard")
        if row is None or "work" not in outcome or kind(outcome) == "threads":
            continue
        work = bench.Work(**outcome["work"])
        target, dtype = outcome["problem"]["target"] or found["machine"]["target"], outcome["problem"]["dtype"]
        rates = bench.Rates.of(found["ceilings"], target, dtype, work.bytes)
        if rates is not None:
            number += 1
            loop = bench.loop_of_products(target, dtype)
            yield Workload(number, name, work, rates, loop, row["median_ms"], outcome)


def ceilings() -> Table:
    """Show what the machine gives, measured in the same run, at its start and at its end."""
    rows = []
    for name, row in result().get("ceilings", {}).items():
        medians = ", ".join(bench.number(median) for median in row.get("medians", [row["median"]]))
        between = f"{bench.number(row['min'])} – {bench.number(row['max'])}"
        rows.append([name, row["unit"], bench.number(row["median"]), between, medians])
    head = ["loop", "unit", "median", "smallest – largest", "medians at the start, at the end"]
    return Table(head, rows or [[NOT_THERE, *[""] * (len(head) - 1)]])


def counted() -> Table:
    """Work of each problem, the least time for it, what that is made of, and the share that was reached."""
    rows = []
    for load in _workloads():
        at = load.work.at(load.rates)
        rows.append(
            [
                f"{load.number}. {load.name}", f"{load.work.flops / 1e9:.3g}", f"{load.work.exps / 1e6:.3g}",
                f"{load.work.bytes / 1e6:.3g}", f"{bench.number(at['products'])} + {bench.number(at['exp'])}",
                bench.number(at["reading"]), load.work.bound(load.rates), bench.number(load.took_ms),
                percent(load.share, 0),
            ]
        )  # fmt: skip
    head = ["problem", "GFLOP", "million exp", "MB", "ms of products + exp", "ms of reading", "bound by", "took, ms",
            "share"]  # fmt: skip
    return Table(head, rows or [[NOT_THERE, *[""] * (len(head) - 1)]])


def asked() -> Table:
    """For each must that was missed: the time that it asks for, and how much of the ceilings that is."""
    rows = []
    loads = list(_workloads())
    for load in loads:
        least = load.work.least_ms(load.rates)
        for what, asked_ms in load.missed():
            row = [f"{load.number}. {load.name}", what, *map(bench.number, (load.took_ms, asked_ms, least))]
            rows.append([*row, percent(load.share, 0), percent(least / asked_ms, 0)])
    head = ["problem", "over what", "took, ms", "must take, ms", "least, ms", "share reached", "share asked for"]
    return Table(head, rows or [["none" if loads else NOT_THERE, *[""] * (len(head) - 1)]])


def roof() -> Picture:
    """Draw operations per second over operations per byte, under a roof for each loop of products."""
    loads = list(_workloads())
    said = ", ".join(f"{load.number} {load.name}: {percent(load.share, 0)}" for load in loads)
    picture = Picture(680, 350, f"Problems under the ceilings of products and of reading: {said or NOT_THERE}.")
    if not loads:
        picture.text(340, 170, NOT_THERE)
        return picture
    tops: dict[str, float] = {}
    for load in loads:
        tops[load.loop] = max(tops.get(load.loop, 0), load.rates.products)
    slowest = min(load.rates.reading for load in loads)
    xs, ys = [load.intensity for load in loads], [load.reached for load in loads]
    bends = [top / slowest for top in tops.values()]
    axes = Axes((min(*xs, *bends) / 2, max(*xs, *bends) * 2), decades([*ys, *tops.values()]))
    axes.draw(picture, "operations per byte of query, key, value and output", "GFLOP/s", bench.number)
    for (loop, top), bend in zip(tops.items(), bends, strict=True):
        picture.path([axes.at(x, min(top, slowest * x)) for x in (axes.x[0], bend, axes.x[1])], "first")
        x, y = axes.at(axes.x[1], top)
        picture.text(x + 6, y - 2, f"{loop}: {bench.number(top)}", "start", "small")
    right = axes.at(axes.x[1], axes.y[1])[0]
    picture.text(right, 14, f"the roof: reading at {bench.number(slowest)} GB/s, then products", "end", "small")
    for power in range(math.ceil(math.log10(axes.x[0])), math.floor(math.log10(axes.x[1])) + 1):
        x, y = axes.at(10.0**power, axes.y[0])
        picture.line(x, y, x, y + 4)
        picture.text(x, y + 18, f"{10.0**power:g}", kind="small")
    for load in loads:
        x, y = axes.at(load.intensity, load.reached)
        picture.rect(x - 3, y - 3, 6, 6, "second", f"{load.name}: {bench.number(load.reached)} GFLOP/s")
    _numbers(picture, [(axes.at(load.intensity, load.reached), str(load.number)) for load in loads])
    return picture


def _numbers(picture: Picture, points: list[tuple[tuple[float, float], str]]) -> None:
    """Write the number of each point to its right, those of near points in one line."""
    left = sorted(points)
    while left:
        (x, y), first = left.pop(0)
        near = [point for point in left if abs(point[0][0] - x) < 14 and abs(point[0][1] - y) < 9]
        left = [point for point in left if point not in near]
        picture.text(x + 7, y + 4, ", ".join([first, *(number for _, number in near)]), "start", "small")
