"""The rules that transformers composes a mask from, found again in the composed function."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from types import CodeType
from typing import Any

import numpy as np

from regard._libraries import as_numpy
from regard._types import Array, BoolArray, IntArray
from regard.masks import Causal, Documents, Full, KeyPadding, Mask, Window, from_function

# A function of (batch, head, query position, key position), and what such a function closes over.
Rule = Callable[..., Any]
Variables = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Frame:
    """Where the scores of a rule stand in the sequences.

    ``queries`` and ``keys`` are positions, ``(1 or batch, n)``, which begin anywhere and count up by one. The frame of
    a rule inside packed sequences is another: there ``positions`` hold what the rule sees of each index, and
    ``documents`` the sequence of each index, without which pairs from two sequences look like neighbours.
    """

    batch: int
    queries: IntArray
    keys: IntArray
    use_vmap: bool
    documents: IntArray | None = None
    positions: Any = None

    @classmethod
    def of(cls, batch: int, queries: range, keys: range, use_vmap: bool) -> Frame:
        """Place scores at two ranges of positions."""
        at = [np.arange(side.start, side.stop, dtype=np.int64)[None] for side in (queries, keys)]
        return cls(batch, at[0], at[1], use_vmap)


def translate(rule: Rule, frame: Frame) -> Mask:
    """Return the mask that a rule of transformers is.

    What is composed is taken apart; parts that are not known are called for blocks of pairs, by `from_function`.
    """
    known = _known().get(getattr(rule, "__code__", None))
    mask = None if known is None else known(_variables(rule), frame)
    return _called(rule, frame) if mask is None else mask


@lru_cache(maxsize=1)
def _known() -> dict[CodeType | None, Callable[[Variables, Frame], Mask | None]]:
    """List what is known, by code, which all closures that one function made have in common."""
    from transformers import masking_utils as hf

    return {
        hf.causal_mask_function.__code__: lambda of, frame: Causal(),
        hf.bidirectional_mask_function.__code__: _everything,
        _made_by(hf.and_masks): _all,
        _made_by(hf.or_masks): _any,
        _made_by(hf.sliding_window_overlay): _window,
        _made_by(hf.sliding_window_bidirectional_overlay): _two_sided_window,
        _made_by(hf.chunked_overlay): _chunks,
        _made_by(hf.blockwise_overlay): _blocks,
        _made_by(hf.padding_mask_function): _padding,
        _made_by(hf.packed_sequence_mask_function): _packed,
        _made_by(hf.remap_positions_for_packed_sequence): _inside_documents,
    }


def _made_by(maker: Rule) -> CodeType:
    # The last one: a comprehension may come before.
    return [constant for constant in maker.__code__.co_consts if isinstance(constant, CodeType)][-1]


def _variables(rule: Rule) -> Variables:
    cells = getattr(rule, "__closure__", None) or ()
    return {name: cell.cell_contents for name, cell in zip(rule.__code__.co_freevars, cells, strict=True)}


def _called(rule: Rule, frame: Frame) -> Mask:
    """Ask transformers' own mask function for each block, so that a rule means what it means there."""
    from transformers import masking_utils as hf

    if frame.positions is not None:
        rule, first = hf.remap_positions_for_packed_sequence(rule, frame.positions), 0
    else:
        first = int(frame.keys[0, 0])

    def ask(b: IntArray, h: IntArray, p: IntArray, j: IntArray) -> BoolArray:
        rows, keys = p.ravel(), j.ravel()
        block = hf.sdpa_mask(
            batch_size=b.size,
            q_length=int(rows[-1] - rows[0]) + 1,
            kv_length=int(keys[-1] - keys[0]) + 1,
            q_offset=int(rows[0]) + first,
            kv_offset=int(keys[0]) + first,
            mask_function=rule,
            allow_is_causal_skip=False,
            use_vmap=frame.use_vmap,
        )
        return as_numpy("the mask", block)[:, :, rows - rows[0]][..., keys - keys[0]]

    ask.__name__ = getattr(rule, "__qualname__", type(rule).__name__)
    return from_function(ask)


def _everything(of: Variables, frame: Frame) -> Mask | None:
    """Keep keys of query >= 0."""
    return Full() if frame.queries.min(initial=0) >= 0 else None


def _all(of: Variables, frame: Frame) -> Mask:
    from transformers import masking_utils as hf

    for rule in of["mask_functions"]:
        if getattr(rule, "__code__", None) is _made_by(hf.packed_sequence_mask_function):
            ids = as_numpy("packed_sequence_mask", _variables(rule)["packed_sequence_mask"])
            frame = replace(frame, documents=ids)
    masks = [mask for mask in map(partial(translate, frame=frame), of["mask_functions"]) if mask != Full()]
    return reduce(operator.and_, masks) if masks else Full()


def _any(of: Variables, frame: Frame) -> Mask:
    return reduce(operator.or_, map(partial(translate, frame=frame), of["mask_functions"]))


def _window(of: Variables, frame: Frame) -> Mask | None:
    """Keep key > query - size."""
    size = int(of["sliding_window"])
    return Window(left=size - 1) if size > 0 else None


def _two_sided_window(of: Variables, frame: Frame) -> Mask | None:
    """Keep abs(query - key) <= size."""
    size = int(of["sliding_window"])
    return Window(left=size, right=size) if size >= 0 else None


def _chunks(of: Variables, frame: Frame) -> Mask:
    """Keep keys of the query's chunk; chunks are counted from the first key of an entry that is no padding."""
    first = as_numpy("left_padding", of["left_padding"]).reshape(-1, 1)
    size = int(of["chunk_size"])
    return Documents((frame.queries - first) // size, (frame.keys - first) // size)


def _blocks(of: Variables, frame: Frame) -> Mask | None:
    """Keep keys of the query's block; a negative number is no block."""
    of_queries, of_keys = (_at("block_sequence_ids", of, positions) for positions in (frame.queries, frame.keys))
    if of_queries is None or of_keys is None:
        return None
    return Documents(np.where(of_queries < 0, -1, of_queries), np.where(of_keys < 0, -2, of_keys))


def _padding(of: Variables, frame: Frame) -> Mask | None:
    """Keep keys that are no padding."""
    kept = _at("padding_mask", of, frame.keys)
    if kept is None:
        return None
    return Full() if kept.all() else KeyPadding(kept != 0)


def _packed(of: Variables, frame: Frame) -> Mask | None:
    """Keep keys of the query's own sequence."""
    of_queries, of_keys = (_at("packed_sequence_mask", of, positions) for positions in (frame.queries, frame.keys))
    return None if of_queries is None or of_keys is None else Documents(of_queries, of_keys)


def _inside_documents(of: Variables, frame: Frame) -> Mask | None:
    """Translate a rule of positions that begin anew in each sequence, where only pairs of one sequence count.

    Inside a sequence positions count up by one, so that their differences are those of indices.
    """
    positions = as_numpy("position_ids", of["position_ids"])
    ids = frame.documents
    from_zero = all(np.array_equal(side[0], np.arange(positions.shape[1])) for side in (frame.queries, frame.keys))
    if ids is None or ids.shape != positions.shape or not from_zero or frame.positions is not None:
        return None
    steps, same = np.diff(positions, axis=-1), np.diff(ids, axis=-1)
    if np.any(same < 0) or np.any(steps[same == 0] != 1):
        return None
    inner = replace(frame, queries=positions, keys=positions, positions=of["position_ids"])
    return translate(of["mask_function"], inner)


def _at(name: str, of: Variables, positions: IntArray) -> Array | None:
    """Look up a number for each position in a table ``(batch, positions)``; None where transformers would fail."""
    table = as_numpy(name, of[name])
    if table.ndim != 2 or positions.min(initial=0) < 0 or positions.max(initial=-1) >= table.shape[1]:
        return None
    lead = np.broadcast_shapes(table.shape[:1], positions.shape[:1])
    return np.take_along_axis(
        np.broadcast_to(table, (*lead, table.shape[1])), np.broadcast_to(positions, (*lead, positions.shape[1])), axis=1
    )
