"""What a multi-head layer returns: its output, and each head's part in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._attention.forward import ForwardResult
from regard._attention.weights import OnDemand, Weights, as_range, full_index
from regard._types import Array


@dataclass(frozen=True, eq=False)
class MultiHeadResult:
    """What `regard.MultiHeadAttention.forward` returns.

    Attributes
    ----------
    out : array, shape ``(..., Sq, outputs)``
        The output, of the query's library and dtype; all else is NumPy's, in the layer's dtype.
    query, key, value : arrays, shapes ``(..., Hq, Sq, D)``, ``(..., Hkv, Skv, D)``, ``(..., Hkv, Skv, Dv)``
        What the heads attended with: projected, split, rotated.
    heads : array, shape ``(..., Hq, Sq, Dv)``
        Each head's output, before they are mixed.
    lse : array, shape ``(..., Hq, Sq)``
        Natural logsumexp of each row's scores, over the kept keys and the layer's extra ones.
    weights : Weights or JoinedWeights
        Attention weights on demand, ``weights[b, h, i0:i1, j0:j1]``; the layer's extra keys come after the others.
    attention : ForwardResult
        Attention over the sequence's keys alone, as `regard.attention_forward` returns it.
    """

    out: Any
    query: Array
    key: Array
    value: Array
    heads: Array
    lse: Array
    weights: Weights | JoinedWeights
    attention: ForwardResult

    def __repr__(self) -> str:
        return f"MultiHeadResult: out {self.out.dtype} {tuple(self.out.shape)}, {self.weights!r}"


class JoinedWeights(OnDemand):
    """Weights over keys that were attended to in parts, one part after the other; computed when indexed.

    Indexes like an array of shape ``(..., heads, Sq, Skv + extra)``, as weights over one sequence of keys do.
    """

    def __init__(self, parts: Sequence[Weights], shares: Array) -> None:
        """Take the parts, and each one's share in the whole of each row, ``(parts, ..., heads, Sq)``."""
        self._parts, self._shares = parts, shares
        keys = sum(part.shape[-1] for part in self._parts)
        self.shape = (*self._parts[0].shape[:-1], keys)
        self.dtype = self._parts[0].dtype

    def _block(self, index: Any) -> Array:
        *rows, asked = full_index(index, self.ndim)
        keys, first, blocks = as_range(asked, self.shape[-1]), 0, []
        for part, share in zip(self._parts, self._shares, strict=True):
            inside = slice(max(keys.start - first, 0), max(keys.stop - first, 0))
            block, taken = part[(*rows, inside)], share[tuple(rows)][..., None]
            # A part without a share may hold NaN: all its scores are -inf, and the other's are not.
            blocks.append(np.multiply(block, taken, out=np.zeros_like(block), where=taken != 0))
            first += part.shape[-1]
        block = np.concatenate(blocks, axis=-1)
        return block if isinstance(asked, slice) else block[..., 0]
