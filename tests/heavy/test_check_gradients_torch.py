"""Gradients of torch's functions: its own and textbook ones are right, and what people do to them is called by name."""

import math

import pytest
import torch
from torch.nn import functional

import regard as rg
from judges import refused
from regard.check.gradients import CATALOGUE, VERDICTS

NAMES = {fault.name for fault in CATALOGUE} | {verdict.name for verdict in VERDICTS}
DTYPES = ["float64", "float32", "float16", "bfloat16"]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def found(fn, **declared):
    """Names of findings on gradients, which were asked for."""
    report = rg.check(fn, library="torch", **declared)
    assert not report.unfinished
    return {name for name in report.names if name in NAMES}, report


def sdpa(query, key, value, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )


def weights(q, k, mask=None, bias=None):
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    s = s if bias is None else s + bias
    return torch.softmax(s if mask is None else s.masked_fill(~mask, -math.inf), dim=-1)


def textbook(q, k, v, bias=None, causal=False):
    n, m = q.shape[-2], k.shape[-2]
    mask = torch.ones(n, m, dtype=torch.bool).tril(m - n) if causal else None
    return weights(q, k, mask, bias) @ v


def masked(q, k, v, mask=None):
    return weights(q, k, mask) @ v


class NoDelta(torch.autograd.Function):
    """A softmax by hand, whose way back forgets the sum."""

    @staticmethod
    def forward(ctx, scores):
        P = torch.softmax(scores, -1)
        ctx.save_for_backward(P)
        return P

    @staticmethod
    def backward(ctx, grad):
        return ctx.saved_tensors[0] * grad


@pytest.mark.parametrize("dtype", DTYPES)
def test_torchs_own_is_right(dtype):
    assert found(sdpa, causal="top-left", dtype=dtype)[0] == set()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_textbook_function_is_right(dtype):
    assert found(textbook, dtype=dtype)[0] == set()


@pytest.mark.parametrize("seed", range(1, 6))
def test_no_seed_makes_them_wrong(seed):
    for fn in (sdpa, textbook):
        assert found(fn, causal="top-left" if fn is sdpa else None, seed=seed)[0] == set()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_softmax_by_hand(dtype):
    def attention(q, k, v):
        return NoDelta.apply(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])) @ v

    assert found(attention, dtype=dtype)[0] == {"NO_DELTA"}


def test_a_row_without_keys_spoils_the_values_gradient():
    """As pytorch/pytorch#41508 says: no loss depends on the row."""
    names, report = found(masked)
    assert names == {"GRAD_NAN_EMPTY_ROW"}
    assert "NaN or Inf in dv on without_empty_row" in report["GRAD_NAN_EMPTY_ROW"].evidence[0]


def test_a_detached_operand():
    names, report = found(lambda q, k, v: textbook(q, k.detach(), v))
    assert names == {"DETACHED"}
    assert report["DETACHED"].does.endswith("of the keys")


def test_a_cut_graph():
    def attention(q, k, v):
        with torch.no_grad():
            return textbook(q, k, v)

    names, report = found(attention)
    assert names == {"GRAD_GRAPH_CUT"}
    assert "does not require grad" in report["GRAD_GRAPH_CUT"].evidence[0]


def test_a_detached_maximum_and_sum():
    """The first is right, the second is not."""

    def attention(q, k, v, of_sum=False):
        s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        e = torch.exp(s - s.max(dim=-1, keepdim=True).values.detach())
        total = e.sum(dim=-1, keepdim=True)
        return e / (total.detach() if of_sum else total) @ v

    assert found(attention)[0] == set()
    assert found(lambda q, k, v: attention(q, k, v, True))[0] == {"NO_DELTA"}


def test_gradients_are_asked_for():
    """So that a right answer above is one."""
    assert "gradients" in rg.check(textbook, library="torch").questions


def test_arrays_of_two_libraries_are_refused():
    x = torch.ones(2, 3)
    refused(
        rg.UnsupportedError, "query is a torch tensor and grad_out is a", call=rg.reference.attention_backward,
        args=(x.numpy(), x, x, x),
    )  # fmt: skip
    assert isinstance(rg.reference.attention_backward(x, x, x, x).key, torch.Tensor)
