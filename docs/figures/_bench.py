"""The newest result of `make bench` that is in the repository; every number of the pages on speed comes from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard import bench

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
NOT_THERE = "not in this result"
# A problem of fewer rows of all heads is one in which a call's overhead shows.
_SHORT = 8192


def result() -> dict[str, Any]:
    """Read it."""
    return bench.read(bench.newest(RESULTS))


def others() -> list[dict[str, Any]]:
    """Read those before it, the latest first: of other machines, or of earlier days."""
    return [bench.read(path) for path in reversed(bench.kept(RESULTS)[:-1])]


def raced() -> Iterator[tuple[str, dict[str, Any]]]:
    """Problems that were run, by name."""
    for name, outcome in result()["problems"].items():
        if outcome.get("contestants"):
            yield name, outcome


def kind(outcome: dict[str, Any]) -> str:
    """Which part of the page a problem belongs to."""
    asked = outcome["problem"]
    batch, heads, queries, _ = asked["query"]
    if asked["threads"] > 1:
        return "threads"
    if queries == 1:
        return "decode"
    if asked["bias"] or asked["mask"] not in (None, "Causal()"):
        return "covered"
    return "short" if batch * heads * queries < _SHORT else "prefill"


def whole(part: str) -> dict[str, Any]:
    """Give the series of a part, `growth` or `memory`, by name."""
    found: dict[str, Any] = result().get(part, {})
    return found
