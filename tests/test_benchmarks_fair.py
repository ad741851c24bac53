"""benchmarks/: everyone is asked at their best, with the threads that were asked for; the page has a whole result.

The libraries themselves are asked in heavy/test_benchmarks_peers.py.
"""

import gc
import os
import sys
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import __main__ as command  # noqa: E402
from benchmarks import ceilings, growth, problems  # noqa: E402
from benchmarks.peers import PEERS  # noqa: E402
from regard import _engine, bench  # noqa: E402
from regard.bench import Alibi, Causal, Lengths, Peer, Problem, Random, Window, _race, _rounds, interleave, pinned  # noqa: E402

SHAPE = (3, 2, 40, 8)
PLAIN = Problem("plain", "a test", SHAPE, SHAPE)
BY_TOKEN = replace(PLAIN, mask=Causal(), by_token=True)
COVERS = {
    "causal": (Causal(), None), "window": (Window(5), None), "lengths": (Lengths((40, 3, 17)), None),
    "random": (Random(0.5, 40, 40), None), "alibi": (None, Alibi(2)), "both": (Window(7), Alibi(2)),
}  # fmt: skip


# --- the page on speed ------------------------------------------------------------------------------


def test_the_newest_result_has_every_problem_and_every_series():
    """What the page on speed is made from; after a change of problems.toml it needs a whole `make bench`."""
    result = bench.read(bench.newest(ROOT / "benchmarks" / "results"))
    parts = {"problems": problems.load(), "growth": growth.load("growth"), "memory": growth.load("memory")}
    for part, named in parts.items():
        assert [each.name for each in named if each.name not in result.get(part, {})] == [], part


def test_a_partial_result_is_not_what_the_page_is_made_from(tmp_path):
    for date, partial in (("2026-01-01", False), ("2026-01-02", True)):
        told = {"format": bench.FORMAT, "partial": partial, "machine": {"date": date}, "problems": {}}
        bench.write(told, tmp_path / f"{date}.json")
    assert bench.newest(tmp_path).name == "2026-01-01.json"


def test_of_two_measured_ceilings_the_better_counts():
    rows = [{"unit": "GB/s", **bench.spread([median])} for median in (9.0, 10.0)]
    for first, second in (rows, rows[::-1]):
        start = command.better({}, {"loop": first})
        assert start["loop"]["medians"] == [first["median"]]
        both = command.better(start, {"loop": second, "another": second})
        assert both["loop"] == {**rows[1], "medians": [first["median"], second["median"]]}
        assert both["another"]["medians"] == [second["median"]]


# --- masks and biases, spelled out ----------------------------------------------------------------


@pytest.mark.parametrize("name", COVERS)
def test_one_array_to_add_says_what_mask_and_bias_say(name):
    mask, bias = COVERS[name]
    long = replace(PLAIN, query=(3, 2, 600, 8), key=(3, 2, 600, 8), mask=mask, bias=bias)
    long = replace(long, mask=Random(0.5, 600, 600)) if name == "random" else long
    for problem in (long, replace(long, dtype="float16")):
        added = problem.added()
        assert added.dtype == bench.DTYPES[problem.dtype]
        kept, biased = problem.spelled_out(mask and problem.mask), problem.spelled_out(bias)
        want = np.zeros((1, 1, 1, 1), np.float32) if biased is None else biased
        want = want if kept is None else np.where(kept, want, -np.inf)
        assert added.shape == want.shape
        assert (added == want.astype(added.dtype)).all()


def test_what_is_made_on_the_way_to_an_array_is_small():
    """Its memory is counted, and is to be the array's."""
    problem = replace(PLAIN, query=(1, 1, 2048, 8), key=(1, 1, 2048, 8), mask=Window(5))
    tracemalloc.start()
    added = problem.added()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.5 * added.nbytes


def test_padding_is_a_row_of_keys_for_each_sequence():
    problem = replace(PLAIN, mask=Lengths((40, 3, 17)))
    assert problem.added().shape == (3, 1, 1, 40)
    assert np.isfinite(problem.added()).sum(axis=-1).ravel().tolist() == [40, 3, 17]
    assert PLAIN.added() is None


@pytest.mark.parametrize("name", ["causal", "window", "lengths", "alibi"])
def test_a_rule_is_what_is_spelled_out(name):
    """flex_attention is told the rule, with its own arrays of numbers."""
    cover = next(cover for cover in COVERS[name] if cover is not None)
    asked, (b, h, i, j) = [], np.indices((3, 2, 40, 40))
    found = cover.rule(lambda numbers: asked.append(numbers) or np.asarray(numbers))(b, h, i, j)
    assert (found == cover.rows(np.arange(40), 40)).all()
    assert len(asked) == (name in ("lengths", "alibi"))


def test_the_options_of_regards_call():
    assert PLAIN.own() == {}
    problem = replace(PLAIN, mask=Window(5), bias=Alibi(2))
    assert list(problem.own()) == ["mask", "bias"]
    line = bench.Line(problem, {name: PEERS[name] for name in ("regard", "NumPy online, 256 x 512 tiles")})
    assert (line.refused, len(line.calls)) == ({}, 2)


# --- a call for each token ------------------------------------------------------------------------


class Looking(Peer):
    """Another, whose problems are noted."""

    def __init__(self, inner, ran=None):
        self.inner, self.seen, self.ran = inner, [], [] if ran is None else ran

    def prepare(self, problem, given):
        call = self.inner.prepare(problem, given)
        lengths = problem.query, problem.key, given.k.shape, problem.mask

        def seen():
            self.seen.append(lengths)
            self.ran.append("call")
            return call()

        return seen


def test_by_token_the_keys_grow_by_one_at_each_call():
    peers = {"regard": Looking(PEERS["regard"]), "NumPy textbook": PEERS["NumPy textbook"]}
    outcome = bench.race(BY_TOKEN, 2, peers)
    assert outcome["refused"] == outcome["absent"] == {}
    one_by_one = [((3, 2, 1, 8), (3, 2, n, 8), (3, 2, n, 8), None) for n in range(1, 41)]
    assert peers["regard"].seen == 6 * one_by_one  # its answer, a round before, and two rounds of two
    assert all("max_abs_error" in row for row in outcome["contestants"].values())
    assert outcome["work"]["exps"] == 3 * 2 * 40 * 41 // 2
    assert outcome["work"]["flops"] == BY_TOKEN.flops
    assert outcome["work"]["bytes"] == sum(3 * 2 * (2 + 2 * n) * 8 * 4 for n in range(1, 41))


def test_by_token_a_wrong_token_is_seen():
    wrong = Looking(PEERS["regard"])
    real = wrong.prepare
    wrong.prepare = lambda problem, given: (
        real(problem, given) if problem.key[2] != 7 else lambda: np.zeros(problem.query, np.float32)
    )
    assert "off by 1 of its length" in bench.race(BY_TOKEN, 1, {"regard": wrong})["refused"]["regard"]


def test_by_token_those_who_cannot_answer_one_query_are_left_out():
    outcome = bench.race(BY_TOKEN, 1, {"torch sdpa, mask array": PEERS["torch sdpa, mask array"]})
    assert outcome["absent"]["torch sdpa, mask array"] in ("the problem is plain", "not installed: torch")


def test_no_length_of_the_tokens_is_kept_ready_from_the_round_before():
    (problem,) = (problem for problem in problems.load() if problem.by_token)
    assert problem.lengths[0] > _engine.MAX_PREPARED


# --- processors and threads -----------------------------------------------------------------------


class Started(Peer):
    """One that notes when it is started."""

    def __init__(self, notes, fails=False):
        self.notes, self.fails = notes, fails

    def start(self):
        self.notes.append(os.sched_getaffinity(0))
        if self.fails:
            raise OSError("no")

    def prepare(self, problem, given):
        return PEERS["regard"].prepare(problem, given)


pins = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system pins no processes")


@pins
@pytest.mark.parametrize("problem", [PLAIN, BY_TOKEN], ids=["one call", "by token"])
def test_everyone_is_started_before_the_process_is_pinned(problem):
    notes = []
    outcome = bench.race(problem, 1, {"regard": Started(notes), "fails": Started(notes, fails=True)})
    assert notes == [os.sched_getaffinity(0)] * 2
    assert list(outcome["contestants"]) == ["regard", "fails"]


class Waiting:
    """A thread that tells which processors it may use."""

    def __init__(self):
        self.end, begun = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=lambda: (begun.set(), self.end.wait()), daemon=True)
        self.thread.start()
        begun.wait()

    @property
    def affinity(self):
        return os.sched_getaffinity(self.thread.native_id)


@pins
def test_threads_are_held_while_pinned_and_let_go_afterwards():
    whole = os.sched_getaffinity(0)
    before = Waiting()
    apart = Waiting()
    os.sched_setaffinity(apart.thread.native_id, {min(whole)})
    with pinned(1):
        meanwhile = Waiting()
        assert [each.affinity for each in (before, apart, meanwhile)] == [{max(whole)}] * 3
        assert os.sched_getaffinity(0) == {max(whole)}
        gone = Waiting()
        gone.end.set()
        gone.thread.join()
    assert [each.affinity for each in (before, apart, meanwhile)] == [whole, {min(whole)}, whole]
    assert os.sched_getaffinity(0) == whole
    for each in (before, apart, meanwhile):
        each.end.set()
        each.thread.join()


def test_who_has_other_threads_than_were_asked_for_is_refused():
    class Short(Started):
        def prepare(self, problem, given):
            bench.UnfairError.unless(problem.threads, 3)
            return super().prepare(problem, given)

    outcome = bench.race(PLAIN, 1, {"regard": PEERS["regard"], "short": Short([])})
    assert outcome["refused"] == {"short": "it has 3 threads; 1 were asked for"}
    assert list(outcome["contestants"]) == ["regard"]


@pytest.mark.parametrize("threads", [1, 2])
def test_on_several_threads_each_waits_until_those_of_the_one_before_rest(monkeypatch, threads):
    """They spin for a while, and would take a processor from whoever is next; that wait is not timed."""
    ran, now = [], iter(range(10**6))
    monkeypatch.setattr(_race, "processors", lambda: 2)
    monkeypatch.setattr(_rounds.time, "sleep", lambda seconds: ran.append(seconds))
    peers = {name: Looking(PEERS["regard"], ran) for name in ("regard", "other")}
    clock = lambda: (ran.append("clock"), next(now))[1]  # noqa: E731
    bench.race(replace(PLAIN, threads=threads), 1, peers, clock=clock)
    rest, call = 0.1 if threads == 2 else 0.0, ["call", "clock"]
    before, counted = [rest, "clock", "clock", *call], [rest, "clock", *call, *call]
    assert ran == 2 * ["clock", *call] + 2 * before + 2 * counted  # the answers, a round before, and a round


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_left_as_it_was(on):
    was = gc.isenabled()
    seen = []
    try:
        (gc.enable if on else gc.disable)()
        interleave({"a": lambda: seen.append(gc.isenabled())}, 1, iter(range(9)).__next__)
        assert (seen, gc.isenabled()) == ([False] * 3, on)
    finally:
        (gc.enable if was else gc.disable)()


@pytest.mark.parametrize(
    ("name", "threads"), [("reading keys and values", 2), ("reading keys and values, one thread", 1)]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_as_many_threads_read_as_the_problem_has(monkeypatch, name, threads, dtype):
    """Each its own part of the very keys and values, all of their bytes together."""
    read, problem = [], replace(PLAIN, threads=2, dtype=dtype, query=(3, 2, 48, 8), key=(3, 2, 48, 8))
    noted = lambda at, size: read.append((threading.get_ident(), at, at + 4 * size))  # noqa: E731
    monkeypatch.setattr(ceilings, "loop", lambda kind, target: noted)
    given = problem.draw()
    call = PEERS[name].prepare(problem, given)
    for _ in range(2):
        read.clear()
        call()
        for array in (given.k, given.v):
            begin = array.ctypes.data
            parts = sorted(part[1:] for part in read if begin <= part[1] < begin + array.nbytes)
            assert [*(end for _, end in parts[:-1])] == [start for start, _ in parts[1:]]
            assert (parts[0][0], parts[-1][1], len(parts)) == (begin, begin + array.nbytes, threads)
        assert len({thread for thread, *_ in read}) == threads
