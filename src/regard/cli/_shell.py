"""The library's ways out in the words of a shell: its messages say ``scale=`` where the command has ``--scale``."""

from __future__ import annotations

import re

# Arguments of Python's that a command has as options.
PLAN = ("scale", "softcap", "mask", "bias", "sinks", "dtype", "target", "q_offset", "num_threads")
CHECK = (
    "layout", "mask", "causal", "window", "empty_row", "supports", "expected", "library", "memory", "dtype", "seed",
    "budget_s", "timeout_s", "strict",
)  # fmt: skip
BENCH = ("threads", "rounds")
_REWRITTEN = (
    (re.compile(r"\bpass q_offset=lengths - Sq\b"), "pass --q-offset with length - queries of each, such as 3,5"),
    (re.compile(r"\bpass (query|key|value|bias|sinks)(\.\w+)"), r"save \1\2"),
)


def in_shell(message: str, names: tuple[str, ...]) -> str:
    """Put the options of a command in place of the arguments of those names, in a message of the library's."""
    known = "|".join(names)
    for pattern, words in _REWRITTEN:
        message = pattern.sub(words, message)
    argument = rf"(?<![\w-])({known})=(?:True\b|([\"']?)([\w-]+)\2|(?=([(\[\"']?)))"
    message = re.sub(argument, lambda x: _option(x[1]) + (" " if x[3] or x[4] else "") + (x[3] or ""), message)
    no_word = "|".join(name for name in names if "_" in name) or "(?!)"  # an argument, wherever it stands
    subject = rf"^({known})(?= (?:is|has) )|(?<![\w-])({no_word})\b"
    return re.sub(subject, lambda x: _option(x[0]), message)


def _option(name: str) -> str:
    return f"--{name.removeprefix('num_').removesuffix('_s').replace('_', '-')}"
