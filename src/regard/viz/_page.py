"""One self-contained HTML page of attention weights: it needs no network and asks for none."""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from regard._errors import RegardError, ShapeError
from regard._files import write_whole

_ROUNDING = 1e-4  # the only weight of a row may come out a little over 1
_TOP = 65535
_BUDGET = 5_700_000  # bytes of weights: 7.6 MB in base64, so that a page stays under 8 MB
_TEXT = 1000  # characters of the text that the page repeats
_SCRIPTS = ("weights.js", "words.js", "draw.js", "page.js")


@dataclass(frozen=True)
class Opening:
    """What a page shows first: a head, the tokens of the word that looks, and of the word looked at, if any."""

    layer: int = 0
    head: int = 0
    word: Sequence[int] = (0,)
    target: Sequence[int] = ()


class AttentionPage:
    """A page that shows every head of every layer; a notebook shows it inline.

    Parameters
    ----------
    tokens
        The S tokens, shown exactly as given. One that begins with ``##`` continues the word before it.
    weights
        Attention weights, ``(layers, heads, S, S)``, from query (row) to key (column), each in [0, 1].
    title
        Heading of the page.
    text
        The text that the tokens come from; the page repeats its first 1000 characters.
    source
        What computed the weights: model, program, versions.
    opening
        What the page shows first.

    Attributes
    ----------
    html
        The page.
    kept
        How many weights of each row it holds, S or fewer; see Notes.

    Raises
    ------
    RegardError
        If weights do not fit the tokens, are too many for a page, or are outside of [0, 1]; or if there is no such
        opening.

    Notes
    -----
    The page holds the square root of each weight, rounded to a multiple of 1/65535: a shown weight w is off by at
    most √w/65535 + 6e-11. Its weights take at most 7.6 MB. Where all would take more (from 199 tokens for 72 heads),
    it keeps the largest of each row and the mean of the rest, and says so.

    Examples
    --------
    >>> import numpy as np
    >>> page = AttentionPage(["a", "b"], np.full((1, 1, 2, 2), 0.5))
    >>> page.kept, len(page.html) < 50_000
    (2, True)
    """

    def __init__(
        self,
        tokens: Sequence[str],
        weights: npt.NDArray[Any],
        *,
        title: str = "Where each head looks",
        text: str = "",
        source: str = "",
        opening: Opening | None = None,
    ) -> None:
        size = len(tokens)
        opening = opening or Opening()
        _check(weights, size, opening)
        self.kept = _kept(weights.shape)
        data = {
            "title": title,
            "text": text if len(text) <= _TEXT else text[:_TEXT] + "\u2026",
            "source": source,
            "tokens": list(tokens),
            "layers": weights.shape[0],
            "heads": weights.shape[1],
            "layer": int(opening.layer),
            "head": int(opening.head),
            "word": [int(at) for at in opening.word],
            "target": [int(at) for at in opening.target],
            "kept": self.kept,
            **(_all(weights) if self.kept == size else _largest(weights, self.kept)),
        }
        self.html = _fill(title, data)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page whole or not at all; symbolic links are followed, devices and pipes are written to.

        Raises
        ------
        RegardError
            If nothing can be written there.
        """
        write_whole(path, self.html)

    def _repr_html_(self) -> str:
        """Give notebooks a frame of its own, in which the page can reach nothing of theirs."""
        page = html.escape(self.html)
        return (
            f'<iframe sandbox="allow-scripts" style="width: 100%; height: 900px; border: 0" srcdoc="{page}"></iframe>'
        )


def _check(weights: npt.NDArray[Any], size: int, opening: Opening) -> None:
    if weights.ndim != 4 or weights.shape[2:] != (size, size) or 0 in weights.shape:
        raise ShapeError(
            f"weights have shape {weights.shape} for {size} tokens; they must be "
            f"(layers, heads, {size}, {size}), none of them 0"
        )
    low, high = float(weights.min()), float(weights.max())
    if not (low >= 0 and high <= 1 + _ROUNDING):
        raise RegardError(f"weights run from {low} to {high}; attention weights are in [0, 1]")
    layers, heads = weights.shape[:2]
    head_exists = opening.layer in range(layers) and opening.head in range(heads)
    if not head_exists or not opening.word or any(at not in range(size) for at in (*opening.word, *opening.target)):
        raise ShapeError(f"there is no {opening} among {layers} layers of {heads} heads and {size} tokens")


def _kept(shape: tuple[int, ...]) -> int:
    """How many weights of each row the budget allows: all at 2 bytes, or some at 4 and the mean of the rest."""
    layers, heads, size, _ = shape
    rows = layers * heads * size
    if 2 * rows * size <= _BUDGET:
        return size
    kept = (_BUDGET // rows - 2) // 4
    if kept < 1 or size > _TOP:
        raise ShapeError(f"weights of shape {shape} are too many for a page; give fewer layers, heads or tokens")
    return kept


def _all(weights: npt.NDArray[Any]) -> dict[str, str]:
    return {"roots": _base64(_roots(weights)), "places": ""}


def _largest(weights: npt.NDArray[Any], kept: int) -> dict[str, str]:
    """For each row: the roots of its largest weights and of the mean of the rest, and where the largest are."""
    places = np.argpartition(-weights, kept - 1, axis=-1)[..., :kept]
    largest = np.take_along_axis(weights, places, axis=-1)
    rest = (weights.sum(axis=-1, dtype=np.float64) - largest.sum(axis=-1, dtype=np.float64)).clip(0)
    mean = rest[..., None] / (weights.shape[-1] - kept)
    return {"roots": _base64(_roots(np.concatenate([largest, mean], axis=-1))), "places": _base64(places)}


def _roots(weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Plain weights in two bytes would round a small one to few digits."""
    roots: npt.NDArray[Any] = np.rint(np.sqrt(weights, dtype=np.float32) * _TOP).clip(0, _TOP)
    return roots


def _base64(numbers: npt.NDArray[Any]) -> str:
    return base64.b64encode(numbers.astype("<u2").tobytes()).decode("ascii")


def _fill(title: str, data: dict[str, object]) -> str:
    assets = resources.files(__package__).joinpath("assets")
    read = {path: assets.joinpath(path).read_text(encoding="utf-8") for path in ("page.html", "page.css", *_SCRIPTS)}
    holes = {
        "title": html.escape(title).encode("ascii", "xmlcharrefreplace").decode("ascii"),
        "style": read["page.css"],
        "data": _script_json(data),
        "script": "\n".join(read[name] for name in _SCRIPTS),
    }
    # One pass, so that nothing put in is ever read as a hole.
    return re.sub(r"\{\{(title|style|data|script)\}\}", lambda hole: holes[hole[1]], read["page.html"])


def _script_json(data: object) -> str:
    """JSON that cannot end the script element it stands in: ASCII only, and no <, > or &."""
    escaped = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    for character in "<>&":
        escaped = escaped.replace(character, f"\\u{ord(character):04x}")
    return escaped
