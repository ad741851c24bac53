"""The benchmark's contestants: each is right, none is left out without a reason, threads are those asked for."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]

from benchmarks import problems  # noqa: E402
from benchmarks.peers import PEERS, _runtimes  # noqa: E402
from regard.bench import Causal, Lengths, Problem, UnfairError, Window, obstacle, processors  # noqa: E402

# torch says once per process that flex_attention is slow where it is not compiled.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
ALL = problems.load()
PLAIN = Problem("plain", "a test", (3, 2, 40, 8), (3, 2, 40, 8))
# Who cannot be asked what a problem of problems.toml asks: by a part of the problem's name.
LEFT_OUT = {
    ("bfloat16", "ONNX Runtime"): "not in bfloat16 on the CPU",
    ("bfloat16", "ONNX Runtime GroupQueryAttention"): "not in bfloat16 on the CPU",
    ("ALiBi", "torch sdpa, a call per sequence"): "the mask is no padding",
    ("random mask", "torch sdpa, a call per sequence"): "the mask is no padding",
    ("random mask", "torch flex, compiled"): "the mask has no rule",
    ("two threads", "JAX"): "its threads are fixed when it starts: one",
}
LOOPS = ("FMA in registers", "reading keys and values", "reading keys and values, one thread")  # a test builds no loops
two = pytest.mark.skipif(processors() < 2, reason="this process has one processor")


@pytest.fixture(scope="module")
def told():
    """What line_up.py prints, in a process where no library is told its threads by the environment."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    child = Path(__file__).with_name("line_up.py")
    command = [sys.executable, "-W", "ignore", str(child)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.alone
@pytest.mark.parametrize("problem", ALL, ids=lambda p: p.name)
def test_everyone_who_is_named_takes_part(told, problem):
    outcome = told["problems"][problem.name]
    if why := obstacle(problem):
        assert outcome == {"absent": {}, "refused": {}, "skipped": why, "contestants": []}
        return
    assert outcome["refused"] == {}
    expected = {name: why for (part, name), why in LEFT_OUT.items() if part in problem.name and name in problem.peers}
    absent = {name: why for name, why in outcome["absent"].items() if name not in LOOPS}
    assert absent == expected
    here = {"regard", *problem.peers} - expected.keys()
    assert here - set(LOOPS) == set(outcome["contestants"]) - set(LOOPS)


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["prefill", "decode"])
@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=two)])
def test_as_many_threads_work_as_were_asked_for(told, kind, threads):
    (counts,) = (found for name, asked, found in told["threads"] if (name, asked) == (kind, threads))
    numpy = {name for name in counts if name.startswith("NumPy")}  # OpenBLAS may find a product too small to share
    assert all(1 <= counts[name] <= threads for name in numpy)
    alone = {"regard, one thread"} & counts.keys()
    assert {name: counts[name] for name in counts.keys() - numpy} == {
        name: 1 if name in alone else threads for name in counts.keys() - numpy
    }
    libraries = {"prefill": {"torch sdpa", "torch flex, compiled", "ONNX Runtime", "OpenVINO"},
                 "decode": {"torch sdpa, enable_gqa", "ONNX Runtime", "ONNX Runtime GroupQueryAttention"}}  # fmt: skip
    assert libraries[kind] | {"regard"} <= counts.keys()


def test_torch_is_told_no_flag_that_it_does_not_need(monkeypatch):
    said = []
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", lambda *a, **flags: said.append(flags))
    shared = replace(PLAIN, query=(3, 4, 40, 8))
    asked = (
        ("torch sdpa", PLAIN), ("torch sdpa", replace(PLAIN, mask=Causal())), ("torch sdpa, enable_gqa", shared),
    )  # fmt: skip
    for name, problem in asked:
        assert PEERS[name].why_not(problem) == ""
        PEERS[name].prepare(problem, problem.draw())()
    assert said == [{}, {"is_causal": True}, {"enable_gqa": True}]
    assert PEERS["torch sdpa"].why_not(shared) == "kv heads are shared"
    assert PEERS["torch sdpa, enable_gqa"].why_not(PLAIN) == "kv heads are not shared"
    assert PEERS["torch sdpa"].why_not(replace(PLAIN, mask=Window(3))) == "needs its mask as an array"


@pytest.mark.parametrize(
    ("mask", "dtype", "shape"),
    [(Window(3), "bfloat16", (1, 1, 40, 40)), (Lengths((40, 3, 17)), "float32", (3, 1, 1, 40))],
)
def test_torchs_mask_is_an_array_that_it_needs_not_convert(monkeypatch, mask, dtype, shape):
    """A bool one is turned into numbers of the query's dtype at each call: window 256 of 8192, 1334 ms, not 1088."""
    said, function = [], "scaled_dot_product_attention"
    monkeypatch.setattr(torch.nn.functional, function, lambda q, k, v, attn_mask: said.append(attn_mask))
    problem = replace(PLAIN, mask=mask, dtype=dtype)
    PEERS["torch sdpa, mask array"].prepare(problem, problem.draw())()
    (array,) = said
    assert (array.dtype, tuple(array.shape)) == (getattr(torch, dtype), shape)
    assert set(array.float().unique().tolist()) == {0.0, -float("inf")}


def test_what_is_compiled_stays_compiled_however_many_problems_came_before(monkeypatch):
    """torch gives up on a function after eight compilations, and flex_attention then is thirty times as slow."""
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    reset = []
    monkeypatch.setattr(torch.compiler, "reset", lambda: reset.append(1))
    problem = replace(PLAIN, mask=Window(3))
    for calls in (1, 2):
        PEERS["torch flex, compiled"].prepare(problem, problem.draw())
        assert len(reset) == calls


LATE = """
from benchmarks.peers import PEERS
from benchmarks.peers._runtimes import started
from regard import bench
from regard.bench import Problem
problem = Problem("two", "a test", (1, 2, 40, 8), (1, 2, 40, 8), threads=2)
with bench.pinned(1):
    started()
print(bench.race(problem, 1, {"OpenVINO": PEERS["OpenVINO"]})["refused"])
"""


@two
def test_openvino_that_saw_one_processor_is_refused_on_two_threads():
    """It counts them when its plugin is loaded, once: all threads that it is asked for later are at most as many."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "{'OpenVINO': 'it has 1 thread; 2 were asked for'}\n", done.stderr[-2000:]


def test_jax_that_saw_two_processors_is_refused_on_one_thread(monkeypatch):
    monkeypatch.setattr(_runtimes, "threads_of_jax", lambda: 2)
    with pytest.raises(UnfairError, match="it has 2 threads; 1 were asked for"):
        PEERS["JAX"].prepare(PLAIN, PLAIN.draw())
