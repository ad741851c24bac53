"""The benchmark's contestants in one process, as `make bench` has them; prints as JSON who came, and their threads.

Not a test: heavy/test_benchmarks_peers.py runs it, so that no other test's torch or JAX is started before.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks import problems, race  # noqa: E402
from benchmarks.peers import PEERS  # noqa: E402
from regard import bench  # noqa: E402
from regard.bench import Causal, Problem  # noqa: E402
from test_benchmarks import shrunk  # noqa: E402

PREFILL = Problem("prefill", "a test", (1, 4, 512, 64), (1, 4, 512, 64), mask=Causal())
DECODE = Problem("decode", "a test", (1, 8, 1, 128), (1, 4, 8192, 128))
TIMED = [name for name, peer in PEERS.items() if peer.outside or name.startswith("regard")]


def spent():
    """Nanoseconds that each thread of this process was on a processor."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            found[task.name] = int((task / "schedstat").read_text().split()[0])
        except OSError:  # it has ended
            continue
    return found


def workers(call):
    """How many threads did a tenth of what the busiest did; the middle of some tries, since others run here too."""
    tries = []
    for _ in range(3):
        time.sleep(0.2)  # others' threads spin for a while when their work is done
        before = spent()
        for _ in range(10):
            call()
        gains = [now - before.get(task, 0) for task, now in spent().items()]
        tries.append(sum(gain > max(gains) / 10 for gain in gains))
    return sorted(tries)[1]


def counted(problem):
    """Threads of each contestant."""
    for name in TIMED:
        if not PEERS[name].absent():
            PEERS[name].start()
    with bench.pinned(problem.threads):
        line = bench.Line(problem, {name: PEERS[name] for name in TIMED})
        return {name: workers(call) for name, call in line.calls.items()} | line.refused


def main():
    told = {"problems": {}, "threads": []}
    for problem in problems.load():
        outcome = race.race(shrunk(problem), 1)
        kept = {part: outcome.get(part, {}) for part in ("absent", "refused", "skipped")}
        told["problems"][problem.name] = kept | {"contestants": list(outcome["contestants"])}
    for threads in (1, 2):
        for problem in (PREFILL, DECODE):
            told["threads"].append([problem.name, threads, counted(replace(problem, threads=threads))])
    print(json.dumps(told))


if __name__ == "__main__":
    main()
