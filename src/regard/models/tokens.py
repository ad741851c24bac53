"""Text to token ids, and words of the text back to the tokens that make them up."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regard._errors import RegardError, listed
from regard._types import BoolArray, IntArray

from ._folder import ModelError, missing_extra, read_whole

if TYPE_CHECKING:
    from tokenizers import Tokenizer as RawTokenizer

_WORDS_SHOWN = 40


@dataclass(frozen=True)
class Encoded:
    """A text as the model reads it; all sequences have one entry per token.

    Attributes
    ----------
    text
        The text as given.
    tokens
        The tokens as the vocabulary spells them: ``token``, ``##ization``.
    ids
        Their numbers in the vocabulary.
    special
        True for tokens that the tokenizer added around the text: ``[CLS]``, ``[SEP]``.
    words
        Number of the word that the token belongs to, None for special tokens.
    pieces
        What tells tokens apart when words are compared: the token, or the text behind an unknown token.
    """

    text: str
    tokens: list[str]
    ids: IntArray
    special: BoolArray
    words: list[int | None]
    pieces: list[str]

    def edge(self, position: int) -> bool:
        """Whether no word continues across the gap before ``position``."""
        if position in (0, len(self.words)):
            return True
        return self.words[position] is None or self.words[position] != self.words[position - 1]

    def own_words(self) -> list[range]:
        """Tokens of each word as the tokenizer sees it, in order: ``didn't`` is three, special tokens are none."""
        starts = [at for at, word in enumerate(self.words) if word is not None and self.edge(at)]
        return [range(at, next(end for end in range(at + 1, len(self.words) + 1) if self.edge(end))) for at in starts]

    def label(self, word: range) -> str:
        """Spell one of `own_words` as `Tokenizer.find` reads it: ``the#2`` if the text has it several times."""
        pieces = self.pieces[word.start : word.stop]
        same = [other for other in self.own_words() if self.pieces[other.start : other.stop] == pieces]
        name = "".join(piece.removeprefix("##") for piece in pieces)
        return f"{name}#{same.index(word) + 1}" if len(same) > 1 else name

    def written_words(self) -> list[str]:
        """List what stands between the spaces of the text, in order, without punctuation around it."""
        return [bare for word in self.text.split() if (bare := _without_punctuation(word))]


@dataclass(frozen=True)
class Word:
    """One occurrence of a word: its name as asked for, where its tokens are, which of how many it is."""

    name: str
    positions: range
    occurrence: int = 1
    count: int = 1

    @property
    def label(self) -> str:
        """The name, numbered like ``the#2`` if the text has it several times."""
        return f"{self.name}#{self.occurrence}" if self.count > 1 else self.name


class Tokenizer:
    """The tokenizer of a model folder, without padding or truncation."""

    def __init__(self, path: Path) -> None:
        try:
            from tokenizers import Tokenizer as RawTokenizer
        except ImportError:
            raise missing_extra("models", "tokenizers") from None
        content = read_whole(path)
        with _refusing(f"{path} is not a tokenizer"):
            self._raw: RawTokenizer = RawTokenizer.from_buffer(content)
        self._path = path
        self._raw.no_padding()
        self._raw.no_truncation()
        self._unknown: str | None = getattr(self._raw.model, "unk_token", None)

    def encode(self, text: str) -> Encoded:
        """Split a text into tokens, special ones added."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RegardError(
                f"the text is not Unicode: character {error.start} is the lone surrogate "
                f"U+{ord(text[error.start]):04X}; give the text as UTF-8"
            ) from None
        with _refusing(f"{self._path} cannot split the text"):
            raw = self._raw.encode(text)
        spelled = zip(raw.tokens, raw.offsets, strict=True)
        return Encoded(
            text=text,
            tokens=raw.tokens,
            ids=np.array(raw.ids, dtype=np.int64),
            special=np.array(raw.special_tokens_mask, dtype=np.bool_),
            words=raw.word_ids,
            pieces=[text[a:b] if token == self._unknown else token for token, (a, b) in spelled],
        )

    def find(self, encoded: Encoded, name: str) -> Word:
        """Find a word, or words in a row, in an encoded text.

        The name is tokenized like the text, so upper case and accents count as far as they do for the model,
        and whole words of the text must match: ``token`` is not found in ``tokenization``. Special tokens
        go by their spelling in upper or lower case, ``[SEP]``.

        Parameters
        ----------
        encoded
            The text.
        name
            The word. ``it#2`` is the second ``it``; without a number, the first.

        Raises
        ------
        RegardError
            If the text has no such word; the message lists those it has.
        """
        places = self._places(encoded, name)
        numbered = re.fullmatch(r"(.+)#([0-9]{1,9})", name)
        occurrence = 1
        if not places and numbered:
            name, occurrence = numbered[1], int(numbered[2])
            places = self._places(encoded, name)
        if not places:
            words = listed(encoded.written_words(), _WORDS_SHOWN)
            raise RegardError(f"the text has no word {name!r}; its words: {words}")
        if not 1 <= occurrence <= len(places):
            times = "1 time" if len(places) == 1 else f"{len(places)} times"
            raise RegardError(f"there is no {name}#{occurrence}: the text has {name!r} {times}, counted from 1")
        return Word(name, places[occurrence - 1], occurrence, len(places))

    def last_word(self, encoded: Encoded) -> Word | None:
        """Find the last of the written words, None if there are none."""
        for name in reversed(encoded.written_words()):
            places = self._places(encoded, name)
            if places:
                return Word(name, places[-1], len(places), len(places))
        return None

    def _places(self, encoded: Encoded, name: str) -> list[range]:
        """Every stretch of whole words whose pieces are those of ``name``, else special tokens spelled so."""
        asked = self.encode(name)
        pieces = [piece for piece, special in zip(asked.pieces, asked.special, strict=True) if not special]
        size = len(pieces)
        words = [
            range(start, start + size)
            for start in range(len(encoded.pieces) - size + 1)
            if size and encoded.pieces[start : start + size] == pieces
            if encoded.edge(start) and encoded.edge(start + size)
        ]
        added = zip(encoded.tokens, encoded.special, strict=True)
        return words or [
            range(at, at + 1)
            for at, (token, special) in enumerate(added)
            if special and token.casefold() == name.casefold()
        ]


@contextmanager
def _refusing(fact: str) -> Iterator[None]:
    """Raise ModelError for what tokenizers raises: bare Exception, or a panic of its Rust, which is not even that."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelError(f"{fact} ({error}); fetch it again") from None


def _without_punctuation(word: str) -> str:
    """Strip ASCII's punctuation and symbols, and what Unicode calls punctuation."""
    inside = [
        at
        for at, character in enumerate(word)
        if character not in string.punctuation and unicodedata.category(character)[0] != "P"
    ]
    return word[inside[0] : inside[-1] + 1] if inside else ""
