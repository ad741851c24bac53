"""One self-contained HTML page of attention weights: it needs no network and asks for none."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import secrets
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regard._errors import RegardError, ShapeError

_ROUNDING = 1e-4  # the only weight of a row may come out a little over 1
_FINE_UP_TO = 128  # tokens: above, one byte per weight keeps the page loadable


def render_page(
    tokens: Sequence[str],
    weights: npt.NDArray[Any],
    *,
    title: str,
    text: str,
    selected: tuple[int, int, int] = (0, 0, 0),
) -> str:
    """Return the page as a string.

    Parameters
    ----------
    tokens
        The S tokens, shown exactly as given.
    weights
        Attention weights, ``(layers, heads, S, S)``, from query (row) to key (column), each in [0, 1].
    title
        Heading of the page.
    text
        The text that the tokens come from.
    selected
        Layer, head and token that the page shows first.

    Notes
    -----
    The page holds the square root of each weight, rounded to a multiple of 1/top: top is 65535 up to 128
    tokens and 255 above. A shown weight w is off by at most √w/top + 1/(2·top)². Plain weights in one byte
    would turn a head that looks everywhere alike, 1/S each, into zeros.
    """
    size = len(tokens)
    if weights.ndim != 4 or weights.shape[2:] != (size, size) or 0 in weights.shape:
        raise ShapeError(
            f"weights have shape {weights.shape} for {size} tokens; they must be "
            f"(layers, heads, {size}, {size}), none of them 0"
        )
    low, high = float(weights.min()), float(weights.max())
    if not (low >= 0 and high <= 1 + _ROUNDING):
        raise RegardError(f"weights run from {low} to {high}; attention weights are in [0, 1]")
    bits = 16 if size <= _FINE_UP_TO else 8
    data = {
        "title": title,
        "text": text,
        "tokens": list(tokens),
        "layers": weights.shape[0],
        "heads": weights.shape[1],
        "selected": selected,
        "bits": bits,
        "weights": base64.b64encode(_roots(weights, bits)).decode("ascii"),
    }
    template = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    holes = {"title": html.escape(title), "data": _script_json(data)}
    # One pass, so that nothing put in is ever read as a hole.
    return re.sub(r"\{\{(title|data)\}\}", lambda hole: holes[hole[1]], template)


def write_page(path: str | os.PathLike[str], page: str) -> None:
    """Write a page whole or not at all: readers see the old file until the new one is complete.

    Raises
    ------
    RegardError
        If the directory does not exist or nothing can be written there.
    """
    target = Path(path)
    if target.is_dir():
        raise RegardError(f"cannot write {target}: it is a directory; name a file in it")
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        file = part.open("x", encoding="utf-8", newline="\n")  # exclusive: never somebody else's file
        try:
            with file:
                file.write(page)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise RegardError(
            f"cannot write {target}: {error.strerror}; name a file in a directory that exists and that you may write to"
        ) from None


def _roots(weights: npt.NDArray[Any], bits: int) -> bytes:
    top = 2**bits - 1
    steps = np.rint(np.sqrt(weights, dtype=np.float32) * top).clip(0, top)
    raw: bytes = steps.astype(f"<u{bits // 8}").tobytes()
    return raw


def _script_json(data: object) -> str:
    """JSON that cannot end the script element it stands in: ASCII only, and no <, > or &."""
    escaped = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    for character in "<>&":
        escaped = escaped.replace(character, f"\\u{ord(character):04x}")
    return escaped
