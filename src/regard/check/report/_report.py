"""The report of a check."""

from __future__ import annotations

import json
from dataclasses import dataclass

from regard._errors import written
from regard.check.candidate._guess import Guess
from regard.check.findings._finding import Finding


@dataclass(frozen=True, eq=False)
class Report:
    """What `regard.check` found out about a function; printing it shows everything.

    Attributes
    ----------
    name : str
        The function's name.
    findings : tuple of Finding
        What is wrong, gravest first.
    guessed : tuple of Guess
        How the function was called, where that was not declared, and the evidence.
    measured : tuple of str
        Numbers that were read off the function.
    pictures : tuple of (str, str)
        Which pairs are kept, beside what is right, for each option where these differ.
    asked : tuple of str
        Probes that were answered.
    seconds : float
        Time that it took.
    strict : bool
        Whether a warning fails.
    unfinished : bool
        Whether time ran out, or the check was given up; with ``strict`` that fails.
    questions : tuple of str
        Groups of faults, laws and habits that it was asked about, as `junit` and `regard.parametrize` name them.
    """

    name: str
    findings: tuple[Finding, ...]
    guessed: tuple[Guess, ...]
    measured: tuple[str, ...] = ()
    pictures: tuple[tuple[str, str], ...] = ()
    asked: tuple[str, ...] = ()
    seconds: float = 0.0
    strict: bool = False
    unfinished: bool = False
    questions: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if something was asked and no fault found but what was expected; with ``strict`` also no warning."""
        given_up = self.unfinished and (self.strict or self.is_empty)
        return not given_up and not any(self.fails(finding) for finding in self.findings)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known: no probe was answered, and nothing found."""
        return not self.asked and not self.findings

    def fails(self, finding: Finding) -> bool:
        """Whether one of the findings makes the check fail."""
        return finding.expected is None and (self.strict or finding.level == "fault")

    @property
    def exit_code(self) -> int:
        """0 if ok, 1 if not, 2 if there was no time to ask anything."""
        if self.unfinished and self.is_empty:
            return 2
        return 0 if self.ok else 1

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the findings."""
        return tuple(finding.name for finding in self.findings)

    def __getitem__(self, name: str) -> Finding:
        """Find a finding by its name."""
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(f"no finding {written(name)}; there are {', '.join(self.names) or 'none'}")

    def table(self) -> str:
        """One line per finding."""
        rows = [("finding", "level", "what the function does")]
        rows += [(f.name, "expected" if f.expected else f.level, f.does) for f in self.findings]
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        return "\n".join(f"{name:{widths[0]}}  {level:{widths[1]}}  {does}" for name, level, does in rows)

    def json(self) -> str:
        """Everything as JSON."""
        return json.dumps(
            {
                "name": self.name,
                "ok": self.ok,
                "findings": [finding.as_dict() for finding in self.findings],
                "guessed": [{"what": g.what, "value": g.value, "evidence": g.evidence} for g in self.guessed],
                "measured": list(self.measured),
                "pictures": dict(self.pictures),
                "asked": list(self.asked),
                "seconds": round(self.seconds, 3),
                "strict": self.strict,
                "unfinished": self.unfinished,
                "questions": list(self.questions),
            },
            indent=2,
        )

    def junit(self) -> str:
        """JUnit XML with one test case per question: each group of faults, each law, each habit."""
        from ._junit import junit

        return junit(self)

    def __str__(self) -> str:
        counts = [
            (sum(f.level == level and not f.expected for f in self.findings), level) for level in ("fault", "warning")
        ]
        said = ", ".join(f"{n} {level}{'' if n == 1 else 's'}" for n, level in counts if n) or "nothing found"
        said = "nothing asked" if self.is_empty else said
        lines = [f"{self.name}: {said} ({len(self.asked)} probes, {self.seconds:.1f} s)"]
        if self.unfinished:
            lines.append("time ran out, or it was given up: what follows is not all that was to be asked")
        lines += [f"  guessed  {guess}" for guess in self.guessed]
        lines += [f"  measured {line}" for line in self.measured]
        for finding in self.findings:
            lines += ["", str(finding)]
        for name, picture in self.pictures if self.findings else ():
            lines += ["", f"{name}, first head", *(f"  {line}" for line in picture.splitlines())]
        return "\n".join(lines)

    __repr__ = __str__
