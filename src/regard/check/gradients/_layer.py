"""A whole layer around attention: what goes back to x and to its matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case
from regard.check.answers._oracle import RIGHT
from regard.check.answers._tolerance import layer_unit

ROLES = ("x", "wq", "wk", "wv", "wo")


def layer_gradients(
    attention: Callable[[Case, Array], Mapping[str, Array]], case: Case, grad_out: Array
) -> dict[str, Array]:
    """Go back through the last matrix, the heads, and the first three matrices.

    ``attention`` goes back through the heads: from a case without a layer to the gradients of its operands.
    """
    assert case.layer
    layer, x = case.layer, case.query
    plain = replace(case, nan_rows=False, layer=replace(layer, out=np.eye(len(layer.out))))
    q, k, v = (RIGHT.split(case, y) for y in RIGHT.project(case))
    heads = Case(case.name, q, k, v, causal=case.causal, mask=case.mask, from_start=case.from_start)
    inner = attention(heads, RIGHT.split(case, grad_out @ layer.out.T))
    dq, dk, dv = (RIGHT.merge(case, inner[name]) for name in ("query", "key", "value"))
    return {
        "x": dq @ layer.query.T + dk @ layer.key.T + dv @ layer.value.T,
        "wq": _over_all(x, dq),
        "wk": _over_all(x, dk),
        "wv": _over_all(x, dv),
        "wo": _over_all(RIGHT(plain), grad_out),
    }


def _over_all(x: Array, dy: Array) -> Array:
    """Gradient of a matrix that every position is multiplied by."""
    return np.asarray(np.einsum("bsi,bso->io", x, dy))


def layer_bounds(right: Mapping[str, Array], dtype: str) -> dict[str, Array]:
    """How far right gradients of a layer may be off: as many units of the largest element as its output may."""
    return {name: np.asarray(layer_unit(dtype) * np.abs(x).max(initial=0)) for name, x in right.items()}
