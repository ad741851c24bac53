"""Threads and targets: the context manager, the environment, fork, Ctrl-C."""

import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import regard as rg
from judges import assert_same_bits
from processes import needs_fork
from regard import _runtime

X = np.random.default_rng(0).standard_normal((2, 200, 32), dtype=np.float32)


def in_new_process(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_config_is_local_to_a_context():
    seen = {}
    with rg.config(num_threads=3, target="scalar"):
        assert _runtime.num_threads() == 3
        with rg.config(num_threads=1):
            assert (_runtime.num_threads(), _runtime.chosen()[0]) == (1, "scalar")
        assert _runtime.num_threads() == 3
        thread = threading.Thread(target=lambda: seen.update(target=_runtime.chosen()[0]))
        thread.start()
        thread.join()
    best = [info.name for info in _runtime.describe() if info.usable and info.name != "amx"][-1]
    assert seen["target"] == _runtime.chosen()[0] == best


def test_config_ends_after_an_error():
    before = _runtime.chosen()
    with pytest.raises(KeyError), rg.config(target="scalar"):
        raise KeyError
    assert _runtime.chosen() == before


def test_environment():
    code = "import regard as rg; p = rg.plan(*[__import__('numpy').ones((2, 2), 'f4')] * 3); print(p.target, p.threads)"
    assert in_new_process(code, REGARD_TARGET="scalar", REGARD_NUM_THREADS="5").stdout.split() == [
        "scalar",
        "5",
    ]
    wrong = in_new_process(code, REGARD_TARGET="sparc")
    assert "the environment variable REGARD_TARGET is 'sparc'" in wrong.stderr
    wrong = in_new_process(code, REGARD_NUM_THREADS="many")
    assert "the environment variable REGARD_NUM_THREADS is 'many'" in wrong.stderr


def test_describe_tells_why():
    for info in _runtime.describe():
        assert info.why
        assert info.compiled or not info.usable
    assert _runtime.describe()[0].usable


def test_on_arm_the_default_is_neon(monkeypatch):
    arm = [("scalar", True, "runs everywhere"), ("neon", True, "part of every 64-bit ARM processor")]
    monkeypatch.setattr(_runtime._native, "targets", lambda: arm)
    infos = _runtime.describe.__wrapped__()
    assert [(info.name, info.compiled) for info in infos if info.usable] == [("scalar", True), ("neon", True)]
    assert {info.why for info in infos if not info.compiled} == {"not compiled for this processor family"}
    monkeypatch.setattr(_runtime, "describe", lambda: infos)
    why = "the highest that this machine can use: part of every 64-bit ARM processor"
    assert _runtime._best.__wrapped__() == ("neon", why)


ALL = [("scalar", True, "runs everywhere"), ("avx512", True, "so it is"), ("amx", True, "so it is")]


def test_amx_is_for_who_asks(monkeypatch):
    """It is never the default; and the operating system has a word when it is asked for, not before."""
    monkeypatch.setattr(_runtime._native, "targets", lambda: ALL)
    infos, asked = _runtime.describe.__wrapped__(), []
    monkeypatch.setattr(_runtime, "describe", lambda: infos)
    monkeypatch.setattr(_runtime._native, "enable", asked.append)
    assert _runtime._best.__wrapped__() == ("avx512", "the highest that this machine can use: so it is")
    assert not asked
    rg.config(target="amx")
    assert asked == ["amx"]
    monkeypatch.setattr(_runtime._native, "enable", lambda _: "the operating system refuses")
    with pytest.raises(rg.UnsupportedError, match="target is 'amx', but the operating system refuses; the targets"):
        rg.config(target="amx")


def test_amx_without_amx_is_refused_with_the_reason():
    amx = next(info for info in _runtime.describe() if info.name == "amx")
    if amx.usable:
        with rg.config(target="amx"):
            assert rg.plan(X, X, X).target == "amx"
        return
    with pytest.raises(rg.UnsupportedError, match=r"target is 'amx', but .*(AMX|not compiled)"):
        rg.config(target="amx")


def test_a_target_of_another_family_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr(_runtime._native, "targets", lambda: [("scalar", True, "runs everywhere")])
    infos = _runtime.describe.__wrapped__()
    monkeypatch.setattr(_runtime, "describe", lambda: infos)
    with pytest.raises(rg.UnsupportedError, match="'neon', but it is not compiled for this processor family; the targ"):
        rg.config(target="neon")


def test_a_configuration_says_that_it_is_for_a_block():
    assert repr(rg.config(num_threads=1, target="scalar")) == (
        "config(num_threads=1, target='scalar'): changes nothing yet; it is for a with block, and holds inside of it"
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("threads", "'threads'; did you mean num_threads=?; the settings"),
        ("x", "'x'; the settings are num_threads, target, row_invariant"),
    ],
)
def test_a_setting_that_does_not_exist_is_told_those_that_do(name, said):
    with pytest.raises(TypeError, match=re.escape(f"there is no setting {said}")):
        rg.config(**{name: 2})


def test_plan_names_the_engine():
    with rg.config(target="scalar", num_threads=2):
        text = str(rg.plan(X, X, X, mask=rg.Causal()))
    for part in (
        "scalar",
        "asked for by config(target=...)",
        "Causal()",
        "threads     2",
        "partial",
        "skipped",
    ):
        assert part in text


FORK = """
import os, numpy as np, regard as rg
x = np.random.default_rng(0).standard_normal((4, 300, 32), dtype=np.float32)
with rg.config(num_threads=2):
    want = rg.attention(x, x, x)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if (rg.attention(x, x, x) == want).all() else 3)
    assert os.waitpid(pid, 0)[1] == 0
    print("same", (rg.attention(x, x, x) == want).all())
"""


@needs_fork
def test_fork_after_a_threaded_call():
    done = in_new_process(FORK)
    assert done.stdout.split() == ["same", "True"], done.stderr


INTERRUPT = """
import signal, threading, time, os, numpy as np, regard as rg
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is born deaf to it
x = np.ones((1, 16, 16384, 64), np.float32)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
started = time.monotonic()
try:
    rg.attention(x, x, x)
    print("finished")
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - started)
small = x[:, :1, :50]
print(rg.attention(small, small, small).mean())
"""


@pytest.mark.alone
def test_ctrl_c_raises_soon_and_the_next_call_works():
    done = in_new_process(INTERRUPT, REGARD_NUM_THREADS="2")
    word, seconds, mean = done.stdout.split()
    assert word == "interrupted", done.stdout + done.stderr
    assert float(seconds) < 1.3
    assert float(mean) == 1


LONG_TASK = (
    INTERRUPT.replace(
        "x = np.ones((1, 16, 16384, 64), np.float32)",
        """
q = np.ones((1, 64, 128), np.float32)
x = np.broadcast_to(np.float32(1), (1, 20_000_000, 128))
""",
    )
    .replace("rg.attention(x, x, x)", "rg.attention(q, x, x)", 1)
    .replace("x[:, :1, :50]", "q[:, :50]")
)


@pytest.mark.alone
def test_ctrl_c_within_one_long_task():
    """64 queries over 20 million keys are one task."""
    done = in_new_process(LONG_TASK, REGARD_NUM_THREADS="1")
    word, seconds, mean = done.stdout.split()
    assert word == "interrupted", done.stdout + done.stderr
    assert float(seconds) < 1.3
    assert float(mean) == 1


NESTED = """
import signal, numpy as np, regard as rg
q = np.ones((1, 64, 256), np.float32)
x = np.broadcast_to(np.float32(1), (1, 1_000_000, 256))
big = np.ones((3, 5000), np.float32)
inner = []
signal.signal(signal.SIGALRM, lambda *_: inner.append(rg.attention(big, big, big).mean()))
signal.setitimer(signal.ITIMER_REAL, 0.1)
out = rg.attention(q, x, x)
print(len(inner) == 1, set(map(float, inner)), set(out.ravel().tolist()))
"""


def test_a_signal_handler_may_call_attention():
    done = in_new_process(NESTED, REGARD_NUM_THREADS="2")
    assert done.stdout.split() == ["True", "{1.0}", "{1.0}"], done.stdout + done.stderr


DAEMON = """
import threading, time, numpy as np, regard as rg
x = np.broadcast_to(np.float32(1), (1, 64, 3_000_000, 16))
threading.Thread(target=lambda: rg.attention(x[:, :, :64], x, x), daemon=True).start()
time.sleep(0.3)
print("leaving")
"""


@pytest.mark.parametrize("threads", ["1", "2"])
def test_exit_while_a_daemon_thread_computes(threads):
    done = in_new_process(DAEMON, REGARD_NUM_THREADS=threads)
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaving\n", "")


UNREADABLE = """
import ctypes, mmap, numpy as np, regard as rg
from regard import _runtime
libc = ctypes.CDLL(None, use_errno=True)
rows, d = 96 * 400, 64
memory = mmap.mmap(-1, rows * d * 4)
array = np.frombuffer(memory, np.float32).reshape(rows, d)
array[:] = 1
start = array.ctypes.data
page = mmap.PAGESIZE
first, last = 96 * 100 * d * 4, 96 * 300 * d * 4
assert libc.mprotect(ctypes.c_void_p(start + first // page * page), (last - first) // page * page, 0) == 0
q = np.ones((70, d), np.float32)
hidden = np.ones((1, rows), bool)
hidden[:, 96 * 100 - page : 96 * 300 + page] = False
far = rg.Window(left=200) & rg.Causal() | rg.KeyLengths(96)
for target in [t.name for t in _runtime.describe() if t.usable]:
    with rg.config(target=target):
        for x in (array, array[:, ::2], array.T[:, ::-1].T[::-1]):
            y = q[:, : x.shape[1]]
            for mask, offset in ((far, rows - 100), (rg.Dense(hidden), 0), (~rg.Dense(~hidden), 0), (rg.Empty(), 0)):
                out = rg.attention(y, x, x, mask=mask, q_offset=offset)
                assert set(out.ravel().tolist()) <= {0.0, 1.0}
print("never read")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="protects pages through libc")
def test_tiles_that_a_mask_empties_are_never_read():
    """Their pages may not be read: a kernel that looks at one is killed."""
    done = in_new_process(UNREADABLE, REGARD_NUM_THREADS="2")
    assert (done.returncode, done.stdout) == (0, "never read\n"), done.stderr[-500:]
    killed = in_new_process(UNREADABLE.replace("hidden[:, 96 * 100 - page : 96 * 300 + page]", "hidden[:, :0]"))
    assert killed.returncode == -11  # and this test can fail


def test_plan_counts_what_broadcast_keys_share():
    """64 batch members of one query, one set of keys: their rows fill one block."""
    q, k = np.ones((64, 1, 1, 8), np.float32), np.ones((1, 1, 300, 8), np.float32)
    assert rg.plan(q, k, k).tiles.visited == 4
    assert rg.plan(q, np.ones((64, 1, 300, 8), np.float32), k).tiles.visited == 64 * 4


@pytest.mark.parametrize("mask", [rg.Causal(), rg.Window(left=300), rg.Causal() & (rg.Window(100) | rg.KeyLengths(50))])
def test_plan_counts_spans_as_it_counts_bits(mask):
    x = np.ones((1000, 8), np.float32)
    dense = mask.materialize(1000, 1000)
    fast = rg.plan(x, x, x, mask=mask).tiles
    slow = rg.plan(x, x, x, mask=dense).tiles
    assert (fast.visited, fast.partial, fast.skipped) == (slow.visited, slow.partial, slow.skipped)
    assert fast.skipped > 0


@pytest.mark.alone
def test_plan_of_a_long_problem_is_quick():
    x = np.broadcast_to(np.float32(0), (32, 131072, 64))
    started = time.perf_counter()
    assert rg.plan(x, x, x, mask=rg.Causal()).tiles.skipped > 0
    assert time.perf_counter() - started < 20


def test_exit_with_warm_pool_is_quiet():
    done = in_new_process(
        "import numpy as np, regard as rg\nx = np.ones((8, 200, 16), np.float32)\nrg.attention(x, x, x)",
        REGARD_NUM_THREADS="3",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_threads_without_work_sleep():
    done = in_new_process(
        "import time, numpy as np, regard as rg\n"
        "x = np.ones((8, 500, 16), np.float32)\nrg.attention(x, x, x)\n"
        "began = time.process_time()\ntime.sleep(1)\nprint(time.process_time() - began < 0.2)",
        REGARD_NUM_THREADS="3",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_more_threads_than_tasks():
    with rg.config(num_threads=1):
        want = rg.attention(X, X, X)
    with rg.config(num_threads=64):
        assert_same_bits(rg.attention(X, X, X), want)
