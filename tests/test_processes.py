"""Worker processes and forks: the child has neither the threads nor the locks of its parent."""

import re
from pathlib import Path

import pytest

import regard as rg
from processes import linux, needs_fork, run

PROCESSES = """
import multiprocessing
def work(n):
    return float(rg.attention(x * np.float32(n), x, x, mask=rg.Causal()).astype(float).sum())
if __name__ == "__main__":
    want = [work(n) for n in range(6)]
    with multiprocessing.get_context("{method}").Pool(2) as pool:
        print(pool.map_async(work, range(6)).get(40) == want)
    print([work(n) for n in range(6)] == want, len(set(want)) == 6)
"""


@pytest.mark.parametrize("method", ["spawn", pytest.param("fork", marks=needs_fork)])
def test_worker_processes(tmp_path, method):
    """pytorch#17199, faiss#5206: after a threaded call in the parent, a forked child waited for ever."""
    assert run(PROCESSES.format(method=method), tmp_path, PYTHONWARNINGS="ignore") == ["True", "True", "True"]


FORK_MEANWHILE = """
import warnings
warnings.simplefilter("ignore")
q, k = np.ones((1, 4096, 64), np.float32), np.ones((1, 20_000, 64), np.float32)
want, stop, calls = rg.attention(x, x, x), threading.Event(), []
def busy():
    while not stop.is_set():
        calls.append(bool((rg.attention(q, k, k) == 1).all()))
threads = [threading.Thread(target=busy) for _ in range(2)]
for t in threads: t.start()
time.sleep(0.1)
codes = []
for n in range(12):
    time.sleep(0.02)
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        same = all((rg.attention(x, x, x) == want).all() for _ in range(3))
        os._exit(0 if same else 3)
    codes.append(os.waitpid(pid, 0)[1])
alive = all(t.is_alive() for t in threads)
stop.set()
for t in threads: t.join()
print(alive, set(codes), all(calls), (rg.attention(x, x, x) == want).all())
"""


@needs_fork
def test_fork_while_other_threads_compute():
    """The child has neither the pool's threads nor the locks that they held."""
    assert run(FORK_MEANWHILE) == ["True", "{0}", "True", "True"]


FORK_WITHIN = """
import warnings
warnings.simplefilter("ignore")
from regard import _runtime
best, begun = _runtime._best, threading.Event()
def slow():
    begun.set()
    threading.Event().wait()
def call():
    with rg.config(num_threads=1):
        return rg.attention(x, x, x)
want = call()
_runtime._best = slow
threading.Thread(target=call, daemon=True).start()
begun.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    _runtime._best = best
    os._exit(0 if (call() == want).all() else 3)
print(os.waitpid(pid, 0)[1])
os._exit(sys.stdout.flush() or 0)
"""


@needs_fork
def test_fork_while_another_thread_computes_an_attribute():
    """Up to Python 3.11 `functools.cached_property` has a lock for all objects, and a child got it locked."""
    assert run(FORK_WITHIN) == ["0"]


WITHOUT_ROOM = """
import resource
wide = np.broadcast_to(np.float32(1), (1, 2**22))
row = wide[:, :8]
def used():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
results, room = [rg.attention_forward(row, row, row)], used() + (100 << 20)
def ask():  # in a thread that takes its scratch with it
    with rg.config(num_threads=1):
        results[0] = rg.attention_forward(wide, wide, row)
thread = threading.Thread(target=ask)
thread.start()
thread.join()
while used() > room: time.sleep(0.01)  # it goes a little later
resource.setrlimit(resource.RLIMIT_AS, (room,) * 2)
with rg.config(num_threads=1):
    for call in (lambda: rg.attention(wide, wide, row), lambda: results[0].weights[...]):
        try:
            print(call())
        except MemoryError as error:
            wanted = f"a thread wants {results[0].plan.scratch_bytes:,} bytes of scratch at D = 4194304 and Dv = 8, "
            print(str(error) == wanted + "1 at most: use fewer by rg.config(num_threads=1), or free memory")
print((rg.attention(row, row, row) == 1).all())
"""


@linux
def test_what_was_wanted_where_there_is_no_memory():
    assert run(WITHOUT_ROOM) == ["True", "True", "True"]


def test_no_attribute_of_the_package_has_a_lock():
    paths = list(Path(rg.__file__).parent.rglob("*.py"))
    locked = re.compile(r"import .*cached_property|@functools.cached_property")
    held = [str(path) for path in paths if locked.search(path.read_text(encoding="utf-8"))]
    assert len(paths) > 100
    assert held == []


GRANDCHILD = """
import warnings
warnings.simplefilter("ignore")
want = rg.attention(x, x, x)
def descend(depth):
    if not (rg.attention(x, x, x) == want).all(): return 3
    if depth == 0: return 0
    pid = os.fork()
    if pid == 0: os._exit(descend(depth - 1))
    return os.WEXITSTATUS(os.waitpid(pid, 0)[1])
print(descend(3))
"""


@needs_fork
def test_forks_of_forks():
    assert run(GRANDCHILD) == ["0"]


FORK_INSIDE = """
import warnings
warnings.simplefilter("ignore")
big = np.ones((1, 8, 4096, 64), np.float32)
q, k = {problem}
children, wrong, said = [], 0, "nothing"
def fork(*_):
    children.append(os.fork())
    if children[-1] == 0: signal.alarm(50)
signal.signal(signal.SIGUSR1, fork)
rg.attention(x, x, x)
threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
while not children:
    try:
        out = rg.attention(q, k, k)
        wrong += int((out != 1).sum())
    except RuntimeError as error:
        said = str(error)
again = (rg.attention(x, x, x) == rg.attention(x, x, x)).all() and wrong == 0
if children[0] == 0:
    os._exit(0 if again and (said == "nothing" or "forked this process" in said) else 3)
print(os.waitpid(children[0], 0)[1], said, again)
"""


FEW_ROWS = "big[0, :1, :64], np.broadcast_to(np.float32(1), (1, 2_000_000, 64))"


@needs_fork
@pytest.mark.parametrize("problem", ["big, big", FEW_ROWS], ids=["many rows", "few rows over many keys"])
def test_a_signal_handler_forks_in_the_middle_of_a_call(problem):
    """The parent's result is whole; the child, whose other thread stayed behind, is told or right, and never waits."""
    assert run(FORK_INSIDE.replace("{problem}", problem)) == ["0", "nothing", "True"]
