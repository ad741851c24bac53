"""What a run shows: a table per problem, ceilings, and at the end what was reached."""

from __future__ import annotations

from rich.table import Table

from benchmarks.goals import not_raced
from regard.bench import DISTURBED, disturbed, number, unquiet

SHOWN = {
    "goal": "[green]goal[/]", "must": "[yellow]must[/]", "missed": "[red]missed[/]", "not yet": "[yellow]not yet[/]",
    "unknown": "[dim]not raced[/]",
}  # fmt: skip


def headed(title, first, *columns):
    table = Table(title=title, title_justify="left")
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def ceilings(found):
    """The better of what was measured at the start and at the end, and both."""
    table = headed("What this machine gives, on one thread", "", "", "median", "min - max", "start, end")
    for name, row in found.items():
        between = f"{number(row['min'])} - {number(row['max'])}"
        table.add_row(name, row["unit"], number(row["median"]), between, ", ".join(map(number, row["medians"])))
    return table


def problem(name, outcome):
    table = headed(name, "", "median ms", "middle half", "GFLOP/s", "time / regard's", "largest error")
    for contestant, row in outcome["contestants"].items():
        ratio, error = row.get("ratio"), row.get("max_abs_error")
        table.add_row(
            contestant + (f" ({row['rounds']} rounds)" if row["stopped"] else ""),
            number(row["median_ms"]),
            f"{number(row['low_ms'])} - {number(row['high_ms'])}" + (", disturbed" if disturbed(row) else ""),
            number(row["gflops"]),
            f"{ratio['median']:.2f} ({ratio['low']:.2f} - {ratio['high']:.2f})" if ratio else "",
            "" if error is None else f"{error:.1e}",
        )  # fmt: skip
    return table


def notes(outcome):
    """What a mark in the table means; who is not in it, and why."""
    if any(map(disturbed, outcome["contestants"].values())):
        yield f"[yellow]disturbed:[/] the quartiles are more than {DISTURBED:g} times apart; the median says little"
    for name, why in outcome.get("refused", {}).items():
        yield f"[red]{name} is refused:[/] {why}"
    for name, why in outcome.get("absent", {}).items():
        yield f"[dim]{name}: {why}[/]"


def growth(name, found):
    """Milliseconds by what grows, and the exponent below."""
    cells = {contestant: {n: number(row["median"]) for n, row in rows.items()} for contestant, rows in by(found)}
    fixed = ", ".join(f"{what} {found[what]}" for what in ("length", "size") if what != found["along"])
    return against(f"{name}: milliseconds, one head, {fixed}", found, cells)


def memory(name, found):
    """MiB by length, and the exponent below."""
    cells = {contestant: {n: number(row["bytes"] / 2**20) for n, row in rows.items()} for contestant, rows in by(found)}
    return against(f"{name}: MiB beyond the inputs", found, cells)


def by(found):
    return found["contestants"].items()


def against(title, found, cells):
    table = headed(title, found["along"], *cells)
    for n in sorted({n for column in cells.values() for n in column}):
        table.add_row(f"{n}", *(column.get(n, "") for column in cells.values()))
    fits = [found["fits"][name] for name in cells]
    table.add_section()
    table.add_row(
        f"grows as {found['along']} to the {found['growth']:g}; fitted",
        *(f"{fit['exponent']:.2f}" if fit else "" for fit in fits),
    )
    return table


def summary(result):
    table = headed("What was reached", "problem", "against", "", "must", "goal", "")
    for name, outcome in result["problems"].items():
        for goal in outcome.get("goals", ()):
            value = "" if goal["value"] is None else number(goal["value"])
            must = "" if goal["must"] is None else f"{goal['sign']} {goal['must']:g}"
            table.add_row(name, goal["what"], value, must, f"{goal['sign']} {goal['goal']:g}", SHOWN[goal["mark"]])
    return table


def left_out(result):
    """Problems that were not run: each reason once, and how many musts go unanswered by that."""
    names = {}
    for name, outcome in result["problems"].items():
        if "skipped" in outcome:
            names.setdefault(outcome["skipped"], []).append(name)
    for why, held in names.items():
        yield f"[yellow]not run ({why}):[/] {'; '.join(held)}"
    if told := not_raced(result["problems"]):
        yield told


def machine(told):
    """The machine in a line or two; the second says that it is not quiet."""
    yield " · ".join(
        [told["date"], told["cpu"], f"target {told['target']}", f"NumPy {told['numpy']}", *map(str.strip, told["blas"])]
    )
    if why := unquiet(told):
        yield f"[red]this machine is {why}[/]"
