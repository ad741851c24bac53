"""Same bits beyond one chunk of keys (1536, or 768 for head sizes over 256), whoever folds which chunk."""

import numpy as np
import pytest

import regard as rg
from judges import assert_agrees, assert_same_bits

KEYS = 3500  # two chunks and 428 keys
ROWS = 20


def forward(q, k, v, threads=1, **options):
    """Output, logsumexp, output and logsumexp of the state, and what was planned."""
    with rg.config(num_threads=threads):
        done = rg.attention_forward(q, k, v, aux=rg.Aux(lse=True, state=True), **options)
        return (done.out, done.lse, done.state.out, done.state.lse), done.plan


def assert_alike(got, want, rows=...):
    for one, other in zip(got, want, strict=True):
        assert_same_bits(one, other[rows])


# Query heads, kv heads, D, Dv: groups of 1, 2, 3, 4, 5 and 8; sizes that fill no vector, all of them, and 512 bytes.
SIZES = [(8, 8, 64, 64), (8, 4, 33, 20), (6, 2, 64, 128), (4, 1, 65, 7), (5, 1, 16, 130), (8, 1, 257, 9), (2, 2, 3, 1)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_decoding_step_equals_prefill(target, normal, dtype, sizes):
    """Around every border of chunks, of the tiles beside it, and of blocks; with caches of as many keys."""
    heads, kv, d, dv = sizes
    border = 768 if d > 256 else 1536
    for first, last in ((border - 40, border + 30), (2 * border - 2, 2 * border + 8)):
        shapes = (heads, last - first, d), (kv, last, d), (kv, last, dv)
        q, k, v = (normal(*shape).astype(dtype) for shape in shapes)
        prefill, _ = forward(q, k, v, 2, mask=rg.Causal(), q_offset=first)
        for i in {first, border - 1, border, border + 1, 2 * border - 1, 2 * border, 2 * border + 5, last - 1}:
            if not first <= i < last:
                continue
            for threads in (1, 2):
                step, _ = forward(q[:, i - first : i - first + 1], k[:, : i + 1], v[:, : i + 1], threads)
                assert_alike(step, prefill, np.s_[:, i - first : i - first + 1])


def test_a_decoding_step_of_two_threads_is_cut():
    """So that the test above compares chunks of one thread with chunks of several."""
    q, k, v = (np.ones((8, n, 64), np.float32) for n in (1, 1537, 1537))
    assert [forward(q, k, v, threads)[1].tiles.chunk_bytes > 0 for threads in (1, 2)] == [False, True]


def random(seed, *shape):
    return np.random.default_rng(seed).random(shape)


def hidden(*spans):
    """A bias per key: -inf in these spans."""
    bias = np.random.default_rng(5).standard_normal((1, 1, KEYS)).astype(np.float32)
    for begin, end in spans:
        bias[..., begin:end] = -np.inf
    return bias


def sparse(seed, *shape):
    """Of each row keys in one or two chunks only, or none."""
    keep = random(seed, *shape, KEYS) < 0.3
    chunk = np.arange(KEYS) // 1536
    for n, row in enumerate(keep.reshape(-1, KEYS)):
        row &= (chunk == n % 4) | (chunk == n // 4 % 4)
    return keep


WHERE = KEYS - ROWS
OPTIONS = {
    "all": {},
    "causal": {"mask": rg.Causal(), "q_offset": WHERE},
    "causal across a border": {"mask": rg.Causal(), "q_offset": 1536 - 7},
    "window": {"mask": rg.Window(left=600), "q_offset": WHERE},
    "long window": {"mask": rg.Window(left=2500), "q_offset": WHERE},
    "late bits": {"mask": rg.Window(left=2500) & rg.Dense(random(9, ROWS, KEYS) < 0.5), "q_offset": WHERE},
    "window in the middle": {"mask": rg.Window(200, 200), "q_offset": 2000},
    "a chunk without keys": {"mask": rg.Causal() & (rg.Prefix(100) | rg.Window(left=300)), "q_offset": WHERE},
    "dense": {"mask": sparse(1, ROWS)},
    "dense per head": {"mask": sparse(2, 4, ROWS)},
    "bits": {"mask": rg.Causal() & rg.Dense(sparse(3, 4, ROWS)), "q_offset": 3000},
    "first chunk only": {"mask": rg.KeyLengths(1000)},
    "first chunk exactly": {"mask": rg.KeyLengths(1536)},
    "one key more": {"mask": rg.KeyLengths(1537)},
    "per head": {"mask": rg.PerHead([rg.Causal(), rg.Window(left=9), rg.Empty(), rg.Full()]), "q_offset": WHERE},
    "nothing": {"mask": rg.Empty()},
    "no first chunk by bias": {"bias": hidden((0, 1600))},
    "no middle chunk by bias": {"bias": hidden((1536, 3072))},
    "bias per pair": {"bias": np.where(sparse(4, ROWS), random(6, ROWS, KEYS) * 4, -np.inf)},
    "two biases": {"bias": rg.Alibi(4) + hidden((7, 3000)) + hidden((3100, 3500)), "q_offset": WHERE},
    "all at once": {
        "mask": rg.Causal() & rg.Dense(sparse(7, ROWS)), "bias": rg.Alibi(4) + hidden((5, 1540)), "softcap": 5.0,
        "sinks": np.float32([0, 1, -2, 50]), "q_offset": 2990,
    },
}  # fmt: skip


@pytest.fixture(params=OPTIONS)
def options(request):
    return OPTIONS[request.param]


@pytest.fixture
def arrays(normal, dtype):
    return tuple(normal(*shape).astype(dtype) for shape in ((4, ROWS, 24), (2, KEYS, 24), (2, KEYS, 16)))


def test_threads(target, arrays, options):
    """One thread folds all chunks of a block; two and three share them."""
    want, alone = forward(*arrays, **options)
    assert alone.tiles.chunk_bytes == 0
    for threads in (2, 3):
        got, shared = forward(*arrays, threads, **options)
        assert (shared.tiles.chunk_bytes > 0) == (shared.tiles.visited > 0)  # what has no work is not shared
        assert_alike(got, want)


@pytest.mark.parametrize("threads", [1, 2])
def test_agrees_with_the_reference(target, normal, options, threads):
    arrays = normal(4, ROWS, 24), normal(2, KEYS, 24), normal(2, KEYS, 16)
    with rg.config(num_threads=threads):
        result = rg.attention_forward(*arrays, **options)
    assert_agrees(result, *arrays, **options)


def row_of(options, i):
    """The options of query i alone."""
    alone = dict(options)
    if "q_offset" in options:
        alone["q_offset"] = options["q_offset"] + i
    cut = np.s_[..., i : i + 1, :]
    mask, bias = options.get("mask"), options.get("bias")
    if isinstance(mask, np.ndarray):
        alone["mask"] = mask[cut]
    elif isinstance(mask, rg.Mask) and len(mask.parts) == 2 and isinstance(mask.parts[1], rg.Dense):
        alone["mask"] = mask.parts[0] & rg.Dense(mask.parts[1].array[cut])
    if isinstance(bias, np.ndarray) and bias.shape[-2] == ROWS:
        alone["bias"] = bias[cut]
    return alone


def test_one_query_alone(target, arrays, options):
    """A query of each head alone: keys in the lanes, and 16-bit keys and values read as they lie."""
    q, k, v = arrays
    want, _ = forward(q, k, v, 2, **options)
    for i in (0, 6, 7, ROWS - 1):
        for threads in (1, 2):
            got, _ = forward(q[:, i : i + 1], k, v, threads, **row_of(options, i))
            assert_alike(got, want, np.s_[:, i : i + 1])


def test_what_is_masked_in_one_chunk_spoils_no_other(target, arrays):
    """NaN and Inf in keys and values of one chunk: whoever drops them has the bits that there were without."""
    q, k, v = arrays
    keep = sparse(8, ROWS)
    keep[:, [200, 1700, 3200]] = np.arange(ROWS)[:, None] % 3 == np.arange(3)
    want, _ = forward(q, k, v, 2, mask=keep)
    for n, at in enumerate((200, 1700, 3200)):
        bad_k, bad_v = k.copy(), v.copy()
        bad_k[0, at], bad_v[0, at], bad_v[1, at, 3] = np.nan, np.inf, np.nan
        for threads in (1, 2):
            (out, lse, *_), _ = forward(q, bad_k, bad_v, threads, mask=keep)
            spared = ~keep[:, at]
            assert_same_bits(out[:, spared], want[0][:, spared])
            assert_same_bits(lse[:, spared], want[1][:, spared])
            seen = np.arange(ROWS) % 3 == n
            assert np.isnan(out[:2, seen].astype(np.float32)).all()
            assert np.isnan(out[2:, seen, 3].astype(np.float32)).all()
            others = np.arange(16) != 3
            assert_same_bits(out[2:][..., others], want[0][2:][..., others])


def shifted(x):
    """Rows an odd number of bytes apart, from an odd address on."""
    width = x.shape[-1] * x.itemsize
    room = np.zeros((*x.shape[:-1], width + 3), np.uint8)
    odd = np.ndarray(x.shape, x.dtype, room, offset=1, strides=(*room.strides[:-1], x.itemsize))
    odd[...] = x
    return odd


LAYOUTS = {
    "heads inside of rows": lambda x: np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1),
    "columns apart": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "columns first": lambda x: np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2),
    "rows and columns reversed": lambda x: np.ascontiguousarray(x[:, ::-1, ::-1])[:, ::-1, ::-1],
    "rows apart": lambda x: np.concatenate([x, x], axis=-1)[..., : x.shape[-1]],
    "unaligned": shifted,
}


@pytest.mark.parametrize("rows", [1, ROWS])
@pytest.mark.parametrize("widths", [(24, 16), (9, 5), (64, 128)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides(target, normal, dtype, layout, widths, rows):
    d, dv = widths
    arrays = [normal(*shape).astype(dtype) for shape in ((4, rows, d), (2, 1700, d), (2, 1700, dv))]
    want, _ = forward(*arrays)
    for threads in (1, 2):
        got, _ = forward(*map(LAYOUTS[layout], arrays), threads)
        assert_alike(got, want)


@pytest.mark.parametrize("which", [1, 2], ids=["keys", "values"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_of_one_array(target, normal, dtype, layout, which):
    """A decoding step over keys that can be read as they lie and values that cannot, and the other way round."""
    arrays = [normal(*shape).astype(dtype) for shape in ((4, 1, 64), (2, 1700, 64), (2, 1700, 128))]
    want, _ = forward(*arrays)
    arrays[which] = LAYOUTS[layout](arrays[which])
    for threads in (1, 2):
        assert_alike(forward(*arrays, threads)[0], want)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("rows", "d", "dv"), [(20, 64, 0), (20, 0, 64), (0, 64, 64)])
def test_sizes_of_zero(target, rows, d, dv, threads):
    arrays = [np.ones(shape, np.float32) for shape in ((4, rows, d), (4, 3500, d), (4, 3500, dv))]
    (out, lse, *_), _ = forward(*arrays, threads, scale=0)
    assert_same_bits(out, np.ones((4, rows, dv), np.float32))
    assert np.allclose(lse, np.log(3500), rtol=1e-6)


def test_heads_that_share_memory(target, normal, dtype):
    """Broadcast heads are folded in blocks together, copies of them apart."""
    q, k, v = normal(5, 3, 24).astype(dtype), normal(1, 1700, 24).astype(dtype), normal(1, 1700, 16).astype(dtype)
    shared = [np.broadcast_to(x, (5, *x.shape[1:])) for x in (k, v)]
    want, _ = forward(q, *(x.copy() for x in shared))
    for threads in (1, 2):
        assert_alike(forward(q, *shared, threads)[0], want)
        assert_alike(forward(q, k, v, threads)[0], want)
