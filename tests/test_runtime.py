"""Threads and targets: the context manager, the environment, fork, Ctrl-C."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import regard as rg
from judges import assert_same_bits
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
    best = [info.name for info in _runtime.describe() if info.usable][-1]
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_fork_after_a_threaded_call():
    done = in_new_process(FORK)
    assert done.stdout.split() == ["same", "True"], done.stderr


INTERRUPT = """
import signal, threading, time, os, numpy as np, regard as rg
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


def test_ctrl_c_raises_soon_and_the_next_call_works():
    done = in_new_process(INTERRUPT, REGARD_NUM_THREADS="2")
    word, seconds, mean = done.stdout.split()
    assert word == "interrupted", done.stdout + done.stderr
    assert float(seconds) < 1.3
    assert float(mean) == 1


def test_exit_with_warm_pool_is_quiet():
    done = in_new_process(
        "import numpy as np, regard as rg\nx = np.ones((8, 200, 16), np.float32)\nrg.attention(x, x, x)",
        REGARD_NUM_THREADS="3",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_more_threads_than_tasks():
    with rg.config(num_threads=1):
        want = rg.attention(X, X, X)
    with rg.config(num_threads=64):
        assert_same_bits(rg.attention(X, X, X), want)
