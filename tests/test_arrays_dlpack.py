"""Arrays of a library that regard has never heard of: in by DLPack as they lie, out as NumPy arrays."""

import numpy as np
import pytest

import regard as rg
from judges import assert_same_bits
from regard._arrays import Operands, as_input


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
    del theirs["bias"]  # must have .shape and .dtype
    assert_same_bits(rg.attention(*qkv, bias=bias, **theirs), rg.attention(*qkv, **given))
    assert {x.exports > 0 for x in theirs.values()} == {True}


def test_lists_and_numbers_go_with_any_array(qkv):
    q, k, v = (x.astype(np.float64) for x in qkv)
    want = rg.attention(q, k, v, sinks=np.arange(4.0), bias=np.ones((1, 7)).repeat(5, 0))
    got = rg.attention(Foreign(q), k.tolist(), v, sinks=[0, 1, 2, 3], bias=[[1] * 7] * 5)
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
    empty = rg.AttentionState.empty((3, 2), np.float64)
    assert empty.out.dtype == empty.lse.dtype == np.float64


def refused(error, *parts, args, call=rg.attention, **options):
    with pytest.raises(error) as caught:
        call(*args, **options)
    message = str(caught.value)
    assert all(part in message for part in parts), message


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
    square = [x[..., :5, :5] for x in qkv]
    for bias in (out[..., :5], rg.Alibi(4) + out[..., :5]):
        parts = "out may share memory with bias", "pass a copy"
        refused(rg.UnsupportedError, *parts, args=square, bias=bias, out=out[..., :5])
