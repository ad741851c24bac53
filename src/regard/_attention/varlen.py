"""Sequences of different lengths, packed one after the other."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from regard import _engine
from regard._arrays import Operands
from regard._errors import MaskError, ShapeError, written
from regard._libraries import as_numpy
from regard._plan import as_mask, read
from regard._types import IntArray
from regard.biases import Bias, DenseBias
from regard.masks import Blocks, Dense, Documents, KeyLengths, KeyPadding

if TYPE_CHECKING:
    from typing_extensions import Never


def varlen_attention(
    query: Any,
    key: Any,
    value: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any = None,
    *,
    mask: Any = None,
    bias: Any = None,
    q_offset: Any = None,
    scale: Any = None,
    softcap: Any = None,
    sinks: Any = None,
    dropout: Any = None,
    **unknown: Never,
) -> Any:
    """Attention within each of several sequences that are packed one after the other, without padding.

    Each sequence is a call of `attention` of its own, and has that call's bits.

    Parameters
    ----------
    query : array, shape ``(Hq, Tq, D)``
        The queries of all sequences. Packed as ``(Tq, Hq, D)``, pass ``query.swapaxes(0, 1)``, which copies nothing.
    key, value : array, shapes ``(Hkv, Tk, D)`` and ``(Hkv, Tk, Dv)``
        The keys and values of all sequences.
    cu_seqlens_q : ints, shape ``(N + 1,)``
        Where the sequences begin, and last the total: sequence n has the queries ``cu_seqlens_q[n]`` up to, without,
        ``cu_seqlens_q[n + 1]``. The first is 0, the last Tq; a sequence may be empty.
    cu_seqlens_k : ints, shape ``(N + 1,)``, optional
        The same of the keys; default: those of the queries. Queries of a sequence without keys give 0.
    mask : Mask, optional
        What is kept within each sequence, positions counted from its own beginning: a mask without a shape, such as
        ``rg.Causal() & rg.Window(left=256)``.
    bias : Bias, optional
        Likewise a bias without a shape, such as `Alibi`.
    q_offset : int, "start" or "end", optional
        Position of each sequence's first query among its own keys; needed where mask or bias depends on positions
        and a sequence has other numbers of queries and keys.
    scale, softcap, sinks, dropout
        As for `attention`.

    Returns
    -------
    array, shape ``(Hq, Tq, Dv)``
        Of the query's library and dtype.

    Raises
    ------
    ShapeError, DTypeError, MaskError, AlignmentError, UnsupportedError
        Those of `attention`; ShapeError too if the beginnings do not fit the arrays.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> x = np.arange(10, dtype=np.float32).reshape(1, 5, 2)
    >>> packed = rg.varlen_attention(x, x, x, [0, 3, 3, 5], mask=rg.Causal())
    >>> bool((packed[:, 3:] == rg.attention(x[:, 3:], x[:, 3:], x[:, 3:], mask=rg.Causal())).all())
    True
    """
    given = Operands.of(query, key, value, bias, sinks)
    q, k, v = given.query, given.key, given.value
    for name, array in (("query", q), ("key", k), ("value", v)):
        if array.ndim != 3:
            raise ShapeError(
                f"{name} has shape {array.shape}; packed sequences have three axes, (H, T, D): a batch of equal "
                "lengths is a call of attention"
            )
    if v.shape[1] != k.shape[1]:
        raise ShapeError(
            f"key has {k.shape[1]} rows and value has {v.shape[1]} (shapes {k.shape} and {v.shape}): there is one "
            "value per key"
        )
    queries = _bounds("cu_seqlens_q", cu_seqlens_q, "query", q.shape)
    if cu_seqlens_k is None and k.shape[1] != q.shape[1]:
        raise ShapeError(
            f"query has {q.shape[1]} rows and key has {k.shape[1]} (shapes {q.shape} and {k.shape}): where the lengths "
            "differ, say where the sequences of the keys begin with cu_seqlens_k="
        )
    keys = queries if cu_seqlens_k is None else _bounds("cu_seqlens_k", cu_seqlens_k, "key", k.shape)
    if len(queries) != len(keys):
        raise ShapeError(
            f"cu_seqlens_q tells of {len(queries) - 1} sequences and cu_seqlens_k of {len(keys) - 1}: give both the "
            "same number; a sequence may be empty"
        )
    _refuse_tables(mask, given.bias)
    sequences = [
        (slice(*rows), slice(*columns)) for rows, columns in zip(pairwise(queries), pairwise(keys), strict=True)
    ]
    sequences = sequences or [(slice(0, 0), slice(0, 0))]  # which checks the arguments
    options = {
        "mask": mask, "bias": given.bias, "q_offset": q_offset, "scale": scale, "softcap": softcap,
        "sinks": given.sinks, "dropout": dropout, **unknown,
    }  # fmt: skip
    calls = []
    for rows, columns in sequences:  # all are checked before one is computed
        arrays = q[:, rows], k[:, columns], v[:, columns]
        calls.append((rows, Operands(*arrays, given.bias, given.sinks), _engine.prepare(*read(*arrays, **options))))
    out = given.library.empty((q.shape[0], q.shape[1], v.shape[2]), q.dtype)
    for rows, operands, call in calls:
        call.run(operands, out[:, rows])
    return given.library.give(out)


def _refuse_tables(mask: Any, bias: Bias | None) -> None:
    """Raise for what has a shape of its own: it would fit sequences of one length, and mean each of them."""
    asked = as_mask(mask)
    if any(isinstance(leaf, Dense | Blocks | KeyPadding | KeyLengths | Documents) for leaf in asked.leaves):
        raise MaskError(
            f"{asked!r} tells rows or keys by number, and packed sequences each count from 0: use masks without a "
            "shape, such as rg.Causal() & rg.Window(left=256); for one mask over the packed rows call attention with "
            "rg.Documents(ids) & that mask"
        )
    if bias is not None and any(isinstance(part, DenseBias) for part in bias.parts):
        raise ShapeError(
            f"bias is {bias!r}, an array of one shape, and packed sequences each count from 0: use a bias without a "
            "shape, such as rg.Alibi(heads)"
        )


def _bounds(name: str, given: Any, array: str, shape: tuple[int, ...]) -> list[int]:
    """Return the beginnings of the sequences, and the end of the last."""
    try:
        bounds = np.asarray(as_numpy(name, given))
    except ValueError:
        bounds = np.asarray(None)
    if bounds.ndim != 1 or bounds.dtype.kind not in "iu" or not bounds.size:
        raise ShapeError(
            f"{name} is {written(given)}; it holds integers, the beginnings of N sequences and the total, (N + 1,)"
        )
    begins: IntArray = bounds.astype(np.int64)
    if begins[0] != 0 or begins[-1] != shape[1] or np.any(np.diff(begins) < 0):
        order = "ascending" if np.all(np.diff(begins) >= 0) else "not ascending"
        raise ShapeError(
            f"{name} runs from {begins[0]} to {begins[-1]}, {order}, and {array} has {shape[1]} rows (shape {shape}): "
            f"it begins with 0, ends with {shape[1]} and never steps back; of lengths it is np.cumsum([0, *lengths]); "
            f"the axes are (H, T, D): of {array} (T, H, D) pass {array}.swapaxes(0, 1)"
        )
    return [int(begin) for begin in begins]
