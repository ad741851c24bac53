"""Many threads: what is promised of them beyond `test_runtime` and `test_bits`."""

import asyncio
import contextvars
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from conftest import USABLE
from judges import assert_same_bits
from processes import linux, run
from regard import _native, _runtime

# -- threads ------------------------------------------------------------------------------------------------------

MASKS = [None, rg.Causal(), rg.Window(30, 5), rg.KeyLengths(170), rg.Causal() & rg.Dilated(2), rg.Chunked(50)]
DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


def problem(n):
    """A problem of its own for each number: sizes, dtype, mask, options, target, threads."""
    rng = np.random.default_rng(n)
    heads, rows, d = 1 + n % 3, 40 + 37 * n % 160, 3 + 13 * n % 70
    arrays = [rng.standard_normal((2, h, s, d)) for h, s in ((2 * heads, rows), (heads, 211), (heads, 211))]
    options = {"mask": MASKS[n % len(MASKS)], "q_offset": n}
    if n % 2:
        options.update(softcap=4.0, sinks=np.ones(2 * heads, np.float32))
    if n % 3 == 0:
        options["bias"] = rng.standard_normal((rows, 211))
    settings = {"target": USABLE[n % len(USABLE)], "num_threads": 1 + n % 4}
    return [x.astype(DTYPES[n % 4]) for x in arrays], options, settings


def solve(n):
    arrays, options, settings = problem(n)
    with rg.config(**settings):
        result = rg.attention_forward(*arrays, **options)
        return result.out, result.lse, result.weights[...]


def test_eight_threads_with_problems_of_their_own():
    """Whatever runs beside it, a call gives what it gives alone."""
    numbers = range(24)
    alone = [solve(n) for n in numbers]
    gate = threading.Barrier(8)

    def work(worker):
        gate.wait()
        return [(n, solve(n)) for _ in range(3) for n in numbers[worker::8]]

    with ThreadPoolExecutor(8) as pool:
        found = [pair for pairs in pool.map(work, range(8)) for pair in pairs]
    assert len(found) == 72
    for n, results in found:
        for got, want in zip(results, alone[n], strict=True):
            assert_same_bits(got, want)
    assert not np.array_equal(alone[0][0], alone[12][0])  # they are told apart


FIRST = """
gate, results = threading.Barrier(8), [None] * 8
def work(n):
    gate.wait()
    results[n] = rg.attention_forward(x, x, x, mask=rg.Causal() & rg.Window(left=n // 2 + 50)).out
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
want = [rg.attention(x, x, x, mask=rg.Causal() & rg.Window(left=n // 2 + 50)) for n in range(8)]
print(all((a == b).all() for a, b in zip(results, want)), (results[0] == results[7]).all())
"""


def test_the_first_calls_of_a_process_at_once():
    """Pool, tables and caches are made once, whoever comes first."""
    for _ in range(3):
        assert run(FIRST) == ["True", "False"]


@pytest.mark.alone
def test_other_threads_run_meanwhile():
    """The GIL is released: a call of half a second lets Python go on."""
    q, k = np.ones((1, 64, 64), np.float32), np.broadcast_to(np.float32(1), (1, 1_000_000, 64))
    steps, done = 0, threading.Event()

    def call():
        with rg.config(num_threads=1):
            rg.attention(q, k, k)
        done.set()

    thread = threading.Thread(target=call)
    started = time.perf_counter()
    thread.start()
    while not done.is_set() and time.perf_counter() - started < 60:
        time.sleep(0.001)
        steps += 1
    spent = time.perf_counter() - started
    thread.join()
    assert spent > 0.05, "too short to tell"
    assert steps > 20 * spent


def test_a_mask_that_raises_spoils_no_other_call():
    x = np.random.default_rng(0).standard_normal((2, 70, 8), dtype=np.float32)
    want = rg.attention(x, x, x, mask=rg.Causal())

    def explode(b, h, p, j):
        raise ZeroDivisionError("by the user's function")

    def work(n):
        if n % 2:
            with pytest.raises(Exception, match="by the user's function"):
                rg.attention(x, x, x, mask=rg.from_function(explode))
        return rg.attention(x, x, x, mask=rg.Causal())

    with ThreadPoolExecutor(8) as pool:
        for got in pool.map(work, range(32)):
            assert_same_bits(got, want)


def test_a_mask_that_calls_attention():
    """A call inside a call, in many threads."""
    x = np.random.default_rng(0).standard_normal((2, 70, 8), dtype=np.float32)

    def keep(b, h, p, j):
        return (j <= p) & np.isfinite(rg.attention(x, x, x)).all()

    want = rg.attention(x, x, x, mask=rg.Causal())
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: rg.attention(x, x, x, mask=rg.from_function(keep)), range(12)):
            assert_same_bits(got, want)


def test_config_follows_the_context():
    """Tasks and copied contexts see the setting of where they were made; threads do not."""

    def target():
        x = np.ones((1, 2), np.float32)
        return rg.plan(x, x, x).target, rg.plan(x, x, x).threads

    async def both():
        with rg.config(target="scalar", num_threads=3):
            inside = asyncio.create_task(asyncio.to_thread(target))
        outside = asyncio.create_task(asyncio.to_thread(target))
        return await inside, await outside

    inside, outside = asyncio.run(both())
    assert inside == ("scalar", 3)
    assert outside == target()
    with rg.config(target="scalar", num_threads=3):
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(target).result() == target_outside(target)
            assert pool.submit(context.run, target).result() == ("scalar", 3)
    assert target() == outside


def target_outside(target):
    """What ``target`` says in a context without settings."""
    return contextvars.Context().run(target)


THREADS = """
def threads_now():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("Threads"))
def count():  # a joined thread may be a moment on its way out
    fewest = threads_now()
    for _ in range(50):
        time.sleep(0.01)
        fewest = min(fewest, threads_now())
    return fewest
before = count()
for _ in range(30):
    with rg.config(num_threads=3): rg.attention(x, x, x)
print(count() - before)
threads = [threading.Thread(target=lambda: [rg.attention(x, x, x) for _ in range(20)]) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
print(count() - before)
with rg.config(num_threads=1): rg.attention(x, x, x)
with rg.config(num_threads=6): rg.attention(x, x, x)
print(count() - before)
"""


@linux
def test_a_pool_is_made_once():
    """Two helpers for three threads; callers that find the pool taken bring none of their own."""
    assert run(THREADS) == ["2", "2", "5"]


LEAK = """
def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
y = np.ones((1, 64, 2000), np.float32)
def call():
    thread = threading.Thread(target=lambda: rg.attention(y, y, y))
    thread.start()
    thread.join()
for _ in range(20): call()
before = resident()
for _ in range(200): call()
print(rg.plan(y, y, y).scratch_bytes > 500_000, resident() - before < 20e6)
"""


@linux
def test_threads_that_end_leave_nothing():
    """The working memory of a thread goes with it: 200 of them would leave 200 times that."""
    assert run(LEAK) == ["True", "True"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_threads_by_default_are_the_processors_allowed():
    code = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(rg.plan(x, x, x).threads)"
    assert run(code, REGARD_NUM_THREADS="") == ["1"]
    assert run("print(rg.plan(x, x, x).threads)", REGARD_NUM_THREADS="")[0] == str(len(os.sched_getaffinity(0)))


WOKEN = """
os.sched_setaffinity(0, range(os.cpu_count()))
tasks = lambda: len(os.listdir("/proc/self/task"))
before = tasks()
rg.attention(x[:, :8], x[:, :8], x[:, :8])
small = tasks() - before
rg.attention(x, x, x)
print(small, min(tasks() - before, 1), min(len(os.sched_getaffinity(0)) - 1, 1))
"""


@linux
def test_threads_by_default_are_woken_for_what_is_worth_them():
    """A small call leaves the processors uncounted; a large one uses them."""
    small, large, others = run(WOKEN, REGARD_NUM_THREADS="")
    assert (small, large) == ("0", others)


# -- other libraries ----------------------------------------------------------------------------------------------

NEIGHBOURS = """
from threadpoolctl import threadpool_info
big = np.random.default_rng(1).standard_normal((400, 400))
want = big @ big
pools = lambda: [(p["internal_api"], p["num_threads"]) for p in threadpool_info()]
before, mode = pools(), np.float32(1e-38) / np.float32(64) > 0
with rg.config(num_threads=5): rg.attention(x, x, x)
with rg.config(num_threads=1): rg.attention(x, x, x)
print(len(before) > 0, pools() == before, (big @ big == want).all(), (np.float32(1e-38) / np.float32(64) > 0) == mode)
"""


def test_numpy_is_undisturbed():
    """The threads of NumPy's BLAS, the bits that it gives, and the floating-point mode."""
    assert run(NEIGHBOURS) == ["True"] * 4


# -- settings -----------------------------------------------------------------------------------------------------


def test_a_target_that_this_machine_cannot_use(monkeypatch):
    """Known, and refused with the reason; one that nobody knows is another matter."""
    few = (
        _runtime.TargetInfo("scalar", True, True, "runs everywhere"),
        _runtime.TargetInfo("avx2", True, False, "old"),
    )
    monkeypatch.setattr(_runtime, "describe", lambda: few)
    with pytest.raises(rg.UnsupportedError, match=r"'avx2', but old; the targets .* can use are scalar"):
        rg.config(target="avx2")
    with pytest.raises(rg.UnsupportedError, match=r"'sparc'; the targets .* can use are scalar"):
        rg.config(target="sparc")
    rg.config(target="scalar")


def test_the_environment_is_read_with_care(monkeypatch):
    read = _runtime._environment.__wrapped__
    for text, threads in {"3": 3, " 7 ": 7, "": None, " ": None}.items():
        monkeypatch.setenv("REGARD_NUM_THREADS", text)
        assert read().num_threads == threads
    for text in ("0", "-1", "1025", "2.5", "many", "0x4"):
        monkeypatch.setenv("REGARD_NUM_THREADS", text)
        with pytest.raises(rg.UnsupportedError, match="the environment variable REGARD_NUM_THREADS is"):
            read()


def test_processors_are_those_that_python_counts():
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert _native.processors() == allowed
