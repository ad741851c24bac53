"""``regard check --list`` and ``--explain``: what the names of findings mean."""

from __future__ import annotations

import difflib

from rich import box
from rich.table import Table
from rich.text import Text

from regard._errors import RegardError
from regard.check.faults import BY_NAME
from regard.check.report._names import by_name, entries

from ._console import text_console


def show_list() -> None:
    """Print every name, by group, with one line."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("name", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    group = ""
    for entry in entries():
        if entry.group != group:
            group = entry.group
            table.add_section()
            table.add_row(Text(f"{group}", "bold"), "")
        table.add_row(Text(entry.name), Text(entry.does))
    text_console().print(table)


def show_explanation(name: str) -> None:
    """Print what a name stands for, why it matters and how to mend it."""
    known = by_name()
    if name.upper() not in known:
        close = difflib.get_close_matches(name.upper(), known, 3, 0.6)
        hint = f"did you mean {' or '.join(close)}?" if close else "regard check --list has them all"
        raise RegardError(f"no finding is called {name!r}; {hint}")
    entry = known[name.upper()]
    lines = [f"{entry.name}  ({entry.level}, {entry.group})", entry.does, ""]
    lines += [f"why it matters   {entry.why}", f"how to mend it   {entry.mend}"]
    if entry.also:
        lines.append(f"the same function as {', '.join(entry.also)}")
    fault = BY_NAME.get(entry.name)
    if fault and len(fault.variants) > 1:
        lines.append(f"known with {', '.join(fault.variants)}")
    text_console().print(Text("\n".join(lines)))
