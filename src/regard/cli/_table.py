"""The table of looks, fitted to the terminal: the bar gives way first, numbers and words never."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from regard.viz import Look

from ._printable import printable

_WORD, _BAR, _LEAST_BAR = 32, 24, 4


def print_looks(console: Console, looks: Iterable[tuple[Look, str]]) -> None:
    """Print one row per look and the name of what is looked at."""
    rows = list(looks)
    bare = console.measure(_table(rows, 0)).maximum
    room = min(_BAR, console.width - bare - 3)  # a column costs two spaces and its rule
    console.print(_table(rows, room if room >= _LEAST_BAR else 0))


def _table(rows: list[tuple[Look, str]], bar: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("layer", "head"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=len(heading))
    table.add_column("looks to", overflow="fold")
    table.add_column("weight", justify="right", no_wrap=True, min_width=len("weight"))
    if bar:
        table.add_column("", width=bar)
    for look, name in rows:
        word = Text(printable(name))
        word.truncate(_WORD, overflow="ellipsis")
        drawn = [ProgressBar(total=1.0, completed=look.weight, width=bar)] if bar else []
        table.add_row(str(look.layer), str(look.head), word, f"{look.weight:.2f}", *drawn)
    return table
