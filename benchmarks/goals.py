"""What a problem must reach, and what we are after: numbers of the rows of a race."""

from __future__ import annotations

import operator
from dataclasses import dataclass

BEST = "best"
HOLDS = {"≥": operator.ge, "≤": operator.le}


def mark(goal, value):
    """What became of a goal; one without a must cannot be missed."""
    if value is None:
        return "unknown"
    holds = HOLDS[goal.sign]
    if holds(value, goal.goal):
        return "goal"
    if goal.must is None:
        return "not yet"
    return "must" if holds(value, goal.must) else "missed"


@dataclass(frozen=True)
class Faster:
    """Another's time over regard's is at least so much. The other named `best` is the fastest that is not ours."""

    peer: str
    must: float | None
    goal: float
    sign = "≥"
    mark = mark

    def against(self, rows):
        if self.peer != BEST:
            return self.peer if self.peer in rows else None
        others = {name: row["median_ms"] for name, row in rows.items() if row["outside"]}
        return min(others, key=others.get, default=None)

    def value(self, rows):
        peer = self.against(rows)
        return None if peer is None else rows[peer]["ratio"]["median"]

    def words(self, rows):
        peer = self.against(rows)
        return f"{self.peer} ({peer})" if self.peer == BEST and peer else self.peer


@dataclass(frozen=True)
class Costs(Faster):
    """Regard's time over another's is at most so much."""

    sign = "≤"

    def value(self, rows):
        ratio = super().value(rows)
        return None if ratio is None else 1 / ratio

    def words(self, rows):
        return f"time over that of {self.peer}"


@dataclass(frozen=True)
class Within:
    """A call takes at most so many microseconds: a goal, no must."""

    goal: float
    must = None
    sign = "≤"
    mark = mark

    def against(self, rows):
        return None

    def value(self, rows):
        return rows["regard"]["median_ms"] * 1e3 if "regard" in rows else None

    def words(self, rows):
        return "microseconds"


def limits(value):
    """Must and goal."""
    return value if isinstance(value, list) else (None, value)


def goals_of(entry):
    """Goals of an entry of problems.toml: tables `faster` and `costs` of [must, goal], or a goal alone, by peer; and
    `microseconds`.
    """
    goals = [Faster(peer, *limits(value)) for peer, value in entry.get("faster", {}).items()]
    goals += [Costs(peer, *limits(value)) for peer, value in entry.get("costs", {}).items()]
    if "microseconds" in entry:
        goals.append(Within(entry["microseconds"]))
    return tuple(goals)


def reached(goals, rows):
    """What is said of each goal, for the report and the file; without regard's row nothing is known of any."""
    rows = rows if "regard" in rows else {}
    told = []
    for goal in goals:
        value = goal.value(rows)
        told.append(
            {
                "what": goal.words(rows), "peer": goal.against(rows), "value": value, "sign": goal.sign,
                "must": goal.must, "goal": goal.goal, "mark": goal.mark(value),
            }
        )  # fmt: skip
    return told


def musts(problems):
    """Marks of all musts, those of problems that were not run among them."""
    goals = [goal for outcome in problems.values() for goal in outcome.get("goals", ())]
    return [goal["mark"] for goal in goals if goal["must"] is not None]


def not_raced(problems):
    """Say how many problems were not run here, and with how many musts; empty for none.

    A result from before their goals were written tells no musts of them.
    """
    skipped = {name: outcome for name, outcome in problems.items() if "skipped" in outcome}
    if not skipped:
        return ""
    held = f", with {len(musts(skipped))} musts" if musts(skipped) else ""
    return f"{len(skipped)} problem{'s were' if len(skipped) > 1 else ' was'} not raced here{held}"
