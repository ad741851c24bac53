"""``regard bench``: the short version of the benchmark, on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from regard import bench
from regard._errors import RegardError, UnsupportedError
from regard._files import destination, write_whole

from ._console import text_console
from ._printable import printable

_SUBJECT = re.compile(r"^(threads|rounds)(?= is )")
_QUIET = 0.5
# Columns with their widths; the bar has what is left, from so much to so much.
_NUMBERS = {"ms": 6, "middle half": 15, "/ regard": 8, "share": 6, "error": 5}
_COLUMNS = {"": 22, "bar": 0, **_NUMBERS}
_LEAST_BAR, _BAR = 4, 30


@dataclass(frozen=True)
class BenchRequest:
    """What was asked on the command line."""

    threads: int
    rounds: int
    json: Path | None
    svg: Path | None


def show_bench(asked: BenchRequest) -> bool:
    """Time the problems, print the table, write the files; tell whether regard's own answers were right."""
    for path, option in ((asked.json, "--json"), (asked.svg, "--svg")):
        if path is None:
            continue
        try:
            destination(path)  # refuses before a minute is spent
        except RegardError as error:
            raise RegardError(f"{option}: {error}") from None
    try:
        with _bar() as progress:
            result = bench.short(threads=asked.threads, rounds=asked.rounds, progress=progress)
    except UnsupportedError as error:
        raise UnsupportedError(_SUBJECT.sub(lambda found: f"--{found[1]}", str(error))) from None
    console = text_console()
    try:
        _print(console, result, asked.threads)
    finally:  # whoever reads stdout may have seen enough
        if asked.json is not None:
            bench.write(result, asked.json)
            console.print(f"written to {printable(str(asked.json))}")
        if asked.svg is not None:
            write_whole(asked.svg, bench.bars(bench.groups(result["problems"]), "Time of each over regard's"))
            console.print(f"written to {printable(str(asked.svg))}")
    return not any("regard" in outcome["refused"] for outcome in result["problems"].values())


@contextmanager
def _bar() -> Iterator[Callable[[str, float], object]]:
    """Show on a terminal how far it is; drawn between rounds only, for a thread that draws would be timed too."""
    console = text_console(stderr=True)
    if not console.is_terminal:
        yield lambda what, share: None
        return
    columns = BarColumn(24), TextColumn("{task.percentage:3.0f} %"), TextColumn("{task.description}", markup=False)
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task("ceilings", total=1.0)
        yield lambda what, share: progress.update(task, completed=share, description=what, refresh=True)


def _print(console: Console, result: dict[str, Any], threads: int) -> None:
    told = result["machine"]
    count = f"{threads} thread{'' if threads == 1 else 's'} of {told['processors']} processors"
    console.print(f"{printable(told['cpu'])}, target {told['target']}, NumPy {told['numpy']}, {count}")
    if told["load_before"] is not None and told["load_before"] > _QUIET:
        console.print(f"this machine is not quiet (load {told['load_before']:.1f}): times are longer than they need be")
    for name, row in result["ceilings"].items():
        console.print(f"{name}: {bench.number(row['median'])} {row['unit']}")
    room = console.width - sum(_COLUMNS.values()) - 2 * len(_COLUMNS)
    for problem in result["problems"]:
        console.print()
        console.print(_table(result, problem, room))
    console.print()
    console.print("bar: time; / regard: that time over regard's; error: the largest, against float64")
    console.print("share: of what NumPy's matrix product, or its reading of memory, reaches here; the nearer of both")
    absent = {(name, why) for outcome in result["problems"].values() for name, why in outcome["absent"].items()}
    if gone := sorted({why for _, why in absent if why.startswith("not installed")}):
        console.print(f"{'; '.join(gone)}: it would be timed too")
    for problem, outcome in result["problems"].items():
        for name, why in outcome["refused"].items():
            console.print(f"{problem}: {name} is refused: {printable(why)}")


def _table(result: dict[str, Any], problem: str, room: int) -> Table:
    """Lay out a row per contestant; the bar is its time as a share of the slowest one's, and gives way first."""
    table = Table(box=None, padding=(0, 2, 0, 0), title=Text(problem), title_justify="left", title_style="bold")
    widths = {name: least for name, least in _COLUMNS.items() if name != "bar" or room >= _LEAST_BAR}
    for name, least in widths.items():
        width = min(room, _BAR) if name == "bar" else least
        justify: Any = "right" if name not in ("", "bar") else "left"
        table.add_column("" if name == "bar" else name, justify=justify, width=width, overflow="fold")
    rows = result["problems"][problem].get("contestants", {})
    slowest = max((row["median_ms"] for row in rows.values()), default=1.0)
    for name, row in rows.items():
        cells: dict[str, Any] = {
            "": Text(name),
            "bar": ProgressBar(total=slowest, completed=row["median_ms"], width=min(max(room, 1), _BAR)),
        }
        cells |= {heading: Text(text) for heading, text in zip(_NUMBERS, _cells(row), strict=True)}
        table.add_row(*(cells[name] for name in widths))
    return table


def _cells(row: dict[str, Any]) -> list[str]:
    """Write the numbers of a row, in the order of the columns."""
    low, high = bench.number(row["low_ms"]), bench.number(row["high_ms"])
    ratio = f"{row['ratio']['median']:.2f}" if "ratio" in row else ""
    share = f"{100 * row['share']:.0f} %" if row["share"] is not None else ""
    return [bench.number(row["median_ms"]), f"{low} - {high}", ratio, share, f"{row['max_abs_error']:.0e}"]
