"""The consoles that commands print to: what they print is text, never markup."""

from __future__ import annotations

from rich.console import Console


def text_console(*, stderr: bool = False) -> Console:
    """Make a console that shows words as they are: ``[red]`` and ``:smile:`` are words."""
    return Console(highlight=False, markup=False, emoji=False, stderr=stderr)
