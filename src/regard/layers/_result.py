"""What a multi-head layer returns: its output, and each head's part in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._attention.forward import ForwardResult
from regard._attention.weights import Weights, as_range, full_index
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


class JoinedWeights:
    """Weights over keys that were attended to in parts, one part after the other; computed when indexed.

    Indexes like an array of shape ``(..., heads, Sq, Skv + extra)``, as weights over one sequence of keys do.
    """

    def __init__(self, parts: Sequence[ForwardResult], total: Array) -> None:
        """Take the parts, and each row's logsumexp over all that takes a share."""
        self._parts = [part.weights for part in parts]
        # A row that keeps nothing has weights 0 in each part: its share may be any number.
        base = np.where(total == -np.inf, 0, total)
        with np.errstate(all="ignore"):
            self._shares = [np.exp(part.lse - base) for part in parts]
        keys = sum(part.shape[-1] for part in self._parts)
        self.shape = (*self._parts[0].shape[:-1], keys)
        self.dtype = self._parts[0].dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"weights {self.dtype} {self.shape} computed when indexed"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("weights are computed when asked for: an array of them is always new")
        return self[...] if dtype is None else self[...].astype(dtype)

    def __getitem__(self, index: Any) -> Array:
        *rows, asked = full_index(index, self.ndim)
        keys, first, blocks = as_range(asked, self.shape[-1]), 0, []
        for part, share in zip(self._parts, self._shares, strict=True):
            inside = slice(max(keys.start - first, 0), max(keys.stop - first, 0))
            blocks.append(part[(*rows, inside)] * share[tuple(rows)][..., None])
            first += part.shape[-1]
        block = np.concatenate(blocks, axis=-1)
        return block if isinstance(asked, slice) else block[..., 0]
