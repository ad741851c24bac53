"""The canonical order of docs/contract.md ("In what order") once more, in NumPy, element after element."""

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np

MASKS = {
    "all": lambda rows, keys: np.ones((rows, keys), bool),
    "causal": lambda rows, keys: np.tri(rows, keys, keys - rows, dtype=bool),
    "a late beginning": lambda rows, keys: np.arange(keys) >= 100 * np.arange(rows)[:, None] + 1500,
    "a chunk without keys": lambda rows, keys: (np.arange(keys) // 1536 != 1) & (np.arange(rows) != 3)[:, None],
    "every third": lambda rows, keys: (np.arange(keys) + np.arange(rows)[:, None]) % 3 == 0,
}


def drawn(rows=11, keys=4700, d=9, dv=3):
    """Scores that rise and fall by a few units from key to key, and by one from chunk to chunk: all chunks matter."""
    rng = np.random.default_rng(20261130)
    q, k, v = (rng.standard_normal(shape, dtype=np.float32) for shape in ((rows, d), (keys, d), (keys, dv)))
    q[:, 0], k[:, 0] = 4, np.repeat(np.float32([0, 0.3, -0.4, 0.1]), 1536)[:keys]
    return q, k, v


# As in native/kernel/math.inl, for float32.
LOG2E, LN2_HIGH, LN2_LOW, LOWEST = (np.float32(x) for x in (1.44269504, 0.693359375, -2.12194440e-4, -87))
TERMS = [np.float32(x) for x in (1, 1, 0.49999994, 0.16666521, 0.041668277, 0.008368687, 0.0013819826)]

# Of targets that look up powers of two: how many, and the second term beside them.
POWERS = {"avx512": (16, np.float32(0.50001620)), "avx2": (8, np.float32(0.5000645))}
SHIFT, THIRD = np.float32(1.5 * 2**23), np.float32(1 / 6)


@dataclass(frozen=True)
class Order:
    """What attention is made of where each product is one chain per element."""

    vectors: str = "scalar"  # the target, or that which amx and avx512_bf16 take their vectors from
    tile: int = 96
    chunk_tiles: int = 16
    first: int = 0  # where tiles and chunks begin
    backwards: bool = False  # the last chunk first
    crossed: bool = False  # what comes is rounded with the sum, and what there is before it

    def fma(self, a, b, c):
        if self.vectors == "scalar":
            return a * b + c
        return (np.longdouble(a) * b + c).astype(np.float32)  # exact, but for one in 2^40

    def exp(self, x):
        if self.vectors in POWERS:
            return self.exp_by_table(x, *POWERS[self.vectors])
        with np.errstate(invalid="ignore"):  # of -inf
            twice = self.vectors == "scalar"  # rounded
            n = np.rint(x * LOG2E if twice else np.longdouble(x) * LOG2E).astype(x.dtype)
            r = self.fma(n, -LN2_LOW, self.fma(n, -LN2_HIGH, x))
            y = TERMS[-1]
            for term in TERMS[-2::-1]:
                y = self.fma(y, r, term)
        return np.where(x < LOWEST, np.float32(0), np.ldexp(y, np.where(np.isfinite(n), n, 0).astype(np.int32)))

    def exp_by_table(self, x, powers, second):
        steps, finite = np.float32(powers), np.maximum(x, LOWEST)
        n = self.fma(finite, steps * LOG2E, SHIFT) - SHIFT
        r = self.fma(n, -LN2_LOW / steps, self.fma(n, -LN2_HIGH / steps, finite))
        less = self.fma(self.fma(r, THIRD, second), r * r, r)
        power = (2 ** (n.astype(np.float64) / powers)).astype(np.float32)
        return np.where(x < LOWEST, np.float32(0), self.fma(power, less, power))

    def chain(self, a, b):
        """a @ b, the first term first."""
        x = np.zeros((a.shape[0], b.shape[1]), a.dtype)
        for n in range(a.shape[1]):
            x = self.fma(a[:, n, None], b[n], x)
        return x

    def dot(self, q, k, scale):
        return self.chain(k, q.T).T

    def scores(self, q, k, scale, keep):
        return np.where(keep, self.dot(q, k, scale) * np.float32(scale), np.float32(-np.inf))

    def blocks(self, p, v):
        """What a tile adds to the output, one after the other."""
        return [self.chain(p, v)]

    def fold(self, state, s, v):
        m, total, out = state
        peak = np.maximum(m, s.max(axis=1))
        base = np.where(np.isneginf(peak), 0, peak)
        p, t = self.exp(s - base[:, None]), np.zeros_like(total)
        for j in range(len(v)):
            t = t + p[:, j]
        a, (block, *others) = self.exp(m - base), self.blocks(p, v)
        out = self.fma(out, a[:, None], block)
        for other in others:
            out = out + other
        return peak, self.fma(total, a, t), out

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


def flushed(x):
    """Subnormals are zero."""
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.float32(0), x)


def pieces(x, count):
    """Numbers of bfloat16 that x is the sum of: each is the one nearest to what the others before it leave."""
    out = []
    for _ in range(count):
        near = x.astype(ml_dtypes.bfloat16).astype(np.float32)
        out.append(near)
        x = x - near
    return out


@dataclass(frozen=True)
class TileOrder(Order):
    """The same where products are those of tdpbf16ps, of so many pieces for a number of the input and for a weight."""

    stored: int = 3
    weight: int = 3
    deep: int = 32  # places that one instruction adds
    parts: int = 2  # chains that it adds them in
    largest_first: bool = False
    right_first: bool = False  # of products of one size, those of the right factor's pieces
    chained: bool = False  # what there is begins the chain
    apart: bool = True  # what tiles have no room for

    def instruction(self, c, a, b):
        """c + a @ b for all places at once: (rows, places) by (places, columns)."""
        a = flushed(a).T.reshape(-1, self.parts, a.shape[0], 1)
        b = flushed(b).reshape(-1, self.parts, 1, b.shape[1])
        sums = np.zeros((self.parts, *c.shape), np.float32)
        if self.chained:
            sums[0] = c
        for left, right in zip(a, b, strict=True):
            sums = flushed(self.fma(left, right, sums))
        both = flushed(sum(sums[1:], sums[0]))
        return both if self.chained else flushed(c + both)

    def product(self, a, b, left, right):
        """a @ b from so many pieces of each."""
        places = -(-a.shape[1] // self.deep) * self.deep
        a = np.pad(a, ((0, 0), (0, places - a.shape[1])))
        b = np.pad(b, ((0, places - b.shape[0]), (0, 0)))
        a, b = pieces(a, left), pieces(b, right)
        pairs = [(i, j) for i in range(left) for j in range(right) if i + j <= 2]
        pairs.sort(key=lambda pair: (-sum(pair), pair[self.right_first]))
        c = np.zeros((a[0].shape[0], b[0].shape[1]), np.float32)
        for i, j in reversed(pairs) if self.largest_first else pairs:
            for at in range(0, places, self.deep):
                c = self.instruction(c, a[i][:, at : at + self.deep], b[j][at : at + self.deep])
        return c

    def dot(self, q, k, scale):
        fits = abs(scale) * q.shape[1] <= 2**36
        q_fits, k_fits = (np.all(np.abs(x) <= 2.0**58, axis=1) & fits for x in (q, k))
        by_tiles = self.product(k, q.T, self.stored, self.stored).T
        return np.where((k_fits & q_fits[:, None]) | (not self.apart), by_tiles, super().dot(q, k, scale))

    def blocks(self, p, v):
        size = np.abs(v)
        fits = (size == 0) | ((size >= 2.0**-80) & (size <= 2.0**120)) | (not self.apart)
        block = self.product(p, np.where(fits, v, np.float32(0)), self.weight, self.stored)
        return [block] if fits.all() else [block, self.chain(p, np.where(fits, np.float32(0), v))]


@dataclass(frozen=True)
class PairOrder(Order):
    """The same where products are those of vdpbf16ps: bfloat16 numbers, two terms at a time, weights rounded."""

    second_first: bool = True  # of the two terms
    first_pair: int = 0  # of keys, begins there
    apart: bool = True  # what it flushes
    weights_apart: bool = True  # are not rounded

    def product(self, a, b):
        a = np.pad(a, ((0, 0), (0, a.shape[1] % 2)))
        b = np.pad(b, ((0, b.shape[0] % 2), (0, 0)))
        order = np.arange(a.shape[1]).reshape(-1, 2)[:, :: -1 if self.second_first else 1].ravel()
        x = np.zeros((a.shape[0], b.shape[1]), np.float32)
        for n in order:
            x = flushed(self.fma(flushed(a[:, n, None]), flushed(b[n]), x))
        return x

    def dot(self, q, k, scale):
        size = np.abs(q)
        fits = np.all((size <= 2.0**58) & ((size == 0) | (size >= 2.0**-126)), axis=1)
        fits &= abs(scale) * q.shape[1] <= 2**36
        return np.where(fits[:, None] | (not self.apart), self.product(k, q.T).T, super().dot(q, k, scale))

    def blocks(self, p, v):
        size, near = np.abs(v), p.astype(ml_dtypes.bfloat16).astype(np.float32)
        fits = (size == 0) | ((size >= 2.0**-80) & (size <= 2.0**120)) | (not self.apart)
        before = (self.first_pair, 0), (0, 0)
        block = self.product(np.pad(near, before[::-1]), np.pad(np.where(fits, v, np.float32(0)), before))
        by = p if self.weights_apart else near
        return [block] if fits.all() else [block, self.chain(by, np.where(fits, np.float32(0), v))]


# Pieces of a number and of a weight.
PIECES = {"float32": (3, 3), "float16": (2, 3), "bfloat16": (1, 1)}


def order_of(target, dtype=np.float32, **options):
    """Return the order of a target for a dtype that it computes float32 with."""
    if target == "amx":
        return tile_order("avx512", dtype, **options)
    if target == "avx512_bf16":
        return (PairOrder if np.dtype(dtype) == ml_dtypes.bfloat16 else Order)("avx512", **options)
    return Order(target, **options)


def tile_order(vectors, dtype, **options):
    """Return the order of amx, with these vectors."""
    stored, weight = PIECES[np.dtype(dtype).name]
    return TileOrder(vectors, stored=stored, weight=weight, **options)


def by_order(order, q, k, v, keep, scale=0.75):
    wide = [x.astype(np.float32) for x in (q, k, v)]
    out, lse = order.attention(order.scores(*wide[:2], scale, keep), wide[2])
    out, lse = (np.where(np.isnan(x), np.float32(np.nan), x) for x in (out, lse))  # one NaN for all
    return out.astype(q.dtype), lse, out
