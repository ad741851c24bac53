"""benchmarks/: problems.toml is whole, a race refuses wrong answers, goals and comparisons say what they should.

No time is asserted: clocks are made up, and advance by what a contestant is said to cost.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import __main__ as command  # noqa: E402
from benchmarks import ceilings, goals, problems, race, report  # noqa: E402
from benchmarks.peers import PEERS  # noqa: E402
from regard import bench  # noqa: E402
from regard._runtime import num_threads  # noqa: E402
from regard.bench import Causal, Lengths, Peer, Problem, Random, Window, _peers, _race, interleave, spread  # noqa: E402

ALL = problems.load()
TINY = Problem("tiny", "a test", (1, 2, 20, 8), (1, 2, 20, 8))
NUMPY = [name for name in PEERS if name.startswith(("NumPy", "regard"))]


def shrunk(problem):
    """The same with a sixteenth of the lengths and few heads."""
    heads, kv, mask = max(1, problem.group) * 2, 2, problem.mask
    batch = len(mask.lengths) if isinstance(mask, Lengths) else 1
    query, key = ((batch, h, max(1, s[2] // 16), 8) for h, s in ((heads, problem.query), (kv, problem.key)))
    if isinstance(mask, Lengths):
        mask = Lengths(tuple(key[2] - 5 - entry for entry in range(batch)))
    if isinstance(mask, Window):
        mask = Window(7)
    if isinstance(mask, Random):
        mask = Random(mask.keep, query[2], key[2])
    bias = problem.bias and replace(problem.bias, heads=heads)
    return replace(problem, query=query, key=key, mask=mask, bias=bias, repeat=1, goals=())


class Clock:
    """Nanoseconds that only contestants advance."""

    now = 0

    def __call__(self):
        return self.now


class Costing(Peer):
    """Another's answer, at a cost in milliseconds per round; `wrong` is done to the answer."""

    def __init__(self, clock, costs, wrong=lambda x: x, outside=True):
        self.clock, self.costs, self.wrong, self.outside, self.calls = clock, costs, wrong, outside, 0

    def prepare(self, problem, given):
        inner = PEERS["NumPy textbook"].prepare(problem, given)

        def call():
            self.clock.now += int(self.costs[self.calls % len(self.costs)] * 1e6)
            self.calls += 1
            return self.wrong(inner())

        return call


def test_every_problem_has_a_reason_of_its_own():
    reasons = [problem.reason for problem in ALL]
    assert all(len(reason) > 10 for reason in reasons)
    assert len(set(reasons)) == len(reasons)


@pytest.mark.parametrize("problem", ALL, ids=lambda p: p.name)
def test_peers_exist_and_goals_can_be_judged(problem):
    assert set(problem.peers) <= PEERS.keys()
    named = {goal.peer for goal in problem.goals if hasattr(goal, "peer")} - {goals.BEST}
    assert problem.goals
    assert named <= set(problem.peers)
    assert [name for name in named if PEERS[name].why_not(problem)] == []
    able = [name for name in problem.peers if not PEERS[name].why_not(problem)]
    assert any(PEERS[name].outside for name in able)
    for goal in problem.goals:
        worse = goal.mark(0 if goal.sign == "≥" else 1e9)
        assert (goal.mark(goal.goal), worse) == ("goal", "not yet" if goal.must is None else "missed")


@pytest.mark.parametrize("problem", ALL, ids=lambda p: p.name)
def test_every_problem_asks_regard_to_be_ahead_of_everyone(problem):
    """As a must, but where regard alone is held to an older instruction set."""
    (over_best,) = (goal for goal in problem.goals if isinstance(goal, goals.Faster) and goal.peer == goals.BEST)
    assert over_best.goal >= 1
    assert over_best.must == (None if problem.target == "avx2" else 1)


def test_the_goals_of_the_first_problem_are_read():
    assert ALL[0].goals == (goals.Faster("torch sdpa", 1.25, 1.4), goals.Faster("best", 1, 1))
    held = next(p for p in ALL if p.target)
    aims = goals.Faster("FMA in registers", 0.75, 0.85), goals.Faster("best", None, 1)
    assert (held.target, held.goals) == ("avx2", aims)


def test_musts_of_what_is_not_run_are_counted_apart(monkeypatch):
    monkeypatch.setattr(_race, "processors", lambda: 1)
    aims = goals.Faster("best", 1, 1), goals.Faster("torch sdpa", 1.25, 1.4), goals.Faster("JAX", None, 2)
    gone = race.race(replace(TINY, threads=2, goals=aims), 1)
    assert [(goal["value"], goal["mark"]) for goal in gone["goals"]] == [(None, "unknown")] * 3
    assert goals.not_raced({"gone": gone}) == "1 problem was not raced here, with 2 musts"
    told = list(report.left_out({"problems": {"a": gone, "b": gone, "ran": {"goals": [{"must": 1, "mark": "goal"}]}}}))
    assert told[-1] == "2 problems were not raced here, with 4 musts"
    assert goals.not_raced({"old": {"skipped": "x", "goals": []}}) == "1 problem was not raced here"
    assert goals.not_raced({"ran": {"goals": []}}) == ""


def test_where_regard_is_refused_no_goal_is_reached():
    peers = {"regard": Costing(Clock(), [1], lambda x: x + 1, outside=False), "other": Costing(Clock(), [1])}
    outcome = race.race(replace(TINY, goals=(goals.Faster("best", 1, 1), goals.Within(8))), 1, peers=peers)
    assert [goal["mark"] for goal in outcome["goals"]] == ["unknown", "unknown"]


def test_a_wide_middle_half_is_marked():
    calm, wide = ({f"{key}_ms": value for key, value in spread(times).items()} for times in ([10, 13], [10, 20, 40]))
    assert [bench.disturbed(calm), bench.disturbed(wide)] == [False, True]
    rest = {"rounds": 3, "stopped": False, "gflops": 1.0}
    outcome = {"contestants": {"regard": calm | rest, "other": wide | rest}}
    assert report.problem("p", outcome).columns[2]._cells == ["10.8 - 12.2", "15 - 30, disturbed"]
    (note,) = report.notes(outcome)
    assert "the quartiles are more than 1.3 times apart" in note
    assert list(report.notes({"contestants": {"regard": calm | rest}})) == []


@pytest.mark.parametrize(
    ("load", "said"), [(None, ""), (0.5, ""), (0.9, "not quiet: load 0.9; the numbers mean little")]
)
def test_a_machine_that_is_not_quiet_is_said_to_be(load, said):
    told = {"date": "d", "cpu": "c", "target": "t", "numpy": "n", "blas": [], "load_before": load}
    assert bench.unquiet(told) == said
    assert any("mean little" in line for line in report.machine(told)) == bool(said)


@pytest.mark.parametrize(
    ("entry", "parts"),
    [
        ({"peers": "none"}, ["tiny", "peers = 'none'", "some"]),
        ({"speed": 3}, ["tiny", "speed unknown", "query"]),
        ({"reason": None}, ["tiny has no reason"]),
        ({"dtype": "int8"}, ["tiny", "dtype = 'int8'", "bfloat16"]),
        ({"mask": "casual"}, ["mask = 'casual'", "'causal'", "window"]),
        ({"bias": "rope"}, ["bias = 'rope'", "'alibi'"]),
        ({"query": [1, 1, 4]}, ["tiny: query = [1, 1, 4]; it is [batch, heads, length, head size]"]),
        ({"key": [1, 1, 4]}, ["tiny: key = [1, 1, 4]"]),
        ({"key": [1, 1, 0, 4]}, ["tiny: key = [1, 1, 0, 4]", "1 or more"]),
        ({"query": 4}, ["tiny: query = 4"]),
        ({"key": [1, 2, 4, 4]}, ["tiny: query = [1, 1, 4, 4] and key = [1, 2, 4, 4]", "differ"]),
        ({"key": [2, 1, 4, 4]}, ["differ"]),
        ({"key": [1, 1, 4, 8]}, ["differ"]),
        ({"peers": "wrong"}, ["tiny: 'torch sdp' unknown; contestants are regard, "]),
        ({"repeat": 0}, ["tiny: repeat = 0; it is 1 or more"]),
        ({"threads": "2"}, ["tiny: threads = '2'"]),
        ({"target": "avx3"}, ["tiny: target = 'avx3'; it is one of scalar, neon"]),
        ({"faster": 3}, ["tiny: faster = 3; it is a table of [must, goal]"]),
        ({"faster": {"regard": [1]}}, ["tiny: faster = {'regard': [1]}"]),
        ({"faster": {"regard": 0}}, ["tiny: faster = {'regard': 0}", "[must, goal] or goal, above 0"]),
        ({"faster": {"regard": "2"}}, ["tiny: faster = {'regard': '2'}"]),
        ({"costs": {"regard": [1, "2"]}}, ["tiny: costs = "]),
        ({"costs": {"torch sdp": [1, 2]}}, ["tiny: 'torch sdp' unknown"]),
        ({"microseconds": 0}, ["tiny: microseconds = 0; it is above 0"]),
        ({"by_token": True}, ["tiny", "by_token", "'causal'", "as many keys as queries"]),
        ({"by_token": True, "mask": "causal", "key": [1, 1, 5, 4]}, ["as many keys as queries"]),
        ({"mask": {"lengths": [3, 4]}}, ["tiny", "lengths = [3, 4]", "batch has 1 entries"]),
    ],
)
def test_a_wrong_entry_is_refused(entry, parts):
    whole = {"name": "tiny", "reason": "a test", "query": [1, 1, 4, 4], "peers": "some"} | entry
    whole = {key: value for key, value in whole.items() if value is not None}
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the parts are the match
        problems.as_problem(whole, {"some": [], "wrong": ["regard", "torch sdp"]})
    assert all(part in str(caught.value) for part in parts)


def test_a_file_of_problems_that_is_none_is_refused(tmp_path):
    for text, message in (("[", "is no TOML: "), ("[peers]", "has no problem"), ("", "has no peers and no problem")):
        (tmp_path / "x.toml").write_text(text)
        with pytest.raises(ValueError, match=rf"x\.toml {message}"):
            problems.load(path=tmp_path / "x.toml")


def test_a_pattern_chooses_by_name_and_one_without_any_lists_the_names():
    two = ["two threads: float32 (1,8,2048,64)", "two threads: float32 (1,8,2048,64), causal"]
    assert [p.name for p in problems.load("two*2048,64)")] == two
    assert all("decode" in p.name and "65536" in p.name for p in problems.load("decode*65536"))
    with pytest.raises(ValueError, match=r"holds 'nothing'[^$]*\(1,8,2048,64\)"):
        problems.load("nothing")


def test_data_are_normal_numbers_and_the_same_each_time():
    given = replace(TINY, dtype="bfloat16").draw()
    wide = np.concatenate([x.astype(np.float64).ravel() for x in given])
    assert (wide != 0).all()
    assert 0.8 < wide.std() < 1.2
    assert all((a == b).all() for a, b in zip(given, replace(TINY, dtype="bfloat16").draw(), strict=True))


def test_flops_count_the_kept_pairs():
    assert TINY.flops == 4 * 2 * 20 * 20 * 8
    assert replace(TINY, mask=Causal()).flops == 4 * 2 * 210 * 8
    assert replace(TINY, mask=Window(3)).flops == 4 * 2 * (3 * 20 - 3) * 8


@pytest.mark.parametrize("problem", ALL, ids=lambda p: p.name)
def test_regard_and_numpy_answer_every_problem_in_small(problem):
    """Whatever the formulas of covers.py say, spelled out, is what regard's masks and biases are."""
    small = shrunk(problem)
    line = bench.Line(small, {name: PEERS[name] for name in NUMPY})
    assert line.refused == {}
    assert {"regard", *(name for name in NUMPY if PEERS[name].can(small))} == line.calls.keys()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda x: x * np.float32(1.001), "a row of its answer is off by 0.001 of its length; 3e-05 is allowed"),
        (lambda x: np.where(np.arange(20)[:, None] == 7, x[:, ::-1], x), "a row of its answer is off"),
        (lambda x: x * np.float32(np.nan), "Inf or NaN"),
        (lambda x: x[:, :1], "shape (1, 1, 20, 8), not (1, 2, 20, 8)"),
        (lambda x: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_a_wrong_peer_is_refused_and_never_timed(wrong, said):
    clock = Clock()
    peers = {"regard": Costing(clock, [2], outside=False), "wrong": Costing(clock, [1], wrong)}
    outcome = race.race(TINY, 3, peers=peers, clock=clock)
    assert said in outcome["refused"]["wrong"]
    assert list(outcome["contestants"]) == ["regard"]
    assert peers["wrong"].calls == 1
    assert any("wrong is refused" in line for line in report.notes(outcome))


def test_a_tiny_race_with_a_made_up_clock():
    clock, seen = Clock(), []
    peers = {
        "regard": Costing(clock, [4], outside=False),
        "fast": Costing(
            clock, [100, 100, 9, 5, 9, 6, 9, 7]
        ),  # the check, the round before, and a call before each are not counted
        "slow": Costing(clock, [12]),
        "regard, one thread": PEERS["regard, one thread"],
    }
    aims = goals.Faster("best", 1.2, 1.6), goals.Costs("slow", 0.5, 0.3), goals.Within(4000), goals.Faster("gone", 1, 2)
    outcome = race.race(replace(TINY, goals=aims), 3, peers=peers, clock=clock, after_round=lambda: seen.append(1))
    rows = outcome["contestants"]
    assert len(seen) == 3
    assert rows["fast"]["times_ms"] == [5, 6, 7]
    assert (rows["fast"]["median_ms"], rows["fast"]["min_ms"], rows["fast"]["max_ms"]) == (6, 5, 7)
    assert rows["fast"]["ratio"]["median"] == 1.5
    assert rows["slow"]["ratio"] == dict.fromkeys(("median", "low", "high", "min", "max"), 3)
    assert 0 < rows["regard"]["worst_row_error"] < 3e-5
    assert outcome["absent"] == {"regard, one thread": "the problem has one thread"}
    told = [(goal["what"], goal["value"], goal["mark"]) for goal in outcome["goals"]]
    assert told == [
        ("best (fast)", 1.5, "must"), ("time over that of slow", 1 / 3, "must"), ("microseconds", 4000, "goal"),
        ("gone", None, "unknown"),
    ]  # fmt: skip
    assert json.loads(json.dumps(outcome)) == outcome


def test_a_problem_that_the_machine_cannot_run_says_so(monkeypatch):
    monkeypatch.setattr(_race, "processors", lambda: 1)
    assert "needs 2 processors; there are 1" in race.race(replace(TINY, threads=2), 1)["skipped"]
    assert "'nosuch'" in race.race(replace(TINY, target="nosuch"), 1)["skipped"]


@pytest.mark.parametrize(("name", "threads"), [("regard", 2), ("regard, one thread", 1)])
def test_threads_are_those_of_the_problem(monkeypatch, name, threads):
    seen = []
    monkeypatch.setattr(_race, "processors", lambda: 2)
    monkeypatch.setattr(_peers, "attention", lambda q, k, v: seen.append(num_threads()))
    race.race(replace(TINY, threads=2), 1, peers={name: PEERS[name]})
    assert seen == [threads]  # it gives no answer, so it is refused


def test_rounds_are_interleaved_in_changing_order():
    ran = []
    times = interleave({name: lambda name=name: ran.append(name) for name in "abc"}, 12, Clock(), repeat=2)
    assert {name: len(own) for name, own in times.items()} == dict.fromkeys("abc", 12)
    turns = ["".join(ran[:6:2]), *("".join(ran[i : i + 9 : 3]) for i in range(6, len(ran), 9))]
    assert all(sorted(turn) == list("abc") for turn in turns)
    assert len(turns) == 13
    assert len(set(turns)) > 2


def test_what_another_leaves_behind_is_not_charged_to_the_next():
    clock, last = Clock(), []

    def call(name):
        clock.now += (2 if last == [name] else 52) * 10**6
        last[:] = [name]

    times = interleave({name: lambda name=name: call(name) for name in "ab"}, 5, clock)
    assert times == {"a": [2] * 5, "b": [2] * 5}


@pytest.mark.parametrize(("ms", "untimed"), [(3, 4), (500, 4), (501, 0)])
def test_who_takes_long_is_not_called_untimed(ms, untimed):
    clock, ran = Clock(), []

    def call():
        clock.now += ms * 10**6
        ran.append(ms)

    assert interleave({"a": call}, 4, clock) == {"a": [ms] * 4}
    assert len(ran) == 1 + 4 + untimed


def test_without_its_loops_a_run_says_how_to_build_them(monkeypatch):
    monkeypatch.setattr(ceilings, "library", lambda: None)
    held = next(p for p in ALL if p.target)
    assert not PEERS["FMA in registers"].can(held)
    assert "`make bench` builds it" in PEERS["FMA in registers"].absent()
    assert [name for name, *_ in ceilings.probes()] == ["NumPy matmul 1024"]


def test_loops_are_given_whole_steps_of_normal_numbers():
    numbers = ceilings.numbers(100)
    assert numbers.size == 128
    assert (np.exp(numbers) > np.finfo(np.float32).tiny).all()


def test_a_run_into_a_folder_moves_nothing(tmp_path):
    (tmp_path / "x").mkdir()
    with pytest.raises(SystemExit, match=r"^benchmarks: cannot write .*x: it is a directory; name a file in it"):
        command.main(["run", "--part", "growth", "-o", str(tmp_path / "x")])
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_run_writes_after_every_problem(tmp_path, monkeypatch, capsys):
    """A run that is killed in its second problem has the first."""
    other = replace(TINY, name="other", mask=Causal(), goals=(goals.Faster("best", 0, 0),))
    monkeypatch.setattr(problems, "load", lambda pattern: [other, TINY])
    monkeypatch.setattr(ceilings, "measure", lambda rounds, clock: {"loop": {"unit": "GB/s", **spread([1.0])}})
    real = race.race

    def killed(problem, rounds, **options):
        if problem is TINY:
            raise KeyboardInterrupt
        return real(problem, rounds, peers={n: PEERS[n] for n in ("regard", "NumPy textbook")}, **options)

    monkeypatch.setattr(command, "race", killed)
    path = tmp_path / "bench.json"
    with pytest.raises(KeyboardInterrupt):
        command.main(["run", "--part", "problems", "--rounds", "1", "-o", str(path)])
    result = bench.read(path)
    assert list(result["problems"]) == ["other"]
    assert (result["ceilings"]["loop"]["median"], result["ceilings"]["loop"]["medians"]) == (1, [1])
    assert {"cpu", "caches", "numpy", "blas", "regard", "target", "commit", "load_before"} <= result["machine"].keys()
    monkeypatch.setattr(problems, "load", lambda pattern: [other])
    assert command.main(["run", "--part", "problems", "--rounds", "1", "-o", str(path)]) == 0
    assert bench.read(path)["ceilings"]["loop"]["medians"] == [1, 1]  # at the start and at the end
    out = capsys.readouterr().out
    assert "best (NumPy textbook)" in out
    assert "compare" in out


def test_a_run_in_which_regard_is_wrong_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(problems, "load", lambda pattern: [TINY])
    monkeypatch.setattr(ceilings, "measure", lambda rounds, clock: {})
    wrong = {"regard": Costing(Clock(), [1], lambda x: x + 1, outside=False)}
    monkeypatch.setattr(
        command, "race", lambda p, n, after_round: race.race(p, n, peers=wrong, after_round=after_round)
    )
    assert command.main(["run", "--part", "problems", "--rounds", "1", "-o", str(tmp_path / "b.json")]) == 1
