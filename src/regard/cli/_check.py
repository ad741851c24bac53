"""``regard check``: run a function in a process of its own, and say which of the known faults it has."""

from __future__ import annotations

import json
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

from ._catalogue import entry_of, show_explanation, show_list, write_explanation, write_list
from ._console import STREAM, print_file, text_console, utf8
from ._printable import printable
from ._shell import CHECK, in_shell

# Exit code where nothing was checked.
NOTHING = 2
_ADVICE = ("why it matters", "how to mend it")


@dataclass(frozen=True)
class CheckRequest:
    """What was asked on the command line; ``declared`` are options of `regard.check`, where they were given."""

    target: str | None
    declared: dict[str, Any]
    expected: tuple[str, ...]
    timeout: float
    as_json: bool
    junit: str | None
    replay: str | None
    output: str
    printed: bool
    list_names: bool
    explain: str | None


def answer(asked: CheckRequest) -> int:
    """Print what is asked for; return the exit code."""
    _refuse_together(asked)
    if asked.list_names:
        (write_list if asked.as_json else show_list)()
    elif asked.explain is not None:
        (write_explanation if asked.as_json else show_explanation)(asked.explain)
    elif asked.target is None:
        raise RegardError("regard check needs a function: module:function or file.py:function; or --list")
    else:
        return _show_check(asked.target, asked)
    return 0


def _refuse_together(asked: CheckRequest) -> None:
    """Refuse options of which one would be without effect."""
    given = {"TARGET": asked.target is not None, "--list": asked.list_names, "--explain": asked.explain is not None}
    if asked.target is None:  # of a check, which there is none of
        given |= {"--replay": asked.replay is not None, "--junit": asked.junit is not None}
    several = [name for name, is_given in given.items() if is_given]
    if len(several) > 1 and (asked.list_names or asked.explain is not None):
        raise RegardError(f"{' and '.join(several)} ask for different things; leave all but one out")
    if asked.as_json and asked.replay is not None:
        raise RegardError("--json prints the report, and --replay gives a program in its place; leave one out")
    replayed = asked.replay is not None and asked.output == STREAM
    printing = {"--json": asked.as_json, "--replay": replayed, "--junit -": asked.junit == STREAM}
    several = [name for name, prints in printing.items() if prints]
    if len(several) > 1:
        raise RegardError(f"{' and '.join(several)} both print to stdout; leave one out")
    if asked.output != STREAM and asked.replay is None:
        raise RegardError(f"-o {asked.output} is the file of a program; name a finding with --replay, or leave -o out")


def _show_check(target: str, asked: CheckRequest) -> int:
    """Print the report, or the program that was asked for; return the exit code."""
    replay = None if asked.replay is None else entry_of(asked.replay).name
    options = {name: value for name, value in asked.declared.items() if value is not None}
    options["expected"] = dict(map(_reason, asked.expected))
    try:
        with _bar(target) as progress:
            apart = check_apart(target, timeout_s=asked.timeout, progress=progress, **options)
    except (ValueError, TypeError) as error:
        raise RegardError(in_shell(str(error), CHECK)) from None
    report = apart.report
    if asked.junit is not None:
        _write(asked.junit, report.junit(), "--junit")
    if replay is not None:
        return _replay(report, replay, asked.output)
    if asked.as_json:
        sys.stdout.write(_json(apart))
    else:
        _print(text_console(stderr=asked.junit == STREAM), apart, target, asked.printed)
    if report.exit_code == NOTHING:
        raise RegardError("nothing was asked before the time was over; give it more with --budget")
    return report.exit_code


def _reason(text: str) -> tuple[str, str]:
    name, sign, reason = text.partition("=")
    if not (sign and name and reason):
        raise RegardError(f"--expected is {text!r}; write a finding and why it is as it is: NAME=reason")
    return name, reason


@contextmanager
def _bar(target: str) -> Iterator[Callable[[str, float], None]]:
    """Show on a terminal how far it is."""
    console = text_console(stderr=True)
    if not console.is_terminal:  # where rich 13.8 ends a bar that it did not draw with an empty line
        yield lambda what, share: None
        return
    columns = (TextColumn("{task.fields[subject]}", markup=False), BarColumn(24), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=1.0, subject=printable(target))
        yield lambda what, share: progress.update(task, completed=share, description=printable(what))


def _json(apart: Apart) -> str:
    printed = {"lines": apart.printed.lines, "tail": apart.printed.tail}
    return json.dumps({**json.loads(apart.report.json()), "printed": printed}, indent=2) + "\n"


def _write(path: str, text: str, option: str) -> None:
    """Write a text to a file, or to stdout whatever the terminal's encoding is."""
    if path == STREAM:
        print_file(text)
        return
    try:
        Path(path).write_bytes(utf8(text))
    except OSError as error:
        raise RegardError(f"{path} cannot be written ({error.strerror}); name another file with {option}") from None


def _replay(report: Report, name: str, output: str) -> int:
    """Print the program that shows a finding, or write it to a file; without the finding, say so."""
    if name not in report.names:
        if report.unfinished:
            raise RegardError(f"{name} is not found, in a check that did not come to its end: try a longer --budget")
        file = "" if output == STREAM else f", and {output} is not written"
        print(f"regard: {name} is not found{file}; found: {', '.join(report.names) or 'nothing'}", file=sys.stderr)
        return report.exit_code
    script = report[name].script
    if not script:
        raise RegardError(f"{name} has no script: it takes several calls to see it; leave --replay out")
    _write(output, script, "-o")
    return report.exit_code


def _print(console: Console, apart: Apart, target: str, printed: bool) -> None:
    report = apart.report
    head, *facts = map(printable, str(report).split("\n\n", 1)[0].splitlines())
    console.print(Text(head))
    console.print(_pairs(line.strip().partition(" ") for line in facts))
    if report.findings:
        console.print(_table(report))
    for finding in report.findings:
        console.print(_panel(finding, target))
    for name, picture in report.pictures if report.findings else ():
        console.print(Text(f"{name}, first head\n{picture}\n"))
    if apart.printed.lines:
        _print_tail(console, apart, printed)


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
    advice = [("why", "", finding.why), ("mend", "", in_shell(finding.mend, CHECK))]
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
