"""What is reported about one fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case
from regard.check.answers._tolerance import Outcome, Refused


@dataclass(frozen=True, eq=False)
class Example:
    """The smallest case that was found, what is right, and what the function answered."""

    case: Case
    expected: Array
    got: Outcome

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays of the case by name."""
        return arrays_of(self.case)

    @property
    def what(self) -> str:
        """What ``expected`` and ``got`` are, if not the output."""
        return ""

    def __str__(self) -> str:
        lines = [_after(f"{name} = ", value) for name, value in self.arrays.items() if not _is_long(value)]
        lines += [
            f"{name} = {value!r}" for name, value in self.case.options.items() if not isinstance(value, np.ndarray)
        ]
        head = f"{self.what}yours    "
        got = head + self.got.message if isinstance(self.got, Refused) else _after(head, self.got)
        if self.case.dropout is not None:
            lines.append("share of zeros, of 1/(1 - p), mean and spread of row sums, equal zeros of heads, of batches:")
        if not isinstance(self.got, Refused) and self.got.shape != self.expected.shape:
            lines.append(f"{self.what}expected shape {self.expected.shape}, yours {self.got.shape}")
        return "\n".join([*lines, _after(f"{self.what}expected ", self.expected), got])


@dataclass(frozen=True, eq=False)
class Finding:
    """A fault that was found.

    Attributes
    ----------
    name : str
        Its name in the catalogue, or of the law or habit that is broken.
    level : str
        ``"fault"``: results are wrong. ``"warning"``: they are wrong, or refused, on unusual inputs only.
    certainty : str
        How well it explains what was seen.
    does, why, mend : str
        What the function does, why it matters, and how to mend it.
    evidence : tuple of str
        What was measured.
    also : tuple of str
        Other names of the fault: by no input could they be told apart.
    alternatives : tuple of str
        Other faults that explain the same answers.
    example : Example or None
        The smallest case that shows it.
    script : str
        A program that shows it and needs only NumPy and the function's library; exit code 1 while it is so.
    expected : str or None
        The reason why it was expected, if it was.
    about : str
        Of EXPECTED_NOT_FOUND, the name that was expected.
    """

    name: str
    level: str
    certainty: str
    does: str
    why: str
    mend: str
    evidence: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    example: Example | None = None
    script: str = ""
    expected: str | None = None
    about: str = ""
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = "EXPECTED" if self.expected else self.level.upper()
        lines = [f"{head} {self.name}  ({self.expected or self.certainty})", f"  {self.does}"]
        lines += [f"  {line}" for line in self.evidence]
        if self.also:
            lines.append(f"  the same function as {', '.join(self.also)}")
        if self.alternatives:
            lines.append(f"  or: {', '.join(self.alternatives)}")
        if self.example:
            lines += ["  smallest example", *(f"    {line}" for line in str(self.example).splitlines())]
        return "\n".join([*lines, f"  why it matters   {self.why}", f"  how to mend it   {self.mend}"])

    def as_dict(self) -> dict[str, Any]:
        """Everything, in types that JSON has."""
        names = ("name", "level", "certainty", "does", "why", "mend", "expected", "script")
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        found |= {n: list(getattr(self, n)) for n in ("evidence", "also", "alternatives")} | {"example": None}
        if self.example:
            got = self.example.got
            found["example"] = {
                **{name: _listed(value) for name, value in self.example.arrays.items()},
                **{n: v for n, v in self.example.case.options.items() if not isinstance(v, np.ndarray)},
                "expected": _listed(self.example.expected),
                "got": got.message if isinstance(got, Refused) else _listed(got),
            }
        return found


def arrays_of(case: Case) -> dict[str, Array]:
    """Name the arrays of a case."""
    if case.layer:
        matrices = {"wq": case.layer.query, "wk": case.layer.key, "wv": case.layer.value, "wo": case.layer.out}
        return {"x": case.query, **matrices}
    named = {"query": case.query, "key": case.key, "value": case.value, "mask": case.mask, "bias": case.bias,
             "slopes": case.alibi}  # fmt: skip
    return {name: x for name, x in named.items() if x is not None}


def _after(head: str, x: Array) -> str:
    """Spell an array behind some words, in a line or a few, without leading axes of size 1."""
    if is_identity(x):
        return f"{head}the identity matrix of {len(x)}"
    x = x.reshape(x.shape[next((i for i, n in enumerate(x.shape[:-1]) if n != 1), max(x.ndim - 1, 0)) :])
    if x.dtype == bool:
        x = x.astype(int)
    text = np.array2string(x, precision=6, suppress_small=True, threshold=60, separator=", ", max_line_width=100)
    return head + text.replace("\n", "\n" + " " * len(head))


def is_identity(x: Array) -> bool:
    """Whether an array is a unit matrix that takes long to write."""
    return x.ndim == 2 and len(x) > 2 and np.array_equal(x, np.eye(len(x)))


def _is_long(x: Array) -> bool:
    return x.size > 400


def _listed(x: Array) -> Any:
    """Nested lists; NaN and Inf as words, which JSON has no numbers for."""
    if x.dtype == bool:
        return x.tolist()
    words = np.where(np.isnan(x), "nan", np.where(x > 0, "inf", "-inf"))
    return np.where(np.isfinite(x), x.astype(object), words).tolist()
