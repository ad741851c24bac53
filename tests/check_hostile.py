"""Attention functions that crash, hang, leave, print and close what is not theirs: for processes that may be lost."""

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
import time

import numpy as np


def attention(q, k, v, causal=False):
    """Without a scale, so that there is something to find beside."""
    scores = q @ k.swapaxes(-1, -2)
    if causal:
        offset = scores.shape[-1] - scores.shape[-2]
        scores = np.where(np.tri(*scores.shape[-2:], offset, dtype=bool), scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-1e30))
    return e / e.sum(axis=-1, keepdims=True) @ v


def crashes(q, k, v, causal=False):
    if causal:
        ctypes.string_at(0)
    return attention(q, k, v)


def always_crashes(q, k, v):
    ctypes.string_at(0)


def hangs(q, k, v, causal=False):
    lock = threading.Lock()
    lock.acquire()
    if causal:
        lock.acquire()
    return attention(q, k, v)


def leaves(q, k, v, causal=False):
    if causal:
        sys.exit("no causal attention here")
    return attention(q, k, v)


def leaves_at_once(q, k, v, causal=False):
    if causal:
        os._exit(0)
    return attention(q, k, v)


def interrupts(q, k, v, causal=False):
    if causal:
        raise KeyboardInterrupt
    return attention(q, k, v)


def closes(q, k, v, causal=False):
    if causal:
        os.closerange(3, 256)
    return attention(q, k, v)


def dies_later(q, k, v, causal=False):
    if causal:
        threading.Timer(0.05, os._exit, (7,)).start()
        time.sleep(0.2)
    return attention(q, k, v)


def prints(q, k, v):
    assert sys.stdin.read() == ""
    print("by print")
    print("\x1b[31mby stderr", file=sys.stderr)
    os.write(1, b"by write\n")
    ctypes.CDLL(None).puts(b"by C")
    return attention(q, k, v)


def starts_a_process(q, k, v, seconds=100, **options):
    name = os.environ["PID_FILE"]
    if not os.path.exists(name):
        process = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"], **options)
        with open(name, "w") as file:
            file.write(str(process.pid))
    return attention(q, k, v)


def starts_a_daemon(q, k, v):
    return starts_a_process(q, k, v, 30, start_new_session=True)


def waits(q, k, v):
    with open(os.environ["PID_FILE"], "w") as file:
        file.write(str(os.getpid()))
    time.sleep(100)


def with_vjp(q, k, v):
    return attention(q * q.dtype.type(q.shape[-1] ** -0.5), k, v)  # gradients are asked of right functions only


def crashing_vjp(grad, q, k, v):
    os.abort()


with_vjp.vjp = crashing_vjp


def crashes_on_integers(q, k, v):
    if q.dtype.kind == "i":
        os.abort()
    return attention(q, k, v)


def crashes_when_long(q, k, v):
    if k.shape[-2] == 131:
        os.abort()
    return attention(q, k, v)


class Scaled:
    def __call__(self, q, k, v):
        return attention(q, k, v)


scaled = Scaled()
number = 3.0


def draws(q, k, v, dropout=0.0, rng=None):
    if rng is not None:
        os.abort()
    return attention(q, k, v)


def loud(q, k, v, causal=False):
    if causal:
        sys.exit('say """ \\ loud\n{nothing}\r\x00\ud800')
    return attention(q, k, v)


def holds_the_lock(q, k, v):
    """No thread of Python's runs any more."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    with open(os.environ["PID_FILE"], "w") as file:
        file.write(f"{os.getpid()} {child.pid} ")
    ctypes.PyDLL(None).pause()


def writes_everywhere(q, k, v):
    """What is no message is passed over; a pickle is not loaded."""
    pickled = b"cposix\nsystem\n(S'touch pickled'\ntR."
    for descriptor in range(3, 20):
        for text in (b"{}\n", b"null\n", b"[[1]]\n", pickled, b"\n"):
            with contextlib.suppress(OSError):
                os.write(descriptor, text)
    return attention(q, k, v)
