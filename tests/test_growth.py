"""benchmarks/: time and memory against length, the fit, patience with slow contestants, what a run should take."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import __main__ as command  # noqa: E402
from benchmarks import ceilings, expected, growth, memory, problems, race, report  # noqa: E402
from benchmarks.peers import PEERS  # noqa: E402
from regard import bench  # noqa: E402
from regard.bench import interleave, spread  # noqa: E402
from test_benchmarks import Clock, Costing  # noqa: E402

LENGTHS = (512, 1024, 2048, 4096, 8192)
SMALL = growth.Series("small", "a test", (64, 128, 256), 2, {"NumPy textbook": 128}, {"window": 7}, size=8)
WHOLE = {"name": "x", "reason": "a test", "size": 4, "lengths": [16], "growth": 1, "peers": {}}


@pytest.mark.parametrize("kind", ["growth", "memory"])
def test_every_series_has_a_reason_and_peers_that_can(kind):
    found = growth.load(kind)
    assert found
    assert all(len(series.reason) > 10 for series in found)
    for series in found:
        assert series.steps == tuple(sorted(series.steps))
        assert len([n for n in series.steps if n >= series.start]) >= 3
        for peer, most in series.peers.items():
            assert most in series.steps
            assert PEERS[peer].why_not(series.problem(most)) == ""


def test_the_series_reach_from_512_to_131072():
    whole = [s for kind in ("growth", "memory") for s in growth.load(kind) if s.along == "length"]
    assert {(min(s.steps), max(s.steps)) for s in whole} == {(512, 131072)}
    assert len(whole) == 5


@pytest.mark.parametrize("along", ["size", "window"])
def test_every_letter_of_the_formulas_has_a_series(along):
    """n²·d and n·w·d: one series along d and one along w, of problems that are otherwise the same."""
    (series,) = (s for s in growth.load("growth") if s.along == along)
    assert series.measured == series.steps
    first, last = (series.problem(step) for step in (series.steps[0], series.steps[-1]))
    assert first.lengths == last.lengths == (series.length, series.length)
    if along == "size":
        assert (first.query[-1], last.query[-1], first.mask) == (series.steps[0], series.steps[-1], None)
    else:
        assert (first.mask, last.mask) == (bench.Window(series.steps[0]), bench.Window(series.steps[-1]))
        assert first.query == last.query


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"speed": 1}, "x: speed unknown; an entry has from, growth"),
        ({"peers": None}, "x has no peers"),
        ({"lengths": None}, "x has 0 of lengths, sizes, windows: one of them is what grows"),
        ({"sizes": [8]}, "x has 2 of lengths, sizes, windows"),
        ({"size": None}, "x goes along its length and has no size"),
        ({"lengths": None, "windows": [8]}, "x goes along its window and has no length"),
        ({"lengths": None, "windows": [8], "length": 9, "mask": "causal"}, "and has a mask, which would be dropped"),
        ({"window": 7}, "x: window unknown"),
    ],
)
def test_a_wrong_series_is_refused(changes, said):
    entry = {key: value for key, value in (WHOLE | changes).items() if value is not None}
    with pytest.raises(ValueError, match=said):
        growth.as_series(entry)


@pytest.mark.parametrize("power", [0.5, 1, 1.7, 2])
def test_a_power_is_fitted(power):
    made = {n: 3e-4 * n**power for n in LENGTHS}
    told = growth.fit(made, 0)
    assert told["exponent"] == pytest.approx(power, abs=1e-12)
    assert (told["from"], told["to"], told["steps"]) == (512, 8192, 5)


def test_the_fit_is_of_least_squares():
    noise = np.random.default_rng(0).uniform(0.8, 1.25, len(LENGTHS))
    made = {n: n**2 * float(x) for n, x in zip(LENGTHS, noise, strict=True)}
    x, y = np.log(list(made)), np.log(list(made.values()))
    slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    assert growth.fit(made, 0)["exponent"] == pytest.approx(slope)


def test_overhead_and_what_comes_before_the_start_are_not_fitted():
    made = {n: 1.0 + 1e-6 * n**2 for n in LENGTHS}
    assert growth.fit(made, 0)["exponent"] < 1.7
    assert growth.fit({n: 1.0 if n < 2048 else float(n) for n in LENGTHS}, 2.0)["exponent"] == pytest.approx(1)
    assert growth.fit({n: n**2 if n < 2048 else n * 2048 for n in LENGTHS}, 0, 2048)["exponent"] == pytest.approx(1)
    assert growth.fit(made, 50.0) is None  # two lengths are a line through anything


def costing(first_ms, then_ms):
    clock = Clock()
    return clock, {"regard": Costing(clock, [first_ms, *[then_ms] * 99], outside=False)}


def test_a_long_call_is_timed_once_and_a_short_one_in_rounds(monkeypatch):
    monkeypatch.setattr(growth, "interleave", lambda calls, rounds, clock, **options: interleave(calls, rounds, clock))
    clock, peers = costing(6000, 1)
    rows, _ = growth.time_at(SMALL, 64, peers, clock)
    assert (rows["regard"]["median"], rows["regard"]["rounds"]) == (6000, 1)
    assert peers["regard"].calls == 1
    clock, peers = costing(40, 3)
    rows, _ = growth.time_at(SMALL, 64, peers, clock)
    assert (rows["regard"]["median"], rows["regard"]["rounds"]) == (3, growth.ROUNDS)
    assert peers["regard"].calls == 2 + 2 * growth.ROUNDS


def test_a_measured_series_has_its_fit():
    def at(series, length):
        return {name: {**spread([1e-3 + 1e-6 * length**2]), "rounds": 1} for name in series.entrants(length)}, {}

    monkey = growth.Series("made up", "a test", LENGTHS, 2, {"NumPy textbook": 1024}, size=4)
    seen = []
    told = growth.measure(monkey, lambda: seen.append(1), at)
    assert len(seen) == len(LENGTHS) + 1
    assert list(told["contestants"]["NumPy textbook"]) == [16, 512, 1024]
    assert told["fits"]["regard"]["exponent"] == pytest.approx(2, abs=1e-2)
    assert told["fits"]["NumPy textbook"] is None
    table = report.growth("made up", told)
    assert table.columns[0]._cells[-1] == "grows as length to the 2; fitted"
    assert [column._cells[-1] for column in table.columns[1:]] == ["2.00", ""]


def test_a_series_is_raced_and_wrong_answers_are_no_times():
    rows, gone = growth.time_at(SMALL, 64, {"regard": PEERS["regard"], "NumPy textbook": PEERS["NumPy textbook"]})
    assert set(rows) == {"regard", "NumPy textbook"}
    assert gone == {}
    clock = Clock()
    wrong = {"wrong": Costing(clock, [1], lambda x: x * np.float32(1.1))}
    rows, gone = growth.time_at(SMALL, 64, wrong, clock)
    assert rows == {}
    assert "a row of its answer is off" in gone["wrong"]


def test_some_rows_are_looked_at_and_a_wrong_one_of_them_is_seen():
    problem = replace(SMALL.problem(128), checked=3)
    assert problem.looked_at.tolist() == [0, 63, 127]
    given = problem.draw()
    whole = replace(problem, checked=0).exact(given)
    np.testing.assert_allclose(problem.exact(given), whole[:, :, [0, 63, 127]], rtol=1e-12)
    bad = whole.astype(np.float32)
    bad[0, 0, 63] += 1
    with pytest.raises(bench.WrongAnswerError):
        bench._judge.error(bad, problem.exact(given), problem)


@pytest.mark.parametrize("cover", [bench.Causal(), bench.Window(5), bench.Window(100), bench.Lengths((9, 40, 0))])
@pytest.mark.parametrize("shape", [(1, 1), (20, 20), (13, 40), (40, 13)])
def test_pairs_are_counted_without_an_array_of_them(cover, shape):
    whole = np.broadcast_to(cover.rows(np.arange(shape[0]), shape[1]), (3, 1, *shape))
    assert cover.pairs(3, *shape) == np.count_nonzero(whole)


# --- patience -------------------------------------------------------------------------------------


def test_a_slow_contestant_keeps_three_rounds_and_its_ratio_is_of_those():
    clock = Clock()
    peers = {"regard": Costing(clock, [1000], outside=False), "slow": Costing(clock, [30_000])}
    problem = replace(SMALL.problem(64), goals=())
    outcome = race.race(problem, 8, peers=peers, clock=clock)
    rows = outcome["contestants"]
    assert (rows["slow"]["rounds"], rows["slow"]["stopped"]) == (3, True)
    assert (rows["regard"]["rounds"], rows["regard"]["stopped"]) == (8, False)
    assert rows["slow"]["ratio"]["median"] == 30
    assert peers["slow"].calls == 1 + 1 + 3


@pytest.mark.parametrize(("patience", "rounds"), [(1e9, 9), (0.0, 3), (5.5, 5)])
def test_patience_counts_seconds_of_all_calls(patience, rounds):
    clock = Clock()

    def call():
        clock.now += 10**9

    assert len(interleave({"a": call}, 9, clock, patience_s=patience)["a"]) == rounds


# --- memory ---------------------------------------------------------------------------------------


def test_memory_is_that_of_the_call():
    n = 2048
    series = replace(SMALL, size=64, mask=None)
    textbook = memory.extra(PEERS["NumPy textbook, in place"], series.problem(n), series.problem(16))
    own = memory.extra(PEERS["regard"], series.problem(n), series.problem(16))
    assert n * n * 4 <= textbook < 3 * n * n * 4
    assert own < n * n * 4 / 4


def test_a_mask_that_must_be_spelled_out_is_counted():
    n = 2048
    plain, masked = replace(SMALL, size=64, mask=None), replace(SMALL, size=64)
    whole = [memory.extra(PEERS["NumPy textbook, in place"], s.problem(n), s.problem(16)) for s in (plain, masked)]
    assert whole[1] - whole[0] > 0.9 * n * n


def test_memory_is_measured_in_a_process_of_its_own():
    (series,) = (s for s in growth.load("memory") if s.mask is not None)
    found = growth.measure_memory(replace(series, steps=(512, 8192, 16384, 32768), peers={}))
    rows = found["contestants"]["regard"]
    assert list(rows) == [16, 512, 8192, 16384, 32768]
    output = 32768 * 64 * 4
    assert output <= rows[32768]["bytes"] < 3 * output
    assert 0.8 < found["fits"]["regard"]["exponent"] < 1.2
    with pytest.raises(RuntimeError, match="nobody at 16 of full"):
        growth.peak_of("full", "nobody", 16)


# --- what a run takes -----------------------------------------------------------------------------


def test_what_is_expected_comes_from_the_run_before():
    (problem,) = problems.load("decode bfloat16, 8192")
    row = {"median_ms": 2000.0}
    earlier = {"problems": {problem.name: {"contestants": {"regard": row}}}}
    none = {"growth": [], "memory": []}
    short, long = (expected.seconds([problem], rounds, earlier, none) for rounds in (3, 13))
    assert 10 * 2.0 <= long - short <= 10 * 2.0 + 40 * len(problem.peers)
    assert expected.seconds([problem], 10**6, earlier, none) < 60 * (1 + len(problem.peers))  # patience ends it
    assert expected.seconds([], 1, None, none) == 0


def test_a_whole_run_is_expected_to_fit(monkeypatch):
    """By the operations alone, on a machine that can run all; `make bench` says what it expects by the run before."""
    monkeypatch.setattr(expected, "obstacle", lambda problem: "")
    parts = {kind: growth.load(kind) for kind in ("growth", "memory")}
    none = dict.fromkeys(parts, ())
    chosen = problems.load()
    both = expected.seconds(chosen, 11, None, none), expected.seconds([], 11, None, parts)
    assert all(120 < part < 18 * 60 for part in both)
    assert expected.seconds(chosen, 11, None, parts) == pytest.approx(sum(both))
    window = next(problem for problem in chosen if "torch flex, compiled" in problem.peers)
    compiled, other, neither = (
        expected.of_problem(replace(window, peers=peers), 11, None)
        for peers in (("torch flex, compiled",), ("torch sdpa, mask array",), ("torch sdpa",))
    )
    assert compiled - other == pytest.approx(expected.COMPILE_S)
    assert neither < other  # it is not asked for a mask that it has no word for
    alike = replace(chosen[0], peers=("torch sdpa", "OpenVINO"))
    rested, plain = (expected.of_problem(replace(alike, threads=n), 9, None) for n in (2, 1))
    assert rested - plain == pytest.approx(10 * 0.1 * (1 + len(alike.peers)))


def test_a_run_has_all_parts_and_a_pattern_has_not(tmp_path, monkeypatch, capsys):
    tiny = replace(SMALL.problem(64), name="tiny", goals=(), peers=("NumPy textbook",))
    monkeypatch.setattr(problems, "load", lambda pattern: [tiny])
    monkeypatch.setattr(ceilings, "measure", lambda rounds, clock: {})
    monkeypatch.setattr(growth, "load", lambda kind: [SMALL])
    monkeypatch.setattr(growth, "peak_of", lambda series, peer, length: 1000 * length)
    monkeypatch.setattr(bench, "newest", lambda folder: tmp_path / "old.json")
    bench.write({"format": bench.FORMAT, "machine": {}, "problems": {}}, tmp_path / "old.json")
    for extra, parts in (([], {"growth", "memory"}), (["--problems", "tiny"], set())):
        assert command.main(["run", "--rounds", "1", "-o", str(tmp_path / "b.json"), *extra]) == 0
        result = bench.read(tmp_path / "b.json")
        assert parts == {"growth", "memory"} & set(result)
        assert list(result["problems"]) == ["tiny"]
        assert result["partial"] == bool(extra)
        assert "expected to take about 0 min (by" in capsys.readouterr().out
    assert command.main(["run", "--part", "growth", "--rounds", "1", "-o", str(tmp_path / "c.json")]) == 0
    result = bench.read(tmp_path / "c.json")
    assert result["problems"] == {}
    assert list(result["memory"]["small"]["contestants"]["regard"]) == ["16", "64", "128", "256"]
