"""The consoles that commands print to: what they print is text, never markup."""

from __future__ import annotations

import sys

from rich.console import Console

# The file that is stdout.
STREAM = "-"


def text_console(*, stderr: bool = False) -> Console:
    """Make a console that shows words as they are: ``[red]`` and ``:smile:`` are words."""
    return Console(highlight=False, markup=False, emoji=False, stderr=stderr)


def utf8(text: str) -> bytes:
    """Encode as Python, JSON, HTML and XML are read where nothing else is said."""
    return text.encode("utf-8", "backslashreplace")


def print_file(text: str) -> None:
    """Print what would be a file, whatever the terminal's encoding is."""
    sys.stdout.flush()
    sys.stdout.buffer.write(utf8(text))
