"""The command of `make bench`: ``python -m benchmarks run`` and ``python -m benchmarks compare old.json new.json``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

# Some images pin OpenBLAS to an old core, which slows NumPy down: the race would not be fair.
if any(name.startswith("OPENBLAS_") for name in os.environ):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks", *sys.argv[1:]], clean)

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from threadpoolctl import threadpool_limits

from benchmarks import ceilings, compare, problems, report, results
from benchmarks.machine import machine
from benchmarks.race import load, pinned, race

ROOT = Path(__file__).parents[1]


def progress(console):
    """A bar that is drawn between rounds only: a thread that draws would run beside what is timed."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("rounds"), TimeElapsedColumn(),
        console=console, transient=True, auto_refresh=False,
    )  # fmt: skip


def run(options, console):
    """All chosen problems; the file is written after each. Returns the exit code: 1 if regard itself was refused."""
    chosen = problems.load(options.problems)
    result = {"format": results.FORMAT, "machine": machine(), "rounds": options.rounds, "ceilings": {}, "problems": {}}
    before = results.set_aside(options.output)
    for line in report.machine(result["machine"]):
        console.print(line)
    if why := ceilings.absent():
        console.print(f"the loops that measure the machine are {why}")
    with pinned(1), threadpool_limits(1):
        result["ceilings"] = ceilings.measure(options.rounds, time.perf_counter_ns)
    console.print(report.ceilings(result["ceilings"]))
    with progress(console) as bar:
        task = bar.add_task("", total=options.rounds * len(chosen))
        for done, problem in enumerate(chosen):
            bar.update(task, description=problem.name, completed=options.rounds * done, refresh=True)
            outcome = race(problem, options.rounds, after_round=lambda: bar.update(task, advance=1, refresh=True))
            result["problems"][problem.name] = outcome
            results.write(result, options.output)
            console.print(report.problem(problem.name, outcome))
            for line in report.notes(outcome):
                console.print(line)
    result["machine"]["load_after"] = load()
    results.write(result, options.output)
    console.print(report.summary(result))
    console.print(f"written to {options.output}")
    if before:
        console.print(f"the run before: python -m benchmarks compare {before} {options.output}")
    return int(any("regard" in outcome.get("refused", {}) for outcome in result["problems"].values()))


def parsed(arguments):
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Time regard beside others.")
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="time the problems of problems.toml")
    runs.add_argument("--problems", default="", metavar="PATTERN", help="those whose names hold this; * is anything")
    runs.add_argument("--rounds", type=int, default=15, help="rounds per problem (default 15)")
    runs.add_argument("-o", "--output", type=Path, help="JSON file (default build/bench.json, or bench-some.json)")
    compares = commands.add_parser("compare", help="what changed between two runs")
    compares.add_argument("old", type=Path)
    compares.add_argument("new", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "run" and options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}; at least 1")
    if options.command == "run" and options.output is None:
        options.output = ROOT / "build" / ("bench-some.json" if options.problems else "bench.json")
    return options


def main(arguments=None):
    options = parsed(arguments)
    console = Console(width=max(110, Console().width) if not sys.stdout.isatty() else None)
    try:
        if options.command == "run":
            return run(options, console)
        compare.show(results.read(options.old), results.read(options.new), console)
    except (ValueError, OSError) as wrong:
        sys.exit(f"benchmarks: {wrong}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
