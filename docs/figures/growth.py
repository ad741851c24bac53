"""Time and memory against length, head size and window."""

from __future__ import annotations

from typing import Any

from regard import bench

from . import _chart
from ._bench import NOT_THERE, whole
from ._draw import Picture, Table

# The length at which a call is its overhead: measured, and not drawn.
_SHORTEST = 16
# What grows, as the formulas of the page name it.
_LETTERS = {"length": "n", "size": "d", "window": "w"}


def _rows(part: str, name: str) -> dict[str, dict[int, Any]]:
    """Rows of a series by contestant and length."""
    contestants = whole(part).get(name, {}).get("contestants", {})
    return {
        who: {int(n): row for n, row in rows.items() if int(n) > _SHORTEST} for who, rows in contestants.items() if rows
    }


def _time(name: str, title: str, across: str = "length") -> Picture:
    values = {who: {n: r["median"] for n, r in rows.items()} for who, rows in _rows("growth", name).items()}
    return _chart.lines(values, title, "milliseconds", bench.number, across)


def _memory(name: str, title: str) -> Picture:
    values = {
        who: {n: max(r["bytes"], 4096) / 2**20 for n, r in rows.items()} for who, rows in _rows("memory", name).items()
    }
    return _chart.lines(values, title, "MiB", bench.number)


def full() -> Picture:
    """Draw time against length, all pairs."""
    return _time("full", "Time against length, every query sees every key")


def causal() -> Picture:
    """Draw time against length, half of the pairs."""
    return _time("causal", "Time against length, causal")


def window() -> Picture:
    """Draw time against length, a window."""
    return _time("causal window 256", "Time against length, a causal window")


def sizes() -> Picture:
    """Draw time against head size, all pairs."""
    return _time("full, head size", "Time against head size, every query sees every key", "head size")


def widths() -> Picture:
    """Draw time against the width of a window."""
    return _time("causal window, its width", "Time against the width of a causal window", "keys that a query sees")


def memory_full() -> Picture:
    """Draw memory against length, all pairs."""
    return _memory("full", "Memory against length, every query sees every key")


def memory_window() -> Picture:
    """Draw memory against length, a window."""
    return _memory("causal window 256", "Memory against length, a causal window")


def _against(part: str, along: str, head: str, cell: Any) -> Table:
    chosen = [name for name, series in whole(part).items() if series["along"] == along]
    columns = {f"{name}: {who}": by for name in chosen for who, by in _rows(part, name).items()}
    steps = sorted({n for by in columns.values() for n in by})
    rows = [[f"{n:,}", *(cell(by[n]) if n in by else "" for by in columns.values())] for n in steps]
    return Table([head, *columns], rows or [[NOT_THERE]])


def _time_cell(row: dict[str, Any]) -> str:
    """Milliseconds, seconds from a thousand on; a star where a call was timed once."""
    ms = row["median"]
    told = f"{bench.number(ms / 1e3)}\N{NO-BREAK SPACE}s" if ms >= 1e3 else f"{bench.number(ms)}\N{NO-BREAK SPACE}ms"
    return told + ("\\*" if row["rounds"] == 1 else "")


def times() -> Table:
    """List times by length."""
    return _against("growth", "length", "length", _time_cell)


def times_by_size() -> Table:
    """List times by head size."""
    return _against("growth", "size", "head size", _time_cell)


def times_by_width() -> Table:
    """List times by the width of a window."""
    return _against("growth", "window", "keys that a query sees", _time_cell)


def peaks() -> Table:
    """MiB beyond the inputs."""
    return _against(
        "memory", "length", "length", lambda row: f"{bench.number(row['bytes'] / 2**20)}\N{NO-BREAK SPACE}MiB"
    )


def fits() -> Table:
    """Fitted exponents beside those of the formula."""
    rows = []
    for part, what in (("growth", "time"), ("memory", "memory")):
        for name, series in whole(part).items():
            for who, fit in series["fits"].items():
                told = [f"{fit['exponent']:.2f}", f"{fit['from']:,} to {fit['to']:,}"] if fit else ["too few steps", ""]
                rows.append(
                    [
                        what,
                        name,
                        who,
                        _LETTERS[series["along"]],
                        *told,
                        f"{series['growth']:g}" if who == "regard" else "",
                    ]
                )
    head = ["", "series", "contestant", "against", "fitted exponent", "steps", "of regard's formula"]
    return Table(head, rows or [[NOT_THERE, *[""] * 6]])
