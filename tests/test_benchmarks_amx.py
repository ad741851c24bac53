"""benchmarks/: what asks for AMX runs where there is AMX, and elsewhere is left out with the reason.

The machines are pretended.
"""

import ctypes
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import __main__ as command  # noqa: E402
from benchmarks import ceilings, expected, problems, race  # noqa: E402
from benchmarks.peers import PEERS  # noqa: E402
from regard import _runtime, bench  # noqa: E402
from regard._runtime import TargetInfo  # noqa: E402
from regard.bench import Problem, _peers, _race  # noqa: E402

ON_AMX = [problem for problem in problems.load() if problem.target == "amx"]
TINY = Problem("tiny", "a test", (1, 2, 20, 8), (1, 2, 20, 8), target="amx")


def test_the_musts_of_amx_are_over_torch():
    """By dtype, head size, and whether the mask is causal."""
    musts = {(p.dtype, p.query[3], p.mask is not None): p.goals[0] for p in ON_AMX}
    assert {goal.peer for goal in musts.values()} == {"torch sdpa"}
    assert {key: (goal.must, goal.goal) for key, goal in musts.items()} == {
        ("float32", 64, False): (1.6, 2.5), ("float32", 64, True): (1.65, 2.5),
        ("bfloat16", 64, False): (2.1, 4), ("bfloat16", 128, False): (1.8, 4),
        ("bfloat16", 64, True): (2.4, 4), ("bfloat16", 128, True): (2.0, 4),
        ("float16", 64, False): (2.5, 4), ("float16", 128, False): (2.5, 4),
    }  # fmt: skip
    assert all((p.query, p.key, "on AMX" in p.name) == ((1, 8, 2048, p.query[3]), p.query, True) for p in ON_AMX)


def pretend(monkeypatch, amx, refusal=None):
    """A machine with AMX or without, whose system may refuse the registers; both can run the scalar target."""
    why = "it is said to have AMX" if amx else "this CPU has no AMX (TILE, BF16)"
    there = TargetInfo("scalar", True, True, "runs everywhere"), TargetInfo("amx", True, amx, why)
    monkeypatch.setattr(_runtime, "describe", lambda: there)
    monkeypatch.setattr(_runtime._native, "enable", lambda name: refusal if name == "amx" else None)


@pytest.mark.parametrize(
    ("amx", "refusal", "said"),
    [
        (False, None, "this CPU has no AMX (TILE, BF16)"),
        (True, "the system refuses AMX registers", "the system refuses"),
    ],
)
def test_a_problem_for_amx_is_left_out_where_there_is_none(monkeypatch, tmp_path, capsys, amx, refusal, said):
    pretend(monkeypatch, amx, refusal)
    problem = ON_AMX[0]
    assert expected.of_problem(problem, 11, None) == 0
    monkeypatch.setattr(problems, "load", lambda pattern: [problem])
    monkeypatch.setattr(ceilings, "measure", lambda rounds, clock: {})
    path = tmp_path / "bench.json"
    assert command.main(["run", "--part", "problems", "--rounds", "1", "-o", str(path)]) == 0
    outcome = bench.read(path)["problems"][problem.name]
    assert said in outcome["skipped"]
    assert outcome["contestants"] == {}
    assert [(goal["must"], goal["mark"]) for goal in outcome["goals"]] == [(1.6, "unknown"), (1, "unknown")]
    told = " ".join(capsys.readouterr().out.split("What was reached")[1].split())
    assert f"not run (target is 'amx', but {said}" in told
    assert f"): {problem.name} 1 problem was not raced here, with 2 musts written to" in told


def test_where_there_is_amx_regard_is_held_to_it(monkeypatch):
    pretend(monkeypatch, amx=True)
    seen = []
    monkeypatch.setattr(_peers, "attention", lambda q, k, v: seen.append(_runtime.chosen()[0]))
    monkeypatch.setattr(_race, "work", lambda problem, given: bench.Work(1, 1, 1))
    assert "skipped" not in race.race(TINY, 1, peers={"regard": PEERS["regard"]})
    assert seen == ["amx"]  # it gives no answer, so it is refused
    assert expected.of_problem(TINY, 11, None) > 0


class Loops:
    """All loops of ceilings.cc; they keep what they are given."""

    def __init__(self):
        self.given = {}

    def __getattr__(self, name):
        def loop(*arguments):
            self.given[name] = arguments
            return 0.0

        return loop


@pytest.mark.parametrize(("amx", "refusal"), [(True, None), (True, "no"), (False, None)])
def test_the_ceiling_of_amx_is_measured_where_there_is_amx(monkeypatch, amx, refusal):
    loops = Loops()
    pretend(monkeypatch, amx, refusal)
    monkeypatch.setattr(ceilings, "library", lambda: loops)
    monkeypatch.setattr(ceilings, "READ_MIB", (1,))
    calls = {name: (billions, call) for name, _, billions, call in ceilings.probes()}
    assert ("AMX on random data" in calls) == (amx and not refusal)
    assert not [name for name in calls if name.endswith(", amx")]
    if "AMX on random data" in calls:
        billions, call = calls["AMX on random data"]
        call()
        where, flops = loops.given["tiles_amx"]
        assert flops == billions * 1e9
        seen = np.ctypeslib.as_array(ctypes.cast(where, ctypes.POINTER(ctypes.c_uint16)), (4 * 16 * 32,))
        numbers = (seen.astype(np.uint32) << 16).view(np.float32)
        assert (numbers != 0).all()
        assert 0.9 < numbers.std() < 1.1
