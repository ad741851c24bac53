"""JAX arrays in CPU memory: read as they lie, results as JAX arrays, and a message for tracers and devices."""

import pickle
import tracemalloc
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import regard as rg
from judges import assert_agrees, assert_same_bits, refused
from regard import _engine
from regard._arrays import Operands
from regard._libraries._jax import Jax

DTYPES = ["float32", "float16", "bfloat16"]
CPU = jax.devices("cpu")[0]


@pytest.fixture
def qkv():
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = (2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6)
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]


def copies(arrays):
    """NumPy arrays of memory of their own."""
    return [np.array(x, copy=True) for x in arrays]


@pytest.mark.parametrize("dtype", DTYPES)
def test_jax_arrays_come_out_with_the_bits_of_numpy(qkv, dtype):
    ours = [x.astype(dtype) for x in qkv]
    options = {"mask": rg.Causal(), "q_offset": "end", "softcap": 5.0}
    want = rg.attention_forward(*copies(ours), aux=rg.Aux(state=True), **options)
    assert_agrees(want, *copies(ours), **options)
    out = rg.attention(*ours, **options)
    assert isinstance(out, jax.Array)
    assert_same_bits(out, want.out)
    result = rg.attention_forward(*ours, aux=rg.Aux(state=True), **options)
    pairs = [
        (result.out, want.out), (result.lse, want.lse), (result.state.out, want.state.out),
        (result.state.lse, want.state.lse), (result.weights[1, 2, :3], want.weights[1, 2, :3]),
        (result.weights[0, 0, 1, 2], want.weights[0, 0, 1, 2]),
    ]  # fmt: skip
    for jaxs, numpys in pairs:
        assert isinstance(jaxs, jax.Array)
        assert jaxs.devices() == {CPU}
        assert_same_bits(jaxs, numpys)
    assert result.weights.dtype == jnp.float32
    assert f"out {dtype} (2, 4, 5, 6)" in repr(result)
    # What comes out is an array like any other.
    assert_same_bits(jnp.sum(out[:, :1] * 2, axis=0), jnp.sum(jnp.asarray(want.out)[:, :1] * 2, axis=0))


def test_float64_stays_float64_whatever_the_default():
    with jax.enable_x64(True):
        x = jnp.linspace(-1, 1, 64, dtype=jnp.float64).reshape(1, 8, 8)
    assert not jax.config.jax_enable_x64
    out = rg.attention(x, x, x)
    assert isinstance(out, jax.Array)
    assert_same_bits(out, rg.attention(*copies([x] * 3)))
    assert out.dtype == rg.attention_forward(x, x, x).lse.dtype == np.float64


@pytest.mark.parametrize("dtype", DTYPES)
def test_reference(qkv, dtype):
    ours = [x.astype(dtype) for x in qkv]
    got, want = rg.reference.attention_forward(*ours), rg.reference.attention_forward(*copies(ours))
    for jaxs, numpys in zip(got, want, strict=True):
        assert isinstance(jaxs, jax.Array)
        assert_same_bits(jaxs, numpys)
    assert_same_bits(rg.reference.online_attention(*ours), rg.reference.online_attention(*copies(ours)))
    with pytest.raises(rg.UnsupportedError, match=r"JAX has no dtype .*: pass NumPy arrays"):
        rg.reference.attention_forward(*ours, precision=np.longdouble)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 4, 5, 8), (1, 4, 0, 8), (5, 8)])
def test_memory_is_read_as_it_lies(qkv, dtype, shape):
    x = jnp.ones(shape, dtype)
    for ours in (lambda o: o.query, lambda o: o.key, lambda o: o.value):
        array = ours(Operands.of(x, x, x))
        assert array.shape == x.shape
        assert array.dtype == x.dtype
        assert not x.size or array.ctypes.data == x.unsafe_buffer_pointer()
    turned = [x.astype(dtype).swapaxes(0, 1).swapaxes(0, 1) for x in qkv]
    assert_same_bits(rg.attention(*turned), rg.attention(*(x.astype(dtype) for x in qkv)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("queries", [1, 3, 1000])  # NumPy's own memory lies otherwise for large arrays
def test_results_have_the_memory_that_the_engine_wrote(dtype, queries, monkeypatch):
    written, run = [], _engine.Prepared.run
    monkeypatch.setattr(
        _engine.Prepared, "run", lambda call, given, *results: written.append(results) or run(call, given, *results)
    )
    x = jnp.ones((1, 3, queries, 8), dtype)
    result = rg.attention_forward(x, x, x, aux=rg.Aux(state=True))
    ((out, state, _, _, lse),) = written
    for ours, array in zip((result.out, result.lse, result.state.out), (out, lse, state), strict=True):
        assert ours.unsafe_buffer_pointer() == array.ctypes.data
    monkeypatch.undo()
    kept = np.array(result.out, copy=True)
    for _ in range(20):
        rg.attention(x + 1, x, x + 5)
    assert_same_bits(result.out, kept)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_of_the_size_of_an_input_is_allocated(dtype):
    x = jnp.ones((1, 8, 2048, 64), dtype)
    small = x[:, :, :16]
    rg.attention(small, x, x)
    tracemalloc.start()
    out = rg.attention(small, x, x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert out.nbytes <= peak < 2 * out.nbytes + 20_000 < x.nbytes / 8


def test_masks_biases_sinks_and_offsets(qkv):
    rng = np.random.default_rng(0)
    keep, bias, sinks = (
        rng.random((5, 7)) < 0.5,
        rng.standard_normal((2, 1, 5, 7), np.float32),
        np.float32([1, 2, 3, 4]),
    )

    def same(theirs, ours):
        assert_same_bits(rg.attention(*qkv, **theirs), rg.attention(*copies(qkv), **ours))

    same({"mask": jnp.asarray(keep)}, {"mask": keep})
    same({"mask": keep}, {"mask": keep})
    same({"mask": rg.Dense(jnp.asarray(keep))}, {"mask": keep})
    same({"bias": jnp.asarray(bias), "sinks": jnp.asarray(sinks)}, {"bias": bias, "sinks": sinks})
    half = jnp.asarray(bias, jnp.bfloat16)
    same({"bias": rg.Alibi(4) + half, "q_offset": 2}, {"bias": rg.Alibi(4) + np.array(half), "q_offset": 2})
    same({"bias": [[0.5] * 7] * 5, "sinks": [0, 1, 2, 3]}, {"bias": [[0.5] * 7] * 5, "sinks": [0, 1, 2, 3]})
    lengths = jnp.array([3, 7])
    causal = {"mask": rg.Causal() & rg.KeyLengths(lengths), "q_offset": lengths - 3}
    same(causal, {"mask": rg.Causal() & rg.KeyLengths([3, 7]), "q_offset": [0, 4]})
    same({"mask": rg.Causal(), "q_offset": jnp.array(2)}, {"mask": rg.Causal(), "q_offset": 2})
    ids, key_ids = [0, 0, 1, 1, 2], [0, 0, 0, 1, 1, 2, 2]
    same({"mask": rg.Documents(jnp.array(ids), jnp.array(key_ids))}, {"mask": rg.Documents(ids, key_ids)})
    same({"scale": jnp.array(0.25), "softcap": jnp.array(3.0)}, {"scale": 0.25, "softcap": 3.0})
    table = jnp.asarray(keep)
    assert rg.Dense(table).array.ctypes.data == table.unsafe_buffer_pointer()


@pytest.mark.parametrize("call", [rg.attention, rg.attention_forward, rg.reference.attention])
@pytest.mark.parametrize("transform", ["jit", "grad", "vmap", "jvp", "linearize", "checkpoint", "make_jaxpr"])
def test_tracers(qkv, transform, call):
    q, k, v = qkv
    parts = "key is a JAX tracer", "jax.jit", "outside", "jax.pure_callback", "np.asarray"

    def traced(k):
        refused(rg.UnsupportedError, *parts, args=(q, k, v), call=call)
        refused(rg.UnsupportedError, "query is a JAX tracer", args=(k, k, k), call=call)
        return k.sum()

    if transform == "jvp":
        jax.jvp(traced, (k,), (k,))
    elif transform == "linearize":
        jax.linearize(traced, k)
    elif transform == "checkpoint":
        jax.grad(jax.checkpoint(traced))(k)
    else:
        getattr(jax, transform)(traced)(k)


def test_tracers_as_options(qkv):
    def traced(x):
        makers = {
            "array": (rg.Dense, lambda table: rg.Blocks(table, 2)), "kept": (rg.KeyPadding,), "n": (rg.KeyLengths,),
            "key_padding_mask": (rg.KeyPadding.from_torch,), "ids": (rg.Documents,), "slopes": (rg.Alibi,),
            "table": (rg.RelativeBias, lambda table: rg.T5Bias(table, bidirectional=False)),
        }  # fmt: skip
        for name, leaves in makers.items():
            for leaf in leaves:
                refused(rg.UnsupportedError, f"{name} is a JAX tracer", args=[x], call=leaf)
        for name in ("mask", "bias", "sinks", "scale", "softcap", "q_offset"):
            refused(rg.UnsupportedError, f"{name} is a JAX tracer", args=qkv, **{name: x})
        refused(rg.UnsupportedError, "out is a JAX tracer", args=(x, x), call=rg.AttentionState)
        return x

    jax.jit(traced)(jnp.ones(4))


def test_what_the_message_about_tracers_says_works(qkv):
    q, k, v = qkv
    shape = jax.ShapeDtypeStruct((2, 4, 5, 6), q.dtype)

    @jax.jit
    def layer(q, k, v):
        out = jax.pure_callback(lambda *args: rg.attention(*map(np.asarray, args)), shape, q * 2, k, v)
        return out + 1

    assert_same_bits(layer(q, k, v), rg.attention(q * 2, k, v) + 1)
    assert_same_bits(
        jax.jit(lambda x: rg.attention(q, k, v) + x)(1.0), rg.attention(q, k, v) + 1
    )  # constants are known


def test_plan_reads_shape_and_dtype_alone(qkv):
    want = rg.plan(*copies(x.astype(jnp.bfloat16) for x in qkv))
    assert rg.plan(*(jax.ShapeDtypeStruct(x.shape, jnp.bfloat16) for x in qkv)) == want
    assert rg.plan(*(x.astype(jnp.bfloat16) for x in qkv)) == want
    seen = []
    jax.eval_shape(lambda *args: seen.append(rg.plan(*args)) or args[0], *(x.astype(jnp.bfloat16) for x in qkv))
    assert seen == [want]
    named = [SimpleNamespace(shape=x.shape, dtype=jnp.bfloat16) for x in qkv]
    assert rg.plan(*named) == want


@pytest.mark.parametrize(
    "call", [rg.attention, rg.attention_forward, rg.reference.attention, rg.reference.online_attention]
)
def test_one_library_per_call(qkv, call):
    q, k, v = qkv
    parts = "query is a JAX array and key is a NumPy array", "of one library", "convert key or query"
    refused(rg.UnsupportedError, *parts, args=(q, np.asarray(k), v), call=call)
    refused(rg.UnsupportedError, "query is a NumPy array and key is a JAX array", args=(np.asarray(q), k, v), call=call)
    refused(rg.UnsupportedError, "and bias is a NumPy", args=qkv, bias=np.zeros((5, 7), np.float32), call=call)
    refused(rg.UnsupportedError, "and sinks is a NumPy", args=qkv, sinks=np.zeros(4, np.float32), call=call)


def test_torch_beside_jax(qkv):
    import torch

    refused(
        rg.UnsupportedError,
        "query is a JAX array and key is a torch tensor",
        args=(qkv[0], torch.ones(2, 2, 7, 8), qkv[2]),
    )


def test_results_can_be_pickled(qkv):
    result = rg.attention_forward(*qkv, aux=rg.Aux(state=True))
    again = pickle.loads(pickle.dumps(result))
    for ours, theirs in (
        (again.out, result.out), (again.state.out, result.state.out), (again.weights[...], result.weights[...]),
    ):  # fmt: skip
        assert isinstance(ours, jax.Array)
        assert ours.devices() == {CPU}
        assert_same_bits(ours, theirs)


def test_lists_within_biases_go_with_jax_arrays(qkv):
    rows = [[0.5] * 7] * 5
    for bias in (rg.Alibi(4) + rows, rg.DenseBias(rows)):
        assert_same_bits(rg.attention(*qkv, q_offset=2, bias=bias), rg.attention(*copies(qkv), q_offset=2, bias=bias))


def test_out_is_refused(qkv):
    for out in (jnp.zeros((2, 4, 5, 6)), np.zeros((2, 4, 5, 6), np.float32)):
        for call in (rg.attention, rg.attention_forward):
            refused(
                rg.UnsupportedError,
                "query is a JAX array",
                "immutable",
                "leave out= away",
                args=qkv,
                call=call,
                out=out,
            )
    refused(rg.UnsupportedError, "pass a NumPy array", args=copies(qkv), out=jnp.zeros((2, 4, 5, 6)))


def test_arrays_that_cannot_be_read(qkv):
    q, k, v = qkv
    gone = q + 1
    gone.delete()
    refused(rg.UnsupportedError, "query is a JAX array that was deleted or donated", args=(gone, k, v))
    key = jax.random.key(0)
    refused(rg.UnsupportedError, "query is a JAX array that cannot be read", "PRNGKey", args=(key, k, v))
    refused(rg.DTypeError, "integer dtype int32", "query.astype(np.float32)", args=(q.astype(int), k, v))
    refused(rg.DTypeError, "float8_e4m3fn", "query.astype(np.float32)", args=(q.astype(jnp.float8_e4m3fn), k, v))
    refused(rg.DTypeError, "complex64", "query.real", args=(q.astype(jnp.complex64), k, v))
    refused(rg.DTypeError, "query is float32", "value is bfloat16", args=(q, k, v.astype(jnp.bfloat16)))
    refused(rg.MaskError, "bias is a bool array", args=qkv, bias=jnp.ones((5, 7), bool))


def test_a_lack_of_memory_is_no_fault_of_the_array():
    class Greedy:
        def __array__(self, *args, **options):
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        Jax(0).read("x", Greedy())


class Device:
    """What JAX says of a device that this machine does not have."""

    def __init__(self, platform):
        self.platform = platform

    def __str__(self):
        return f"{self.platform}:0"


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_other_devices(qkv, platform, monkeypatch):
    q, k, v = qkv
    monkeypatch.setattr(type(q), "device", property(lambda x: Device(platform)))
    parts = (
        f"query is a JAX array on device {platform}:0",
        "computes on the CPU",
        'jax.device_put(query, jax.devices("cpu")[0])',
    )
    refused(rg.UnsupportedError, *parts, args=(q, k, v))


def test_devices_of_one_cpu():
    """In a process of its own: XLA is told at its start that this CPU is three devices."""
    import os
    import subprocess
    import sys

    script = """
import jax, jax.numpy as jnp, numpy as np, regard as rg
from jax.sharding import Mesh, NamedSharding, PartitionSpec
second = jax.devices()[1]
x = jax.device_put(jnp.ones((4, 8, 8)), second)
out = rg.attention(x, x, x)
assert out.devices() == {second}, out.devices()
import pickle
result = pickle.loads(pickle.dumps(rg.attention_forward(x, x, x)))
assert result.weights[...].devices() == {second}
state = rg.AttentionState.empty((4, 8, 8), np.float32, like=x)
assert state.out.devices() == {second}
spread = jax.device_put(jnp.ones((3, 8, 8)), NamedSharding(Mesh(np.array(jax.devices()), "h"), PartitionSpec("h")))
try:
    rg.attention(spread, spread, spread)
except rg.UnsupportedError as error:
    print(error)
"""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=3", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "query is a JAX array spread over 3 devices" in done.stdout
    assert "jax.device_put(query" in done.stdout


def test_states(qkv):
    q, k, v = qkv
    aux = rg.Aux(state=True)
    left = rg.attention_forward(q, k[:, :, :3], v[:, :, :3], aux=aux).state
    right = rg.attention_forward(q, k[:, :, 3:], v[:, :, 3:], aux=aux).state
    empty = rg.AttentionState.empty((2, 4, 5, 6), jnp.float32, like=q)
    assert isinstance(empty.lse, jax.Array)
    both = rg.merge_states(left, empty, right)
    want = rg.merge_states(*(rg.AttentionState(np.array(x.out), np.array(x.lse)) for x in (left, empty, right)))
    for ours, theirs in ((both.out, want.out), (both.lse, want.lse)):
        assert isinstance(ours, jax.Array)
        assert_same_bits(ours, theirs)
    listed = rg.AttentionState(left.out, left.lse.tolist())
    assert isinstance(listed.lse, jax.Array)
    assert_same_bits(listed.lse, left.lse)
    refused(rg.DTypeError, "out has the integer dtype int32", args=(left.out.astype(int), left.lse), call=type(left))
    ours = rg.AttentionState(np.array(left.out), np.array(left.lse))
    refused(
        rg.UnsupportedError, "states[0].out is a JAX array and states[1].out", args=(left, ours), call=rg.merge_states
    )
