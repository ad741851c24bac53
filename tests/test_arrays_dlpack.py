"""Arrays of a library that regard has never heard of: in by DLPack as they lie, out as NumPy arrays."""

import sys
import types

import numpy as np
import pytest

import regard as rg
from judges import assert_same_bits, refused
from regard._arrays import Operands, as_input
from regard._libraries import library_of


class Foreign:
    """An array with DLPack and nothing else: no .shape, no .dtype, no __array__."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device, self.exports = array, device, 0

    def __dlpack__(self, **options):
        self.exports += 1
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


class Unwilling(Foreign):
    def __dlpack__(self, **options):
        raise BufferError("bfloat16 is not for export")


def foreign(*arrays):
    return [Foreign(array) for array in arrays]


@pytest.fixture
def qkv(normal):
    return normal(2, 4, 5, 8), normal(2, 2, 7, 8), normal(2, 2, 7, 6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_numpy_comes_out_with_the_bits_of_numpy(qkv, dtype):
    arrays = [x.astype(dtype) for x in qkv]
    want = rg.attention(*arrays, mask=rg.Causal(), q_offset="end")
    got = rg.attention(*foreign(*arrays), mask=rg.Causal(), q_offset="end")
    assert type(got) is np.ndarray
    assert_same_bits(got, want)
    result = rg.attention_forward(*foreign(*arrays), aux=rg.Aux(state=True))
    assert {type(x) for x in (result.out, result.lse, result.state.out, result.weights[0])} == {np.ndarray}
    assert_same_bits(rg.reference.attention(*foreign(*arrays)), rg.reference.attention(*arrays))
    online = rg.reference.online_attention
    assert_same_bits(online(*foreign(*arrays)), online(*arrays))


@pytest.mark.parametrize(
    "lie",
    [
        lambda x: x.swapaxes(-1, -2).copy().swapaxes(-1, -2),
        lambda x: x[..., ::-1, ::-1],
        lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
        lambda x: np.lib.stride_tricks.as_strided(x, x.shape, (0, x.strides[1], 0, x.strides[3])),
    ],
    ids=["transposed", "backwards", "every second", "expanded"],
)
def test_memory_is_read_as_it_lies(qkv, lie):
    arrays = [lie(x) for x in qkv]
    theirs = foreign(*arrays)
    operands = Operands.of(*theirs)
    for ours, array in zip((operands.query, operands.key, operands.value), arrays, strict=True):
        assert ours.ctypes.data == array.ctypes.data
        assert ours.strides == array.strides
    assert_same_bits(rg.attention(*theirs), rg.attention(*(x.copy() for x in arrays)))
    assert [x.exports for x in theirs] == [2, 2, 2]
    assert all(as_input("x", x) is x for x in arrays)
    assert_same_bits(rg.attention(*arrays), rg.attention(*(x.copy() for x in arrays)))


def test_masks_biases_sinks_and_offsets(qkv, rng, normal):
    keep, bias, sinks = rng.random((5, 7)) < 0.5, normal(2, 1, 5, 7), normal(4)
    given = {"mask": keep, "bias": bias, "sinks": sinks, "q_offset": np.array([1, 2]), "scale": np.array(0.5)}
    theirs = {name: Foreign(array) for name, array in given.items()}
    assert_same_bits(rg.attention(*qkv, **theirs), rg.attention(*qkv, **given))
    assert {x.exports > 0 for x in theirs.values()} == {True}


def test_lists_and_numbers_go_with_any_array(qkv):
    q, k, v = (x.astype(np.float64) for x in qkv)
    want = rg.attention(q, k, v, sinks=np.arange(4.0), bias=np.ones((1, 7)).repeat(5, 0))
    for bias in ([[1] * 7] * 5, rg.DenseBias([[1] * 7] * 5)):
        got = rg.attention(Foreign(q), k.tolist(), v, sinks=[0, 1, 2, 3], bias=bias)
        assert_same_bits(got, want)


def test_subclasses_of_ndarray(qkv, tmp_path):
    mapped = np.memmap(tmp_path / "q", np.float32, "w+", shape=qkv[0].shape)
    mapped[...] = qkv[0]
    assert type(rg.attention(mapped, *qkv[1:])) is np.ndarray
    assert_same_bits(rg.attention(mapped, *qkv[1:]), rg.attention(*qkv))


def test_states(normal):
    out, lse = normal(3, 2), normal(3)
    theirs, ours = rg.AttentionState(Foreign(out), Foreign(lse)), rg.AttentionState(out, lse)
    assert ours.out is out
    assert type(theirs.out) is np.ndarray
    assert theirs.out.ctypes.data == out.ctypes.data
    assert_same_bits(rg.merge_states(theirs, ours).out, rg.merge_states(ours, ours).out)
    lists = rg.AttentionState(theirs.out, lse.tolist())
    assert_same_bits(lists.lse, lse)
    empty = rg.AttentionState.empty((3, 2), np.float64)
    assert empty.out.dtype == empty.lse.dtype == np.float64


MAKERS = {
    "Dense": (rg.Dense, np.ones((5, 7), bool), "array"),
    "mask=": (lambda mask: rg.attention(*np.ones((3, 7, 2)), mask=mask), np.ones((1, 7), bool), "mask"),
    "Blocks": (lambda table: rg.Blocks(table, 4), np.ones((2, 2), bool), "array"),
    "KeyPadding": (rg.KeyPadding, np.array([True, False]), "kept"),
    "from_torch": (rg.KeyPadding.from_torch, np.array([True, False]), "key_padding_mask"),
    "from_torch of floats": (rg.KeyPadding.from_torch, np.array([0.0, -np.inf]), "key_padding_mask"),
    "KeyLengths": (rg.KeyLengths, np.array([3, 5]), "n"),
    "Documents": (rg.Documents, np.array([3, 5]), "ids"),
    "Documents' keys": (lambda ids: rg.Documents([1], ids), np.array([3, 5]), "key_ids"),
    "DenseBias": (rg.DenseBias, np.ones((5, 7)), "bias"),
    "Alibi": (rg.Alibi, np.array([0.5, 0.25]), "slopes"),
    "RelativeBias": (rg.RelativeBias, np.ones((2, 3)), "table"),
    "T5Bias": (lambda table: rg.T5Bias(table, bidirectional=False), np.ones((4, 2)), "table"),
}


@pytest.mark.parametrize(("make", "array", "name"), MAKERS.values(), ids=MAKERS)
def test_masks_and_biases_are_made_of_any_array(make, array, name, tmp_path):
    mapped = np.memmap(tmp_path / "it", array.dtype, "w+", shape=array.shape)
    mapped[...] = array
    for theirs in (Foreign(array), array.tolist(), mapped, array[..., ::-1].copy()[..., ::-1]):
        given = make(theirs)
        assert isinstance(given, np.ndarray) or repr(given) == repr(make(array))
        if isinstance(given, rg.masks.Mask | rg.biases.Bias) and not isinstance(given, rg.Dense | rg.DenseBias):
            assert given == make(array)
    error = rg.DTypeError if isinstance(make(array), rg.biases.Bias) else rg.MaskError
    fill = False if array.dtype == bool else 0
    ways = f"pass {name}.data", f"{name}.filled({fill})"
    refused(error, f"{name} is a NumPy masked array", *ways, args=[np.ma.masked_array(array)], call=make)
    refused(error, f"{name} is not an array of numbers", args=[[[True], [True, False]]], call=make)
    refused(rg.UnsupportedError, f"{name} is a", "on device cuda:1", args=[Foreign(array, (2, 1))], call=make)
    unwilling = f"{name} is of type", "cannot take its memory"
    refused(rg.UnsupportedError, *unwilling, args=[Unwilling(array)], call=make)


class Greedy(list):
    def __array__(self, *args, **options):
        raise MemoryError("no room")

    def __dlpack__(self, **options):
        raise MemoryError("no room")


class GreedyArray(Greedy):
    def __dlpack_device__(self):
        return 1, 0


@pytest.mark.parametrize("given", [Greedy(), GreedyArray()])
def test_a_lack_of_memory_is_no_fault_of_the_array(given):
    for take in (lambda x: rg.attention(x, x, x), rg.Dense, rg.Alibi):
        with pytest.raises(MemoryError, match="no room"):
            take(given)


def test_records_and_raw_bytes_are_not_floats():
    for dtype in ("V4", [("a", "f4")]):
        given = np.zeros((2, 2), dtype)
        for array in (given, given.view(np.recarray)):
            refused(rg.DTypeError, "query is not an array of numbers", args=[array] * 3)
            refused(rg.DTypeError, "slopes is of dtype", "it holds floats", args=[array[0]], call=rg.Alibi)
            with pytest.raises(rg.MaskError) as error:
                rg.Dense(array)
            assert "a bias is float" not in str(error.value)


@pytest.mark.parametrize("library", ["torch", "jax", "numpy.ma"])
@pytest.mark.parametrize("stage", [types.SimpleNamespace(), types.SimpleNamespace(core=types.SimpleNamespace()), None])
def test_a_library_that_is_half_imported(qkv, library, stage, monkeypatch):
    """Or a folder called like one, which is a module without its names."""
    monkeypatch.setitem(sys.modules, library, stage)

    class Mine(np.ndarray):
        pass

    class Number(float):
        pass

    want = rg.attention(*qkv, scale=0.5)
    assert_same_bits(rg.attention(qkv[0].view(Mine), *foreign(*qkv[1:]), scale=Number(0.5)), want)


def test_a_verdict_that_came_too_early_is_not_kept(monkeypatch):
    class Tensor(list):
        pass

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())
    assert library_of("x", Tensor()) is None
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=Tensor))
    assert library_of("x", Tensor()).what == "torch tensor"


@pytest.mark.parametrize(
    ("number", "name"), [((2, 1), "cuda:1"), ((8, 0), "metal:0"), ((10, 3), "rocm:3"), ((99, 0), "99:0")]
)
@pytest.mark.parametrize("call", [rg.attention, rg.attention_forward, rg.reference.attention])
def test_other_devices(qkv, number, name, call):
    q, k, v = qkv
    refused(
        rg.UnsupportedError, f"key is a {__name__} array on device {name}", "computes on the CPU",
        "a copy in the CPU's memory", args=(q, Foreign(k, number), v), call=call,
    )  # fmt: skip
    refused(rg.UnsupportedError, f"mask is a {__name__} array on", args=qkv, mask=Foreign(k, number), call=call)
    refused(rg.UnsupportedError, "scale is a", name, args=qkv, scale=Foreign(k, number), call=call)
    refused(rg.UnsupportedError, "q_offset is a", name, args=qkv, q_offset=Foreign(k, number), call=call)


def test_cupy_has_a_name_for_the_copy(qkv):
    kind = type("ndarray", (Foreign,), {"__module__": "cupy"})
    refused(
        rg.UnsupportedError, "cupy array on device cuda:0", "pass query.get()", args=(kind(qkv[0], (2, 0)), *qkv[1:])
    )


def test_arrays_that_dlpack_cannot_carry(qkv):
    parts = "value is of type", "Unwilling", "bfloat16 is not for export", "as a NumPy array"
    refused(rg.UnsupportedError, *parts, args=(*qkv[:2], Unwilling(qkv[2])))


def test_tensorflow_is_refused_for_the_gradient_that_its_tape_would_miss(qkv):
    kind = type("EagerTensor", (Foreign,), {"__module__": "tensorflow.python.framework.ops"})
    parts = "query is a tensorflow array", "pass query.numpy()"
    refused(rg.UnsupportedError, *parts, args=(kind(qkv[0]), *qkv[1:]))


def test_dtypes_are_refused_as_those_of_numpy(qkv):
    refused(rg.DTypeError, "query has the integer dtype int64", "float16", args=foreign(np.ones((2, 2), int)) * 3)
    refused(rg.DTypeError, "not an array of numbers", args=([Foreign(qkv[0])], *qkv[1:]))

    class Failing:
        def __array__(self, *args, **options):
            raise RuntimeError("the file is gone")

    refused(rg.DTypeError, "key is not an array of numbers: the file is gone", args=(qkv[0], Failing(), qkv[2]))


def test_out_is_a_numpy_array_whose_elements_are_apart(qkv):
    out = np.empty((2, 4, 5, 6), np.float32)
    assert rg.attention(*foreign(*qkv), out=out) is out
    assert_same_bits(out, rg.attention(*qkv))
    refused(rg.UnsupportedError, "out is of type Foreign", "pass a NumPy array", args=qkv, out=Foreign(out))
    folded = np.lib.stride_tricks.as_strided(out, out.shape, (0, *out.strides[1:]))
    refused(rg.UnsupportedError, "out has strides (0, ", "overwrite each other", args=qkv, out=folded)
    refused(rg.UnsupportedError, "out may share memory with query", args=(Foreign(out), out, out), out=out)
    masked = np.ma.masked_array(out, mask=out == out)
    refused(rg.DTypeError, "out is a NumPy masked array", "pass out.data", args=qkv, out=masked)
    square = [x[..., :5, :5] for x in qkv]
    for bias in (out[..., :5], rg.Alibi(4) + out[..., :5]):
        parts = "out may share memory with bias", "pass a copy"
        refused(rg.UnsupportedError, *parts, args=square, bias=bias, out=out[..., :5])


LAYINGS = {
    "as made": (lambda x: x, True),
    "transposed": (lambda x: x.T, True),
    "backwards": (lambda x: x[::-1, ::-1], True),
    "every second": (lambda x: x[:, ::2], True),
    "a row": (lambda x: x[:1], True),
    "empty": (lambda x: np.lib.stride_tricks.as_strided(x, (0, 4), (0, 0)), True),
    "rows half a row apart": (lambda x: np.lib.stride_tricks.as_strided(x, (6, 4), (8, 4)), False),
    "columns a row apart": (lambda x: np.lib.stride_tricks.as_strided(x, (4, 4), (4, 4)), False),
    "half an element apart": (lambda x: np.lib.stride_tricks.as_strided(x, (4, 4), (16, 2)), False),
    "backwards, half a row apart": (lambda x: np.lib.stride_tricks.as_strided(x[-1:], (6, 4), (-8, 4)), False),
    "expanded": (lambda x: np.lib.stride_tricks.as_strided(x, (4, 4), (0, 4)), False),
}


@pytest.mark.parametrize(("lay", "apart"), LAYINGS.values(), ids=LAYINGS)
def test_elements_of_out_are_apart(normal, lay, apart):
    out = lay(np.zeros((8, 4), np.float32))
    q, kv = normal(out.shape[0], 3), normal(9, max(3, out.shape[1]))
    args = q, kv[:, :3], kv[:, : out.shape[1]]
    if apart:
        assert_same_bits(np.ascontiguousarray(rg.attention(*args, out=out)), rg.attention(*args))
    else:
        refused(rg.UnsupportedError, f"out has strides {out.strides}", "overwrite each other", args=args, out=out)
