"""The canonical order of docs/contract.md ("In what order") once more, in NumPy: it is what runs, bit for bit."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

import regard as rg
from judges import assert_same_bits

# As in native/kernel/math.inl, for float32.
LOG2E, LN2_HIGH, LN2_LOW, LOWEST = (np.float32(x) for x in (1.44269504, 0.693359375, -2.12194440e-4, -87))
TERMS = [np.float32(x) for x in (1, 1, 0.49999994, 0.16666521, 0.041668277, 0.008368687, 0.0013819826)]


@dataclass(frozen=True)
class Order:
    """What attention is made of, one element after the other."""

    target: str = "scalar"
    tile: int = 96
    chunk_tiles: int = 16
    first: int = 0  # where tiles and chunks begin
    backwards: bool = False  # the last chunk first
    crossed: bool = False  # what comes is rounded with the sum, and what there is before it

    def fma(self, a, b, c):
        if self.target == "scalar":
            return a * b + c
        return (np.longdouble(a) * b + c).astype(np.float32)  # exact, but for one in 2^40

    def exp(self, x):
        with np.errstate(invalid="ignore"):  # of -inf
            n = np.rint(x * LOG2E if self.target in ("scalar", "avx512") else np.longdouble(x) * LOG2E).astype(x.dtype)
            r = self.fma(n, -LN2_LOW, self.fma(n, -LN2_HIGH, x))
            y = TERMS[-1]
            for term in TERMS[-2::-1]:
                y = self.fma(y, r, term)
        return np.where(x < LOWEST, np.float32(0), np.ldexp(y, np.where(np.isfinite(n), n, 0).astype(np.int32)))

    def scores(self, q, k, scale, keep):
        x = np.zeros((len(q), len(k)), np.float32)
        for c in range(q.shape[1]):
            x = self.fma(k[:, c], q[:, c, None], x)
        return np.where(keep, x * np.float32(scale), np.float32(-np.inf))

    def fold(self, state, s, v):
        m, total, out = state
        peak = np.maximum(m, s.max(axis=1))
        base = np.where(np.isneginf(peak), 0, peak)
        p, t, b = self.exp(s - base[:, None]), np.zeros_like(total), np.zeros_like(out)
        for j in range(len(v)):
            t = t + p[:, j]
            b = self.fma(p[:, j, None], v[j], b)
        a = self.exp(m - base)
        return peak, self.fma(total, a, t), self.fma(out, a[:, None], b)

    def merge(self, state, after):
        (m, total, out), (n, part, more) = state, after
        peak = np.maximum(m, n)
        base = np.where(np.isneginf(peak), 0, peak)
        a, g = self.exp(m - base), self.exp(n - base)
        if self.crossed:
            total, out, a, part, more, g = part, more, g, total, out, a
        return peak, self.fma(total, a, part * g), self.fma(out, a[:, None], more * g[:, None])

    def attention(self, s, v):
        """Output and logsumexp from scores, of the dtype of the values."""
        rows, keys = s.shape
        size = self.tile * self.chunk_tiles
        nothing = np.full(rows, -np.inf, v.dtype), np.zeros(rows, v.dtype), np.zeros((rows, v.shape[1]), v.dtype)
        chunks, begin = [], 0
        for end in [*range(self.first, keys, size), keys]:
            state = nothing
            for at in range(begin, end, self.tile):
                part = slice(at, min(at + self.tile, end))
                state = self.fold(state, s[:, part], v[part])
            chunks.append(state)
            begin = end
        state = nothing
        for chunk in reversed(chunks) if self.backwards else chunks:
            state = self.merge(state, chunk)
        m, total, out = state
        lse = m + np.array([math.log(x) if x else -math.inf for x in total.tolist()])
        return out / np.where(total > 0, total, 1)[:, None], lse.astype(v.dtype)


OTHERS = [
    {"chunk_tiles": 15},
    {"chunk_tiles": 32},
    {"chunk_tiles": 10**6},
    {"tile": 48},
    {"tile": 48, "chunk_tiles": 32},
    {"tile": 192, "chunk_tiles": 8},
    {"first": 100},
    {"backwards": True},
    {"crossed": True},
]
MASKS = {
    "all": lambda rows, keys: np.ones((rows, keys), bool),
    "causal": lambda rows, keys: np.tri(rows, keys, keys - rows, dtype=bool),
    "a late beginning": lambda rows, keys: np.arange(keys) >= 100 * np.arange(rows)[:, None] + 1500,
    "a chunk without keys": lambda rows, keys: (np.arange(keys) // 1536 != 1) & (np.arange(rows) != 3)[:, None],
    "every third": lambda rows, keys: (np.arange(keys) + np.arange(rows)[:, None]) % 3 == 0,
}


@pytest.fixture(scope="module")
def problem():
    """Scores that rise and fall by a few units from key to key, and by one from chunk to chunk: all chunks matter."""
    rng = np.random.default_rng(20261130)
    q, k, v = (rng.standard_normal(shape, dtype=np.float32) for shape in ((11, 9), (4700, 9), (4700, 3)))
    q[:, 0], k[:, 0] = 4, np.repeat(np.float32([0, 0.3, -0.4, 0.1]), 1536)[:4700]
    return q, k, v


def assert_runs(order, problem, keep, **options):
    """The engine does what the order says, by one thread and by several."""
    q, k, v = problem
    want, lse = order.attention(order.scores(q, k, 0.75, keep), v)
    for threads in (1, 3):
        with rg.config(num_threads=threads):
            got = rg.attention_forward(q, k, v, scale=0.75, **options)
        assert_same_bits(got.out, want)
        assert_same_bits(got.lse, lse)


@pytest.mark.parametrize("name", MASKS)
def test_the_written_order_is_the_one_that_runs(target, problem, name):
    keep = MASKS[name](len(problem[0]), len(problem[1]))
    assert_runs(Order(target), problem, keep, mask=keep)


@pytest.mark.parametrize("left", [3000, 1000])
def test_chunks_begin_at_key_0_wherever_the_mask_does(target, problem, left):
    """A window, which the kernel knows by its ranges: what comes before is not visited, and is counted for chunks."""
    rows, keys = len(problem[0]), len(problem[1])
    mask, where = rg.Window(left=left), keys - rows
    keep = mask.materialize(rows, keys, q_offset=where)
    assert_runs(Order(target), problem, keep, mask=mask, q_offset=where)


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_another_order_has_other_bits(target, problem, other):
    """So that the tests above fail where tiles, chunks or the merging of the kernel change."""
    q, k, v = problem
    order, got = Order(target, **other), rg.attention(q, k, v, scale=0.75)
    differ = order.attention(order.scores(q, k, 0.75, np.True_), v)[0] != got
    if target == "scalar" and "crossed" in other:
        assert not differ.any()  # without fma a sum of two products has one order
    else:
        assert np.mean(differ) > 0.1


# With equal scores every weight and every factor is exactly 1, on every target: sums alone are left.
@pytest.mark.parametrize("width", [9, 257], ids=["tiles of 96", "tiles of 48"])
def test_sums_have_one_order_on_every_target(target, dtype, normal, width):
    q, k = np.zeros((5, width), dtype), np.zeros((3500, width), dtype)
    v = (normal(3500, 13) + 1).astype(dtype)
    carried = v.astype(np.float64 if dtype == np.float64 else np.float32)
    want, _ = Order(tile=96 if width <= 256 else 48).attention(np.zeros((1, 3500), carried.dtype), carried)
    for threads in (1, 2):
        with rg.config(num_threads=threads):
            assert_same_bits(rg.attention(q, k, v), np.repeat(want, 5, axis=0).astype(dtype))
