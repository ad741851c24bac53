"""torch tensors in CPU memory: read as they lie, results as tensors, and a message for each that is not for us."""

import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
import torch

import regard as rg
from judges import assert_agrees, assert_same_bits, refused
from regard import _engine
from regard._arrays import Operands

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.fixture
def qkv():
    torch.manual_seed(0)
    return torch.randn(2, 4, 5, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 6)


def bits(tensor):
    """The tensor as integers of its size, by torch alone."""
    return tensor.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize]).numpy()


def as_numpy(tensor):
    """The tensor as a NumPy array, by a road of the test's own: bfloat16 through float32, which holds it exactly."""
    if tensor.dtype is not torch.bfloat16:
        return tensor.numpy().copy()
    from ml_dtypes import bfloat16

    return tensor.float().numpy().astype(bfloat16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_come_out_with_the_bits_of_numpy(qkv, dtype):
    tensors = [x.to(dtype) for x in qkv]
    arrays = [as_numpy(x) for x in tensors]
    options = {"mask": rg.Causal(), "q_offset": "end", "softcap": 5.0}
    got = rg.attention(*tensors, **options)
    assert (type(got), got.dtype, got.shape) == (torch.Tensor, dtype, (2, 4, 5, 6))
    assert np.array_equal(bits(got), bits(torch.from_numpy(rg.attention(*arrays, **options).view(f"i{got.itemsize}"))))
    result = rg.attention_forward(*tensors, aux=rg.Aux(state=True), **options)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    want = rg.attention_forward(*arrays, aux=rg.Aux(state=True), **options)
    assert_agrees(want, *arrays, **options)
    assert result.out.dtype == dtype
    pairs = [
        (result.lse, want.lse), (result.state.out, want.state.out), (result.state.lse, want.state.lse),
        (result.weights[1, 2, :3], want.weights[1, 2, :3]), (result.weights[0, 0, 1, 2], want.weights[0, 0, 1, 2]),
    ]  # fmt: skip
    for ours, theirs in pairs:
        assert (type(ours), ours.dtype) == (torch.Tensor, wide)
        assert_same_bits(ours.numpy(), theirs)
    assert result.weights.dtype == wide
    assert type(np.asarray(result.weights)) is np.ndarray
    assert f"out {dtype} (2, 4, 5, 6)" in repr(result)
    assert f"out {wide} (2, 4, 5, 6), lse (2, 4, 5)" in repr(result.state)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reference(qkv, dtype):
    tensors = [x.to(dtype) for x in qkv]
    arrays = [as_numpy(x) for x in tensors]
    got = rg.reference.attention_forward(*tensors)
    for ours, theirs in zip(got, rg.reference.attention_forward(*arrays), strict=True):
        assert (type(ours), ours.dtype) == (torch.Tensor, torch.float64)
        assert_same_bits(ours.numpy(), theirs)
    assert torch.equal(rg.reference.attention(*tensors), got.out)
    assert_same_bits(rg.reference.online_attention(*tensors).numpy(), rg.reference.online_attention(*arrays))
    with pytest.raises(rg.UnsupportedError, match=r"torch has no dtype .*: pass NumPy arrays"):
        rg.reference.attention_forward(*tensors, precision=np.longdouble)


WAYS_TO_LIE = {
    "as made": lambda x: x,
    "transposed": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "heads last": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "every second": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "from the middle": lambda x: torch.cat([x, x, x])[2:4],
    "expanded": lambda x: x[:1, :, :1].expand(x.shape),
    "empty": lambda x: x[:0],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("lie", WAYS_TO_LIE.values(), ids=WAYS_TO_LIE)
def test_memory_is_read_as_it_lies(qkv, dtype, lie):
    tensors = [lie(x.to(dtype)) for x in qkv]
    operands = Operands.of(*tensors)
    for ours, tensor in zip((operands.query, operands.key, operands.value), tensors, strict=True):
        assert ours.shape == tuple(tensor.shape)
        if tensor.numel():
            assert ours.ctypes.data == tensor.data_ptr()
            assert ours.strides == tuple(stride * tensor.itemsize for stride in tensor.stride())
    plain = rg.attention(*(torch.tensor(x.tolist(), dtype=dtype).reshape(x.shape) for x in tensors))
    assert np.array_equal(bits(rg.attention(*tensors)), bits(plain))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_results_have_the_memory_that_the_engine_wrote(qkv, dtype, monkeypatch):
    written, run = [], _engine.Prepared.run
    monkeypatch.setattr(
        _engine.Prepared, "run", lambda call, given, *results: written.append(results) or run(call, given, *results)
    )
    result = rg.attention_forward(*(x.to(dtype) for x in qkv), aux=rg.Aux(state=True))
    ((out, state, _, _, lse),) = written
    for tensor, array in zip((result.out, result.lse, result.state.out), (out, lse, state), strict=True):
        assert tensor.data_ptr() == array.ctypes.data


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_nothing_of_the_size_of_an_input_is_allocated(dtype):
    x = torch.randn(1, 8, 2048, 64).to(dtype)
    small = x[:, :, :16]
    rg.attention(small, x, x)
    tracemalloc.start()
    out = rg.attention(small, x, x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert out.nbytes <= peak < 2 * out.nbytes + 20_000 < x.nbytes / 8


def test_masks_biases_sinks_and_offsets(qkv):
    keep, bias, sinks = torch.rand(5, 7) < 0.5, torch.randn(2, 1, 5, 7), torch.randn(4)
    arrays = [x.numpy() for x in qkv]

    def same(theirs, ours):
        assert_same_bits(rg.attention(*qkv, **theirs).numpy(), rg.attention(*arrays, **ours))

    same({"mask": keep}, {"mask": keep.numpy()})
    same({"mask": keep.numpy()}, {"mask": keep.numpy()})
    same({"mask": rg.Dense(keep[None, None])}, {"mask": keep.numpy()})
    same({"bias": bias, "sinks": sinks}, {"bias": bias.numpy(), "sinks": sinks.numpy()})
    same({"bias": bias.bfloat16()}, {"bias": as_numpy(bias.bfloat16())})
    same({"bias": rg.Alibi(4) + bias, "q_offset": 2}, {"bias": rg.Alibi(4) + bias.numpy(), "q_offset": 2})
    same({"bias": [[0.5] * 7] * 5, "sinks": [0, 1, 2, 3]}, {"bias": [[0.5] * 7] * 5, "sinks": [0, 1, 2, 3]})
    lengths = torch.tensor([3, 7])
    same({"mask": rg.KeyLengths(lengths)}, {"mask": rg.KeyLengths([3, 7])})
    causal = {"mask": rg.Causal() & rg.KeyLengths(lengths), "q_offset": lengths - 5 + 2}
    same(causal, {"mask": rg.Causal() & rg.KeyLengths([3, 7]), "q_offset": [0, 4]})
    same({"mask": rg.Causal(), "q_offset": torch.tensor(2)}, {"mask": rg.Causal(), "q_offset": 2})
    ids, key_ids = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 0, 0, 1, 1, 2, 2])
    same({"mask": rg.Documents(ids, key_ids)}, {"mask": rg.Documents(ids.tolist(), key_ids.tolist())})
    same({"scale": torch.tensor(0.25), "softcap": torch.tensor(3.0)}, {"scale": 0.25, "softcap": 3.0})
    assert rg.Dense(keep).array.ctypes.data == keep.data_ptr()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_out_is_written_in_place(qkv, dtype):
    tensors = [x.to(dtype) for x in qkv]
    want = rg.attention(*tensors)
    room = torch.full((2, 5, 4, 12), 7.0).to(dtype)
    out = room.transpose(1, 2)[..., ::2]
    assert rg.attention(*tensors, out=out) is out
    assert np.array_equal(bits(out), bits(want))
    assert (room[..., 1::2] == 7).all()
    assert rg.attention_forward(*tensors, out=out).out is out


def test_a_backward_pass_knows_that_out_was_written_to(qkv):
    x, out = torch.ones(2, 4, 5, 6, requires_grad=True), torch.ones(2, 4, 5, 6)
    loss = (x * out).sum()  # keeps out
    rg.attention(*qkv, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_out_is_refused_where_it_cannot_be_written(qkv):
    good = torch.empty(2, 4, 5, 6)
    wrong = rg.UnsupportedError
    refused(wrong, "out is of type ndarray", "pass a torch tensor of shape (2, 4, 5, 6)", args=qkv, out=good.numpy())
    refused(wrong, "out is of type Tensor", "pass a NumPy array", args=[x.numpy() for x in qkv], out=good)
    refused(wrong, "out has strides (0, ", args=qkv, out=good[:1].expand(good.shape))
    refused(rg.ShapeError, "(2, 4, 5, 6)", "(1, 4, 5, 6)", args=qkv, out=good[:1])
    refused(rg.DTypeError, "float64", "float32", args=qkv, out=good.double())
    refused(wrong, "out requires grad", args=qkv, out=torch.nn.Parameter(good))
    refused(wrong, "out is a torch tensor on device meta", args=qkv, out=good.to("meta"))
    refused(wrong, "out may share memory with query", args=[good] * 3, out=good)


@pytest.mark.parametrize(
    "call", [rg.attention, rg.attention_forward, rg.reference.attention, rg.reference.online_attention]
)
def test_one_library_per_call(qkv, call):
    q, k, v = qkv
    parts = "query is a torch tensor and key is a NumPy array", "of one library", "convert key or query"
    refused(rg.UnsupportedError, *parts, args=(q, k.numpy(), v), call=call)
    refused(
        rg.UnsupportedError,
        "query is a NumPy array and value is a torch tensor",
        args=(q.numpy(), k.numpy(), v),
        call=call,
    )
    bias, sinks = np.zeros((5, 7), np.float32), np.zeros(4, np.float32)
    refused(rg.UnsupportedError, "and bias is a NumPy array", args=qkv, bias=bias, call=call)
    refused(rg.UnsupportedError, "and bias is a NumPy", args=qkv, bias=rg.Alibi(4) + bias, q_offset=0, call=call)
    refused(rg.UnsupportedError, "and sinks is a NumPy array", args=qkv, sinks=sinks, call=call)
    assert type(call(q.double().tolist(), k.double(), v.double())) is not list


def test_gradients_are_refused_where_they_would_be_lost(qkv):
    q, k, v = qkv
    parts = "requires grad", "do not exist yet", "with torch.no_grad():"
    for i, name in enumerate(("query", "key", "value")):
        for dtype in DTYPES:
            args = [x.to(dtype) for x in qkv]
            args[i] = torch.nn.Parameter(args[i])
            refused(rg.UnsupportedError, f"{name} requires grad", *parts, f"pass {name}.detach()", args=args)
            with torch.no_grad():
                assert not rg.attention(*args).requires_grad
            with torch.inference_mode():
                inferred = rg.attention(*args)
            assert torch.equal(inferred, rg.attention(*(x.detach() for x in args)))
    refused(rg.UnsupportedError, "key requires grad", args=(q, (k.requires_grad_() * 2).bfloat16(), v))
    k = k.detach()
    for name, grown in {
        "bias": torch.zeros(5, 7),
        "sinks": torch.zeros(4),
        "scale": torch.tensor(1.0),
        "softcap": torch.tensor(1.0),
    }.items():
        refused(rg.UnsupportedError, f"{name} requires grad", args=(q, k, v), **{name: grown.requires_grad_()})
    with torch.inference_mode():
        inferred = [x + 0 for x in (q, k, v)]
    assert torch.equal(rg.attention(*inferred), rg.attention(q, k, v))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own use of it
def test_forward_mode_gradients_are_refused(qkv):
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(qkv[0], torch.ones_like(qkv[0]))
        refused(rg.UnsupportedError, "query requires grad", args=(dual, *qkv[1:]))
        rg.attention(*qkv)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("transform", ["vmap", "grad", "jvp"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_functorch(qkv, transform, dtype):
    q, k, v = (x.to(dtype) for x in qkv)

    def call(q):
        return rg.attention(q, k, v).sum()

    with pytest.raises(rg.UnsupportedError, match=r"query (requires grad|is a Tensor whose memory cannot be read)"):
        torch.func.jvp(call, (q,), (q,)) if transform == "jvp" else getattr(torch.func, transform)(call)(q)


def test_tensors_without_plain_memory(qkv):
    q, k, v = qkv
    refused(rg.UnsupportedError, "on device meta", "query.cpu()", "rg.plan", args=(q.to("meta"), k, v))
    refused(rg.UnsupportedError, "layout torch.sparse_coo", "query.to_dense()", args=(q.to_sparse(), k, v))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that these are prototypes
        nested = [
            torch.nested.nested_tensor([q[0], q[0, :, :3]], layout=layout) for layout in (torch.strided, torch.jagged)
        ]
        quantized = torch.quantize_per_tensor(q, 0.1, 0, torch.qint8)
        compressed = q[0, 0].to_sparse_csr()
    for tensor in nested:
        refused(rg.UnsupportedError, "query is a nested tensor", "to_padded_tensor(query", args=(tensor, k, v))
    refused(rg.UnsupportedError, "layout torch.sparse_csr", args=(compressed, k[0, 0], v[0, 0]))
    refused(rg.DTypeError, "quantized (torch.qint8)", "query.dequantize()", args=(quantized, k, v))
    eight = q.to(torch.float8_e4m3fn)
    refused(rg.DTypeError, "torch.float8_e4m3fn", "query.to(torch.float32)", args=(eight, k, v))
    refused(rg.DTypeError, "float8_e4m3fn", ".to(torch.float32)", args=(eight, k, v), call=rg.plan)
    freed = q.clone()
    freed.untyped_storage().resize_(0)
    refused(rg.UnsupportedError, "query", "storage was freed", args=(freed, k, v))
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = mode.from_tensor(q)
        refused(rg.UnsupportedError, "query is a FakeTensor", "memory cannot be read", args=(fake, k, v))
    assert rg.plan(fake, k, v).problem.dtype == "float32"


def test_complex_and_negated(qkv):
    q, k, v = qkv
    z = torch.complex(q, q)
    refused(rg.DTypeError, "query is complex", "query.real", args=(z, k, v))
    refused(rg.DTypeError, "query is complex", "query.real", args=(z.conj(), k, v))
    minus = z.conj().imag
    refused(rg.UnsupportedError, "negated when it is read", "query.resolve_neg()", args=(minus, k, v))
    assert torch.equal(rg.attention(minus.resolve_neg(), k, v), rg.attention(-q, k, v))
    assert torch.equal(rg.attention(z.real, k, v), rg.attention(q, k, v))


def test_dtypes_are_refused_by_their_own_name(qkv):
    q, k, v = qkv
    refused(rg.DTypeError, "integer dtype int64", "query.to(torch.float32)", args=(q.long(), k, v))
    refused(rg.DTypeError, "dtype bool", "key.to(torch.float32)", args=(q, k > 0, v))
    refused(rg.DTypeError, "query is float32", "value is bfloat16", args=(q, k, v.bfloat16()))
    refused(rg.MaskError, "bias is a bool array", "pass mask=", args=qkv, bias=torch.ones(5, 7, dtype=torch.bool))
    refused(rg.MaskError, "bias=", args=qkv, mask=torch.zeros(5, 7))
    refused(rg.MaskError, "mask[:, None, None, :]", args=qkv, mask=torch.ones(2, 7, dtype=torch.bool))


def test_subclasses_of_tensor(qkv):
    class Named(torch.Tensor):
        pass

    got = rg.attention(*(x.as_subclass(Named) for x in qkv))
    assert type(got) is torch.Tensor
    assert torch.equal(got, rg.attention(*qkv))


def test_results_can_be_pickled(qkv):
    result = rg.attention_forward(*qkv, aux=rg.Aux(state=True))
    again = pickle.loads(pickle.dumps(result))
    assert torch.equal(again.weights[...], result.weights[...])
    assert torch.equal(again.state.out, result.state.out)


def test_plan_reads_shape_and_dtype_alone(qkv):
    for dtype in DTYPES:
        metas = [x.to("meta", dtype) for x in qkv]
        plan = rg.plan(*metas, mask=rg.Causal(), q_offset="end", bias=metas[0].new_empty(5, 7))
        assert plan == rg.plan(
            *(as_numpy(x.to(dtype)) for x in qkv), mask=rg.Causal(), q_offset="end", bias=np.ones((5, 7))
        )
    refused(rg.DTypeError, "integer dtype int64", ".to(torch.float32)", args=[x.long() for x in qkv], call=rg.plan)


def test_states(qkv):
    q, k, v = qkv
    aux = rg.Aux(state=True)
    left = rg.attention_forward(q, k[:, :, :3], v[:, :, :3], aux=aux).state
    right = rg.attention_forward(q, k[:, :, 3:], v[:, :, 3:], aux=aux).state
    empty = rg.AttentionState.empty((*q.shape[:3], 6), torch.float32, like=q)
    both = rg.merge_states(left, empty, right)
    want = rg.merge_states(*(rg.AttentionState(x.out.numpy(), x.lse.numpy()) for x in (left, empty, right)))
    for ours, theirs in ((both.out, want.out), (both.lse, want.lse)):
        assert (type(ours), ours.dtype) == (torch.Tensor, torch.float32)
        assert_same_bits(ours.numpy(), theirs)
    assert left.out.data_ptr() == rg.AttentionState(left.out, left.lse).out.data_ptr()
    ours = rg.AttentionState(left.out.numpy(), left.lse.numpy())
    parts = "states[0].out is a torch tensor and states[1].out is a NumPy array", "convert"
    refused(rg.UnsupportedError, *parts, args=(left, ours), call=rg.merge_states)
    refused(rg.UnsupportedError, "out is a torch", "lse is a NumPy", args=(left.out, ours.lse), call=rg.AttentionState)
    refused(rg.ShapeError, "(2, 4)", args=(left.out, left.lse[..., 0]), call=rg.AttentionState)
    wrong = rg.DTypeError
    refused(wrong, "out has the integer dtype", args=(left.out.long(), left.lse), call=rg.AttentionState)
    refused(wrong, "lse has dtype float64 and out", args=(left.out, left.lse.double()), call=rg.AttentionState)
    listed = rg.AttentionState(left.out, left.lse.tolist())
    assert (type(listed.lse), listed.lse.dtype) == (torch.Tensor, torch.float32)
    assert torch.equal(listed.lse, left.lse)
    assert repr(listed) == repr(left)
    half = rg.AttentionState.empty((3, 2), torch.bfloat16, like=q)
    assert (half.out.dtype, half.lse.dtype) == (torch.bfloat16, torch.float32)


def test_packed_sequences_and_rotations_give_tensors():
    x = torch.randn(2, 9, 8, dtype=torch.bfloat16)
    ends = torch.tensor([0, 4, 9])
    got = rg.varlen_attention(x, x, x, ends, mask=rg.Causal(), sinks=torch.zeros(2), bias=rg.Alibi(torch.ones(2)))
    alone = rg.attention(
        x[:, 4:], x[:, 4:], x[:, 4:], mask=rg.Causal(), sinks=torch.zeros(2), bias=rg.Alibi(np.ones(2))
    )
    assert got.dtype == torch.bfloat16
    assert torch.equal(got[:, 4:], alone)
    turned = rg.rotary_embedding(x, positions=torch.arange(9))
    assert turned.dtype == torch.bfloat16
    assert torch.equal(turned[:, 0], x[:, 0])
