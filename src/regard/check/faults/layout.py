"""Faults of operands and axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard._types import Array
from regard.check.answers._fault import Group, Steps
from regard.check.answers._oracle import RIGHT

GROUP = Group(
    "layout",
    "An axis or an operand stands where another belongs. With equal sizes nothing complains, and what comes out has "
    "the right shape.",
)


def _operands(change: Any) -> Steps:
    return {"operands": lambda m, case: change(case.query, case.key, case.value)}


def _output(change: Any) -> Steps:
    return {"finish": lambda m, case, o, operands, s, P: change(o, operands)}


def _first(x: Array, axis: int) -> Array:
    return np.repeat(x.take([0], axis), x.shape[axis], axis)


def _mean(x: Array, axis: int) -> Array:
    return np.repeat(x.mean(axis, keepdims=True), x.shape[axis], axis)


def _joined(x: Array, batch: int) -> Array:
    """Positions of all batch entries in one row of keys."""
    together = np.concatenate(list(x), axis=-2)
    return np.broadcast_to(together, (batch, *together.shape))


def _sequence_and_head(m: Any, case: Any, o: Array, operands: Any, s: Array, P: Array) -> Array:
    return np.asarray(o.swapaxes(1, 2))


def _reshaped(m: Any, case: Any, q: Array, k: Array) -> Array:
    return np.asarray(q @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2]))


def _features(count: Any) -> Steps:
    """Leave out of q · k all but the first features, of which there are count(d)."""

    def product(m: Any, case: Any, q: Array, k: Array) -> Array:
        n = count(q.shape[-1])
        return RIGHT.product(case, q[..., :n], k[..., :n])

    return {"product": product}


def _wide(o: Array, case: Any, keep_shape: bool) -> Array:
    wide = np.zeros((*o.shape[:-1], o.shape[-1] if keep_shape else case.query.shape[-1]))
    n = min(o.shape[-1], case.query.shape[-1])
    wide[..., :n] = o[..., :n]
    return wide


GROUP.add(
    "K_RESHAPED_NOT_TRANSPOSED",
    "the keys are reshaped to (d, n), which is not a transpose",
    "use k.swapaxes(-1, -2)",
    product=_reshaped,
)
GROUP.add(
    "QK_SWAPPED",
    "query and key are swapped",
    "scores = q @ k.T: rows are queries",
    {"": _operands(lambda q, k, v: (k, q, v))},
)
GROUP.add(
    "P_TRANSPOSED_V",
    "the weights are transposed before they meet the values",
    "output = weights @ v",
    combine=lambda m, case, P, v, keep: P.swapaxes(-1, -2) @ v,
)
GROUP.add("K_IS_V", "the values are used as keys too", "scores = q @ k.T", {"": _operands(lambda q, k, v: (q, v, v))})
GROUP.add(
    "V_IS_K", "the keys are used as values too", "output = weights @ v", {"": _operands(lambda q, k, v: (q, k, k))}
)
GROUP.add(
    "AXES_SWAPPED",
    "heads and positions are swapped: attention runs over the heads",
    "move the head axis before the positions first: x.swapaxes(1, 2)",
    {
        "": {
            **_operands(lambda q, k, v: (q.swapaxes(1, 2), k.swapaxes(1, 2), v.swapaxes(1, 2))),
            "finish": _sequence_and_head,
        }
    },
)
GROUP.add(
    "OUT_PLUS_QUERY",
    "the query is added to the output: a residual connection is left inside",
    "add the residual outside",
    {"": _output(lambda o, operands: o + operands[0])},
)
for _name, _axis, _of in (("BATCH", 0, "batch entry"), ("HEADS", 1, "head")):
    GROUP.add(
        f"{_name}_MEAN",
        f"every {_of} gets the mean over all of them",
        "do not reduce over that axis",
        {"": _output(lambda o, operands, axis=_axis: _mean(o, axis))},
    )
GROUP.add(
    "BATCH0_ONLY",
    "every batch entry gets the result of the first",
    "index queries, keys and values by the same batch entry",
    {"": _output(lambda o, operands: _first(o, 0))},
)
GROUP.add(
    "BATCH_LEAK",
    "queries see the keys of all batch entries",
    "keep the batch axis: do not flatten it into the positions",
    {"": _operands(lambda q, k, v: (q, _joined(k, len(q)), _joined(v, len(q))))},
)
GROUP.add(
    "HEAD0_KV",
    "every head gets the keys and values of head 0",
    "query head h reads key head h // (Hq // Hkv)",
    share=lambda m, case, q, k, v: (k[:, :1], v[:, :1]),
)
GROUP.add(
    "D_NOT_MULTIPLE",
    "features of q and k after the last whole vector of the processor are left out of q · k",
    "handle the features that are left over, or fill up with zeros",
    {
        **{f"vectors of {n}": _features(lambda d, n=n: d // n * n) for n in (2, 4, 8, 16, 32, 64)},
        **{f"no more than {n} features": _features(lambda d, n=n: n) for n in (32, 64)},
    },
    why="Heads of 64 and 128 are right; those of 40, 72 or 80 are not.",
)
GROUP.add(
    "DV_NE_D",
    "the width of the keys is taken for that of the values",
    "allocate the output with value.shape[-1] features",
    {
        "the output has as many features": {"finish": lambda m, case, o, operands, s, P: _wide(o, case, False)},
        "features of the output beyond it are 0": {"finish": lambda m, case, o, operands, s, P: _wide(o, case, True)},
    },
)
GROUP.add(
    "RETURNS_TUPLE",
    "a tuple is returned, the output in it",
    "return the output; offer weights or logsumexp by a flag or another function",
    {},
    why="Callers who expect an array fail, or use the wrong element.",
    edge=True,
)
