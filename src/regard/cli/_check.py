"""``regard check``: run a function in a process of its own, and say which of the known faults it has."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from regard._errors import RegardError
from regard.check import Apart, Finding, Report, check_apart

from ._console import text_console
from ._printable import printable

STREAM = "-"
_ADVICE = ("why it matters", "how to mend it")
_OPTIONS = ("layout", "mask", "causal", "window", "empty_row", "supports", "library", "memory", "dtype")
_SUBJECT = re.compile(rf"^({'|'.join(_OPTIONS)})(?= (?:is|has) )")
_PASSED = re.compile(rf"\b({'|'.join(_OPTIONS)})=['\"]?([\w-]+)['\"]?")


@dataclass(frozen=True)
class CheckRequest:
    """What was asked on the command line; ``declared`` are options of `regard.check`, where they were given."""

    target: str
    declared: dict[str, Any]
    expected: tuple[str, ...]
    timeout: float
    as_json: bool
    junit: Path | None
    replay: str | None
    output: str
    printed: bool


def show_check(asked: CheckRequest) -> bool:
    """Print the report; False if a fault was found."""
    options = {name: value for name, value in asked.declared.items() if value is not None}
    options["expected"] = dict(map(_reason, asked.expected))
    try:
        with _bar(asked.target) as progress:
            apart = check_apart(asked.target, timeout_s=asked.timeout, progress=progress, **options)
    except RegardError as error:
        raise RegardError(_in_shell(str(error))) from None
    report = apart.report
    if asked.junit is not None:
        _write(asked.junit, report.junit(), "--junit")
    if asked.replay is not None:
        _replay(report, asked)
    elif asked.as_json:
        sys.stdout.write(_json(apart))
    else:
        _print(text_console(), apart, asked)
    return report.ok


def _reason(text: str) -> tuple[str, str]:
    name, sign, reason = text.partition("=")
    if not (sign and name and reason):
        raise RegardError(f"--expected is {text!r}; write a finding and why it is as it is: NAME=reason")
    return name, reason


def _in_shell(message: str) -> str:
    """Put options in place of Python's arguments, in a message of the library's."""

    def option(name: str) -> str:
        return f"--{name.replace('_', '-')}"

    message = _SUBJECT.sub(lambda found: option(found[1]), message)
    return _PASSED.sub(lambda found: f"{option(found[1])} {found[2]}", message)


@contextmanager
def _bar(target: str) -> Iterator[Callable[[str, float], None]]:
    """Show on a terminal how far it is."""
    console = text_console(stderr=True)
    columns = (TextColumn("{task.fields[subject]}", markup=False), BarColumn(24), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=1.0, subject=printable(target))
        yield lambda what, share: progress.update(task, completed=share, description=printable(what))


def _json(apart: Apart) -> str:
    printed = {"lines": apart.printed.lines, "tail": apart.printed.tail}
    return json.dumps({**json.loads(apart.report.json()), "printed": printed}, indent=2, ensure_ascii=False) + "\n"


def _write(path: Path, text: str, option: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RegardError(f"{path} cannot be written ({error.strerror}); name another file with {option}") from None


def _replay(report: Report, asked: CheckRequest) -> None:
    """Print the program that shows a finding, or write it to a file."""
    if asked.replay not in report.names:
        there = ", ".join(report.names) or "none"
        raise RegardError(f"there is no finding {asked.replay!r}; there are {there}: name one with --replay")
    script = report[asked.replay].script
    if not script:
        raise RegardError(f"{asked.replay} has no script: it takes several calls to see it; leave --replay out")
    if asked.output == STREAM:
        sys.stdout.write(script)
    else:
        _write(Path(asked.output), script, "-o")


def _print(console: Console, apart: Apart, asked: CheckRequest) -> None:
    report = apart.report
    head, *facts = map(printable, str(report).split("\n\n", 1)[0].splitlines())
    console.print(Text(head))
    console.print(_pairs(line.strip().partition(" ") for line in facts))
    if report.findings:
        console.print(_table(report))
    for finding in report.findings:
        console.print(_panel(finding, asked.target))
    for name, picture in report.pictures if report.findings else ():
        console.print(Text(f"{name}, first head\n{picture}\n"))
    if apart.printed.lines:
        _print_tail(console, apart, asked.printed)


def _table(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("finding", no_wrap=True)
    table.add_column("level", no_wrap=True)
    table.add_column("what the function does", overflow="fold")
    for finding in report.findings:
        level = "expected" if finding.expected else finding.level
        style = "" if finding.expected else {"fault": "bold red", "warning": "yellow"}[finding.level]
        table.add_row(Text(finding.name), Text(level, style), Text(printable(finding.does)))
    return table


def _panel(finding: Finding, target: str) -> Panel:
    head, *lines = (printable(line.removeprefix("  ")) for line in str(finding).splitlines())
    title, _, certainty = head.partition("  ")
    texts = [*lines[:1], certainty.strip("()"), *(line for line in lines[1:] if not line.startswith(_ADVICE))]
    advice = [("why", "", finding.why), ("mend", "", finding.mend)]
    if finding.script:
        advice.append(("show", "", f"regard check {target} --replay {finding.name}"))
    body = Group(Text("\n".join(texts)), _pairs(advice))
    return Panel(body, title=Text(title), title_align="left")


def _pairs(rows: Iterable[tuple[str, str, str]]) -> Table:
    """Lay words before a text in a column of their own."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for word, _, text in rows:
        grid.add_row(Text(word), Text(printable(text.strip())))
    return grid


def _print_tail(console: Console, apart: Apart, shown: bool) -> None:
    printed = apart.printed
    count = f"the function printed {printed.lines} line{'' if printed.lines == 1 else 's'}"
    if not shown:
        console.print(f"{count}; --printed shows the last ones")
        return
    console.print(f"{count}, of which the last:")
    console.print(Text("\n".join(f"  {printable(line)}" for line in printed.tail.splitlines()[-20:])))
