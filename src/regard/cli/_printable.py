"""Text from outside, made safe to print: a token may hold an escape sequence or turn the line around."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    r"""Replace control, format and unassigned characters by their escapes: ``\x1b``, ``\u202e``.

    Examples
    --------
    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return "".join(
        character.encode("unicode_escape").decode("ascii") if unicodedata.category(character)[0] == "C" else character
        for character in text
    )
