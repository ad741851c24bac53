"""What changed between two runs, and what of it is more than noise.

Machines drift between runs. Others' code did not change, so what their times did is drift: that of torch and of the
loops that measure the machine, or of whoever was there where neither was. Regard's time has changed only where the
interval of its old time over its new lies outside of the quartiles of that drift, and of 1.
"""

from __future__ import annotations

from benchmarks.report import headed
from regard.bench import spread

# Who tells how the machine drifts: they free no gigabytes, whose pages the system finds again sooner or later.
STEADY = ("torch", "FMA", "reading")
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
    others = {
        name: gain(row, new[name])["median"]
        for name, row in old.items()
        if name in new and not name.startswith("regard")
    }
    steady = [value for name, value in others.items() if name.startswith(STEADY)] or list(others.values())
    drift = spread(steady or [1.0])
    faster, slower = own["low"] > max(1.0, drift["high"]), own["high"] < min(1.0, drift["low"])
    return {
        "gain": own, "others": others, "drift": drift if others else None,
        "verdict": "faster" if faster else "slower" if slower else "noise",
    }  # fmt: skip


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
    table = headed("Old time over new", "problem", "regard's", "between", "the machine's drift", "")
    for name, row in told.items():
        own, drift = row["gain"], row["drift"]
        table.add_row(
            name, f"{own['median']:.2f}", f"{own['low']:.2f} - {own['high']:.2f}",
            f"{drift['median']:.2f} ({drift['low']:.2f} - {drift['high']:.2f})" if drift else "unknown",
            SHOWN[row["verdict"]],
        )  # fmt: skip
    console.print(table)
    for one, other, what in ((old, new, "old"), (new, old, "new")):
        if only := [name for name in one["problems"] if name not in other["problems"]]:
            console.print(f"only in the {what}: {'; '.join(only)}")
