"""``regard check --list`` and ``--explain``: what the names of findings mean."""

from __future__ import annotations

import difflib
import json
import sys
from dataclasses import asdict

from rich import box
from rich.table import Table
from rich.text import Text

from regard._errors import RegardError
from regard.check.faults import CATALOGUE
from regard.check.gradients import CATALOGUE as GRADIENTS
from regard.check.report._names import Entry, by_name, entries

from ._console import text_console
from ._shell import CHECK, in_shell


def write_list() -> None:
    """Print all that is known of every name, as JSON."""
    sys.stdout.write(json.dumps([asdict(entry) for entry in entries()], indent=2) + "\n")


def write_explanation(name: str) -> None:
    """Print all that is known of one name, as JSON."""
    sys.stdout.write(json.dumps(asdict(entry_of(name)), indent=2) + "\n")


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


def entry_of(name: str) -> Entry:
    """Find what a name stands for, in capitals or not.

    Raises
    ------
    RegardError
        There is no such finding.
    """
    known = by_name()
    if name.upper() not in known:
        close = difflib.get_close_matches(name.upper(), known, 3, 0.6)
        hint = f"did you mean {' or '.join(close)}?" if close else "regard check --list has them all"
        raise RegardError(f"no finding is called {name!r}; {hint}")
    return known[name.upper()]


def show_explanation(name: str) -> None:
    """Print what a name stands for, why it matters and how to mend it."""
    entry = entry_of(name)
    lines = [f"{entry.name}  ({entry.level}, {entry.group})", entry.does, ""]
    if name.upper() != entry.name:
        lines.insert(0, f"{name.upper()} is another name of")
    lines += [f"why it matters   {entry.why}", f"how to mend it   {in_shell(entry.mend, CHECK)}"]
    if entry.also:
        lines.append(f"other names      {', '.join(entry.also)}")
    variants = next((tuple(fault.variants) for fault in (*CATALOGUE, *GRADIENTS) if fault.name == entry.name), ())
    if any(variants):
        lines.append(f"variants         {', '.join(label or 'plain' for label in variants)}")
    text_console().print(Text("\n".join(lines)))
