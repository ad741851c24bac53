"""Integers of more digits than Python writes out: refused in our words, or taken where anything so large is one."""

import math
from functools import partial

import numpy as np
import pytest

import regard as rg
from regard import onnx
from regard._errors import written
from regard.check import check_apart
from regard.check._options import as_budget
from regard.numerics import forward_bounds
from regard.positions import rotary_frequencies

LONG = 10**5000
BITS = "<int of 16,610 bits>"
X = np.ones((2, 3, 4), np.float32)
MATRICES = {f"{name}_weight": np.eye(4) for name in ("query", "key", "value", "output")}


def layer(x, wq, wk, wv, wo, heads):
    return x


class Shape:
    shape, dtype = (2, LONG, 4), np.dtype(np.float32)


REFUSED = {
    "scale": (rg.UnsupportedError, lambda: rg.attention(X, X, X, scale=LONG)),
    "softcap": (rg.UnsupportedError, lambda: rg.attention(X, X, X, softcap=-LONG)),
    "q_offset": (rg.AlignmentError, lambda: rg.attention(X, X, X, mask=rg.Causal(), q_offset=LONG)),
    "num_threads": (rg.UnsupportedError, lambda: rg.config(num_threads=LONG).__enter__()),
    "Alibi": (rg.ShapeError, lambda: rg.Alibi(LONG)),
    "max_distance": (rg.ShapeError, lambda: rg.T5Bias(np.ones((4, 1)), bidirectional=True, max_distance=LONG)),
    "Prefix": (rg.MaskError, lambda: rg.Prefix(-LONG)),
    "Window(left=": (rg.MaskError, lambda: rg.Window(left=-LONG)),
    "Blocks": (rg.MaskError, lambda: rg.Blocks([[True]], -LONG)),
    "queries": (rg.ShapeError, lambda: rg.Causal().materialize(LONG, 3)),
    "heads": (rg.ShapeError, lambda: rg.Causal().materialize(3, 3, heads=-LONG)),
    "base": (rg.UnsupportedError, lambda: rg.rotary_embedding(X, base=LONG)),
    "dim": (rg.ShapeError, lambda: rotary_frequencies(LONG)),
    "shape": (rg.ShapeError, lambda: rg.AttentionState.empty(LONG)),
    "block_keys": (rg.ShapeError, lambda: rg.reference.online_attention(X, X, X, block_keys=-LONG)),
    "index": (IndexError, lambda: rg.attention_forward(X, X, X).weights[0, LONG]),
    "step": (IndexError, lambda: rg.attention_forward(X, X, X).weights[0, ::LONG]),
    "bidirectional": (rg.ShapeError, lambda: rg.T5Bias(np.ones((4, 1)), bidirectional=LONG)),
    "aux": (rg.UnsupportedError, lambda: rg.attention_forward(X, X, X, aux=LONG)),
    "rotary": (rg.UnsupportedError, lambda: rg.MultiHeadAttention(**MATRICES, num_heads=2, rotary=LONG)),
    "dtype": (rg.DTypeError, lambda: rg.AttentionState.empty((2, 3, 4), LONG)),
    "sinusoids": (rg.DTypeError, lambda: rg.sinusoidal_positions([1], 4, dtype=LONG)),
    "bounds": (rg.DTypeError, lambda: forward_bounds(X, X, X, X, scale=1.0, tile_keys=96, dtype=LONG)),
    "from_function": (rg.MaskError, lambda: rg.from_function(LONG)),
    "from_function(": (rg.MaskError, lambda: rg.from_function(lambda b, h, p, j: LONG).materialize(2, 2)),
    "is_causal": (rg.UnsupportedError, lambda: onnx.attention(X[None], X[None], X[None], is_causal=LONG)),
    "q_num_heads": (rg.ShapeError, lambda: onnx.attention(X, X, X, q_num_heads=LONG, kv_num_heads=1)),
    "left_window_size": (rg.UnsupportedError, lambda: onnx.attention(X, X, X, left_window_size=-LONG)),
    "fn": (TypeError, lambda: rg.check(LONG)),
    "vjp": (TypeError, lambda: rg.check(rg.attention, vjp=LONG)),
    "check knows": (ValueError, lambda: rg.check(rg.attention, layout=LONG)),
    "of a layer check knows": (ValueError, lambda: rg.check(layer, layout=LONG)),
    "library": (ValueError, lambda: rg.check(rg.attention, library=LONG)),
    "empty_row": (ValueError, lambda: rg.check(rg.attention, empty_row=LONG)),
    "dtype is": (ValueError, lambda: rg.check(rg.attention, dtype=LONG)),
    "supports is": (TypeError, lambda: rg.check(rg.attention, supports=LONG)),
    "supports has": (ValueError, lambda: rg.check(rg.attention, supports=[LONG])),
    "expected is": (TypeError, lambda: rg.check(rg.attention, expected=LONG)),
    "expected has": (ValueError, lambda: rg.check(rg.attention, expected={LONG: "known"})),
    "'NO_MAX'": (TypeError, lambda: rg.check(rg.attention, expected={"NO_MAX": LONG})),
    "seed": (ValueError, lambda: rg.check(rg.attention, seed=-LONG)),
    "budget_s": (ValueError, lambda: rg.check(rg.attention, budget_s=-LONG)),
    "timeout_s": (rg.RegardError, lambda: check_apart("regard:attention", timeout_s=-LONG)),
    "no finding": (KeyError, lambda: rg.check(rg.attention, supports=(), budget_s=0)[LONG]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_messages_tell_its_size(name):
    error, call = REFUSED[name]
    with pytest.raises(error) as caught:
        call()
    assert name in str(caught.value)
    assert BITS[1:] in str(caught.value)  # some are negative


@pytest.mark.parametrize("option", ["layout", "mask", "empty_row", "library", "dtype", "budget_s"])
def test_check_names_what_holds_one(option):
    with pytest.raises(ValueError, match=f"^{option} is <list that cannot be written out>; "):
        rg.check(rg.attention, **{option: [LONG]})


def test_a_function_that_holds_one_is_named_by_its_type():
    with pytest.raises(rg.MaskError, match=r"from_function\(<partial that cannot be written out>\) takes a function"):
        rg.from_function(partial(lambda a, b: True, LONG))


def test_a_budget_may_be_longer_than_any_float():
    assert as_budget(LONG) == math.inf


def test_what_holds_one_is_named_by_its_type():
    with pytest.raises(rg.ShapeError, match=r"query has shape <tuple that cannot be written out>; a shape"):
        rg.plan(Shape(), X, X)
    with pytest.raises(rg.MaskError, match=r"Blocks\(\.\.\., <list that cannot be written out>"):
        rg.Blocks([[True]], [LONG, -LONG])


@pytest.mark.parametrize("leaf", [rg.Prefix, rg.Global, rg.Chunked, rg.Dilated])
def test_masks_take_any_and_print(leaf):
    mask = leaf(LONG)
    assert repr(mask) == f"{leaf.__name__}({BITS})"
    assert rg.attention(X, X, X, mask=mask).shape == X.shape
    assert BITS in repr(rg.plan(X, X, X, mask=mask))


def test_windows_and_blocks_print():
    assert repr(rg.Window(LONG, LONG)) == f"Window(left={BITS}, right={BITS})"
    assert repr(rg.Blocks([[True]], LONG)) == f"Blocks([[True]], {BITS})"


@pytest.mark.parametrize("block", [2**62, 2**63, 2**63 + 2**62, 2**64, LONG, (2, 2**63), (2**63, 3)], ids=written)
def test_blocks_beyond_any_scores(block):
    """One table entry covers an axis that is shorter than its block."""
    table = np.array([[True, False]] if block == (2**63, 3) else [[False], [True]] if block == (2, 2**63) else [[True]])
    mask, same = rg.Blocks(table, block), rg.Blocks(table.copy(), block)
    assert mask == same
    assert hash(mask) == hash(same)
    rows, keys = block if isinstance(block, tuple) else (4, 4)
    want = np.kron(table, np.ones((min(rows, 4), min(keys, 4)), bool))[:4, :4]
    np.testing.assert_array_equal(mask.materialize(4, 4), want)
    x = np.ones((1, 4, 2), np.float32)
    np.testing.assert_array_equal(rg.attention(x, x, x, mask=mask), rg.attention(x, x, x, mask=want))
