"""What a layer is made of: heads, matrices and their dtype, checked; what goes into it, checked and widened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from regard._arrays import Intake, as_input, require_float
from regard._errors import DTypeError, ShapeError, refuse_unknown
from regard._fit import as_size
from regard._libraries import Library
from regard._types import Array, score_dtype

_T = TypeVar("_T")
_LAYOUT = "weights are (outputs, inputs), as torch's Linear stores them"
_FROM_TORCH = "the weights, whose shapes are the sizes; of a module of torch's, MultiHeadAttention.from_torch(module)"
# Arguments of other libraries' layers, and how the same is said here.
_PEERS = {
    **dict.fromkeys(("embed_dim", "kdim", "vdim", "d_model", "hidden_size", "head_dim", "key_dim"), _FROM_TORCH),
    **dict.fromkeys(("in_proj_weight", "in_proj_bias", "out_proj"), _FROM_TORCH),
    **dict.fromkeys(("add_bias_kv", "add_zero_attn"), "extra_key= and extra_value=; of zeros for add_zero_attn"),
    **dict.fromkeys(("bias", "use_bias"), "query_bias=, key_bias=, value_bias= and output_bias=, arrays"),
    **dict.fromkeys(("causal", "is_causal"), "layer(x, mask=rg.Causal()), in the call"),
    **dict.fromkeys(("mask", "attn_mask"), "layer(x, mask=...), in the call"),
    "batch_first": "nothing: a layer takes (..., S, width)",
    "dropout": "nothing: a layer is for inference",
}


def with_known_arguments(layer: type[_T]) -> type[_T]:
    """Let a dataclass refuse arguments that it has not by what is meant."""
    make: Callable[..., None] = layer.__init__
    known = tuple(field.name for field in fields(layer))  # type: ignore[arg-type]

    @wraps(make)
    def init(self: _T, *given: Any, **named: Any) -> None:
        unknown = [name for name in named if name not in known]
        refuse_unknown(unknown, known, f"{layer.__name__} has no argument", "it has", _PEERS)
        make(self, *given, **named)

    layer.__init__ = init  # type: ignore[assignment, method-assign]
    return layer


def as_weights(given: dict[str, Any]) -> dict[str, Array]:
    """Take arrays of one dtype, float64 or float32; 16-bit ones are widened. The others are views, read-only.

    Raises
    ------
    DTypeError
        One is no float array, or float64 stands beside others.
    """
    arrays = {name: as_input(name, value) for name, value in given.items()}
    wide = {name: score_dtype(require_float(name, array.dtype).name) for name, array in arrays.items()}
    if len(set(wide.values())) > 1:
        found = ", ".join(f"{name} is {arrays[name].dtype}" for name in arrays)
        raise DTypeError(
            f"a layer computes in float64 or in float32, and {found}: cast the float64 ones, or the others"
        )
    return {name: _read_only(array.astype(wide[name], copy=False)) for name, array in arrays.items()}


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def check_heads(num_heads: Any, num_kv_heads: Any) -> tuple[int, int]:
    """Take the numbers of query heads and kv heads; None stands for as many."""
    heads = as_size("num_heads", num_heads, 1)
    kv_heads = heads if num_kv_heads is None else as_size("num_kv_heads", num_kv_heads, 1)
    if heads % kv_heads:
        raise ShapeError(
            f"{heads} query heads cannot share {kv_heads} kv heads, {heads} % {kv_heads} = {heads % kv_heads}: "
            "num_heads must be a multiple of num_kv_heads"
        )
    return heads, kv_heads


def check_weights(arrays: dict[str, Array], heads: int, kv_heads: int) -> None:
    """Raise ShapeError unless all arrays of a layer fit its heads and each other."""
    size = _head_size("query_weight", arrays["query_weight"], heads, "query")
    width, own = kv_heads * size, f"{kv_heads} kv heads of {size}"
    grouped = arrays["key_weight"].shape[:1]
    if kv_heads == heads and grouped and grouped[0] % size == 0 and grouped[0]:
        own += f" (grouped heads: num_kv_heads={grouped[0] // size})"
    _check_matrix("key_weight", arrays["key_weight"], (width, None), own)
    value_size = _head_size("value_weight", arrays["value_weight"], kv_heads, "kv")
    mixed = f"inputs for {heads} heads with values of {value_size}"
    _check_matrix("output_weight", arrays["output_weight"], (None, heads * value_size), mixed)
    for name in ("query", "key", "value", "output"):
        if f"{name}_bias" in arrays:
            rows = len(arrays[f"{name}_weight"])
            _check_vector(f"{name}_bias", arrays[f"{name}_bias"], (rows,), f"a number per row of {name}_weight")
    if "sinks" in arrays:
        _check_vector("sinks", arrays["sinks"], (heads,), "a logit per query head")
    if ("extra_key" in arrays) != ("extra_value" in arrays):
        raise ShapeError("extra_key and extra_value come together: there is one value per key")
    if "extra_key" in arrays:
        keys = arrays["extra_key"].shape[:1]
        _check_vector("extra_key", arrays["extra_key"], (*keys, width), f"rows of {kv_heads} kv heads of {size}")
        whole = (*keys, kv_heads * value_size)
        _check_vector("extra_value", arrays["extra_value"], whole, f"a row per extra key, {kv_heads} of {value_size}")


def _head_size(name: str, weight: Array, heads: int, kind: str) -> int:
    """Take a weight's outputs, which are so many heads of one size."""
    if weight.ndim != 2 or weight.shape[0] % heads or not weight.shape[0]:
        raise ShapeError(
            f"{name} has shape {weight.shape}; it must have two axes, the first a multiple of {heads} {kind} heads; "
            f"{_LAYOUT}"
        )
    return len(weight) // heads


def _check_matrix(name: str, matrix: Array, shape: tuple[int | None, int | None], meaning: str) -> None:
    """Raise ShapeError unless a matrix has a shape; None stands for any size."""
    if _fits(matrix.shape, shape):
        return
    wanted = ", ".join("any" if size is None else str(size) for size in shape)
    # Where each of both orders could be meant, neither is proposed.
    turned = f"; for a matrix stored (inputs, outputs) pass {name}.T" if _fits(matrix.shape[::-1], shape) else ""
    raise ShapeError(f"{name} has shape {matrix.shape} and must have ({wanted}), {meaning}; {_LAYOUT}{turned}")


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    pairs = zip(shape, wanted, strict=False)
    return len(shape) == len(wanted) and all(want in (None, size) for size, want in pairs)


def _check_vector(name: str, vector: Array, shape: tuple[int, ...], meaning: str) -> None:
    """Raise ShapeError unless an array has exactly this shape."""
    if vector.shape != shape:
        raise ShapeError(f"{name} has shape {vector.shape} and must have {shape}, {meaning}")


def take_inputs(
    given: dict[str, tuple[Any, Array]], dtype: np.dtype[Any]
) -> tuple[list[Array], np.dtype[Any], Library]:
    """Check inputs against the weights that read them; return them in the layer's dtype, their own, and their library.

    ``given`` holds for each name the input and the weight.
    """
    intake = Intake()
    arrays = {name: intake(name, value) for name, (value, _) in given.items()}
    dtypes = {name: require_float(name, array.dtype) for name, array in arrays.items()}
    if len(set(dtypes.values())) > 1:
        found = ", ".join(f"{name} is {found}" for name, found in dtypes.items())
        raise DTypeError(f"query, key and value must have one dtype, and {found}: cast them to one")
    for name, array in arrays.items():
        weight = given[name][1]
        if array.ndim < 2 or array.shape[-1] != weight.shape[1]:
            raise ShapeError(
                f"{name} has shape {array.shape} and must have (..., S, {weight.shape[1]}): the last axis is what "
                f"{name}_weight of shape {weight.shape} reads; {_LAYOUT}"
            )
        if score_dtype(dtypes[name].name) != dtype:
            raise DTypeError(
                f"{name} is {dtypes[name]} and the layer's weights are {dtype}: cast {name} to {dtype}, or make the "
                "layer from weights of another dtype"
            )
    return [array.astype(dtype, copy=False) for array in arrays.values()], dtypes["query"], intake.library
