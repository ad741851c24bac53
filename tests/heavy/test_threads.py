"""regard and torch in one process, each with its own threads: neither disturbs the other."""

import os
import subprocess
import sys

HEAD = """
import os, threading, numpy as np, torch, regard as rg
x = np.random.default_rng(0).standard_normal((4, 300, 32), dtype=np.float32)
t = torch.from_numpy(x)
def ours(): return rg.attention(x, x, x, mask=rg.Causal())
def theirs(): return torch.nn.functional.scaled_dot_product_attention(t, t, t, is_causal=True).numpy()
"""


def run(code):
    """Words of a new process in which torch chooses its threads itself."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HEAD + code],
        capture_output=True, text=True, timeout=120, env={**environment, "REGARD_NUM_THREADS": "2"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


COUNTS = """
def counts(): return torch.get_num_threads(), torch.get_num_interop_threads()
before, want = counts(), theirs()
ours()
with rg.config(num_threads=5): ours()
with rg.config(num_threads=1): ours()
print(counts() == before, (theirs() == want).all())
torch.set_num_threads(1)
first = ours()
torch.set_num_threads(2)
print((ours() == first).all(), rg.plan(x, x, x).threads, torch.get_num_threads())
"""


def test_thread_counts_are_undisturbed():
    assert run(COUNTS) == ["True", "True", "True", "2", "2"]


DENORMALS = """
tiny = np.full((1, 70, 8), 1e-41, np.float32)
want = rg.attention(tiny, tiny, tiny)
def flushes(): return float(torch.tensor([1e-39]) / 2) == 0
torch.set_flush_denormal(True)
for threads in (1, 2, 3):
    with rg.config(num_threads=threads): got = rg.attention(tiny, tiny, tiny)
    print(got.tobytes() == want.tobytes(), flushes())
torch.set_flush_denormal(False)
print(flushes(), bool((want > 0).all()))
"""


def test_flush_to_zero_is_neither_obeyed_nor_forgotten():
    """The mode of the calling thread changes no bit of ours, and is as it was after the call."""
    assert run(DENORMALS) == ["True", "True"] * 3 + ["False", "True"]


TOGETHER = """
want, wanted = ours(), theirs()
right = []
def work(call, value):
    right.append(all(np.array_equal(call(), value) for _ in range(20)))
threads = [threading.Thread(target=work, args=pair) for pair in [(ours, want), (theirs, wanted)] * 4]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(right == [True] * 8, np.abs(want - wanted).max() < 1e-5)
"""


def test_both_at_once_in_many_threads():
    assert run(TOGETHER) == ["True", "True"]


FORK = """
want = ours()
theirs()
pid = os.fork()
if pid == 0:
    os._exit(0 if (ours() == want).all() else 3)
print(os.waitpid(pid, 0)[1])
"""


def test_a_forked_child_computes_where_torchs_would_wait():
    """pytorch#17199: torch's own threads are gone in the child, and it waits for them; ours are made anew."""
    assert run(FORK) == ["0"]
