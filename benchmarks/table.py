"""Write the README's table of timings from a result of `make bench`; --check fails where they differ."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from benchmarks import results

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "0.1.0-avx2.json"


def table(result):
    rows = [
        "| problem | contestant | median ms (min – max) | time / regard's | largest error |",
        "|---|---|---|---|---|",
    ]
    for problem, outcome in result["problems"].items():
        for name, r in outcome["contestants"].items():
            error = f"{r['max_abs_error']:.1e}" if "max_abs_error" in r else ""
            rows.append(
                f"| {problem} | {name} | {r['median_ms']:.2f} ({r['min_ms']:.2f} – {r['max_ms']:.2f}) "
                f"| {r['ratio']['median']:.2f} | {error} |"
            )
    return "\n".join(rows)


def machine(result):
    m = result["machine"]
    blas = m["blas"][0].strip()
    return f"{m['cpu']}, target {m['target']}, NumPy {m['numpy']} with {blas}, load {m['load_before']:.1f}"


def filled(text, result):
    for name, block in (("machine", machine(result)), ("table", "\n" + table(result) + "\n")):
        text = re.sub(
            rf"(<!-- bench:{name} -->).*?(<!-- /bench -->)", lambda m, b=block: m[1] + b + m[2], text, flags=re.S
        )
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    readme = ROOT / "README.md"
    old = readme.read_text()
    new = filled(old, results.read(RESULT))
    if check and new != old:
        sys.exit(f"README.md does not show {RESULT.relative_to(ROOT)}: run python -m benchmarks.table")
    readme.write_text(new)


if __name__ == "__main__":
    main()
