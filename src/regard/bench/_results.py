"""The file of a run: what is measured, written after every problem."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from regard._files import destination, write_whole

FORMAT = 2
_TIMES = ("low_ms", "median_ms", "high_ms")


def write(result: dict[str, Any], path: Path) -> None:
    """Whole or not at all, so that a run that is killed leaves what it had."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, as_text(result))


def as_text(result: dict[str, Any]) -> str:
    """Write it as JSON."""
    return json.dumps(result, indent=1) + "\n"


def set_aside(path: Path) -> Path | None:
    """Keep the run before under a name of its own, to compare with; return that name, or None if there is none.

    Raises
    ------
    ValueError
        If nothing can be written there, or the file is no result: it stays where it is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    target = destination(path)
    if not target.is_file():
        return None
    read(target)
    before = target.with_name(f"{target.stem}.before{target.suffix}")
    os.replace(target, before)
    return before


def read(path: Path) -> dict[str, Any]:
    """Read what `write` wrote.

    Raises
    ------
    ValueError
        If the file is no result, one of another version, or not whole.
    """
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON, or was cut short: {error}") from None
    if not isinstance(result, dict) or result.get("format") != FORMAT:
        raise ValueError(f"{path} is no result of `make bench` or `regard bench` that this version reads")
    if lack := _lack(result):
        raise ValueError(f"{path} is no whole result of `make bench` or `regard bench`: {lack}")
    return result


def _lack(result: dict[str, Any]) -> str:
    """Say what a result lacks of what is read of each; "" for nothing."""
    for part in ("machine", "problems"):
        if not isinstance(result.get(part), dict):
            return f"it has no {part}"
    for name, outcome in result["problems"].items():
        rows = outcome.get("contestants", {}) if isinstance(outcome, dict) else None
        if not isinstance(rows, dict):
            return f"{name} has no contestants"
        for peer, row in rows.items():
            if not isinstance(row, dict) or "outside" not in row or not all(_is_time(row.get(t)) for t in _TIMES):
                return f"{name}: {peer} has no times"
    return ""


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and value > 0


def kept(folder: Path) -> list[Path]:
    """Find the results in a folder, the latest day last; partial ones, and files that are none, are passed over.

    Raises
    ------
    FileNotFoundError
        If the folder has no result.
    """
    dated = {}
    for path in sorted(folder.glob("*.json")):
        try:
            result = read(path)
        except ValueError:
            continue
        if not result.get("partial"):
            dated[path] = result["machine"].get("date", "")
    if not dated:
        raise FileNotFoundError(f"{folder} holds no result of `make bench`")
    return sorted(dated, key=lambda path: dated[path])


def newest(folder: Path) -> Path:
    """Find the result of the latest day in a folder, as `kept` does."""
    return kept(folder)[-1]
