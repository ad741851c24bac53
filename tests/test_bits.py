"""Same bits: a row does not depend on threads, batch, other queries, or garbage in other rows."""

import itertools
import threading

import numpy as np
import pytest

import regard as rg
from judges import assert_same_bits
from regard._types import Geometry
from regard.masks._lower import lower

MASKS = {
    "none": None,
    "causal": rg.Causal(),
    "window": rg.Window(40, 3),
    "two ranges": rg.Causal() & (rg.Window(left=30) | ~rg.Window(left=100)),
    "lengths": rg.KeyLengths([250, 500]),
    "dense": rg.Dense(np.random.default_rng(1).random((1, 1, 150, 500)) < 0.4),
    "bits": rg.Causal() & rg.Dense(np.random.default_rng(2).random((2, 4, 150, 500)) < 0.4),
}


@pytest.fixture(params=[*MASKS, "everything"])
def options(request):
    if request.param != "everything":
        return {"mask": MASKS[request.param], "q_offset": 350}
    keys = np.random.default_rng(3).standard_normal((1, 4, 1, 500))
    keys[..., ::9] = -np.inf
    return {
        "mask": rg.PerHead([rg.Causal(), rg.Window(left=99), rg.Causal() & rg.Dilated(2), rg.Full()]),
        "bias": rg.Alibi(4) + keys, "softcap": 5.0, "sinks": np.float32([0, 1, -2, 50]), "q_offset": 350,
    }  # fmt: skip


@pytest.fixture
def arrays(normal, dtype):
    shapes = (2, 4, 150, 40), (2, 2, 500, 40), (2, 2, 500, 24)
    return tuple(normal(*shape).astype(dtype) for shape in shapes)


def test_threads(target, arrays, options):
    want = rg.attention_forward(*arrays, **options)
    for threads in (1, 2, 3):
        with rg.config(num_threads=threads):
            got = rg.attention_forward(*arrays, **options)
            assert_same_bits(got.out, want.out)
            assert_same_bits(got.lse, want.lse)
            assert_same_bits(got.weights[...], want.weights[...])


def test_strides(target, arrays, options):
    """Columns apart, rows apart, reversed, and heads in another order in memory."""
    want = rg.attention_forward(*arrays, **options)
    ways = [
        lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
        lambda x: np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2),
        lambda x: np.ascontiguousarray(x[..., ::-1, ::-1])[..., ::-1, ::-1],
        lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    ]
    for way in ways:
        got = rg.attention_forward(*map(way, arrays), **options)
        assert_same_bits(got.out, want.out)
        assert_same_bits(got.lse, want.lse)


def test_one_query_alone(target, arrays, options):
    q, k, v = arrays
    want = rg.attention_forward(q, k, v, **options)
    for i in (0, 1, 15, 16, 23, 24, 47, 48, 63, 64, 77, 95, 96, 97, 149):
        mask = options["mask"]
        alone = dict(options, q_offset=350 + i)
        if mask is MASKS["dense"]:
            alone["mask"] = rg.Dense(mask.array[..., i : i + 1, :])
        elif mask is MASKS["bits"]:
            alone["mask"] = rg.Causal() & rg.Dense(mask.parts[1].array[..., i : i + 1, :])
        got = rg.attention_forward(q[:, :, i : i + 1], k, v, **alone)
        assert_same_bits(got.out[:, :, 0], want.out[:, :, i])
        assert_same_bits(got.lse[:, :, 0], want.lse[:, :, i])


def test_batch_member_alone(target, arrays, options):
    q, k, v = arrays
    if options["mask"] in (MASKS["lengths"], MASKS["bits"]):
        options = dict(options, mask=rg.Causal() & rg.KeyLengths(333))
    want = rg.attention(q, k, v, **options)
    for b in range(2):
        got = rg.attention(q[b : b + 1], k[b : b + 1], v[b : b + 1], **options)
        assert_same_bits(got[0], want[b])


def test_head_alone(target, arrays):
    q, k, v = arrays
    want = rg.attention(q, k, v)
    for h in range(4):
        assert_same_bits(rg.attention(q[:, h : h + 1], k[:, h // 2][:, None], v[:, h // 2][:, None])[:, 0], want[:, h])


@pytest.mark.parametrize("garbage", [np.nan, np.inf, 1e30])
def test_garbage_in_another_row(target, arrays, options, garbage):
    q, k, v = arrays
    want = rg.attention_forward(q, k, v, **options)
    q = q.copy()
    with np.errstate(over="ignore"):  # 1e30 is infinite in float16
        q[1, 2, 70] = np.float64(garbage).astype(q.dtype)
    got = rg.attention_forward(q, k, v, **options)
    others = np.ones(q.shape[:-1], bool)
    others[1, 2, 70] = False
    assert_same_bits(got.out[others], want.out[others])
    assert_same_bits(got.lse[others], want.lse[others])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_row_whose_finite_values_overflow_has_its_own_order(target, dtype):
    """Their sum is inf, and one more value -inf: NaN or -inf, by what comes first, and the same beside other rows."""
    q, v = np.zeros((60, 4), dtype), np.full((60, 3), np.finfo(dtype).max)
    v[0, 0] = -np.inf
    v[30, 1] = np.nan
    with np.errstate(all="ignore"):
        prefill = rg.attention(q, q, v, mask=rg.Causal())
        for i in range(60):
            alone = rg.attention(q[i : i + 1], q[: i + 1], v[: i + 1], mask=rg.Causal(), q_offset="end")
            assert_same_bits(alone[0], prefill[i])


@pytest.mark.parametrize("left", [None, 100])
def test_decoding_step_equals_prefill(target, normal, left):
    """Around every border of tiles (96 keys), blocks (96, 192 rows) and panels, and with a cache that grows by one."""
    q, k, v = normal(4, 400, 32), normal(2, 400, 32), normal(2, 400, 32)
    prefill = rg.attention(q, k, v, mask=rg.Causal() & rg.Window(left=left))
    for i in [
        *range(26),
        47,
        48,
        49,
        63,
        64,
        94,
        95,
        96,
        97,
        127,
        128,
        190,
        191,
        192,
        193,
        287,
        288,
        289,
        383,
        384,
        385,
        399,
    ]:
        mask = rg.Window(left=left)
        step = rg.attention(q[:, i : i + 1], k[:, : i + 1], v[:, : i + 1], mask=mask, q_offset="end")
        assert_same_bits(step[:, 0], prefill[:, i])


def test_prefill_in_chunks(target, normal):
    q, k, v = normal(4, 400, 32), normal(2, 400, 32), normal(2, 400, 32)
    whole = rg.attention(q, k, v, mask=rg.Causal())
    edges = [0, 1, 4, 28, 76, 77, 173, 190, 193, 288, 400]
    for lo, hi in itertools.pairwise(edges):
        chunk = rg.attention(q[:, lo:hi], k[:, :hi], v[:, :hi], mask=rg.Causal(), q_offset="end")
        assert_same_bits(chunk, whole[:, lo:hi])


def test_mask_written_in_other_words(target, arrays):
    """Spans, bits and bytes say the same thing: so do the results."""
    dense = np.tri(150, 500, 350, dtype=bool)
    want = rg.attention(*arrays, mask=rg.Causal(), q_offset=350)
    shared = np.broadcast_to(dense, (2, 4, 150, 500))
    own = np.ascontiguousarray(shared)
    masks = {
        "bits": [dense, np.asfortranarray(dense), dense[::-1, ::-1].copy()[::-1, ::-1], shared, ~rg.Dense(~dense)],
        "bytes": [own, np.asfortranarray(own), own[..., ::-1].copy()[..., ::-1]],
    }
    for kind, said in masks.items():
        for mask in said:
            lone = rg.Dense(mask) if isinstance(mask, np.ndarray) else mask
            assert [band.kind for band in lower(lone, Geometry((2,), 4, 150, 500))] == [kind]
            assert_same_bits(rg.attention(*arrays, mask=mask), want)


def test_repeated_and_from_many_threads(target, arrays, options):
    want = rg.attention(*arrays, **options)
    results = [None] * 8

    def work(n):
        with rg.config(target=target, num_threads=1 + n % 3):
            results[n] = rg.attention(*arrays, **options)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        assert_same_bits(result, want)


@pytest.mark.parametrize("queries", [1, 3, 200])
def test_gaps_of_whole_chunks_are_passed_over(target, normal, queries):
    """A bool array is looked at tile by tile, the ranges of a rule are not: thousands of keys lie between these two."""
    n = 6000
    q, k, v = normal(2, queries, 16), normal(2, n, 16), normal(2, n, 16)
    rule = rg.Causal() & (rg.Window(left=40) | rg.Prefix(3) | rg.Window(left=3500) & ~rg.Window(left=3400))
    keeps = rule.materialize(queries, n, q_offset=n - queries)
    got = rg.attention_forward(q, k, v, mask=rule, q_offset="end")
    want = rg.attention_forward(q, k, v, mask=keeps)
    assert_same_bits(got.out, want.out)
    assert_same_bits(got.lse, want.lse)
    assert got.plan.tiles.skipped > got.plan.tiles.visited / 2
