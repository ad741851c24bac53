"""``regard info``."""

from __future__ import annotations

import platform
from importlib.metadata import version

from rich import box
from rich.table import Table

from regard import _runtime

from ._console import text_console


def show_info() -> None:
    """Print versions, instruction sets, the choice and its reason, threads."""
    console = text_console()
    console.print(
        f"regard {version('regard')}, NumPy {version('numpy')}, Python {platform.python_version()} "
        f"on {platform.system()} {platform.machine()}"
    )
    table = Table("target", "compiled", "usable", "why", box=box.SIMPLE_HEAD)
    for target in _runtime.describe():
        table.add_row(target.name, _yes(target.compiled), _yes(target.usable), target.why)
    console.print(table)
    name, reason = _runtime.chosen()
    console.print(f"chosen: {name}, {reason}")
    console.print(f"threads: {_runtime.num_threads()}")


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"
