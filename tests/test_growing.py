"""Decoding: every step has one key more, a problem that was never seen; what is derived must be what is made anew."""

import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import regard as rg
from judges import assert_same_bits, refused
from processes import needs_fork, run
from regard import _engine, _runtime
from regard._plan import Asked, read
from regard._plan.problem import Described

HEADS, GROUPS, N, D = 4, 2, 120, 8


@pytest.fixture(autouse=True)
def nothing_kept():
    """Each test begins as a new process does."""
    _engine._forms.clear()
    _engine._prepared.clear()


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


Q, K, V = numbers(2, HEADS, N, D), numbers(2, GROUPS, N, D, seed=1), numbers(2, GROUPS, N, D, seed=2)
STREAM = rg.Causal() & (rg.Window(left=20) | rg.Prefix(4))
WINDOW = rg.Causal() & rg.Window(left=20)
CASES = {
    "plain": ({}, {"mask": rg.Causal()}),
    "causal": ({"mask": rg.Causal()},) * 2,
    "window": ({"mask": WINDOW},) * 2,
    "window of two sides": ({"mask": rg.Window(left=20, right=3)}, {"mask": WINDOW}),
    "first keys and window": ({"mask": STREAM},) * 2,
    "what is not far": ({"mask": rg.Causal() & ~(rg.Prefix(9) & ~rg.Window(left=30))},) * 2,
    "chunks": ({"mask": rg.Causal() & (rg.Chunked(16) | rg.Global(3))},) * 2,
    "per head": ({"mask": rg.PerHead([rg.Causal(), WINDOW, STREAM, WINDOW])},) * 2,
    "every other key": ({"mask": rg.Causal() & rg.Dilated(2)},) * 2,
    "alibi": ({"mask": rg.Causal(), "bias": rg.Alibi(HEADS)},) * 2,
    "softcap and sinks": ({"mask": WINDOW, "softcap": 2.0, "sinks": numbers(HEADS, seed=3)},) * 2,
}


def steps(options, places=("end",)):
    """The outputs of a decoding loop, one after the other, and where each stands."""
    for n in range(1, N + 1):
        at = slice(n - 1, n)
        for place in places:
            offset = n - 1 if place == "number" else [n - 1, n - 1] if place == "numbers" else place
            out = rg.attention(Q[:, :, at], K[:, :, :n], V[:, :, :n], q_offset=offset, **options)
            yield at, out


@pytest.mark.parametrize("name", CASES)
def test_a_cache_that_grows_by_a_key_each_call(name):
    """Each step gives the row of the whole, bit for bit, however its place is written."""
    step, whole = CASES[name]
    want = rg.attention(Q, K, V, **whole)
    for at, out in steps(step, ("end", "number", "numbers")):
        assert_same_bits(out, want[:, :, at])


def test_keys_that_are_copied_anew_each_step():
    want = rg.attention(Q, K, V, mask=rg.Causal())
    for n in range(1, N + 1):
        for order in "CF":
            k, v = K[:, :, :n].copy(order), V[:, :, :n].copy(order)
            assert_same_bits(rg.attention(Q[:, :, n - 1 : n], k, v), want[:, :, n - 1 : n])


@pytest.mark.parametrize("make", [rg.KeyLengths, lambda n: rg.KeyPadding(np.arange(N) < np.array(n)[:, None])])
def test_a_batch_whose_entries_grow_apart(make):
    """One entry is five tokens behind the other; keys behind its own are not seen."""
    want = rg.attention(Q, K, V, mask=rg.Causal())
    for n in range(6, N + 1):
        q = np.stack([Q[0, :, n - 6 : n - 5], Q[1, :, n - 1 : n]])
        keys = slice(n) if make is rg.KeyLengths else slice(N)
        out = rg.attention(q, K[:, :, keys], V[:, :, keys], mask=make([n - 5, n]))
        assert_same_bits(out[0], want[0, :, n - 6 : n - 5])
        assert_same_bits(out[1], want[1, :, n - 1 : n])


def test_several_queries_a_step():
    want = rg.attention(Q, K, V, mask=WINDOW)
    for n in range(3, N + 1):
        out = rg.attention(Q[:, :, n - 3 : n], K[:, :, :n], V[:, :, :n], mask=WINDOW, q_offset="end")
        assert_same_bits(out, want[:, :, n - 3 : n])


# -- what a step costs, counted --------------------------------------------------------------------------------------


def counted(monkeypatch, *names):
    """Count calls of methods of Asked, plans and forms, in a dictionary that fills up."""
    counts = dict.fromkeys(names, 0)

    def count(owner, name):
        real = getattr(owner, name)

        def call(*args):
            counts[name] += 1
            return real(*args)

        monkeypatch.setattr(owner, name, call)

    for name in names:
        count(Asked if hasattr(Asked, name) else _engine, name)
    return counts


@pytest.mark.parametrize("name", CASES)
def test_a_loop_is_checked_whole_once(monkeypatch, name):
    counts = counted(monkeypatch, "problem", "geometry_like", "Form", "make_plan")
    list(steps(CASES[name][0], ("end", "end", "end")))  # as three layers make them
    assert counts == {"problem": 1, "geometry_like": 1 + N, "Form": 1, "make_plan": 0}


def python_calls(function):
    """How many functions of Python's are entered."""
    calls = []
    sys.setprofile(lambda frame, event, arg: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return len(calls)


def first_and_again(options):
    """Python functions entered by a step of a new length, and by the same step again, as another layer makes it."""
    list(itertools.islice(steps(options), 40))
    call = partial(rg.attention, Q[:, :, :1], K[:, :, :50], V[:, :, :50], q_offset="end", **options)
    return python_calls(call), python_calls(call)


@pytest.mark.parametrize(
    ("name", "most"),
    [("plain", 10), ("causal", 10), ("window of two sides", 14), ("window", 21), ("first keys and window", 31)],
)
def test_a_new_length_enters_few_functions(name, most):
    """A bound on what a step costs that no machine's noise can shake."""
    first, again = first_and_again(CASES[name][0])
    assert again <= 17
    assert 0 < first - again <= most, (first, again)


class Forgetful(dict):
    """Finds nothing again."""

    def get(self, name):
        return None


def test_the_count_of_functions_sees_a_problem_checked_whole(monkeypatch):
    monkeypatch.setattr(_engine, "_forms", Forgetful())
    first, again = first_and_again({})
    assert first - again > 10


CLOSED = ["plain", "causal", "window", "window of two sides", "first keys and window", "what is not far", "chunks"]


@pytest.mark.parametrize("name", CLOSED)
def test_a_step_under_a_rule_makes_no_array_of_its_mask(monkeypatch, name):
    """One row of ranges in integers, once for all layers of a step."""
    counts = counted(monkeypatch, "lower", "lower_row")
    monkeypatch.setattr(_engine, "overlay", None)
    list(steps(CASES[name][0], ("end", "end", "end")))
    assert counts == {"lower": 0, "lower_row": N}


def test_a_row_for_very_many_heads_is_made_each_time(monkeypatch):
    """Where each head begins in it takes 8 bytes."""
    heads = _engine.MAX_KEPT_BYTES // 8
    counts = counted(monkeypatch, "lower", "lower_row")
    q, k = np.ones((heads, 1, 1), np.float32), np.ones((heads, 2, 1), np.float32)
    for _ in range(3):
        assert (rg.attention(q, k, k, mask=rg.Prefix(1)) == 1).all()
    assert counts == {"lower": 3, "lower_row": 0}


# -- what is derived is what is made anew ------------------------------------------------------------------------------


def place_of_calls():
    """Calls of one form: keys, masks, positions."""
    masks = [None, rg.Causal(), WINDOW, rg.KeyLengths(3), rg.KeyLengths([3, 9]), rg.PerHead([rg.Causal()] * HEADS)]
    return itertools.product((1, 9, N), masks, (0, -2, [1, 5], np.array([[7], [8]])[:, 0]))


def asked_for(keys, mask, q_offset):
    mask = mask if keys >= 9 or not isinstance(mask, rg.KeyLengths) else rg.Full()
    return read(Q[:, :, :1], K[:, :, :keys], V[:, :, :keys], mask, q_offset=q_offset)[0]


def like(call, other):
    """The problem of a call, made from the form of another."""
    form = _engine.Form(other.problem(), _runtime.Engine("scalar", "asked for", 1))
    geometry = call.geometry_like(form.lead, form.heads, form.rank, form.most_keys)
    return _engine.Prepared(form, call.mask, geometry).problem


def test_a_derived_problem_is_the_problem():
    calls = [asked_for(*call) for call in place_of_calls()]
    assert len({call.form for call in calls}) == 1
    for call in calls:
        for other in calls[::7]:
            assert like(call, other) == call.problem()


OTHERS = {
    "query": (Q[:, :, :2], K, V), "heads": (Q[:, :2, :1], K, V), "batch": (Q[:1, :, :1], K, V),
    "kv heads": (Q[:, :, :1], K[:, :1], V[:, :1]), "head size": (Q[:, :, :1, :4], K[..., :4], V),
    "values": (Q[:, :, :1], K, V[..., :4]), "one batch of keys": (Q[:, :, :1], K[:1], V),
    "one batch of values": (Q[:, :, :1], K, V[:1]), "dtype": tuple(x.astype(np.float64) for x in (Q[:, :, :1], K, V)),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_differs_in_more_has_another_form(name):
    first = read(Q[:, :, :1], K, V)[0].form
    assert first == read(Q[:, :, 3:4], K[:, :, :9], V[:, :, :9], rg.Causal(), q_offset=2)[0].form
    assert first != read(*OTHERS[name])[0].form


@pytest.mark.parametrize("option", [{"scale": 2.0}, {"softcap": 2.0}, {"sinks": numbers(4)}, {"bias": rg.Alibi(4)}])
def test_options_that_another_form_has(option):
    assert read(Q[:, :, :1], K, V)[0].form != read(Q[:, :, :1], K, V, **option)[0].form


WRONG = {
    "values missing": ((Q[:, :, :1], K[:, :, :7], V[:, :, :6]), {}),
    "one axis": ((Q[:, :, :1], K[0, 0, 0], V[0, 0, 0]), {}),
    "no place": ((Q[:, :, :1], K[:, :, :7], V[:, :, :7]), {"mask": rg.Causal()}),
    "no place for a window": ((Q[:, :, :1], K[:, :, :7], V[:, :, :7]), {"mask": WINDOW}),
    "end of lengths": ((Q[:, :, :1], K, V), {"mask": rg.KeyLengths([2, 3]) & rg.Causal(), "q_offset": "end"}),
    "lengths above": ((Q[:, :, :1], K[:, :, :7], V[:, :, :7]), {"mask": rg.KeyLengths([2, 8])}),
    "lengths of three": ((Q[:, :, :1], K, V), {"mask": rg.KeyLengths([2, 3, 4])}),
    "places of three": ((Q[:, :, :1], K, V), {"mask": rg.Causal(), "q_offset": [1, 2, 3]}),
    "mask of another length": ((Q[:, :, :1], K[:, :, :7], V[:, :, :7]), {"mask": np.ones((1, 8), bool)}),
    "heads of a mask": ((Q[:, :, :1], K, V), {"mask": rg.PerHead([rg.Full()])}),
    "two things": ((Q[:, :, :1], K[:, :, :7], V[:, :, :6]), {"mask": rg.KeyLengths([2, 9])}),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_step_is_refused_as_if_it_were_the_first(name):
    """After right calls of its form, with the same words, and every time."""
    arrays, options = WRONG[name]
    with pytest.raises(rg.RegardError) as alone:
        rg.attention(*arrays, **options)
    assert not _engine._forms
    for n in (5, 8):
        rg.attention(Q[:, :, :1], K[:, :, :n], V[:, :, :n], mask=rg.Causal(), q_offset="end")
        rg.attention(Q[0, 0, :1], K[0, 0, :n], V[0, 0, :n])
    for _ in range(2):
        refused(type(alone.value), str(alone.value), args=arrays, **options)


def test_values_that_are_missing_beside_wider_keys():
    """Where D and Dv differ, what is left of the shapes is the same for any numbers of rows."""
    narrow = V[..., :4]
    for n in (5, 8):
        rg.attention(Q[:, :, :1], K[:, :, :n], narrow[:, :, :n])
    for keys, values in ((7, 6), (6, 7)):
        message = f"key has {keys} rows and value has {values}"
        refused(rg.ShapeError, message, args=(Q[:, :, :1], K[:, :, :keys], narrow[:, :, :values]))


def test_scores_too_many_to_count():
    first, dtype = read(Q[:, :, :1], K, V)[0], Q.dtype
    q, k = (Described((2, heads, rows, D), dtype) for heads, rows in ((HEADS, 1), (GROUPS, 2**60)))
    grown = read(q, k, k)[0]
    assert grown.form == first.form
    with pytest.raises(rg.ShapeError, match="split it"):
        like(grown, first)


def test_one_axis_is_not_taken_for_two():
    """What is left of the shape (D,) without its number of rows is what is left of (n, D)."""
    rg.attention(Q[0, 0, :1], K[0, 0], V[0, 0])
    refused(rg.ShapeError, "key has shape (8,); it needs at least two axes", args=(Q[0, 0, :1], K[0, 0, 0], V[0, 0]))
    refused(rg.ShapeError, "value has shape (8,); it needs at least", args=(Q[0, 0, :1], K[0, 0], V[0, 0, 0]))


# -- what is kept ---------------------------------------------------------------------------------------------------


def test_forms_are_bounded():
    for n in range(1, 3 * _engine.MAX_PREPARED):
        rg.attention(np.ones((1, n), np.float32), np.ones((2, n), np.float32), np.ones((2, n), np.float32))
        assert len(_engine._forms) <= _engine.MAX_PREPARED
        assert len(_engine._prepared) <= _engine.MAX_PREPARED


def test_a_form_serves_calls_that_are_not_kept():
    """An array may change between steps, and each step sees what it holds."""
    seen = np.ones((2, 1, 1, N), bool)
    for n in range(2, N):
        seen[:, :, :, n // 2] ^= True
        mask = seen[..., :n]
        got = rg.attention(Q[:, :, :1], K[:, :, :n], V[:, :, :n], mask=mask)
        lasting = rg.KeyPadding(mask[:, 0, 0])
        assert_same_bits(got, rg.attention(Q[:, :, :1], K[:, :, :n], V[:, :, :n], mask=lasting))
    assert len(_engine._forms) == 1


def test_loops_in_many_threads():
    want = {name: [out for _, out in steps(step)] for name, (step, _) in CASES.items()}
    _engine._forms.clear()
    _engine._prepared.clear()
    gate = threading.Barrier(4)

    def work(seed):
        gate.wait()
        for name in np.random.default_rng(seed).permutation(list(CASES))[:4]:
            for (_, out), expected in zip(steps(CASES[name][0]), want[name], strict=True):
                assert_same_bits(out, expected)
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    assert len(_engine._prepared) < _engine.MAX_PREPARED + 4


FORK_IN_A_LOOP = """
q, k, v = (np.random.default_rng(n).standard_normal((1, 2, 90, 8), dtype=np.float32) for n in range(3))
mask = rg.Causal() & rg.Window(left=20)
want = rg.attention(q, k, v, mask=mask)
def right(n):
    at = slice(n - 1, n)
    out = rg.attention(q[:, :, at], k[:, :, :n], v[:, :, :n], mask=mask, q_offset="end")
    return bool((out == want[:, :, at]).all())
before = all(map(right, range(1, 45)))
pid = os.fork()
if pid == 0: os._exit(0 if all(map(right, range(40, 91))) else 3)
print(before, os.waitpid(pid, 0)[1], all(map(right, range(40, 91))))
"""


@needs_fork
def test_a_loop_goes_on_in_a_forked_child():
    assert run(FORK_IN_A_LOOP) == ["True", "0", "True"]
