"""Faults of grouped heads, and of a whole multi-head layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard._types import Array
from regard.check.answers._fault import Group, Steps

GROUP = Group(
    "heads",
    "Heads get each other's features. A layer that is trained and used with the same fault may work; pretrained "
    "weights do not.",
)
ROWS = "split with x.reshape(B, S, H, D).swapaxes(1, 2)"
BACK = "merge with x.swapaxes(1, 2).reshape(B, S, H * D)"
SHARE = "repeat each key and value head for its neighbours: np.repeat(k, Hq // Hkv, axis=1)"
EACH = "q, k, v = x @ wq, x @ wk, x @ wv, and the output @ wo"


def _matrices(change: Any) -> Steps:
    return {"project": lambda m, case: change(case.query, case.layer)}


def _tile(x: Array, heads: int) -> Array:
    return np.tile(x, (1, heads // x.shape[1], 1, 1))


def _on_sequence(x: Array, heads: int) -> Array:
    """(B, S, Hkv, D) to (B, S, Hq, D), by way of S · Hq / Hkv positions."""
    longer = np.concatenate([x] * (heads // x.shape[2]), axis=1)
    return np.asarray(longer.reshape(*x.shape[:2], heads, x.shape[3]))


def _reduced(reduce: Any) -> Any:
    def merge(m: Any, case: Any, o: Array) -> Array:
        return np.tile(reduce(o), (1, 1, o.shape[1]))

    return merge


def _packed(case: Any, unpacked: Any) -> tuple[Array, ...]:
    """Multiply by the three matrices side by side, and read the columns as (B, S, H, 3, D)."""
    layer, x = case.layer, case.query
    parts = unpacked(x @ np.concatenate([layer.query, layer.key, layer.value], axis=1), layer.heads)
    return tuple(parts[:, :, :, part].reshape(x.shape) for part in range(3))


GROUP.add(
    "GQA_TILE",
    "query head h reads key head h % Hkv: heads are tiled, not repeated",
    SHARE,
    share=lambda m, case, q, k, v: (_tile(k, q.shape[1]), _tile(v, q.shape[1])),
)
GROUP.add(
    "GQA_K_TILE_V_REPEAT",
    "keys are tiled over the query heads, values are repeated",
    SHARE,
    share=lambda m, case, q, k, v: (_tile(k, q.shape[1]), np.repeat(v, q.shape[1] // v.shape[1], axis=1)),
)
GROUP.add(
    "GQA_FIRST",
    "with fewer key heads than query heads only the first key head is read",
    SHARE,
    share=lambda m, case, q, k, v: (
        (k, v) if q.shape[1] == k.shape[1] else (np.repeat(k[:, :1], q.shape[1], 1), np.repeat(v[:, :1], q.shape[1], 1))
    ),
)
GROUP.add(
    "REPEAT_ON_SEQUENCE",
    "keys and values are repeated along the positions, not along the heads",
    SHARE,
    {
        label: {"share": lambda m, case, q, k, v, of=of: (of(k, q.shape[1]), of(v, q.shape[1]))}
        for label, of in (
            ("(B, S, H, D), tile", lambda x, heads: _on_sequence(x.swapaxes(1, 2), heads).swapaxes(1, 2)),
            (
                "(B, H, S, D), repeat",
                lambda x, heads: np.repeat(x, heads // x.shape[1], axis=2).reshape(len(x), heads, *x.shape[2:]),
            ),
        )
    },
    why="The shape fits after a reshape; each head attends to a part of the tokens, twice.",
)
GROUP.add(
    "SPLIT_NO_TRANSPOSE",
    "heads are split by a reshape to (B, H, S, D) without a transpose",
    ROWS,
    split=lambda m, case, x: x.reshape(len(x), case.layer.heads, x.shape[1], -1),
)
GROUP.add(
    "SPLIT_INTERLEAVED",
    "features of a head are taken in steps, as (D, H), not side by side",
    ROWS,
    split=lambda m, case, x: np.moveaxis(x.reshape(*x.shape[:2], -1, case.layer.heads), 3, 1),
)
GROUP.add(
    "QKV_PACK_ORDER",
    "the columns of one matrix for query, key and value are read in another order than theirs: (3, H, D)",
    "unpack as x @ qkv -> (B, S, 3, H, D); a checkpoint that is packed otherwise is sorted when it is loaded",
    {
        "(H, 3, D)": {"project": lambda m, case: _packed(case, lambda y, h: y.reshape(*y.shape[:2], h, 3, -1))},
        "(H, D, 3)": {
            "project": lambda m, case: _packed(case, lambda y, h: y.reshape(*y.shape[:2], h, -1, 3).swapaxes(3, 4))
        },
    },
    why="GPT-NeoX packs per head, GPT-2 does not: with the other's order every shape fits, and the model babbles.",
)
GROUP.add(
    "MERGE_NO_TRANSPOSE",
    "heads are merged by a reshape without a transpose",
    BACK,
    merge=lambda m, case, o: o.reshape(o.shape[0], o.shape[2], -1),
)
GROUP.add(
    "MERGE_INTERLEAVED",
    "heads are merged as (D, H): their features alternate",
    BACK,
    merge=lambda m, case, o: np.moveaxis(o, 1, 3).reshape(o.shape[0], o.shape[2], -1),
)
GROUP.add("HEADS_AVERAGED", "the heads are averaged, not joined", BACK, merge=_reduced(lambda o: o.mean(axis=1)))
GROUP.add("HEADS_SUMMED", "the heads are summed, not joined", BACK, merge=_reduced(lambda o: o.sum(axis=1)))
GROUP.add(
    "QK_SHARED_PROJECTION",
    "query and key share the query's matrix",
    EACH,
    {"": _matrices(lambda x, w: (x @ w.query, x @ w.query, x @ w.value))},
)
GROUP.add(
    "K_NOT_PROJECTED", "the keys are not projected", EACH, {"": _matrices(lambda x, w: (x @ w.query, x, x @ w.value))}
)
GROUP.add(
    "WQ_TRANSPOSED",
    "a matrix of the projections is transposed",
    EACH,
    {
        "query's": _matrices(lambda x, w: (x @ w.query.T, x @ w.key, x @ w.value)),
        "key's": _matrices(lambda x, w: (x @ w.query, x @ w.key.T, x @ w.value)),
        "value's": _matrices(lambda x, w: (x @ w.query, x @ w.key, x @ w.value.T)),
        "all three": _matrices(lambda x, w: (x @ w.query.T, x @ w.key.T, x @ w.value.T)),
    },
)
GROUP.add("WO_MISSING", "the last matrix is missing", EACH, last=lambda m, case: np.eye(len(case.layer.out)))
GROUP.add("WO_TRANSPOSED", "the last matrix is transposed", EACH, last=lambda m, case: case.layer.out.T)
