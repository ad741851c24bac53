"""benchmarks/: bfloat16 on the target in force, and what bounds it where that has products of pairs.

The machines are pretended.
"""

import sys
from pathlib import Path

import pytest

from test_benchmarks_amx import ON_AMX, Loops
from test_docs_speed import cells, figure, made  # noqa: F401 - figure is a fixture

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import ceilings, goals, problems  # noqa: E402
from benchmarks.peers import PEERS  # noqa: E402
from regard import _runtime, bench  # noqa: E402
from regard._runtime import TargetInfo  # noqa: E402

LONG = [problem for problem in problems.load("bfloat16 (1,8,2048") if problem.target is None]
PAIRS = "avx512_bf16"
CEILINGS = {
    f"FMA in registers, {PAIRS}": 100.0, f"exp, {PAIRS}": 2.0, "FMA in registers, avx512": 90.0, "exp, avx512": 1.5,
    "reading 1 MiB": 50.0,
}  # fmt: skip
MEASURED = CEILINGS | {f"pairs of bfloat16, {PAIRS}": 250.0, "AMX on random data": 1200.0}


def rows(values):
    return {name: {"unit": "u", **bench.spread([value]), "medians": [value]} for name, value in values.items()}


def test_without_amx_its_musts_are_goals():
    """By head size, and whether the mask is causal."""
    asked = {(p.query[3], p.mask is not None): p.goals for p in LONG}
    ahead = goals.Faster("best", 1, 1)
    of_amx = {
        (p.query[3], p.mask is not None): (goals.Faster("torch sdpa", None, p.goals[0].must), ahead)
        for p in ON_AMX
        if p.dtype == "bfloat16"
    }
    assert asked == of_amx
    assert len(asked) == 4
    assert all((p.query[:3], p.key, p.dtype, p.threads) == ((1, 8, 2048), p.query, "bfloat16", 1) for p in LONG)
    assert all(PEERS[name].why_not(p) == "" for p in LONG for name in p.peers)


@pytest.mark.parametrize(
    ("table", "over", "mark"),
    [("faster", 2.5, "goal"), ("faster", 1.5, "not yet"), ("costs", 0.5, "goal"), ("costs", 0.2, "not yet")],
)
def test_what_has_no_must_is_not_missed(table, over, mark):
    entry = {"name": "tiny", "reason": "a test", "query": [1, 1, 4, 4], "peers": "some"}
    problem = problems.as_problem(entry | {table: {"torch sdpa": 2.5}}, {"some": ["torch sdpa"]})
    other = {"outside": True, "median_ms": 2.0, "ratio": bench.spread([over])}
    (goal,) = goals.reached(problem.goals, {"regard": {"outside": False, "median_ms": 1.0}, "torch sdpa": other})
    assert (goal["must"], goal["goal"], goal["mark"]) == (None, 2.5, mark)
    contestants = {"regard": {"median_ms": 1.0}, "torch sdpa": other}
    (group,) = bench.groups({"tiny": {"contestants": contestants, "goals": [goal]}})
    assert (group.bars[0].must, group.bars[0].goal) == (None, 2.5 if table == "faster" else 1 / 2.5)


@pytest.mark.parametrize("usable", [True, False])
def test_the_ceiling_of_pairs_is_measured_where_there_are_pairs(monkeypatch, usable):
    loops = Loops()
    there = [("scalar", True), ("avx512", True), (PAIRS, usable), ("amx", False)]
    monkeypatch.setattr(_runtime, "describe", lambda: tuple(TargetInfo(n, True, can, "so it is") for n, can in there))
    monkeypatch.setattr(_runtime, "chosen", lambda: ("avx512", "so it is"))
    monkeypatch.setattr(ceilings, "library", lambda: loops)
    monkeypatch.setattr(ceilings, "READ_MIB", (1,))
    calls = {name: (unit, billions, call) for name, unit, billions, call in ceilings.probes()}
    assert [name for name in calls if name.startswith("pairs")] == [f"pairs of bfloat16, {PAIRS}"] * usable
    if usable:
        unit, billions, call = calls[f"pairs of bfloat16, {PAIRS}"]
        call()
        (flops,) = loops.given[f"pairs_{PAIRS}"]
        assert (unit, flops) == ("GFLOP/s", billions * 1e9)
    measured = {name: {"median": 1.0} for name in calls}
    assert (bench.Rates.of(measured, PAIRS, "bfloat16", 1) is not None) == usable


@pytest.mark.parametrize(
    ("target", "dtype", "expected"),
    [
        (PAIRS, "bfloat16", (250, 2, 50)),
        (PAIRS, "float16", (100, 2, 50)),
        (PAIRS, "float32", (100, 2, 50)),
        ("avx512", "bfloat16", (90, 1.5, 50)),
        ("amx", "bfloat16", (1200, 1.5, 50)),
        ("amx", "float16", (1200 / 4.5, 1.5, 50)),
        ("amx", "float32", (200, 1.5, 50)),
        ("scalar", "float32", None),
    ],
)
def test_products_are_bounded_by_what_the_target_makes_them_of(target, dtype, expected):
    """By pairs of bfloat16 where it has them; by AMX one, 4 and 5, or six products of pieces in place of one."""
    rates = bench.Rates.of(rows(MEASURED), target, dtype, 1)
    assert rates == (expected and bench.Rates(*expected))


def test_what_was_not_measured_is_not_made_up():
    assert bench.Rates.of(rows(CEILINGS), PAIRS, "bfloat16", 1) is None
    assert bench.Rates.of(rows(CEILINGS), PAIRS, "float32", 1) == bench.Rates(100, 2, 50)


def on_pairs(found):
    """A result of that target: one problem of float32, and the same of bfloat16."""
    result = made()
    (name, one), *_ = result["problems"].items()
    half = one | {"problem": one["problem"] | {"dtype": "bfloat16"}}
    result["machine"]["target"], result["ceilings"] = PAIRS, rows(found)
    return result | {"problems": {name: one, "of bfloat16": half}}


def test_the_roofline_of_bfloat16_is_that_of_pairs(figure):  # noqa: F811
    # 8 GFLOP at 250 are 32 ms, at 100 80 ms; 33 million exps at 2 billion 16.5.
    first, second = cells(figure("roofline.counted", on_pairs(MEASURED)))
    assert "| 80 + 16.5 | 0.32 | products | 100 | 96 %" in first
    assert second == "2. of bfloat16 | 8 | 33 | 16 | 32 + 16.5 | 0.32 | products | 100 | 48 %"
    roof = figure("roofline.roof", on_pairs(MEASURED))
    assert {"FMA in registers: 100", "pairs of bfloat16: 250"} <= set(roof.texts)
    assert roof.svg().count("<polyline") == 2


def test_the_roofline_without_that_ceiling_leaves_bfloat16_out(figure):  # noqa: F811
    (only,) = cells(figure("roofline.counted", on_pairs(CEILINGS)))
    assert only.startswith("1. float32")
    roof = figure("roofline.roof", on_pairs(CEILINGS))
    assert not any("bfloat16" in text for text in [roof.alt, *roof.texts])
    assert roof.svg().count("<polyline") == 1


def test_problems_on_amx_are_on_the_roofline(figure):  # noqa: F811
    # 8 GFLOP at 1200 over 6 are 40 ms, over 1 6.67; 33 million exps at 1.5 billion, those of avx512, 22.
    result = on_pairs(MEASURED)
    for outcome in result["problems"].values():
        outcome["problem"] = outcome["problem"] | {"target": "amx"}
    first, second = cells(figure("roofline.counted", result))
    assert "| 40 + 22 | 0.32 | products | 100 | 62 %" in first
    assert "| 6.67 + 22 | 0.32 | exp | 100 | 29 %" in second
    assert {"AMX on random data / 6: 200", "AMX on random data: 1200"} <= set(figure("roofline.roof", result).texts)
    del result["ceilings"]["AMX on random data"]
    assert "not in this result" in cells(figure("roofline.counted", result))[0]
