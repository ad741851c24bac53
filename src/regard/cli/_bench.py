"""``regard bench``: the short version of the benchmark, on this machine."""

from __future__ import annotations

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

from ._console import STREAM, print_file, text_console
from ._printable import printable
from ._shell import BENCH, in_shell

# Columns with their widths; the bar has what is left, from so much to so much.
_NUMBERS = {"time": 6, "middle half": 13, "/ regard": 8, "share": 5, "error": 5}
_COLUMNS = {"": 22, "bar": 0, **_NUMBERS}
_LEAST_BAR, _BAR = 10, 30
# Times of a problem in which regard takes less are told in microseconds: three digits of milliseconds would not fit.
_SHORT_MS = 0.1


@dataclass(frozen=True)
class BenchRequest:
    """What was asked on the command line."""

    threads: int
    rounds: int
    json: Path | None
    svg: Path | None


def show_bench(asked: BenchRequest) -> bool:
    """Time the problems, print the table, write the files; tell whether regard's own answers were right."""
    to_stdout = _destinations(asked)  # refuses before a minute is spent
    try:
        with _bar() as progress:
            result = bench.short(threads=asked.threads, rounds=asked.rounds, progress=progress)
    except UnsupportedError as error:
        raise UnsupportedError(in_shell(str(error), BENCH)) from None
    console = text_console(stderr=to_stdout)
    try:
        _print(console, result, asked.threads)
    finally:  # whoever reads stdout may have seen enough
        if asked.json is not None:
            _write(asked.json, bench.as_text(result), console)
        if asked.svg is not None:
            _write(asked.svg, bench.bars(bench.groups(result["problems"]), "Time of each over regard's"), console)
    return not any("regard" in outcome["refused"] for outcome in result["problems"].values())


def _destinations(asked: BenchRequest) -> bool:
    """Refuse files that cannot be written; tell whether one of them is stdout."""
    chosen = {option: path for option, path in (("--json", asked.json), ("--svg", asked.svg)) if path is not None}
    found: set[str | Path] = set()
    for option, path in chosen.items():
        try:
            found.add(str(path) if str(path) == STREAM else destination(path))
        except RegardError as error:
            raise RegardError(f"{option}: {error}") from None
    if len(found) < len(chosen):
        raise RegardError(f"--json and --svg are both {asked.svg}: name a file for each, or leave one out")
    return STREAM in found


def _write(path: Path, text: str, console: Console) -> None:
    if str(path) == STREAM:
        print_file(text)
        return
    write_whole(path, text)
    console.print(f"written to {printable(str(path))}")


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
    if why := bench.unquiet(told):
        console.print(f"this machine is {why}")
    for name, row in result["ceilings"].items():
        console.print(f"{name}: {bench.number(row['median'])} {row['unit']}")
    room = console.width - sum(_COLUMNS.values()) - len(_COLUMNS)
    for problem in result["problems"]:
        console.print()
        console.print(_table(result, problem, room))
    console.print()
    console.print("bar: time; / regard: that time over regard's; error: the largest, against float64")
    console.print("share: of what NumPy's matrix product, or its reading of memory, reaches here; the nearer of both.")
    console.print("Over 100 % is faster than NumPy is at that, or than memory, where a cache holds what is read")
    for problem, outcome in result["problems"].items():
        if wide := [name for name, row in outcome["contestants"].items() if bench.disturbed(row)]:
            told = (
                f"{problem}: {', '.join(wide)}: disturbed, the middle half is more than {bench.DISTURBED:g} times wide"
            )
            console.print(Text(told))
    absent = {(name, why) for outcome in result["problems"].values() for name, why in outcome["absent"].items()}
    if gone := sorted({why for _, why in absent if why.startswith("not installed")}):
        console.print(f"{'; '.join(gone)}: it would be timed too")
    for problem, outcome in result["problems"].items():
        for name, why in outcome["refused"].items():
            console.print(f"{problem}: {name} is refused: {printable(why)}")


def _table(result: dict[str, Any], problem: str, room: int) -> Table:
    """Lay out a row per contestant; the bar is its time as a share of the slowest one's, and gives way first."""
    table = Table(box=None, padding=(0, 1, 0, 0), title=Text(problem), title_justify="left", title_style="bold")
    rows = result["problems"][problem].get("contestants", {})
    short = "regard" in rows and rows["regard"]["median_ms"] < _SHORT_MS
    widths = {name: least for name, least in _COLUMNS.items() if name != "bar" or room >= _LEAST_BAR}
    for name, least in widths.items():
        width = min(room, _BAR) if name == "bar" else least
        justify: Any = "right" if name not in ("", "bar") else "left"
        heading = {"bar": "", "time": "µs" if short else "ms"}.get(name, name)
        table.add_column(heading, justify=justify, width=width, overflow="fold")
    slowest = max((row["median_ms"] for row in rows.values()), default=1.0)
    for name, row in rows.items():
        cells: dict[str, Any] = {
            "": Text(name),
            "bar": ProgressBar(total=slowest, completed=row["median_ms"], width=min(max(room, 1), _BAR)),
        }
        cells |= {heading: Text(text) for heading, text in zip(_NUMBERS, _cells(row, short=short), strict=True)}
        table.add_row(*(cells[name] for name in widths))
    return table


def _cells(row: dict[str, Any], *, short: bool) -> list[str]:
    """Write the numbers of a row, in the order of the columns; times in microseconds if it is short."""
    median, low, high = (
        bench.number(row[f"{which}_ms"] * (1e3 if short else 1)) for which in ("median", "low", "high")
    )
    ratio = f"{row['ratio']['median']:.2f}" if "ratio" in row else ""
    share = f"{100 * row['share']:.0f} %" if row["share"] is not None else ""
    return [median, f"{low} - {high}", ratio, share, f"{row['max_abs_error']:.0e}"]
