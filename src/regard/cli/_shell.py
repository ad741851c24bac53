"""The library's ways out in the words of a shell: its messages say ``scale=`` where the command has ``--scale``."""

from __future__ import annotations

import re

from regard._errors import RegardError

_OPTIONS = {name: f"--{name}" for name in ("scale", "softcap", "mask", "bias", "sinks", "dtype", "target")} | {
    "q_offset": "--q-offset",
    "num_threads": "--threads",
}
_NAMES = "|".join(_OPTIONS)
_REWRITTEN = (
    (re.compile(r"\bpass q_offset=lengths - Sq\b"), "pass --q-offset with length - queries of each, such as 3,5"),
    (re.compile(r'\bq_offset="(start|end)"'), r"--q-offset \1"),
    (re.compile(r"\bpass (query|key|value|bias|sinks)(\.\w+)"), r"save \1\2"),
)
_ARGUMENT = re.compile(rf"(?<![\w-])({_NAMES})=(?=([\w\"'(\[]?))")
_SUBJECT = re.compile(rf"^({_NAMES})(?= is )|(?<![\w-])(q_offset|num_threads)\b")


def in_shell(error: RegardError) -> RegardError:
    """Return the error with options in place of Python's arguments."""
    text = str(error)
    for pattern, words in _REWRITTEN:
        text = pattern.sub(words, text)
    text = _ARGUMENT.sub(lambda found: _OPTIONS[found[1]] + (" " if found[2] else ""), text)
    return type(error)(_SUBJECT.sub(lambda found: _OPTIONS[found[0]], text))


_CHECK_OPTIONS = "|".join((
    "layout", "mask", "causal", "window", "empty_row", "supports", "expected", "library", "memory", "dtype", "seed",
    "budget_s", "timeout_s", "strict",
))  # fmt: skip
_CHECKED = re.compile(rf"^({_CHECK_OPTIONS})(?= (?:is|has) )")
_DECLARED = re.compile(rf"\b({_CHECK_OPTIONS})=(?:True|['\"]?([\w-]+)['\"]?|(?=[,;) ]))")


def check_in_shell(message: str) -> str:
    """Put the options of ``regard check`` in place of Python's arguments, in a message of the library's."""

    def option(name: str) -> str:
        return f"--{name.removesuffix('_s').replace('_', '-')}"

    message = _CHECKED.sub(lambda found: option(found[1]), message)
    return _DECLARED.sub(lambda found: option(found[1]) + (f" {found[2]}" if found[2] else ""), message)
