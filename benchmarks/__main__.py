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

from benchmarks import ceilings, compare, expected, growth, problems, report
from benchmarks.machine import machine
from benchmarks.race import race
from regard import bench

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def progress(console):
    """A bar that is drawn between rounds only: a thread that draws would run beside what is timed."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console, transient=True, auto_refresh=False,
    )  # fmt: skip


def better(before, now):
    """Of each ceiling what the machine gave when it gave most; `medians` has every measurement."""
    found = {}
    for name, row in now.items():
        rows = [before[name], row] if name in before else [row]
        medians = [*before.get(name, {}).get("medians", []), row["median"]]
        found[name] = max(rows, key=lambda each: each["median"]) | {"medians": medians}
    return found


class Run:
    """All that is chosen, one after the other; the file is written after each."""

    def __init__(self, options, console):
        self.options, self.console = options, console
        self.chosen = problems.load(options.problems) if options.part != "growth" else []
        grown = not options.problems and options.part != "problems"
        self.series = {kind: growth.load(kind) if grown else [] for kind in ("growth", "memory")}
        self.result = {
            "format": bench.FORMAT, "partial": True, "machine": machine(), "rounds": options.rounds,
            "twice_s": bench.TWICE_S, "ceilings": {}, "problems": {},
        }  # fmt: skip

    def write(self):
        bench.write(self.result, self.options.output)

    def announce(self, before):
        """The machine, what it gives, and how long all of it will take."""
        say = self.console.print
        for line in report.machine(self.result["machine"]):
            say(line)
        earlier = before or bench.newest(RESULTS)
        seconds = expected.seconds(self.chosen, self.options.rounds, bench.read(earlier), self.series)
        say(f"expected to take about {seconds / 60:.0f} min (by {earlier.name})")
        if why := ceilings.absent():
            say(f"the loops that measure the machine are {why}")
        self.measure()

    def measure(self):
        """What the machine gives: before the first problem, and after the last."""
        with bench.pinned(1):
            found = ceilings.measure(self.options.rounds, time.perf_counter_ns)
        self.result["ceilings"] = better(self.result["ceilings"], found)
        self.console.print(report.ceilings(self.result["ceilings"]))

    def race(self):
        rounds = self.options.rounds
        with progress(self.console) as bar:
            task = bar.add_task("", total=rounds * len(self.chosen))
            for done, problem in enumerate(self.chosen):
                bar.update(task, description=problem.name, completed=rounds * done, refresh=True)
                outcome = race(problem, rounds, after_round=lambda: bar.update(task, advance=1, refresh=True))
                self.result["problems"][problem.name] = outcome
                self.write()
                if "skipped" in outcome:  # said at the end
                    continue
                self.console.print(report.problem(problem.name, outcome))
                for line in report.notes(outcome):
                    self.console.print(line)

    def grow(self):
        ways = {"growth": (growth.measure, report.growth), "memory": (growth.measure_memory, report.memory)}
        with progress(self.console) as bar:
            for kind, chosen in self.series.items():
                measure, shown = ways[kind]
                for series in chosen:
                    task = bar.add_task(f"{kind}: {series.name}", total=len(series.measured))
                    found = measure(series, lambda task=task: bar.update(task, advance=1, refresh=True))
                    self.result.setdefault(kind, {})[series.name] = found
                    self.write()
                    self.console.print(shown(series.name, found))

    def end(self, begun):
        self.measure()
        self.result["partial"] = bool(self.options.problems or self.options.part)
        self.result["machine"]["load_after"] = bench.load()
        self.result["took_s"] = time.perf_counter() - begun
        self.write()
        self.console.print(report.summary(self.result))
        for line in report.left_out(self.result):
            self.console.print(line)
        self.console.print(f"written to {self.options.output}, after {self.result['took_s'] / 60:.1f} minutes")


def run(options, console):
    """Returns the exit code: 1 if regard itself was refused."""
    begun = time.perf_counter()
    all_of_it = Run(options, console)
    before = bench.set_aside(options.output)
    all_of_it.announce(before)
    all_of_it.race()
    all_of_it.grow()
    all_of_it.end(begun)
    if before:
        console.print(f"the run before: python -m benchmarks compare {before} {options.output}")
    return int(any("regard" in outcome.get("refused", {}) for outcome in all_of_it.result["problems"].values()))


def parsed(arguments):
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Time regard beside others.")
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser(
        "run", help="time the problems of problems.toml, then time and memory against length, head size and window"
    )
    runs.add_argument("--problems", default="", metavar="PATTERN", help="those whose names hold this; * is anything")
    runs.add_argument("--part", choices=("problems", "growth"), help="one of the parts; a pattern is of problems only")
    runs.add_argument("--rounds", type=int, default=11, help="rounds per problem (default 11)")
    runs.add_argument("-o", "--output", type=Path, help="JSON file (default build/bench.json, or bench-some.json)")
    compares = commands.add_parser("compare", help="what changed between two runs")
    compares.add_argument("old", type=Path)
    compares.add_argument("new", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "run" and options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}; at least 1")
    if options.command == "run" and options.output is None:
        some = options.problems or options.part
        options.output = ROOT / "build" / ("bench-some.json" if some else "bench.json")
    return options


def main(arguments=None):
    options = parsed(arguments)
    console = Console(width=max(110, Console().width) if not sys.stdout.isatty() else None)
    try:
        if options.command == "run":
            return run(options, console)
        compare.show(bench.read(options.old), bench.read(options.new), console)
    except (ValueError, OSError) as wrong:
        sys.exit(f"benchmarks: {wrong}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
