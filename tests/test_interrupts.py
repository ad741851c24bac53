"""Ctrl-C, and the end of the interpreter, in the middle of calls."""

import pytest

from processes import HEAD, run

# -- Ctrl-C -------------------------------------------------------------------------------------------------------

INTERRUPT = """
def after(seconds):
    threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    return time.monotonic() + seconds
big = np.ones((1, 16, 16384, 64), np.float32)
unkept = np.zeros((1, 1 << 28), bool)  # no memory behind it
def interrupted(call):
    sent = after(0.3)
    try:
        call()
    except KeyboardInterrupt:
        return time.monotonic() - sent < 1
    return "finished"
"""

CALLS = {
    "attention": "rg.attention(big, big, big)",
    "out": "rg.attention(big, big, big, out=np.empty_like(big))",
    "forward": "rg.attention_forward(big, big, big, aux=rg.Aux(state=True))",
    "bits": "rg.attention(*[big[:, :4]] * 3, mask=rg.Dilated(2) & rg.Causal())",
    "function": "rg.attention(*[big[:, :4]] * 3, mask=rg.from_function(lambda b, h, p, j: j <= p))",
    "few rows": "rg.attention(big[0, :1, :64], *[np.broadcast_to(np.float32(1), (1, 20_000_000, 64))] * 2)",
    "mask array": "rg.attention(x[:1, :1], *[np.broadcast_to(x[:1, :1], (1, 1 << 28, 32))] * 2, mask=unkept)",
    "many small": "[rg.attention(x, x, x) for _ in range(100_000)]",
}


@pytest.mark.alone
@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_raises_within_a_second(call):
    code = (
        INTERRUPT + f"print(interrupted(lambda: {CALLS[call]}), float(rg.attention(x, x, x[:, :, :1] * 0 + 1).mean()))"
    )
    assert run(code) == ["True", "1.0"]


# Two blocks of one chunk of keys. The main thread takes the short one, the other thread one of some seconds.
TAIL = """
columns = np.broadcast_to(np.float32(1), (2, 1, 768, 40_000))
def uneven():
    with rg.config(target="scalar", num_threads=2):
        rg.attention(columns[:, :, :96], columns, columns, mask=rg.KeyLengths([768, 24]))
print(interrupted(uneven), float(rg.attention(x, x, x[:, :, :1] * 0 + 1).mean()))
"""


@pytest.mark.alone
def test_ctrl_c_while_only_another_thread_computes():
    assert run(INTERRUPT + TAIL) == ["True", "1.0"]


WEIGHTS = """
wide = rg.attention_forward(big[:, :2, :8192], big[:, :2], big[:, :2], mask=rg.Window(0, 0), q_offset=0)
print(interrupted(lambda: [wide.weights[..., :8192] for _ in range(50)]))
"""


@pytest.mark.alone
def test_ctrl_c_while_weights_are_computed():
    assert run(INTERRUPT + WEIGHTS) == ["True"]


OTHERS = """
results = []
def busy():
    results.append(bool((rg.attention(big[:, :1, :8192], big[:, :1], big[:, :1]) == 1).all()))
threads = [threading.Thread(target=busy) for _ in range(3)]
for t in threads: t.start()
print(interrupted(lambda: rg.attention(big, big, big)))
for t in threads: t.join()
print(results)
"""


@pytest.mark.alone
def test_ctrl_c_stops_the_main_thread_and_no_other():
    assert run(INTERRUPT + OTHERS) == ["True", "[True,", "True,", "True]"]


AGAIN = """
want, hits = rg.attention(x, x, x), 0
random.seed(0)
for n in range(25):
    timer = threading.Timer(random.random() * 0.06, lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        timer.start()
        for _ in range(100_000):
            rg.attention(x, x, x, mask=rg.Causal() & rg.Window(left=n))
    except KeyboardInterrupt:
        hits += 1
    timer.join()
print(hits, (rg.attention(x, x, x) == want).all())
"""


def test_ctrl_c_again_and_again():
    assert run(AGAIN) == ["25", "True"]


# -- exit ---------------------------------------------------------------------------------------------------------

HANDLER = """
import atexit
atexit.register(lambda: print((rg.attention(x, x, x) == want).all(), flush=True))
"""


@pytest.mark.parametrize("code", [HANDLER + HEAD, HEAD + HANDLER], ids=["before the import", "after the import"])
def test_exit_handlers_may_call_attention(code):
    """Those of before the import run after regard's own."""
    assert run(code + "want = rg.attention(x, x, x)") == ["True"]


DAEMONS = """
def busy():
    while True: rg.attention(x, x, x, mask=rg.Causal())
for _ in range(4): threading.Thread(target=busy, daemon=True).start()
time.sleep(0.2)
print("leaving", flush=True)
{leave}
"""


@pytest.mark.parametrize("leave", ["", "sys.exit(0)", "del x", "os._exit(0)"])
def test_exit_while_daemon_threads_call_again_and_again(leave):
    if leave == "del x":  # the threads end with an error of theirs, while others compute
        leave = "threading.excepthook = lambda _: None\ndel x\ntime.sleep(0.1)"
    for _ in range(3):
        assert run(DAEMONS.format(leave=leave)) == ["leaving"]
