"""A bias of distance keeps the row that it was asked for: a step of decoding adds little to it, in time and memory."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from judges import assert_same_bits
from regard._types import Geometry, Offsets
from regard.biases import _distance

HEADS, N, D = 4, 300, 8


class Counted(rg.Alibi):
    """An Alibi that notes which distances it is asked for."""

    def __init__(self, slopes):
        super().__init__(slopes)
        object.__setattr__(self, "asked", [])

    def at(self, distance, dtype):
        self.asked.append(distance)
        return super().at(distance, dtype)


def biases():
    table = np.random.default_rng(7).standard_normal
    return {
        "alibi": rg.Alibi(HEADS),
        "one row for all heads": rg.RelativeBias(table(41)),
        "relative": rg.RelativeBias(table((HEADS, 41))),
        "t5": rg.T5Bias(table((32, HEADS)), bidirectional=True),
        "sum": rg.Alibi(HEADS) + rg.T5Bias(table((8, HEADS)), bidirectional=False, max_distance=20),
    }


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


Q, K, V = numbers(2, HEADS, N, D), numbers(2, 2, N, D, seed=1), numbers(2, 2, N, D, seed=2)


def first(x, n):
    return x[:, :, :n]


@pytest.mark.parametrize("name", biases())
def test_steps_give_the_rows_of_the_whole(target, name):
    """A new bias for the whole, which has kept nothing; the steps' own grows with them."""
    want = rg.attention(Q, K, V, bias=biases()[name], mask=rg.Causal())
    bias = biases()[name]
    for n in range(1, N + 1):
        for offset in ("end", n - 1, [n - 1, n - 1]):
            out = rg.attention(Q[:, :, n - 1 : n], first(K, n), first(V, n), bias=bias, q_offset=offset)
            assert_same_bits(out, want[:, :, n - 1 : n])


@pytest.mark.parametrize("name", biases())
def test_a_cache_that_grows_behind_the_queries(name):
    """Distances grow upwards: queries stand at the beginning, and keys come to see."""
    bias = biases()[name]
    for n in range(1, N + 1, 3):
        got = rg.attention(first(Q, 2), first(K, n), first(V, n), bias=bias, q_offset=0)
        assert_same_bits(got, rg.attention(first(Q, 2), first(K, n), first(V, n), bias=biases()[name], q_offset=0))


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 40), st.sampled_from([0, 5, -3, 30, 10**6, -(2**61), 2**61])),
        min_size=1,
        max_size=12,
    )
)
def test_any_calls_one_after_the_other(calls):
    """What is lowered holds the formula's numbers, whatever was kept before."""
    bias = rg.RelativeBias(np.random.default_rng(3).standard_normal((2, 31)))
    for queries, keys, offset in calls:
        for q_offset in (offset, Offsets((2,), (offset, offset // 2))):
            geometry = Geometry((2,), 2, queries, keys, q_offset)
            (table,) = bias.lower(geometry, np.float32)
            i, j = np.arange(queries)[:, None], np.arange(keys)
            read = table.values[:, np.reshape(table.starts, (-1, 1, 1)) + j - i]  # (heads, entries, queries, keys)
            want = bias.values(geometry, np.arange(queries), np.arange(keys), np.float32)
            assert_same_bits(
                np.broadcast_to(read.swapaxes(0, 1), geometry.shape), np.broadcast_to(want, geometry.shape)
            )


def test_steps_ask_the_formula_few_times():
    """Counted, not timed: the row doubles, so that all steps together cost little more than the last."""
    bias = Counted(HEADS)
    for n in range(1, N + 1):
        for _ in range(3):
            rg.attention(Q[:, :, n - 1 : n], first(K, n), first(V, n), bias=bias, q_offset="end")
    assert len(bias.asked) <= 6
    assert sum(map(len, bias.asked)) <= 6 * N
    assert max(map(len, bias.asked)) <= 2 * N + _distance._LEAST_ROOM


def test_a_step_goes_back_to_distances_that_are_kept():
    """A prompt, then steps, then another prompt: the row holds all of them."""
    bias = Counted(HEADS)
    rg.attention(Q, K, V, bias=bias)
    for n in (N, 40, 1, N):
        rg.attention(Q[:, :, :1], first(K, n), first(V, n), bias=bias, q_offset="end")
        rg.attention(first(Q, n), first(K, n), first(V, n), bias=bias)
    assert len(bias.asked) == 1


def test_a_row_grows_to_both_sides():
    """Steps ask for what is behind them, and a prompt for as much ahead: neither loses what the other had."""
    bias = Counted(HEADS)
    for n in (N, 40, N, 40):
        rg.attention(Q[:, :, :1], first(K, N), first(V, N), bias=bias, q_offset="end")
        rg.attention(first(Q, n), first(K, n), first(V, n), bias=bias)
    assert len(bias.asked) == 2
    bias = Counted(HEADS)
    for _ in range(2):
        rg.attention(Q[:, :, :1], first(K, N), first(V, N), bias=bias, q_offset="end")
        rg.attention(first(Q, 40), first(K, 40), first(V, 40), bias=bias)
    assert len(bias.asked) == 2


@pytest.mark.parametrize("name", biases())
def test_numbers_of_a_head_lie_side_by_side(name):
    """Else the kernel reads them one by one."""
    for table in biases()[name].lower(Geometry((2,), HEADS, 5, 70, Offsets((2,), (3, 10**6))), np.float32):
        assert table.values.strides[-1] == table.values.itemsize
    (row,) = rg.RelativeBias(np.ones((HEADS, 9))).lower(Geometry((), HEADS, 5, 70, 0), np.float32)
    assert row.values.strides[-1] == row.values.itemsize
    assert not row.values.flags.writeable


def kept_bytes(bias):
    return sum(row.values.nbytes for row in bias._rows.values())


def test_what_is_kept_is_bounded(monkeypatch):
    """Above the bound a row is computed for its call, and the one that is kept stays."""
    most = 4 * HEADS * 100
    monkeypatch.setattr(_distance, "MAX_ROW_BYTES", most)
    bias, want = Counted(HEADS), rg.attention(Q, K, V, bias=rg.Alibi(HEADS), mask=rg.Causal())
    for n in range(1, N + 1):
        got = rg.attention(Q[:, :, n - 1 : n], first(K, n), first(V, n), bias=bias, q_offset="end")
        assert_same_bits(got, want[:, :, n - 1 : n])
        assert kept_bytes(bias) <= most
        assert max(map(len, bias.asked)) <= max(n, 100), "room that nobody can keep"
    assert kept_bytes(bias) > most / 2
    calls = len(bias.asked)
    rg.attention(Q[:, :, :1], first(K, 90), first(V, 90), bias=bias, q_offset="end")
    assert len(bias.asked) == calls


def test_a_row_far_away_takes_the_place_of_the_other():
    bias = Counted(HEADS)
    for offset in (0, 10**9, -(10**9)):
        rg.attention(first(Q, 5), first(K, 9), first(V, 9), bias=bias, q_offset=offset)
        assert kept_bytes(bias) == 4 * HEADS * 13


def test_each_dtype_has_a_row():
    bias = Counted(HEADS)
    for dtype in (np.float32, np.float64, np.float16) * 2:
        x = first(Q, 7).astype(dtype)
        assert_same_bits(rg.attention(x, x, x, bias=bias), rg.attention(x, x, x, bias=rg.Alibi(HEADS)))
    assert len(bias.asked) == 2


@pytest.mark.parametrize("name", ["alibi", "relative", "t5"])
def test_what_is_kept_is_no_part_of_the_value(name):
    bias, fresh = biases()[name], biases()[name]
    before = pickle.dumps(bias)
    rg.attention(first(Q, 7), K, V, bias=bias, q_offset="end")
    assert kept_bytes(bias) > 0
    assert bias == fresh
    assert hash(bias) == hash(fresh)
    assert pickle.dumps(bias) == before
    assert pickle.loads(pickle.dumps(bias)) == fresh


def test_tables_take_what_the_call_needs():
    """A plan is the same whatever was computed before."""
    bias = rg.Alibi(HEADS)
    plans = [rg.plan(first(Q, 1), first(K, 50), first(V, 50), bias=bias, q_offset="end")]
    for n in (60, 200, 30):
        rg.attention(first(Q, 1), first(K, n), first(V, n), bias=bias, q_offset="end")
    plans.append(rg.plan(first(Q, 1), first(K, 50), first(V, 50), bias=bias, q_offset="end"))
    assert plans[0] == plans[1]
    assert plans[0].tiles.bias_bytes == 4 * HEADS * 50


def test_one_bias_in_many_threads():
    want = rg.attention(Q, K, V, bias=biases()["t5"], mask=rg.Causal())
    bias, gate = biases()["t5"], threading.Barrier(4)

    def work(step):
        gate.wait()
        for n in range(1 + step, N + 1, 4):
            out = rg.attention(
                Q[:, :, n - 1 : n], first(K, n), first(V, n), bias=bias, q_offset="end", mask=rg.Causal()
            )
            assert_same_bits(out, want[:, :, n - 1 : n])
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
