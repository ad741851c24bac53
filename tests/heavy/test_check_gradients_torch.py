"""Gradients of torch's functions: its own and textbook ones are right, and what people do to them is called by name."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional

import check_torch as written
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


# Whole layers and modules.


class Cut(written.Layer):
    def forward(self, x, mask=None, is_causal=False):
        with torch.no_grad():
            return super().forward(x, mask, is_causal)


class ForInference(written.Layer):
    def forward(self, x, mask=None, is_causal=False):
        if x.requires_grad:
            raise RuntimeError("for inference only")
        return super().forward(x, mask, is_causal)


class ForgetsTheSum(written.Layer):
    def forward(self, x, mask=None, is_causal=False):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        scores = q @ k.transpose(-1, -2) * self.scale(q)
        if is_causal:
            scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -1e30)
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e30)
        return self.out_proj(self.merge(NoDelta.apply(scores) @ v))


def drifts(self, x, mask=None, is_causal=False):
    """The output is the same, the gradient of x is another at each call."""
    off = 1e-3 * torch.randn(())
    return written.Layer.forward(self, x + off * (x - x.detach()), mask, is_causal)


class Drifts(written.Layer):
    forward = drifts


def function(x, wq, wk, wv, wo, heads):
    """A layer that can be imported, whose values are detached."""
    q, k, v = ((x @ w).unflatten(-1, (heads, -1)).transpose(1, 2) for w in (wq, wk, wv))
    return textbook(q, k, v.detach()).transpose(1, 2).flatten(2) @ wo


def replayed(finding):
    here = Path(__file__).parent
    return subprocess.run(
        [sys.executable, "-c", finding.script], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": f"{here}:{here.parent}", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_right_module_has_right_gradients(dtype):
    for seed in range(3):
        assert found(written.Layer(), dtype=dtype, seed=seed)[0] == set()
        assert found(written.Packed(), dtype=dtype, seed=seed)[0] == set()


@pytest.mark.parametrize("dtype", DTYPES)
def test_torchs_module_is_right_but_for_an_empty_row(dtype):
    """With the batch second: the gradients of x are turned as x is."""
    for batch_first in (False, True):
        module = torch.nn.MultiheadAttention(12, 3, batch_first=batch_first)
        names, report = found(module, dtype=dtype)
        assert names == {"GRAD_NAN_EMPTY_ROW"}
        finding = report["GRAD_NAN_EMPTY_ROW"]
        assert finding.evidence[0].endswith("on mha_masked_row: nothing is sent back to the empty row")
        assert "mask" in finding.example.arrays
        assert "cannot be imported by name" in finding.script
        done = replayed(finding)
        assert done.returncode == 1, done.stderr
        assert "FAULT GRAD_NAN_EMPTY_ROW: wrong for x, wq, wk, wv, wo" in done.stderr


def test_a_module_without_gradients():
    names, report = found(Cut())
    assert names == {"GRAD_GRAPH_CUT"}
    assert report["GRAD_GRAPH_CUT"].certainty == "6 of 6 probes"
    assert "does not require grad" in report["GRAD_GRAPH_CUT"].evidence[0]
    names, report = found(ForInference())
    assert names == {"GRAD_REFUSES"}
    assert report["GRAD_REFUSES"].level == "fault"
    assert "RuntimeError: for inference only" in report["GRAD_REFUSES"].evidence[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_module_whose_softmax_is_made_by_hand(dtype):
    names, report = found(ForgetsTheSum(), dtype=dtype)
    assert names == {"NO_DELTA"}
    finding = report["NO_DELTA"]
    assert finding.example.case.query.shape[0] == 1
    done = replayed(finding)
    assert done.returncode == 1, done.stderr
    assert "FAULT NO_DELTA: wrong for" in done.stderr


def test_a_module_whose_gradients_drift():
    assert "GRAD_NONDETERMINISTIC" in found(Drifts(), seed=1)[0]


def test_a_layer_that_can_be_imported():
    report = rg.check(function, library="torch")
    finding = report["DETACHED"]
    assert finding.does.endswith(": of the values")
    assert "from test_check_gradients_torch import function as attention" in finding.script
    done = replayed(finding)
    assert done.returncode == 1, done.stderr
    assert "FAULT DETACHED: " in done.stderr
