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


def exp(x):
    """The scalar target's: no number in it is rounded other than here."""
    with np.errstate(invalid="ignore"):  # of -inf
        n = np.rint(x * LOG2E)
        r = n * -LN2_LOW + (n * -LN2_HIGH + x)
        y = TERMS[-1]
        for term in TERMS[-2::-1]:
            y = y * r + term
    return np.where(x < LOWEST, np.float32(0), np.ldexp(y, np.where(np.isfinite(n), n, 0).astype(np.int32)))


@dataclass(frozen=True)
class Order:
    """What attention is made of, one element after the other; products and sums are rounded each."""

    tile: int = 96
    chunk_tiles: int = 16
    first: int = 0  # where tiles and chunks begin
    backwards: bool = False  # the last chunk first

    def scores(self, q, k, scale, keep):
        x = np.zeros((len(q), len(k)), np.float32)
        for c in range(q.shape[1]):
            x = k[:, c] * q[:, c, None] + x
        return np.where(keep, x * np.float32(scale), np.float32(-np.inf))

    def fold(self, state, s, v):
        m, total, out = state
        peak = np.maximum(m, s.max(axis=1))
        base = np.where(np.isneginf(peak), 0, peak)
        p, t, b = exp(s - base[:, None]), np.zeros_like(total), np.zeros_like(out)
        for j in range(len(v)):
            t = t + p[:, j]
            b = p[:, j, None] * v[j] + b
        a = exp(m - base)
        return peak, total * a + t, out * a[:, None] + b

    def merge(self, state, after):
        (m, total, out), (n, part, more) = state, after
        peak = np.maximum(m, n)
        base = np.where(np.isneginf(peak), 0, peak)
        a, g = exp(m - base), exp(n - base)
        return peak, total * a + part * g, out * a[:, None] + more * g[:, None]

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
    Order(chunk_tiles=15),
    Order(chunk_tiles=32),
    Order(chunk_tiles=10**6),
    Order(tile=48),
    Order(tile=48, chunk_tiles=32),
    Order(tile=192, chunk_tiles=8),
    Order(first=100),
    Order(backwards=True),
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
    """Scores that rise and fall by a few units from key to key, and by ten from chunk to chunk."""
    rng = np.random.default_rng(20261130)
    q, k, v = (rng.standard_normal(shape, dtype=np.float32) for shape in ((11, 9), (4700, 9), (4700, 3)))
    q[:, 0], k[:, 0] = 4, np.repeat(np.float32([0, 3, -4, 1]), 1536)[:4700]
    return q, k, v


@pytest.mark.parametrize("name", MASKS)
def test_the_written_order_is_the_one_that_runs(problem, name):
    q, k, v = problem
    keep = MASKS[name](len(q), len(k))
    want, lse = Order().attention(Order().scores(q, k, 0.75, keep), v)
    for threads in (1, 3):
        with rg.config(target="scalar", num_threads=threads):
            got = rg.attention_forward(q, k, v, mask=keep, scale=0.75)
        assert_same_bits(got.out, want)
        assert_same_bits(got.lse, lse)


@pytest.mark.parametrize("left", [3000, 1000])
def test_chunks_begin_at_key_0_wherever_the_mask_does(problem, left):
    """A window, which the kernel knows by its ranges: what comes before is not visited, and is counted for chunks."""
    q, k, v = problem
    mask, where = rg.Window(left=left), len(k) - len(q)
    keep = mask.materialize(len(q), len(k), q_offset=where)
    want, lse = Order().attention(Order().scores(q, k, 0.75, keep), v)
    for threads in (1, 3):
        with rg.config(target="scalar", num_threads=threads):
            got = rg.attention_forward(q, k, v, mask=mask, scale=0.75, q_offset=where)
        assert_same_bits(got.out, want)
        assert_same_bits(got.lse, lse)


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_another_order_has_other_bits(problem, other):
    """So that the test above fails where tiles, chunks or the merging of the kernel change."""
    q, k, v = problem
    with rg.config(target="scalar"):
        got = rg.attention(q, k, v, scale=0.75)
    s = other.scores(q, k, 0.75, np.True_)
    with np.errstate(invalid="ignore"):
        assert np.mean(other.attention(s, v)[0] != got) > 0.1


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
