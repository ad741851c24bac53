"""The page on speed: ratios as bars, what was reached, and the numbers."""

from __future__ import annotations

from typing import Any

from regard import bench

from ._bench import NOT_THERE, kind, others, raced, result
from ._draw import Drawn, Table, percent, sci

_SAID = {"goal": "goal reached", "must": "must reached", "missed": "**must missed**", "not yet": "goal not yet"}


def _bars(part: str, title: str) -> Drawn:
    chosen = {name: outcome for name, outcome in raced() if kind(outcome) == part}
    groups = bench.groups(chosen) or [bench.Group(NOT_THERE, "", ())]
    return Drawn(bench.bars(groups, title))


def prefill() -> Drawn:
    """Draw the ratios of long problems."""
    return _bars("prefill", "Long problems: time of each contestant over regard's")


def short() -> Drawn:
    """Draw those of short ones."""
    return _bars("short", "Short problems: time of each contestant over regard's")


def covered() -> Drawn:
    """Draw those with a mask other than the causal one, or a bias."""
    return _bars("covered", "Masks and biases: time of each contestant over regard's")


def decode() -> Drawn:
    """Draw those with one query."""
    return _bars("decode", "Decoding: time of each contestant over regard's")


def threads() -> Drawn:
    """Draw those with two threads."""
    return _bars("threads", "Two threads: time of each contestant over regard's")


def _aims() -> list[tuple[str, dict[str, Any]]]:
    """Goals of all problems; those that were not run are not raced."""
    return [(name, goal) for name, outcome in result()["problems"].items() for goal in outcome.get("goals", ())]


def _limit(goal: dict[str, Any], which: str) -> str:
    return "" if goal[which] is None else f"{goal['sign']}\N{NO-BREAK SPACE}{bench.number(goal[which])}"


def missed() -> Table:
    """Every must that is missed."""
    shares = {(missed.problem, missed.what): missed.share for missed in bench.asked(result())}
    rows = []
    for name, goal in _aims():
        if goal["mark"] == "missed":
            share = shares.get((name, goal["what"]))
            asked = "" if share is None else percent(share, 0) + (": more than there is" if share > 1 else "")
            rows.append([name, goal["what"], bench.number(goal["value"]), _limit(goal, "must"), asked])
    none = "none" if _aims() else NOT_THERE
    head = ["problem", "over what", "reached", "must", "asks of this machine's ceilings"]
    return Table(head, rows or [[none, *[""] * 4]])


def reached() -> Table:
    """Every must and goal, and what was measured."""
    rows = []
    for name, goal in _aims():
        value = "" if goal["value"] is None else bench.number(goal["value"])
        mark = _SAID.get(goal["mark"], "not raced")
        rows.append([name, goal["what"], value, _limit(goal, "must"), _limit(goal, "goal"), mark])
    return Table(["problem", "over what", "reached", "must", "goal", ""], rows or [[NOT_THERE, *[""] * 5]])


def times() -> Table:
    """Every contestant of every problem."""
    rows = []
    for name, outcome in raced():
        for contestant, row in outcome["contestants"].items():
            error = sci(row["max_abs_error"]) if "max_abs_error" in row else ""
            ratio = f"{row['ratio']['median']:.2f}" if "ratio" in row else ""
            rounds = f"{row['rounds']}{', stopped' if row['stopped'] else ''}"
            rows.append([name, contestant, bench.median_and_half(row), ratio, error, rounds])
    head = ["problem", "contestant", "ms, median (middle half)", "time / regard's", "largest error", "rounds"]
    return Table(head, rows)


def elsewhere() -> Table:
    """Of each result that is kept, the fastest other of every problem and its ratio."""
    results = [result(), *others()]
    heads = [f"{told['cpu']}, target {told['target']}, {told['date']}" for told in (r["machine"] for r in results)]
    names = dict.fromkeys(name for each in results for name in each["problems"])
    rows = [[name, *(_fastest_other(each["problems"].get(name, {})) for each in results)] for name in names]
    return Table(["problem", *heads], [row for row in rows if any(row[1:])] or [[NOT_THERE, *[""] * len(heads)]])


def _fastest_other(outcome: dict[str, Any]) -> str:
    rows = {name: row for name, row in outcome.get("contestants", {}).items() if row["outside"] and "ratio" in row}
    name = min(rows, key=lambda other: rows[other]["median_ms"], default=None)
    return "" if name is None else f"{rows[name]['ratio']['median']:.2f} ({name})"


def left_out() -> Table:
    """Who was not timed although a problem names them, with the reason; and problems that were not run."""
    why: dict[tuple[str, str], int] = {}
    for outcome in result()["problems"].values():
        for name, reason in {**outcome.get("absent", {}), **outcome.get("refused", {})}.items():
            why[name, reason] = why.get((name, reason), 0) + 1
    rows = [[name, reason, str(count)] for (name, reason), count in why.items()]
    rows += [[name, o["skipped"], "the whole"] for name, o in result()["problems"].items() if "skipped" in o]
    return Table(["contestant", "why it was not timed", "problems"], rows or [["nobody", "", ""]])


def conditions() -> Table:
    """List what the numbers depend on."""
    told, found = result()["machine"], result()
    caches = ", ".join(f"{name} {size}" for name, size in told.get("caches", {}).items())
    packages = [f"{name} {told[name]}" for name in ("torch", "jax", "onnxruntime", "openvino") if told.get(name)]
    loads = {when: told.get(f"load_{when}") for when in ("before", "after")}
    load = ", ".join(f"{number:.1f} {when}" for when, number in loads.items() if number is not None)
    rows = [
        ["date", told["date"]],
        ["machine", f"{told['cpu']}, {told['processors']} processors, regard's target {told['target']}"],
        ["caches, memory", f"{caches or NOT_THERE}; {told.get('memory_gib') or '?'} GiB"],
        ["regard", f"{told['regard']}, commit {told.get('commit') or NOT_THERE}"],
        ["NumPy", f"{told['numpy']} with {', '.join(b.strip() for b in told['blas'])}"],
        ["others", ", ".join(packages) or NOT_THERE],
        ["Python, system", f"{told['python']}, {told['system']}"],
        ["load average", "; ".join(filter(None, (load, bench.unquiet(told))))],
        ["rounds", f"{found.get('rounds') or max(r['rounds'] for _, o in raced() for r in o['contestants'].values())}"],
    ]
    twice = f"one, of whoever takes up to {found['twice_s']:g} s" if "twice_s" in found else "none"
    rows.append(["untimed calls right before a timed one", twice])
    if "took_s" in found:
        rows.append(["the whole run", f"{found['took_s'] / 60:.0f} minutes"])
    if "remark" in found:
        rows.append(["remark", found["remark"]])
    return Table(["", "in this measurement"], rows)
