"""Counted work against measured ceilings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from regard import bench

from ._bench import NOT_THERE, raced, result
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


def _workloads() -> Iterator[Workload]:
    """Problems of one thread with enough work that a ceiling means something."""
    found = result()
    number = 0
    for name, outcome in raced():
        row = outcome["contestants"].get("regard")
        rates = bench.Rates.for_outcome(found, outcome)
        if row is None or rates is None:
            continue
        number += 1
        target = outcome["problem"]["target"] or found["machine"]["target"]
        loop = bench.loop_of_products(target, outcome["problem"]["dtype"]).name
        yield Workload(number, name, bench.Work(**outcome["work"]), rates, loop, row["median_ms"])


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
    loads = {load.name: load for load in _workloads()}
    for missed in bench.asked(result()):
        load, least, reached, share = loads.get(missed.problem), missed.least_ms, missed.reached, missed.share
        if load is None or least is None or reached is None or share is None:
            continue
        row = [f"{load.number}. {load.name}", missed.what, *map(bench.number, (missed.took_ms, missed.must_ms, least))]
        rows.append([*row, percent(reached, 0), percent(share, 0)])
    head = ["problem", "over what", "took, ms", "must take, ms", "ceilings, ms", "share reached", "share asked for"]
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
    """Write the number of each point where there is room near it, with a line where that is not beside it."""
    taken = [(x - 4, y - 4, x + 4, y + 4) for (x, y), _ in points]
    for (x, y), number in sorted(points):
        half = 3.5 * len(number) + 1
        places = (
            (x + (reach + half) * math.cos(turn * math.pi / 8), y + reach * math.sin(turn * math.pi / 8), reach)
            for reach in range(10, 150, 5)
            for turn in range(16)
        )
        free = (p for p in places if not any(_meet((p[0] - half, p[1] - 5, p[0] + half, p[1] + 5), t) for t in taken))
        at_x, at_y, reach = next(free)
        taken.append((at_x - half, at_y - 5, at_x + half, at_y + 5))
        if reach > 10:
            picture.line(x, y, at_x, at_y, "axis faint")
        picture.text(at_x, at_y + 4, number, kind="small")


def _meet(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
