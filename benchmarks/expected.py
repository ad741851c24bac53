"""How long a run will take: from an earlier one, and where that has nothing to say, from the operations."""

from __future__ import annotations

from benchmarks import growth
from benchmarks.peers import PEERS
from benchmarks.race import PATIENCE_S
from regard.bench import TWICE_S, obstacle, rest_s

# Of all contestants on the average, in operations per second (46e9 in a whole run on Zen 4): a guess for what no
# earlier run tells.
RATE = 4e10
# Seconds of a process of its own for a peak of memory, torch's imports among them.
PROCESS_S = 4.0
COMPILE_S = 8.0


def of_problem(problem, rounds, outcome):
    """Seconds of one problem; `outcome` is that of an earlier run, or None. What this machine cannot run takes none."""
    if obstacle(problem):
        return 0.0
    rows = (outcome or {}).get("contestants", {})
    able = [name for name in problem.peers if not PEERS[name].why_not(problem)]
    calls = dict.fromkeys(("regard", *able), problem.flops / RATE)
    calls |= {name: row["median_ms"] / 1e3 for name, row in rows.items()}
    timed = sum(min(of_calls(s, rounds, problem.repeat), max(PATIENCE_S, 5 * s)) for s in calls.values())
    rests = (rounds + 1) * len(calls) * rest_s(problem.threads)
    return timed + rests + of_answer(problem) + sum(map(of_compiling, calls))


def of_calls(s, rounds, repeat=1):
    """Seconds of calls of `s`: the first, the round that is not counted, and in the others the one before each."""
    return (rounds + 2) * s * repeat + (rounds * s if s <= TWICE_S else 0)


def of_answer(problem):
    """Seconds of the exact answer, which is in float64."""
    return len(problem.looked_at) / problem.lengths[0] * problem.flops / 1e10


def of_compiling(name):
    return COMPILE_S if "compiled" in name else 0


def of_series(series):
    seconds = 0.0
    for step in series.measured:
        for name in series.entrants(step):
            seconds += of_compiling(name)
            call = series.problem(step).flops / 5e10
            seconds += (
                call if call > growth.ONCE_S else min(of_calls(call, growth.ROUNDS), growth.PATIENCE_S + 4 * call)
            )
    return seconds


def of_memory(series):
    calls = [series.problem(n).flops / 5e10 + PROCESS_S for n in series.measured for _ in series.entrants(n)]
    return sum(calls)


def seconds(chosen, rounds, earlier, parts):
    """Seconds of the problems and of the series that are chosen."""
    known = (earlier or {}).get("problems", {})
    whole = sum(of_problem(problem, rounds, known.get(problem.name)) for problem in chosen)
    whole += sum(map(of_series, parts["growth"]))
    return whole + sum(map(of_memory, parts["memory"]))
