"""What the musts that were missed ask of the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ._work import FASTEST, Rates, Work


@dataclass(frozen=True)
class Asked:
    """A must that was missed: over whom, the milliseconds that it leaves regard, and the least that the ceilings allow.

    None where the ceilings say nothing. All are of the moments in which the machine was fastest: the least times, and
    the largest rates.
    """

    problem: str
    what: str
    took_ms: float
    must_ms: float
    least_ms: float | None

    @property
    def share(self) -> float | None:
        """How much of the ceilings it asks for; over 1 is more than there is."""
        return None if self.least_ms is None else self.least_ms / self.must_ms

    @property
    def reached(self) -> float | None:
        """How much of them regard reached."""
        return None if self.least_ms is None else self.least_ms / self.took_ms


def asked(result: Mapping[str, Any]) -> Iterator[Asked]:
    """Find the musts over another's time that a run missed."""
    for name, outcome in result["problems"].items():
        for goal in outcome.get("goals", ()):
            if goal["mark"] != "missed" or goal["sign"] != "≥":
                continue
            rates = Rates.for_outcome(result, outcome, FASTEST)
            least = None if rates is None else Work(**outcome["work"]).least_ms(rates)
            own, over = (outcome["contestants"][who][FASTEST.ms] for who in ("regard", goal["peer"]))
            yield Asked(name, goal["what"], own, over / goal["must"], least)
