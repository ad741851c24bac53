"""Time regard against NumPy on this machine: one entry, interleaved, random data, the machine described.

Every contestant runs once per round, in turn, so that a change of clock or a noisy neighbour meets all of them; what
is reported is the median of the rounds with its spread, and the median of the ratios round by round. One thread, one
pinned processor. Results go to a JSON file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

import tomllib

# Some images pin OpenBLAS to an old core, which slows NumPy down: the race would not be fair.
if any(name.startswith("OPENBLAS_") for name in os.environ):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    os.execve(sys.executable, [sys.executable, *sys.argv], clean)

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from threadpoolctl import threadpool_info, threadpool_limits

import regard as rg
from regard import _runtime

HERE = Path(__file__).parent


def textbook(q, k, v):
    """Attention as it is usually written in NumPy."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1]))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return weights @ v


def textbook_in_place(q, k, v):
    """The same with no temporary that NumPy can be told to avoid."""
    scores = q @ k.swapaxes(-1, -2)
    scores *= np.float32(1 / np.sqrt(q.shape[-1]))
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores @ v


CONTESTANTS = {
    "regard": rg.attention,
    "regard, causal": lambda q, k, v: rg.attention(q, k, v, mask=rg.Causal()),
    "NumPy textbook": textbook,
    "NumPy textbook, in place": textbook_in_place,
    "NumPy online, 256 x 512 tiles": rg.reference.online_attention,
}


def machine():
    """What the numbers depend on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
        fields = {key.strip(): value.strip() for key, value in lines.items()}
        cpu = f"{fields.get('model name', cpu)} (family {fields.get('cpu family')}, model {fields.get('model')})"
    blas = [f"{b['internal_api']} {b['version']} {b.get('architecture', '')}" for b in threadpool_info()]
    return {
        "cpu": cpu,
        "processors": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": blas,
        "regard": rg.__version__,
        "target": _runtime.chosen()[0],
    }


def matmul_rate(rng, size=1024, rounds=9):
    """GFLOP/s of NumPy's own matrix product in this run: what the machine gives to good code."""
    a, b = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - start)
    return 2 * size**3 / float(np.median(times)) / 1e9


def race(problem, rng, rounds):
    """Times of each contestant in each round, in milliseconds, and its error against float64."""
    q, k, v = (rng.standard_normal(problem["shape"], dtype=np.float32) for _ in range(3))
    exact = {False: rg.reference.attention(q, k, v), True: rg.reference.attention(q, k, v, mask=rg.Causal())}
    errors = {n: float(np.abs(f(q, k, v) - exact["causal" in n]).max()) for n, f in CONTESTANTS.items()}
    times = {name: [] for name in CONTESTANTS}
    for _ in track(range(rounds), description=problem["name"], transient=True):
        for name, contestant in CONTESTANTS.items():
            start = time.perf_counter()
            contestant(q, k, v)
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: summary(times, name, problem["shape"], errors[name]) for name in CONTESTANTS}


def summary(times, name, shape, error):
    own, base = np.array(times[name]), np.array(times["regard"])
    b, h, s, d = shape
    flops = 4 * b * h * s * s * d  # two products
    if "causal" in name:
        flops *= (s + 1) / (2 * s)  # of the pairs that the mask keeps
    return {
        "median_ms": float(np.median(own)),
        "min_ms": float(own.min()),
        "max_ms": float(own.max()),
        "gflops": flops / float(np.median(own)) / 1e6,
        "time_over_regard": float(np.median(own / base)),
        "max_abs_error": error,
        "rounds": len(own),
    }


def show(result):
    console = Console(width=100)
    console.print(result["machine"]["cpu"], "·", result["machine"]["target"], "·", *result["machine"]["blas"])
    for name, rows in result["problems"].items():
        table = Table(title=name)
        for column in ("", "median ms", "min - max", "GFLOP/s", "time / regard's", "largest error"):
            table.add_column(column, justify="left" if column == "" else "right")
        for contestant, row in rows.items():
            table.add_row(
                contestant, f"{row['median_ms']:.2f}", f"{row['min_ms']:.2f} - {row['max_ms']:.2f}",
                f"{row['gflops']:.0f}", f"{row['time_over_regard']:.2f}", f"{row['max_abs_error']:.1e}",
            )  # fmt: skip
        console.print(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="rounds per problem (default 15)")
    parser.add_argument("--cpu", type=int, help="processor to pin to (default: the last one allowed)")
    parser.add_argument("-o", "--output", type=Path, help="JSON file (default: build/bench.json)")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {options.cpu if options.cpu is not None else allowed[-1]})
    problems = tomllib.loads((HERE / "problems.toml").read_text())["problem"]
    rng = np.random.default_rng(0)
    with threadpool_limits(1), rg.config(num_threads=1):
        result = {"machine": machine(), "matmul_1024_gflops": matmul_rate(rng)}
        result["problems"] = {p["name"]: race(p, rng, options.rounds) for p in problems}
    show(result)
    output = options.output or HERE.parent / "build" / "bench.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {output}")


if __name__ == "__main__":
    main()
