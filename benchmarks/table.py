"""Write the README's lines and table on speed from the newest result that is kept; --check fails where they differ."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from benchmarks.goals import musts, not_raced
from regard import bench

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
# Those that say most about different matters; the page of the documentation has all.
TELLING = (
    "float32 (1,8,2048,64)", "float32 (1,8,2048,64), causal", "float32 (1,4,8192,64), causal window 256",
    "decode bfloat16, 65536 keys", "float32 (4,12,128,32)", "float32 (1,1,16,64)",
)  # fmt: skip
PACKAGES = {"torch": "torch", "jax": "JAX", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def best(rows):
    """The fastest that is not ours, or None."""
    others = [name for name, row in rows.items() if row["outside"]]
    return min(others, key=lambda name: rows[name]["median_ms"], default=None)


def table(result):
    lines = [
        "| problem | regard, ms (middle half) | fastest other, ms | its time / regard's | must | largest error |",
        "|---|---|---|---|---|---|",
    ]
    for name in TELLING:
        outcome = result["problems"].get(name, {})
        rows = outcome.get("contestants", {})
        if "regard" not in rows or (other := best(rows)) is None:
            continue
        own, row = rows["regard"], rows[other]
        times = f"{bench.median_and_half(own)} | {other}: {bench.median_and_half(row)}"
        lines.append(
            f"| {name} | {times} | {ratio(row['ratio'])} | {must(outcome, other)} | {own['max_abs_error']:.1e} |"
        )
    return "\n".join(lines)


def ratio(told):
    return f"{told['median']:.2f} ({told['low']:.2f} – {told['high']:.2f})"


def must(outcome, other):
    """What the ratio over the fastest other has to be."""
    told = [g for g in outcome.get("goals", ()) if g["peer"] == other and g["must"] is not None and g["sign"] == "≥"]
    return "" if not told else f"{told[0]['must']:g}" + (": missed" if told[0]["mark"] == "missed" else "")


def machine(result):
    m = result["machine"]
    blas = m["blas"][0].strip()
    load = m["load_before"]
    quiet = bench.unquiet(m) or ("load not known" if load is None else f"load {load:.1f}")
    return f"{m['cpu']}, target {m['target']}, NumPy {m['numpy']} with {blas}, {m['date']} ({quiet})"


def peers(result):
    """Who was raced."""
    raced = {name for outcome in result["problems"].values() for name in outcome.get("contestants", {})}
    there = [
        f"{shown} {result['machine'][package]}"
        for package, shown in PACKAGES.items()
        if result["machine"].get(package) and any(name.split()[0] == shown.split()[0] for name in raced)
    ]
    missing = [shown for package, shown in PACKAGES.items() if not any(shown in known for known in there)]
    told = f"Beside regard ran NumPy{''.join(f', {name}' for name in there)}."
    told += f" {', '.join(missing)} did not run." if missing else ""
    calm = result.get("twice_s")
    return told + (f" Whoever takes up to {calm:g} s ran once untimed right before each timed call." if calm else "")


def missed(result):
    """How many of the musts are missed, which of them no kernel could keep here, and how many were not raced."""
    marks = [mark for mark in musts(result["problems"]) if mark != "unknown"]
    told = [f"{marks.count('missed')} of the {len(marks)} are missed."]
    out_of_reach = [each.problem for each in bench.asked(result) if each.share is not None and each.share > 1]
    if out_of_reach:
        named = "; ".join(dict.fromkeys(out_of_reach))
        told.append(f"{len(out_of_reach)} of these would take more than this machine's ceilings give: {named}.")
    if gone := not_raced(result["problems"]):
        told.append(f"Beside them {gone}.")
    return " ".join(told)


def filled(text, result):
    blocks = {"machine": machine(result), "peers": peers(result), "missed": missed(result)}
    blocks["table"] = "\n" + table(result) + "\n"
    for name, block in blocks.items():
        text, count = re.subn(
            rf"(<!-- bench:{name} -->).*?(<!-- /bench -->)", lambda m, b=block: m[1] + b + m[2], text, flags=re.S
        )
        if not count:
            raise ValueError(f"there is no <!-- bench:{name} --> … <!-- /bench -->")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    readme, newest = ROOT / "README.md", bench.newest(RESULTS)
    old = readme.read_text(encoding="utf-8")
    new = filled(old, bench.read(newest))
    if check and new != old:
        sys.exit(f"README.md does not show {newest.relative_to(ROOT)}: run python -m benchmarks.table")
    readme.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
