"""No false alarm of `regard check` at many seeds, and how well faults are told apart: a part of `make soak`.

Right functions of tests/check_seeds.py are put to the probes of each seed, in each dtype in which they compute
properly; whatever would be found is a false alarm. Then faults are counted: those that no probe shows, the nearest two,
and what becomes of two at once::

    python tools/soak_check.py --seeds 1000 --doubles 400
    python tools/soak_check.py --first 123 --seeds 1

Exit code 1 if there was an alarm, or two faults that no probe separates.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import check_power  # noqa: E402
import check_seeds  # noqa: E402
import regard as rg  # noqa: E402
from regard.check.answers._tolerance import FAIL  # noqa: E402
from regard.check.faults import CATALOGUE  # noqa: E402

KEPT = ROOT / "tests" / "data" / "soak" / "check"
DTYPES = ("float64", "float32", "bfloat16")


def alarms(seeds, progress):
    """Ask every kind of right function at every seed; one row per dtype."""
    rows = []
    for dtype in DTYPES:
        functions = [fn for fn in check_seeds.KINDS if dtype in check_seeds.FUNCTIONS[fn]]
        bar = progress.add_task(f"{dtype}, {len(functions)} functions", total=len(seeds))
        found = check_seeds.alarms(functions, dtype, seeds, lambda bar=bar: progress.advance(bar))
        rows.append({
            "dtype": dtype, "functions": [fn.__name__ for fn in functions], "seeds": len(seeds),
            "alarms": [{"function": name, "seed": seed, "names": names} for (name, seed), names in found.items()],
        })  # fmt: skip
    return rows


def power(doubles, progress):
    """Count faults, pairs and double faults over the models of seed 0."""
    known = check_power.known_models()
    count, near = check_power.nearest(known)
    apart, a, b = near[0] if near else (None, None, None)
    roundings, in_bounds, _ = check_power.roundings_apart()
    bar = progress.add_task("two faults at once", total=doubles)
    sample = check_power.doubles(known, doubles, tick=lambda: progress.advance(bar)) if doubles else None
    return {
        "faults": len(CATALOGUE), "variants": sum(len(fault.variants) for fault in CATALOGUE),
        "probes": len(known.cases),
        "not_shown": [v.fault.name for v in check_power.SEARCHED if not check_power.shown(known, (v,))],
        "pairs_of_variants": count,
        "nearest": None if a is None else {
            "faults": [a.fault.name, b.fault.name], "variants": [a.label, b.label], "apart": float(apart),
        },
        "pairs_of_roundings": roundings, "nearest_roundings_in_bounds": round(float(in_bounds), 1),
        "greedy": check_power.greedy(known), "composable_pairs": len(check_power.composable()),
        "double_faults": {k: n for k, n in vars(sample).items() if k != "both_named"} if sample else None,
    }  # fmt: skip


def free_path():
    """Today's file, or today's next: a kept run is never written over."""
    today = datetime.date.today().isoformat()
    names = [f"{today}.json", *(f"{today}-{n}.json" for n in range(2, 1000))]
    return next(KEPT / name for name in names if not (KEPT / name).exists())


def about():
    """Say what was run, and where."""
    git = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run(
        ["git", "-C", ROOT, "status", "--porcelain", "src", "tests"], capture_output=True, text=True
    )
    return {
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "commit": git.stdout.strip() + (" and changes" if changed.stdout else ""),
        "machine": platform.processor() or platform.machine(),
        "versions": {"regard": rg.__version__, "numpy": np.__version__, "python": platform.python_version()},
    }


def weaknesses(told):
    """What the counts must not show."""
    doubles = told.get("double_faults") or {}
    said = [f"no probe shows {', '.join(told['not_shown'])}"] if told["not_shown"] else []
    if told["nearest"] and told["nearest"]["apart"] < 1e-2:
        said.append(f"two faults are nearly one: {told['nearest']}")
    if told["nearest_roundings_in_bounds"] <= FAIL:
        said.append(f"two roundings are {told['nearest_roundings_in_bounds']} bounds apart")
    if doubles.get("cancelled"):
        said.append(f"{doubles['cancelled']} pairs of faults cancel")
    return said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--doubles", type=int, default=400, help="two faults at once: size of the sample")
    parser.add_argument("--out", type=Path, help="file for the outcome; default: a new one in tests/data/soak/check")
    given = parser.parse_args()
    console, began, where = Console(), time.monotonic(), about()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        rows = alarms(range(given.first, given.first + given.seeds), progress)
        seconds = time.monotonic() - began
        told = power(given.doubles, progress)
    outcome = {
        **where, "seconds_for_seeds": round(seconds, 1), "seconds": round(time.monotonic() - began, 1),
        "first_seed": given.first, "results": rows, "power": told,
    }  # fmt: skip
    path = given.out or free_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(outcome, indent=1) + "\n")
    failed = [alarm for row in rows for alarm in row["alarms"]]
    for alarm in failed:
        console.print(f"[red]alarm[/red]: {alarm['function']} at seed {alarm['seed']}: {', '.join(alarm['names'])}")
    weak = weaknesses(told)
    for said in weak:
        console.print(f"[red]{said}[/red]")
    console.print(f"{len(failed)} false alarms; nearest two faults {told['nearest']}; kept in {path}")
    return 1 if failed or weak else 0


if __name__ == "__main__":
    sys.exit(main())
