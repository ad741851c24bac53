"""``regard view``: from a text to a table and a page."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.text import Text

from regard import _runtime, models, viz
from regard._errors import RegardError

from ._console import STREAM, print_file, text_console
from ._printable import printable
from ._table import print_looks

DEFAULT_TEXT = "The animal didn't cross the street because it was too tired."
DEFAULT_TO = "animal"  # with the text above, and no word asked for
_MAX_TEXT = 1 << 20


@dataclass(frozen=True)
class View:
    """What was asked on the command line."""

    text: str | None
    model: Path | None
    word: str | None
    to: str | None
    output: str
    top: int
    check: bool
    open_page: bool


@dataclass(frozen=True)
class Question:
    """The text, the word that looks, and the word looked at; None is no word, and every other word."""

    encoded: models.Encoded
    word: models.Word | None
    to: models.Word | None

    def targets(self) -> dict[range, str]:
        """Tokens and name of each target: the word asked for, or each word that is no part of the one that looks."""
        if self.to:
            return {self.to.positions: self.to.label}
        own = self.word.positions if self.word else range(0)
        others = (word for word in self.encoded.own_words() if word.start not in own)
        return {word: self.encoded.label(word) for word in others}


def show_view(asked: View) -> bool:
    """Print the table, write the page; False if a check was asked for and failed."""
    to_stdout = asked.output == STREAM
    if to_stdout and asked.open_page:
        raise RegardError("--open opens a file, and -o - writes none: name one with -o FILE")
    if not to_stdout:
        viz.destination(asked.output)  # refuses now, not after the work
    console = text_console(stderr=to_stdout)
    folder = asked.model or models.default_model_folder()
    text = _read_stdin() if asked.text == STREAM else asked.text
    with _panics_unsaid():
        encoder = models.load(folder)
        question = _understand(replace(asked, text=text), encoder)
    with _patience(question, "running the encoder"):
        trace = encoder.forward(question.encoded.ids)
        weights = trace.weights()
    console.print(
        f"{len(trace.hidden[0])} tokens, {weights.shape[0]} layers of {weights.shape[1]} heads; "
        f"attention by regard on {_runtime.chosen()[0]}"
    )
    targets = question.targets()
    word = tuple(question.word.positions) if question.word else ()
    looks = viz.strongest(weights, word, list(targets), limit=asked.top) if word else []
    _print_answer(console, looks, question, targets)
    agrees = not asked.check or _check(console, trace, question)

    source = [f"model {'/'.join(folder.resolve().parts[-2:])}", f"weights by regard {version('regard')}"]
    if question.word and looks:
        source.append(f"opened at the strongest look {_caption(question.word, question.to)}")
    page = viz.AttentionPage(
        question.encoded.tokens,
        weights,
        text=question.encoded.text,
        source="; ".join(source),
        opening=_opening(looks, question),
    )
    if to_stdout:
        print_file(page.html)
    else:
        _write(page, asked, console)
    return agrees


def _write(page: viz.AttentionPage, asked: View, console: Console) -> None:
    """Write the page to its file, and open it if that was asked for."""
    page.write(asked.output)
    place = Path(asked.output).resolve()
    console.print(Text(f"page: {printable(str(place))}"), soft_wrap=True)
    if asked.open_page and not webbrowser.open(place.as_uri()):
        console.print("no browser could be started: open the page by hand")


def _understand(asked: View, encoder: models.BertEncoder) -> Question:
    text, to = asked.text, asked.to
    if text is None:
        text = DEFAULT_TEXT
        to = DEFAULT_TO if asked.word is None and to is None else to
    encoded = encoder.encode(text)
    if not encoded.tokens:
        raise RegardError("the model's tokenizer makes no token of the text; give another text")
    encoder.check(encoded.ids)  # before words are looked for in a text that is too long
    word = _default_word(encoder, encoded) if asked.word is None else encoder.find(encoded, asked.word)
    return Question(encoded, word, None if to is None else encoder.find(encoded, to))


def _read_stdin() -> str:
    if sys.stdin is None:
        raise RegardError("stdin is closed; give the text as an argument")
    try:
        text = sys.stdin.buffer.read(_MAX_TEXT + 1)
    except OSError as error:
        raise RegardError(f"stdin cannot be read ({error.strerror}); give the text as an argument") from None
    if len(text) > _MAX_TEXT:
        raise RegardError(f"stdin holds more than {_MAX_TEXT:,} bytes, which no encoder reads; give a shorter text")
    try:
        return text.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise RegardError(f"stdin is not UTF-8 (byte {error.start}); give the text as UTF-8") from None


@contextmanager
def _panics_unsaid() -> Iterator[None]:
    """Keep from stderr what Rust writes there, past Python, before it raises: the error that follows says it."""
    if sys.stderr is None:
        yield
        return
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _default_word(encoder: models.BertEncoder, encoded: models.Encoded) -> models.Word | None:
    """Find ``it`` if the text has it, else the text's last word, else nothing."""
    try:
        return encoder.find(encoded, "it")
    except RegardError:
        return encoder.last_word(encoded)


def _opening(looks: list[viz.Look], question: Question) -> viz.Opening:
    """Open the page at the first row of the table, whatever its length."""
    word = question.word.positions if question.word else (0,)
    return viz.Opening(looks[0].layer, looks[0].head, word, looks[0].positions) if looks else viz.Opening(word=word)


def _print_answer(console: Console, looks: list[viz.Look], question: Question, targets: dict[range, str]) -> None:
    if question.word is None:
        console.print("the text has no words: there is nothing to list")
        return
    asked = [found for found in (question.word, question.to) if found]
    for found in asked:
        name = printable(found.name)
        if found.count > 1:
            console.print(f"the text has {name} {found.count} times; this is {name}#{found.occurrence}")
    if not looks:
        console.print(f'"{printable(question.word.name)}" is the whole text: there is no other word to look to')
        return
    console.print(f"strongest looks {printable(_caption(question.word, question.to))}")
    if any(len(tokens) > 1 for tokens in (question.word.positions, *(look.positions for look in looks))):
        console.print("of words of several tokens, rows are averaged and columns summed")
    names = {tuple(tokens): label for tokens, label in targets.items()}
    print_looks(console, [(look, names[look.positions]) for look in looks])


def _caption(word: models.Word, to: models.Word | None) -> str:
    return f'from "{word.label}" to ' + (f'"{to.label}"' if to else "another word")


def _patience(question: Question, doing: str) -> AbstractContextManager[object]:
    """Say on a terminal what takes its time; short texts take none."""
    tokens = len(question.encoded.tokens)
    return Console(stderr=True).status(f"{doing}, {tokens} tokens") if tokens > 128 else nullcontext()


def _check(console: Console, trace: models.Trace, question: Question) -> bool:
    with _patience(question, "comparing with the reference"):
        result = models.against_reference(trace)
    verdict = "agree with" if result.agrees else "DIFFER FROM"
    console.print(f"check: {result.heads} heads {verdict} the float64 reference; largest difference")
    console.print(f"  of outputs {result.out:.1e}, at most {result.out_share:.2f} of its error bound")
    console.print(f"  of weights {result.weights:.1e}, at most {result.weights_share:.2f} of its error bound")
    if result.tiny_share:
        verdict = "are" if result.tiny_share <= 1 else "ARE NOT"
        console.print(f"  weights below 1e-30, which may be flushed to 0, {verdict} within theirs")
    return result.agrees
