"""Tensors and lists that masks and biases are made of, beside tensors of a call."""

import numpy as np
import pytest
import torch

import regard as rg
from judges import assert_same_bits


@pytest.fixture
def qkv():
    torch.manual_seed(0)
    return torch.randn(2, 4, 5, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 6)


def refused(error, *parts, args, call=rg.attention, **options):
    with pytest.raises(error) as caught:
        call(*args, **options)
    message = str(caught.value)
    assert all(part in message for part in parts), message


LEAVES = {
    "Dense": (rg.Dense, "array", torch.bool),
    "Blocks": (lambda table: rg.Blocks(table, 2), "array", torch.bool),
    "KeyPadding": (rg.KeyPadding, "kept", torch.bool),
    "from_torch": (rg.KeyPadding.from_torch, "key_padding_mask", torch.bool),
    "KeyLengths": (rg.KeyLengths, "n", torch.int64),
    "Documents": (rg.Documents, "ids", torch.int64),
    "Alibi": (rg.Alibi, "slopes", torch.float32),
    "RelativeBias": (rg.RelativeBias, "table", torch.float32),
    "T5Bias": (lambda table: rg.T5Bias(table, bidirectional=False), "table", torch.float32),
}


@pytest.mark.parametrize(("leaf", "name", "dtype"), LEAVES.values(), ids=LEAVES)
def test_leaves_take_tensors_as_calls_do(leaf, name, dtype):
    good = torch.ones(2, 3).to(dtype) if name != "slopes" else torch.ones(3)
    good = good.repeat(1, 2)[:, :3] if name == "array" else good
    assert repr(leaf(good)) == repr(leaf(good.numpy()))
    refused(rg.UnsupportedError, f"{name} is a torch tensor on device meta", args=[good.to("meta")], call=leaf)
    refused(rg.UnsupportedError, f"{name} is a tensor of layout", args=[good.to_sparse()], call=leaf)
    wrong = rg.DTypeError if dtype is torch.float32 else rg.MaskError
    refused(wrong, f"{name} is complex", args=[torch.complex(torch.ones(3), torch.ones(3)).conj()], call=leaf)
    with pytest.raises(rg.UnsupportedError, match=f"{name} requires grad"):
        leaf(torch.ones(2, 3, requires_grad=True))
    if dtype is torch.float32:
        assert leaf(good.bfloat16()) == leaf(good)
    else:
        hint = ["a bias is float"] if name in ("array", "kept") else []
        refused(rg.MaskError, "got dtype bfloat16", *hint, args=[torch.ones(2, 3).bfloat16()], call=leaf)


def test_lists_within_biases_go_with_tensors(qkv):
    rows = [[0.5] * 7] * 5
    want = rg.attention(*qkv, q_offset=2, bias=rg.Alibi(4) + torch.tensor(rows, dtype=torch.float64))
    assert torch.equal(rg.attention(*qkv, q_offset=2, bias=rg.Alibi(4) + rows), want)
    assert torch.equal(rg.attention(*qkv, bias=rg.DenseBias(rows)), rg.attention(*qkv, bias=rows))
    spelled = rg.DenseBias(torch.tensor(rows)).materialize(5, 7)
    assert_same_bits(spelled, np.full((5, 7), 0.5, np.float32))


def test_a_lack_of_memory_is_no_fault_of_the_tensor(qkv):
    class Greedy(torch.Tensor):
        def numpy(self, *args, **options):
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        rg.attention(qkv[0].as_subclass(Greedy), *qkv[1:])


def test_offsets_are_no_flags():
    x = torch.ones(1, 3, 4)
    for flag in (torch.tensor(True), torch.tensor(1.0)):
        refused(rg.AlignmentError, "must be an int", args=(x, x, x), q_offset=flag)


def test_a_bias_table_that_requires_grad_is_refused():
    table = torch.nn.Embedding(32, 4).weight
    with pytest.raises(rg.UnsupportedError, match="requires grad"):
        rg.T5Bias(table, bidirectional=True)
    with torch.no_grad():
        assert rg.T5Bias(table, bidirectional=True).heads == 4
