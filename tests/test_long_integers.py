"""Integers of more digits than Python writes out: refused in our words, or taken where anything so large is one."""

import numpy as np
import pytest

import regard as rg
from regard._errors import written
from regard.positions import rotary_frequencies

LONG = 10**5000
BITS = "<int of 16,610 bits>"
X = np.ones((2, 3, 4), np.float32)


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
    "seed": (ValueError, lambda: rg.check(rg.attention, seed=-LONG)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_messages_tell_its_size(name):
    error, call = REFUSED[name]
    with pytest.raises(error) as caught:
        call()
    assert name in str(caught.value)
    assert BITS[1:] in str(caught.value)  # some are negative


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
