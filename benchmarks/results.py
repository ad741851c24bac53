"""The file of a run: written after every problem, read by `compare` and table.py."""

from __future__ import annotations

import json
import os

FORMAT = 2


def write(result, path):
    """Whole or not at all, so that a run that is killed leaves what it had."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    beside.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    os.replace(beside, path)


def set_aside(path):
    """Keep the run before under a name of its own, to compare with; return that name, or None if there is none."""
    if not path.exists():
        return None
    before = path.with_name(f"{path.stem}.before{path.suffix}")
    os.replace(path, before)
    return before


def read(path):
    """What `write` wrote, or what regard 0.1.0 wrote, in today's form."""
    result = json.loads(path.read_text(encoding="utf-8"))
    if result.get("format") == FORMAT:
        return result
    if "format" in result or "matmul_1024_gflops" not in result:
        raise ValueError(f"{path} is no result of `make bench` that this version reads")
    problems = {}
    for name, rows in result["problems"].items():
        for contestant, row in rows.items():
            own = contestant.removesuffix(", causal")  # a contestant then, a problem now
            problem = problems.setdefault(name + contestant[len(own) :], {"contestants": {}})
            problem["contestants"][own] = _row(own, row)
    return {"format": FORMAT, "machine": result["machine"], "problems": problems}


def _row(name, row):
    """A row of format 1, whose ends stand for the quartiles that were not kept."""
    ratio = 1.0 if name == "regard" else row["time_over_regard"]
    return {
        "outside": name != "regard", "rounds": row["rounds"], "gflops": row["gflops"],
        "max_abs_error": row["max_abs_error"], "ratio": {"median": ratio},
        "median_ms": row["median_ms"], "min_ms": row["min_ms"], "max_ms": row["max_ms"],
        "low_ms": row["min_ms"], "high_ms": row["max_ms"],
    }  # fmt: skip
