"""``regard view``: from a text to a table and a page."""

from __future__ import annotations

import webbrowser
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from regard import _runtime, models, viz
from regard._errors import RegardError

from ._printable import printable

DEFAULT_TEXT = "The animal didn't cross the street because it was too tired."


@dataclass(frozen=True)
class View:
    """What was asked on the command line."""

    text: str
    model: Path | None
    word: str | None
    to: str | None
    output: Path
    top: int
    check: bool
    open_page: bool


@dataclass(frozen=True)
class Question:
    """The text, the word that looks, and the word looked at; None is no word, and every other token."""

    encoded: models.Encoded
    word: models.Word | None
    to: models.Word | None

    def targets(self) -> list[tuple[int, ...]]:
        """Positions of each target: the word asked for, or each token neither special nor the word's own."""
        if self.to:
            return [tuple(self.to.positions)]
        own = self.word.positions if self.word else ()
        return [(at,) for at, special in enumerate(self.encoded.special) if not special and at not in own]


def show_view(asked: View) -> bool:
    """Print the table, write the page; False if a check was asked for and failed."""
    console = Console(highlight=False, markup=False)
    encoder = models.load(asked.model or models.default_model_folder())
    question = _understand(asked, encoder)
    with _patience(question, "running the encoder"):
        trace = encoder.forward(question.encoded.ids)
        weights = trace.weights()
    console.print(
        f"{len(trace.hidden[0])} tokens, {weights.shape[0]} layers of {weights.shape[1]} heads; "
        f"attention by regard on {_runtime.chosen()[0]}"
    )

    first = (0, 0, 0)
    if question.word is None:
        console.print("the text has no words: there is nothing to list")
    else:
        looks = viz.strongest(weights, question.word.positions, question.targets(), limit=asked.top)
        _print_looks(console, looks, question, question.word)
        first = _opening(looks, question.word) if looks else first

    agrees = True
    if asked.check:
        with _patience(question, "comparing with the reference"):
            result = models.against_reference(trace)
        _print_check(console, result)
        agrees = result.agrees
    page = viz.render_page(
        question.encoded.tokens, weights, title="Where each head looks", text=asked.text, selected=first
    )
    viz.write_page(asked.output, page)
    place = asked.output.resolve()
    console.print(Text(f"page: {printable(str(place))}"), soft_wrap=True)
    if asked.open_page and not webbrowser.open(place.as_uri()):
        console.print("no browser could be started: open the page by hand")
    return agrees


def _understand(asked: View, encoder: models.BertEncoder) -> Question:
    encoded = encoder.encode(asked.text)
    word = _default_word(encoder, encoded) if asked.word is None else encoder.find(encoded, asked.word)
    return Question(encoded, word, None if asked.to is None else encoder.find(encoded, asked.to))


def _default_word(encoder: models.BertEncoder, encoded: models.Encoded) -> models.Word | None:
    """Find ``it`` if the text has it, else the text's last word, else nothing."""
    for name in ("it", *reversed(encoded.written_words())):
        try:
            return encoder.find(encoded, name)
        except RegardError:
            continue
    return None


def _print_looks(console: Console, looks: list[viz.Look], question: Question, word: models.Word) -> None:
    for found in filter(None, (word, question.to)):
        if found.count > 1:
            name = printable(found.name)
            console.print(f"the text has {name} {found.count} times; this is {name}#{found.occurrence}")
    width = 24
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("layer", "head"):
        table.add_column(heading, justify="right")
    table.add_column(Text(f'"{printable(word.name)}" →'), max_width=32)
    table.add_column("weight", justify="right")
    table.add_column("", width=width)
    for look in looks:
        target = question.to.name if question.to else question.encoded.label(look.positions[0])
        bar = ProgressBar(total=1.0, completed=look.weight, width=width)
        table.add_row(str(look.layer), str(look.head), Text(printable(target)), f"{look.weight:.2f}", bar)
    console.print(table)


def _patience(question: Question, doing: str) -> AbstractContextManager[object]:
    """Say on a terminal what takes its time; short texts take none."""
    tokens = len(question.encoded.tokens)
    return Console(stderr=True).status(f"{doing}, {tokens} tokens") if tokens > 128 else nullcontext()


def _opening(looks: list[viz.Look], word: models.Word) -> tuple[int, int, int]:
    """Choose what the page shows first: the strongest look past the neighbours, which are easy to look at."""
    near = range(word.positions[0] - 1, word.positions[-1] + 2)
    look = next((look for look in looks if look.positions[0] not in near), looks[0])
    return look.layer, look.head, word.positions[0]


def _print_check(console: Console, result: models.Comparison) -> None:
    verdict = "agree with" if result.agrees else "DIFFER FROM"
    console.print(f"check: {result.heads} heads {verdict} the float64 reference; largest difference")
    console.print(f"  of outputs {result.out:.1e}, at most {result.out_share:.2f} of its error bound")
    console.print(f"  of weights {result.weights:.1e}, at most {result.weights_share:.2f} of its error bound")
