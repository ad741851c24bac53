"""No option allocates Sq x Skv: peak memory beyond inputs and outputs, each case measured in a process of its own."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import regard as rg

ROOT = Path(__file__).parents[1]
BUDGET = 100e6
KEYS = 131072

MEASURE = """
import sys
import numpy as np, ml_dtypes
import regard as rg
from benchmarks.peak import forget_peak, peak

def ones(*shape):
    return np.ones(shape, dtype)

S, dtype = {keys}, np.dtype("{dtype}")
near = rg.Causal() & rg.Window(left=1023)
narrow = rg.Causal() & rg.Window(left=63)
k, v = ones(1, 1, S, {d}), ones(1, 1, S, {d})
{setup}
q = ones(1, {heads}, {queries}, {d})
forget_peak()
before = peak()
result = {call}
grown = peak() - before
outputs = [result] if isinstance(result, np.ndarray) else result
print(grown - sum(x.nbytes for x in outputs))
assert all(np.isfinite(x.astype(np.float32)).all() for x in outputs if x.size < 1e8)
"""


def extra(call, setup="", dtype="float32", keys=KEYS, queries="S", d=64, heads=1):
    """Bytes that the call took at its peak beyond what it returned."""
    code = MEASURE.format(call=call, setup=setup, dtype=dtype, keys=keys, queries=queries, d=d, heads=heads)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-1000:]
    return int(done.stdout)


ATTENTION = "rg.attention(q, k, v, {})"
CALLS = {
    "window": ("mask=near", ""),
    "softcap": ("mask=narrow, softcap=30.0", ""),
    "sinks": ("mask=narrow, sinks=np.zeros(1, np.float32)", ""),
    "bias row": ("mask=narrow, bias=bias", "bias = np.zeros((1, 1, 1, S), np.float32)"),
    "bias column": ("mask=narrow, bias=bias", "bias = np.zeros((S, 1), np.float64)"),
    "alibi": ("mask=narrow, bias=rg.Alibi(1)", ""),
    "t5": (
        "mask=narrow, bias=rg.T5Bias(np.ones((32, 1)), bidirectional=True) + row",
        "row = np.ones((1, 1, 1, S), dtype)",
    ),
    "relative": ("mask=rg.Causal() & rg.Window(left=63), bias=rg.RelativeBias(np.ones(129)), q_offset=5", ""),
    "documents": ("mask=rg.Documents(ids)", "ids = np.arange(S) // 512"),
    "causal documents": ("mask=rg.Causal() & rg.Documents(ids)", "ids = np.arange(S) // 1024"),
    "key lengths": ("mask=narrow & rg.KeyLengths([100_000])", ""),
    "blocks": ("mask=rg.Blocks(table, 512)", "table = np.eye(S // 512, dtype=bool)"),
    "chunked": ("mask=rg.Chunked(256) | rg.Prefix(4)", ""),
    "two ranges": ("mask=narrow | rg.Causal() & rg.Global(4)", ""),
    "row of keys": ("mask=row", "row = np.zeros((1, 1, 1, S), bool); row[..., :500] = True"),
    "all at once": (
        "mask=narrow & rg.Documents(ids) & rg.KeyLengths([S - 5]), bias=bias, softcap=30.0, sinks=sinks",
        "ids, bias, sinks = np.arange(S) // 4096, np.zeros((1, 1, 1, S), np.float32), np.zeros(1, np.float32)",
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CALLS)
def test_long_sequences(name, dtype):
    """131072 queries and keys; scores alone would be 64 GiB."""
    options, setup = CALLS[name]
    assert extra(ATTENTION.format(options), setup, dtype) < BUDGET


# Masks that are evaluated pair by pair: as many keys, two bands of queries at the end.
TABLES = {
    "function": ("rg.from_function(lambda b, h, p, j: (j <= p) & (p - j < 1024))", ""),
    "function and window": ("narrow & rg.from_function(lambda b, h, p, j: (p - j) % 2 == 0)", ""),
    "dilated": ("narrow & rg.Dilated(3)", ""),
    "dense": ("narrow & rg.Dense(row)", "row = np.ones((1, 1, 1, S), bool); row[..., ::64] = False"),
    "mixed documents": ("narrow & rg.Documents(np.arange(1100) % 7, np.arange(S) % 7)", ""),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", TABLES)
def test_tables_of_long_sequences(name, dtype):
    """1100 queries at the end of 131072 keys, a mask that has no closed form: bits, a band at a time."""
    mask, setup = TABLES[name]
    assert extra(ATTENTION.format(f"mask={mask}, q_offset='end'"), setup, dtype, queries=1100) < BUDGET


PER_HEAD = {
    "a mask per head": ("rg.PerHead([narrow, rg.Window(left=9, right=0), narrow & rg.Dilated(2), rg.Empty()])", ""),
    "row of keys per head": ("row", "row = np.arange(S) < np.array([100, 90, 80, 70]).reshape(1, 4, 1, 1)"),
    "blocks per head": (
        "rg.Causal() & rg.Blocks(table, (64, 256))",
        "table = np.stack([np.eye(S // 256, k=-n, dtype=bool) for n in range(4)])[None]",
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", PER_HEAD)
def test_masks_per_head(name, dtype):
    mask, setup = PER_HEAD[name]
    call = ATTENTION.format(f"mask={mask}, q_offset='end'")
    assert extra(call, setup, dtype, d=16, heads=4, queries="S // 4") < BUDGET


def test_a_function_per_head():
    mask = "rg.from_function(lambda b, h, p, j: (j <= p) & (p - j < 100 * (h + 1)))"
    assert extra(ATTENTION.format(f"mask={mask}, q_offset='end'"), d=16, heads=4, queries=300) < BUDGET


def test_positions_per_batch_entry():
    """The ranges of 1024 rows of 4096 entries, each at a position of its own, are 64 MiB, and took four times that."""
    call = "rg.attention(np.broadcast_to(q, (4096, 1, 1024, 1)), k, v, mask=near, q_offset=np.arange(4096) % 50)"
    assert extra(call, keys=64, d=1, queries=1024) < BUDGET


FORWARD = {
    "everything": "(r := rg.attention_forward(q, k, v, mask=narrow, aux=rg.Aux(state=True))).out, r.lse, r.state.out",
    "weights": "[rg.attention_forward(q, k, v, mask=narrow).weights[0, 0, 70_000:70_016]]",
    "plan": "[np.array(rg.plan(q, k, v, mask=narrow & rg.Documents(np.arange(S) // 777)).tiles.visited)]",
    "online reference": "rg.reference.online_attention(q[:, :, :200], k, v, mask=rg.Causal(), q_offset='end')",
}


@pytest.mark.parametrize("name", FORWARD)
def test_what_else_is_asked_for(name):
    budget = BUDGET if name != "weights" else BUDGET + KEYS * 64 * 4  # an output that was not asked for
    assert extra(FORWARD[name]) < budget


@pytest.mark.parametrize("options", ["", "mask=np.ones((1, 1, 1, S), bool)", "softcap=5.0, sinks=np.ones(1, dtype)"])
def test_a_whole_square(options):
    """pytorch#133206, AiDotNet.Tensors#889, onnxruntime#29655: 16384 by 16384 scores are a GiB."""
    assert extra(ATTENTION.format(options), keys=16384, d=8) < 64 << 20


def test_many_calls_keep_nothing():
    """Chunks of a prefill, each a problem of its own: nothing is kept for each of them, which would be 68 MB."""
    call = (
        "[rg.attention(q, k[:, :, :n], v[:, :, :n], mask=rg.Causal() & rg.Dilated(2), q_offset='end') "
        "for n in range(1024, 32769, 512)][-1]"
    )
    outputs = 63 * 512 * 8 * 4
    assert extra(call, queries=512, d=8) < 45e6 + outputs


WIDE = "v = np.broadcast_to(np.float32(1), (1, 1, S, 2048)); rg.config(num_threads=2).__enter__()"


def test_states_of_chunks_take_what_the_plan_says():
    """Two threads share the keys of 64 rows: 86 states of half a MiB, if all were kept."""
    arrays = [np.broadcast_to(np.float32(0), (1, 1, *shape)) for shape in ((64, 8), (65536, 8), (65536, 2048))]
    with rg.config(num_threads=2):
        plan = rg.plan(*arrays)
    assert 4e6 < plan.tiles.chunk_bytes < 5e6
    assert extra("rg.attention(q, k, v)", WIDE, keys=65536, queries=64, d=8) < plan.workspace_bytes + 3e6


@pytest.mark.parametrize("mask", ["None", "rg.Causal()", "rg.Window(5, 5) | rg.Prefix(9)"])
def test_a_plan_takes_nothing_per_key(mask):
    far = "far = np.broadcast_to(np.float32(0), (1, 1, 2**34, 8)); rg.config(num_threads=2).__enter__()"
    assert extra(f"(rg.plan(q, far, far, mask={mask}, q_offset='end'), [])[1]", far, keys=64, queries=1, d=8) < 2e6


def test_these_tests_can_fail():
    """The materialised reference at a thirty-second of the length, and an array of a known size."""
    assert extra("rg.reference.attention(q, k, v, mask=narrow)", keys=4096) > BUDGET
    assert 150e6 < extra("ones(1)", setup="", keys=64) + extra("(ones(40_000_000)[:1],)[0]", keys=64) < 170e6
    bits = "rg.attention(q, k, v, mask=near.materialize(S, S))"
    assert extra(bits, keys=12288) > BUDGET
