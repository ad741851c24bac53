"""What changed between two runs, and what of it is more than noise.

Machines drift between runs. Others' code did not change, so what their times did is noise too, and regard's time has
changed only where the interval of its old time over its new lies outside of all that theirs did, and of 1.
"""

from __future__ import annotations

from statistics import median

from benchmarks.report import headed

SHOWN = {"faster": "[green]faster[/]", "slower": "[red]slower[/]", "noise": "within the noise"}
# Where these differ, the runs may.
MATTERS = ("cpu", "target", "python", "numpy", "blas", "torch", "jax", "onnxruntime", "openvino")


def gain(old, new):
    """Old time over new: at the medians, and the ends that the quartiles of both allow."""
    return {
        "median": old["median_ms"] / new["median_ms"],
        "low": old["low_ms"] / new["high_ms"],
        "high": old["high_ms"] / new["low_ms"],
    }


def change(old, new):
    """What became of one problem: regard's gain, what the others' was, and the verdict."""
    own = gain(old["regard"], new["regard"])
    others = {name: gain(row, new[name])["median"] for name, row in old.items() if name in new and row["outside"]}
    drift = [1.0, *others.values()]
    verdict = "faster" if own["low"] > max(drift) else "slower" if own["high"] < min(drift) else "noise"
    return {"gain": own, "others": others, "verdict": verdict}


def changes(old, new):
    """The change of each problem that both runs have."""
    told = {}
    for name, before in old["problems"].items():
        after = new["problems"].get(name, {})
        rows = before.get("contestants", {}), after.get("contestants", {})
        if all("regard" in each for each in rows):
            told[name] = change(*rows)
    return told


def differences(old, new):
    """What of the machine and of others' versions is not the same."""
    for key in MATTERS:
        before, after = old["machine"].get(key), new["machine"].get(key)
        if before != after and before is not None:
            yield f"{key}: {before} → {after}"


def show(old, new, console):
    for line in differences(old, new):
        console.print(f"[yellow]{line}[/]")
    told = changes(old, new)
    table = headed("Old time over new", "problem", "regard's", "between", "the others'", "")
    for name, row in told.items():
        own, others = row["gain"], row["others"].values()
        table.add_row(
            name, f"{own['median']:.2f}", f"{own['low']:.2f} - {own['high']:.2f}",
            f"{median(others):.2f} ({min(others):.2f} - {max(others):.2f})" if others else "none in both",
            SHOWN[row["verdict"]],
        )  # fmt: skip
    console.print(table)
    for one, other, what in ((old, new, "old"), (new, old, "new")):
        if only := [name for name in one["problems"] if name not in other["problems"]]:
            console.print(f"only in the {what}: {'; '.join(only)}")
