"""What is kept between calls: one is made ready once for all that equal it, and must never serve one that differs."""

import gc
import itertools
import math
import pickle
import sys
import threading
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from conftest import USABLE
from judges import assert_same_bits, refused
from regard import _engine, _native

LEAD, HEADS, GROUPS, SQ, SKV, D = 2, 4, 2, 5, 9, 8


def forget():
    """Begin as a new process does."""
    _engine._forms.clear()
    _engine._prepared.clear()


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


Q, K, V = numbers(LEAD, HEADS, SQ, D), numbers(LEAD, GROUPS, SKV, D, seed=1), numbers(LEAD, GROUPS, SKV, D, seed=2)


def arranged(x, order):
    """The same numbers with the same shape, laid in memory by axes in another order."""
    order = [axis % x.ndim for axis in order]
    return np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))


def every_other(x):
    """The same shape and other numbers, two elements apart."""
    wide = np.repeat(x[..., ::-1], 2, axis=-1)
    return wide[..., ::2]


# Each differs from the first in one thing, by which the answer must differ too.
DIFFERENT = {
    "plain": ((Q, K, V), {}),
    "scale": ((Q, K, V), {"scale": 0.5}),
    "negative scale": ((Q, K, V), {"scale": -0.5}),
    "softcap": ((Q, K, V), {"softcap": 0.5}),
    "causal": ((Q, K, V), {"mask": rg.Causal(), "q_offset": 0}),
    "causal, q_offset 1": ((Q, K, V), {"mask": rg.Causal(), "q_offset": 1}),
    "causal, q_offset -1": ((Q, K, V), {"mask": rg.Causal(), "q_offset": -1}),
    "causal, end": ((Q, K, V), {"mask": rg.Causal(), "q_offset": "end"}),
    "causal, offsets": ((Q, K, V), {"mask": rg.Causal(), "q_offset": [0, 1]}),
    "causal, offsets of other order": ((Q, K, V), {"mask": rg.Causal(), "q_offset": [1, 0]}),
    "causal, offsets of other shape": ((Q, K, V), {"mask": rg.Causal(), "q_offset": [2]}),
    "window": ((Q, K, V), {"mask": rg.Window(1, 1), "q_offset": 0}),
    "lengths": ((Q, K, V), {"mask": rg.KeyLengths([3, 9])}),
    "other lengths": ((Q, K, V), {"mask": rg.KeyLengths([9, 3])}),
    "per head": ((Q, K, V), {"mask": rg.PerHead([rg.Full(), rg.Causal(), rg.Full(), rg.Prefix(2)]), "q_offset": 0}),
    "array": ((Q, K, V), {"mask": np.arange(SKV) % 3 > 0 | np.zeros((SQ, 1), bool)}),
    "bias": ((Q, K, V), {"bias": numbers(SQ, SKV, seed=3)}),
    "other bias": ((Q, K, V), {"bias": numbers(SQ, SKV, seed=4)}),
    "alibi": ((Q, K, V), {"bias": rg.Alibi(HEADS), "q_offset": 0}),
    "sinks": ((Q, K, V), {"sinks": np.zeros(HEADS, np.float32)}),
    "other sinks": ((Q, K, V), {"sinks": np.ones(HEADS, np.float32)}),
    "other numbers": ((Q, K, V[:, ::-1]), {}),
    "strides of query": ((every_other(Q), K, V), {}),
    "strides of key": ((Q, every_other(K), V), {}),
    "strides of value": ((Q, K, every_other(V)), {}),
    "key of one head for all": ((Q, np.broadcast_to(K[:, :1], K.shape), V), {}),
    "one batch entry for all": ((Q, K, np.broadcast_to(V[1:], V.shape)), {}),
    "backwards": ((Q, K, V[:, :, ::-1]), {}),
    "one key less": ((Q, K[:, :, :-1], V[:, :, :-1]), {}),
    "one query less": ((Q[:, :, 1:], K, V), {}),
    "one head of keys": ((Q, K[:, :1], V[:, :1]), {}),
    "key of one batch entry": ((Q, K[:1], V), {}),
    "no batch": ((Q[0], K[0], V[0]), {}),
    "narrow values": ((Q, K, V[..., :3]), {}),
    "float64": (tuple(x.astype(np.float64) for x in (Q, K, V)), {}),
    "float16": (tuple(x.astype(np.float16) for x in (Q, K, V)), {}),
    "bfloat16": (tuple(x.astype(ml_dtypes.bfloat16) for x in (Q, K, V)), {}),
}


def solve(name):
    arrays, options = DIFFERENT[name]
    result = rg.attention_forward(*arrays, **options)
    return rg.attention(*arrays, **options), result.out, result.lse, result.weights[...]


@pytest.fixture(scope="module")
def cold():
    """What each call gives in a process that has made no other."""
    answers = {}
    with rg.config(num_threads=1):
        for name in DIFFERENT:
            forget()
            answers[name] = solve(name)
    return answers


def test_the_calls_are_told_apart(cold):
    """So that a confusion of any two of them would be seen."""
    for (one, a), (other, b) in itertools.combinations(cold.items(), 2):
        assert not (a[0].shape == b[0].shape and np.array_equal(a[0], b[0])), (one, other)


@pytest.mark.parametrize("seed", range(4))
def test_a_call_gives_what_it_gives_alone(cold, seed):
    """Whatever calls came before, in any order, and when it comes again."""
    forget()
    order = np.random.default_rng(seed).permutation(list(DIFFERENT) * 2)
    with rg.config(num_threads=1):
        for name in order:
            for got, want in zip(solve(name), cold[name], strict=True):
                assert_same_bits(got, want)


def test_two_threads_that_differ_in_everything_but_shapes(cold):
    forget()
    gate = threading.Barrier(4)

    def work(seed):
        gate.wait()
        with rg.config(num_threads=1):
            for name in np.random.default_rng(seed).permutation(list(DIFFERENT)):
                for got, want in zip(solve(name), cold[name], strict=True):
                    assert_same_bits(got, want)
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


@pytest.mark.parametrize("order", list(itertools.permutations((-4, -3, -2, -1)))[1::4])
def test_equal_numbers_in_another_order_of_memory(cold, order):
    """Equal shapes and dtypes, other strides, output included: the call is the same one, and the bits are."""
    for x, y, z in itertools.product((0, 1), repeat=3):
        arrays = [arranged(a, order) if turned else a for a, turned in zip((Q, K, V), (x, y, z), strict=True)]
        out = arranged(np.zeros_like(Q), order)
        assert out.strides != Q.strides
        assert rg.attention(*arrays, out=out) is out
        assert_same_bits(out, cold["plain"][0])
        assert_same_bits(rg.attention(*arrays), cold["plain"][0])


# -- config -------------------------------------------------------------------------------------------------------


def test_config_takes_effect_at_the_next_call():
    for target in [*USABLE, *reversed(USABLE)]:
        for threads in (1, 3):
            outer = rg.attention_forward(Q, K, V).plan
            with rg.config(target=target, num_threads=threads):
                plan = rg.attention_forward(Q, K, V).plan
                assert (plan.target, plan.threads, plan.why) == (target, threads, "asked for by config(target=...)")
                with rg.config(num_threads=2):
                    assert rg.attention_forward(Q, K, V).plan.threads == 2
                assert rg.attention_forward(Q, K, V).plan == plan
            assert rg.attention_forward(Q, K, V).plan == outer != plan


@pytest.mark.skipif(len(USABLE) < 2, reason="one target only")
def test_what_runs_is_what_was_configured():
    """Bits tell the scalar target from the others."""
    q = numbers(1, 3, 300, 64)
    found = {}
    for target in [*USABLE, *USABLE]:
        with rg.config(target=target):
            assert_same_bits(rg.attention(q, q, q), found.setdefault(target, rg.attention(q, q, q)))
    assert not np.array_equal(found["scalar"], found["avx2"])


def test_the_processors_are_asked_at_each_call(monkeypatch):
    monkeypatch.setattr(_engine._runtime, "settings", _engine._runtime.Settings)
    for count in (5, 2, 5):
        monkeypatch.setattr(_engine._runtime, "processors", lambda count=count: count)
        assert rg.attention_forward(Q, K, V).plan.threads == count


# -- what may change between calls ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["query", "key", "value", "mask", "bias", "sinks", "q_offset"])
def test_an_array_that_changes_between_calls(name):
    options = {
        "mask": np.arange(SQ * SKV).reshape(SQ, SKV) % 5 != 2,
        "bias": numbers(SQ, SKV, seed=3),
        "sinks": np.zeros(HEADS, np.float32),
        "q_offset": np.array([0, 3]),
    }
    arrays = {"query": Q.copy(), "key": K.copy(), "value": V.copy(), **options}
    if name == "q_offset":
        arrays["mask"] = rg.Causal()
    before = rg.attention(**arrays)
    assert_same_bits(rg.attention(**arrays), before)
    changed = arrays[name]
    changed[...] = ~changed if changed.dtype == bool else changed[::-1].copy() + 1
    after = rg.attention(**arrays)
    assert not np.array_equal(after, before)
    forget()
    assert_same_bits(rg.attention(**arrays), after)


def test_out_given_and_not():
    want = rg.attention(Q, K, V)
    wide = np.full((LEAD, HEADS, 2 * SQ, D + 1), np.nan, np.float32)
    outs = [np.empty_like(Q), wide[:, :, ::2, :-1], wide[:, :, -1::-2, 1:], np.empty((LEAD, HEADS, SQ, 2 * D), "f4")]
    outs[-1] = outs[-1][..., ::2]
    for out in outs * 2:
        assert rg.attention(Q, K, V, out=out) is out
        assert_same_bits(out, want)
        new = rg.attention(Q, K, V)
        assert_same_bits(new, want)
        assert new.flags.c_contiguous
        assert not np.may_share_memory(new, out)
        out[...] = 7
        assert_same_bits(new, want)


# -- equal, and not -----------------------------------------------------------------------------------------------


def test_what_python_calls_equal_is_not():
    """1 == True == 1.0, to a cache too: what was right for one is no answer to the others."""
    rg.attention(Q, K, V, scale=1, softcap=1, q_offset=1, mask=rg.Causal())
    same = rg.attention(Q, K, V, scale=1.0, softcap=np.float32(1), q_offset=np.int8(1), mask=rg.Causal())
    assert_same_bits(rg.attention(Q, K, V, scale=1, softcap=1, q_offset=1, mask=rg.Causal()), same)
    for _ in range(2):
        refused(rg.UnsupportedError, "scale is True", args=(Q, K, V), scale=True)
        refused(rg.UnsupportedError, "softcap is True", args=(Q, K, V), softcap=True)
        refused(rg.AlignmentError, "q_offset is True", args=(Q, K, V), q_offset=True, mask=rg.Causal())
        refused(rg.AlignmentError, "q_offset is 1.0", args=(Q, K, V), q_offset=1.0, mask=rg.Causal())


class Unmeasured:
    """Something with a shape of whole floats."""

    dtype, shape = np.dtype(np.float32), (float(LEAD), HEADS, SQ, D)


def test_a_shape_is_checked_whatever_was_kept():
    rg.plan(Q, K, V)
    refused(rg.ShapeError, "a shape is made of integers", call=rg.plan, args=(Unmeasured(), K, V))


def test_a_wrong_call_is_wrong_every_time():
    for _ in range(3):
        rg.attention(Q, K, V)
        refused(rg.AlignmentError, "5 queries can stand among 9 keys", args=(Q, K, V), mask=rg.Causal())
        refused(rg.DTypeError, "must have one dtype", args=(Q, K.astype(np.float64), V))
        refused(rg.DTypeError, "must have one dtype", args=(Q, K, V.astype(np.float64)))
        refused(rg.DTypeError, "byte order", args=(Q.astype(Q.dtype.newbyteorder()), K, V))
        refused(rg.ShapeError, "has head size", args=(Q, K[..., 1:], V))
        refused(rg.MaskError, "KeyLengths has the length 10", args=(Q, K, V), mask=rg.KeyLengths([10, 1]))


def prepared_now():
    return len(_engine._prepared)


@pytest.mark.parametrize(
    "make",
    [rg.Causal, lambda: rg.Causal() & rg.Window(left=3), lambda: rg.KeyLengths([3, 9]), lambda: ~rg.Prefix(2)],
)
def test_equal_masks_share_what_was_made_ready(make):
    forget()
    first, again = (rg.attention(Q, K, V, mask=make(), q_offset=0) for _ in range(2))
    assert prepared_now() == 1
    assert_same_bits(again, first)


class NeverHashed:
    """A rule that cannot be hashed, as a list cannot."""

    __hash__ = None

    def __init__(self, most):
        self.most = most

    def __eq__(self, other):
        return True

    def __call__(self, b, h, p, j):
        return j < self.most


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: rg.Causal() & m, lambda m: ~~m])
def test_masks_that_cannot_be_compared_are_kept_by_no_cache(wrap):
    forget()
    for most in (3, 6, 3):
        want = rg.attention(Q, K, V, mask=wrap(rg.Prefix(most)), q_offset=9)
        kept = prepared_now()
        assert_same_bits(rg.attention(Q, K, V, mask=wrap(rg.from_function(NeverHashed(most))), q_offset=9), want)
        array = np.broadcast_to(np.arange(SKV) < most, (SQ, SKV))
        assert_same_bits(rg.attention(Q, K, V, mask=wrap(rg.Dense(array)), q_offset=9), want)
        assert prepared_now() == kept


# -- what is kept -------------------------------------------------------------------------------------------------


def test_no_array_of_a_call_is_kept():
    arrays = {"query": Q, "key": K, "value": V, "bias": numbers(SQ, SKV), "sinks": numbers(HEADS), "out": Q}
    arrays |= {"mask": np.ones((SQ, SKV), bool), "q_offset": np.array([0, 1])}
    arrays = {name: array.copy() for name, array in arrays.items()}
    watched = {name: weakref.ref(array) for name, array in arrays.items()}
    rg.attention(**arrays)
    rg.attention(**{name: arrays[name] for name in ("query", "key", "value")})
    counts = {name: sys.getrefcount(array) for name, array in arrays.items()}
    rg.attention(**arrays)
    assert {name: sys.getrefcount(array) for name, array in arrays.items()} == counts
    arrays.clear()
    gc.collect()
    assert [name for name, array in watched.items() if array() is not None] == []


def test_what_is_kept_is_bounded():
    """Keys that grow at each call, masks of more bytes than are kept, positions of many batch entries."""
    forget()
    q = k = np.ones((9000, 1), np.float32)
    many = np.ones((5000, 1, 1, 1), np.float32)
    calls = [lambda n: rg.attention(q[:2], k[:n], k[:n], mask=rg.Causal(), q_offset="end")]
    calls += [lambda n: rg.attention(q[: 8000 + n], k, k, mask=rg.Window(left=n, right=0), q_offset=0)]
    calls += [lambda n: rg.attention(many, many, many, q_offset=np.arange(5000) + n, mask=rg.Full())]
    for call in calls:
        call(1)
    tracemalloc.start()
    for call in calls:
        for n in range(2, 2 * _engine.MAX_PREPARED):
            call(n)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert _engine.MAX_PREPARED / 2 < prepared_now() <= _engine.MAX_PREPARED
    assert kept < _engine.MAX_PREPARED * (_engine.MAX_KEPT_BYTES + 8192) + (1 << 20)


def test_a_mask_too_large_to_keep_is_whole_every_time():
    q = numbers(1, 5000, 2)  # five bands of 16 KB
    with rg.config(num_threads=1):
        first, again = (rg.attention(q, q, q, mask=rg.Causal()) for _ in range(2))
    assert_same_bits(again, first)


def test_a_plan_is_pickled_whole():
    plan = rg.attention_forward(Q, K, V, mask=rg.Causal() & rg.KeyLengths([3, 9]), q_offset=0).plan
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert hash(again.problem) == hash(plan.problem)
    assert "_hash" not in vars(pickle.loads(pickle.dumps(rg.KeyLengths([3, 9]))))


# -- where heads lie ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_where_heads_lie(seed):
    """Against NumPy's own broadcasting, of an array of the addresses."""
    rng = np.random.default_rng(seed)
    grid = tuple(int(n) for n in rng.integers(0 if seed % 8 == 0 else 1, 5, rng.integers(1, 5)))
    group = int(rng.choice([g for g in range(1, 5) if grid[-1] % g == 0])) if grid[-1] else 1
    rank = int(rng.integers(0, len(grid) + 1))
    sizes = (*grid[:-1], grid[-1] // group)[len(grid) - rank :]
    shape = tuple(1 if axis + 1 < rank and rng.random() < 0.3 else size for axis, size in enumerate(sizes))
    strides = tuple(int(n) for n in rng.integers(-1000, 1000, rank))
    at = np.zeros((1,) * rank, np.int64)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        at = at + (np.arange(size) * stride).reshape(-1, *(1,) * (rank - 1 - axis))
    want = np.broadcast_to(np.repeat(at, group, axis=-1) if rank else at, grid).ravel()
    got = np.frombuffer(_native.place_heads(shape, strides, grid, group), np.int64)
    assert got.size == math.prod(grid)
    assert got.tolist() == want.tolist()
