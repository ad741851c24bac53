"""Whole models of transformers, timed: what `benchmarks/bench_transformers.py` wrote down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ._draw import Table

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "0.1.0-avx2-transformers.json"


def _result() -> Any:
    return json.loads(RESULT.read_text())


def models() -> Table:
    """Median times with their spread, and the median of the ratios round by round."""
    head = ["model", "regard, ms", "sdpa, ms", "eager, ms", "sdpa / regard", "eager / regard", "all but attention, ms"]
    rows = []
    for name, by in _result()["problems"].items():
        times = [
            f"{by[n]['median_ms']:.0f} ({by[n]['min_ms']:.0f} – {by[n]['max_ms']:.0f})"
            for n in ("regard", "sdpa", "eager")
        ]
        ratios = [f"{by[n]['time_over_regard']:.2f}" for n in ("sdpa", "eager")]
        rows.append([name, *times, *ratios, f"{by['zeros']['median_ms']:.0f}"])
    return Table(head, rows)


def conditions() -> Table:
    """List what the numbers depend on."""
    result = _result()
    machine = result["machine"]
    rounds = {row["rounds"] for by in result["problems"].values() for row in by.values()}
    differ = max(by[n]["difference_from_eager"] for by in result["problems"].values() for n in ("regard", "sdpa"))
    rows = [
        ["machine", f"{machine['cpu']}, {machine['processors']} processors, regard's target {machine['target']}"],
        ["versions", f"torch {machine['torch']}, transformers {machine['transformers']}, regard {machine['regard']}"],
        ["threads", f"{result['threads']} of torch and {result['threads']} of regard, pinned"],
        ["load average", f"{machine['load_before']:.1f} before, {machine['load_after']:.1f} after"],
        ["rounds", f"{min(rounds)}, contestants in turn"],
        ["largest difference from eager", f"{differ:.0e} of the largest output"],
    ]
    return Table(["", "in this measurement"], rows)
