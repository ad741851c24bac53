"""Text from outside, made safe to print: a token may hold an escape sequence or turn the line around."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    r"""Replace control, format, unassigned and line-breaking characters by their escapes: ``\x1b``, ``\u202e``.

    Examples
    --------
    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return "".join(
        character.encode("unicode_escape").decode("ascii") if _commands(character) else character for character in text
    )


def _commands(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] == "C" or category in ("Zl", "Zp")
