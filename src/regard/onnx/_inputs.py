"""Q, K and V in their layouts, with the past: views of heads, and what does not fit together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._arrays import Intake, require_float
from regard._errors import DTypeError, ShapeError, written
from regard._libraries import Library
from regard._types import Array, as_int
from regard.layers import merge_heads, split_heads

from ._attributes import WINDOWS_SINCE


@dataclass(frozen=True, eq=False)
class Inputs:
    """Query, and key and value with their past in front, all ``(B, H, S, D)``.

    ``past`` is the length of the past, None without one; ``packed`` tells that Q was ``(B, L, H * D)``. The arrays came
    from ``library``, and those that are given back go to it.
    """

    query: Array
    key: Array
    value: Array
    past: int | None
    packed: bool
    library: Library

    @property
    def scores_shape(self) -> tuple[int, int, int, int]:
        """``(B, Hq, L, S)``."""
        batch, heads, queries, _ = self.query.shape
        return batch, heads, queries, self.key.shape[2]

    def empty_output(self, dtype: np.dtype[Any]) -> Array:
        """Make room for the output, so that its heads lie in memory as the layout of Q asks."""
        batch, heads, queries, _ = self.query.shape
        dv = self.value.shape[3]
        if self.packed:
            return np.empty((batch, queries, heads, dv), dtype).swapaxes(1, 2)
        return np.empty((batch, heads, queries, dv), dtype)

    def in_layout(self, out: Array) -> Array:
        """Give an output the layout of Q."""
        return merge_heads(out) if self.packed else out


def as_inputs(
    Q: Any, K: Any, V: Any, past_key: Any, past_value: Any, q_num_heads: Any, kv_num_heads: Any, opset: int
) -> Inputs:
    """Check the layouts, and join past and new keys."""
    intake = Intake()
    named = {"Q": intake.floats("Q", Q), "K": intake.floats("K", K), "V": intake.floats("V", V)}
    for name, array in named.items():
        require_float(name, array.dtype)
    if named["Q"].dtype != named["K"].dtype:
        raise DTypeError(f"Q is {named['Q'].dtype} and K is {named['K'].dtype}: only V may differ; cast them to one")
    shapes = ", ".join(str(array.shape) for array in named.values())
    rank = named["Q"].ndim
    if rank not in (3, 4) or any(array.ndim != rank for array in named.values()):
        raise ShapeError(f"Q, K and V have shapes {shapes}; all are 4-D (B, H, L, D), or all 3-D (B, L, H * D)")
    if len({array.shape[0] for array in named.values()}) > 1:
        raise ShapeError(f"Q, K and V have shapes {shapes}: axis 0 is the batch, and must be equal")
    heads = {"Q": q_num_heads, "K": kv_num_heads, "V": kv_num_heads}
    if rank == 3:
        named = {name: to_heads(name, array, heads[name], _ATTRIBUTE[name]) for name, array in named.items()}
    else:
        for name in ("Q", "K"):
            _check_count(name, named[name], heads[name], opset)
    if (past_key is None) != (past_value is None):
        given, missing = ("past_value", "past_key") if past_key is None else ("past_key", "past_value")
        raise ShapeError(f"{given} is given and {missing} is not: they go together, pass both or none")
    check_rows("K", named["K"], "V", named["V"])
    if past_key is None:
        return Inputs(named["Q"], named["K"], named["V"], None, rank == 3, intake.library)
    key = _joined("past_key", intake("past_key", past_key), "K", named["K"])
    value = _joined("past_value", intake("past_value", past_value), "V", named["V"])
    check_rows("past_key", key, "past_value", value)
    past = key.shape[2] - named["K"].shape[2]
    return Inputs(named["Q"], key, value, past, rank == 3, intake.library)


def to_heads(name: str, array: Array, heads: Any, attribute: str) -> Array:
    """View ``(B, L, H * D)`` as ``(B, H, L, D)``, with the operator's own words for what does not fit."""
    if heads is None:
        raise ShapeError(f"{name} is 3-D, shape {array.shape}, and its heads are not told: pass {attribute}=")
    count = as_int(heads)
    if count is None or count < 1 or array.shape[2] % count:
        raise ShapeError(
            f"{name} has shape {array.shape} and {attribute} is {written(heads)}: the last axis is heads * head size, "
            f"so {array.shape[2]} must be a multiple of a number of heads, 1 or more"
        )
    view: Array = split_heads(array, count)
    return view


def check_rows(key_name: str, key: Array, value_name: str, value: Array) -> None:
    """Raise ShapeError unless there is one value per key: a mask shorter than the keys cuts both."""
    if key.shape[2] != value.shape[2]:
        raise ShapeError(
            f"with {key_name} there are {key.shape[2]} keys and with {value_name} {value.shape[2]} values (shapes "
            f"{key.shape} and {value.shape}, as (B, H, L, D)): there is one value per key"
        )


_ATTRIBUTE = {"Q": "q_num_heads", "K": "kv_num_heads", "V": "kv_num_heads"}


def _check_count(name: str, array: Array, heads: Any, opset: int) -> None:
    """With 4-D inputs a number of heads says nothing new: refuse it from opset 25 on, before if it is wrong."""
    attribute = _ATTRIBUTE[name]
    if heads is None:
        return
    if opset >= WINDOWS_SINCE:
        raise ShapeError(
            f"{attribute} is {written(heads)} and {name} is 4-D, shape {array.shape}: from opset {WINDOWS_SINCE} on "
            f"{attribute} is for 3-D inputs only, leave it out"
        )
    if heads != array.shape[1]:
        raise ShapeError(
            f"{attribute} is {written(heads)} and {name} has {array.shape[1]} heads (shape {array.shape}): leave it out"
        )


def _joined(past_name: str, past: Array, name: str, new: Array) -> Array:
    batch, heads, _, width = new.shape
    if past.ndim != 4 or (past.shape[0], past.shape[1], past.shape[3]) != (batch, heads, width):
        raise ShapeError(
            f"{past_name} has shape {past.shape} and {name} in heads has {new.shape}: the past is 4-D, "
            f"({batch}, {heads}, past length, {width})"
        )
    if past.dtype != new.dtype:
        raise DTypeError(f"{past_name} is {past.dtype} and {name} is {new.dtype}: cast one to the other's dtype")
    return np.concatenate((past, new), axis=2)
