"""Attributes of the operator: what each may be, and since which opset."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from regard._errors import UnsupportedError, written
from regard._types import as_int

FIRST_OPSET = 23
LENGTHS_SINCE = 24  # nonpad_kv_seqlen, and masks that are shorter than the keys
WINDOWS_SINCE = 25  # windows; head counts are refused with 4-D inputs

_DOUBLE = 11
_PRECISIONS = {1: "FLOAT", 10: "FLOAT16", _DOUBLE: "DOUBLE", 16: "BFLOAT16"}  # of TensorProto
_MODES = "0 raw, 1 after the softcap, 2 after bias and mask, 3 after the softmax"


@dataclass(frozen=True)
class Attributes:
    """Checked attributes; ``scale``, ``softcap`` and windows are None where there is none.

    ``double`` tells that the softmax is asked for in float64.
    """

    causal: bool
    mode: int
    scale: float | None
    softcap: float | None
    double: bool
    left: int | None
    right: int | None
    opset: int


def as_attributes(
    is_causal: Any,
    mode: Any,
    scale: Any,
    softcap: Any,
    softmax_precision: Any,
    left: Any,
    right: Any,
    opset: Any,
) -> Attributes:
    """Check what does not depend on the inputs; scale and softcap are checked where they are used."""
    version = as_integer("opset", opset, "the operator set of the model: 23, 24, or 25 and above")
    if version < FIRST_OPSET:
        raise UnsupportedError(f"opset is {version}, and the operator Attention exists since opset {FIRST_OPSET}")
    if softmax_precision is not None:
        known = ", ".join(f"{number} ({name})" for number, name in _PRECISIONS.items())
        as_integer("softmax_precision", softmax_precision, f"one of {known}", _PRECISIONS)
    return Attributes(
        causal=bool(as_integer("is_causal", is_causal, "0 or 1", (0, 1))),
        mode=as_integer("qk_matmul_output_mode", mode, _MODES, (0, 1, 2, 3)),
        scale=scale,
        softcap=None if softcap is None or softcap == 0 else softcap,
        double=softmax_precision == _DOUBLE,
        left=_window("left_window_size", left, version),
        right=_window("right_window_size", right, version),
        opset=version,
    )


def require_opset(what: str, opset: int, since: int, way: str) -> None:
    """Raise UnsupportedError where the model's opset does not have something yet."""
    if opset < since:
        raise UnsupportedError(f"{what} came with opset {since}, and opset is {opset}: pass opset={since}, or {way}")


def _window(name: str, value: Any, opset: int) -> int | None:
    must = "a number of keys, 0 or more, or -1 for no bound"
    size = as_integer(name, value, must)
    if size < -1:
        raise UnsupportedError(f"{name} is {written(size)}; it must be {must}")
    if size == -1:
        return None
    require_opset(f"{name}={written(size)}", opset, WINDOWS_SINCE, "leave it out")
    return size


def as_integer(name: str, value: Any, must: str, known: Container[int] | None = None) -> int:
    """Return an integer, among ``known`` where that is given."""
    number = int(value) if isinstance(value, bool) else as_int(value)  # Python's True is ONNX's 1
    if number is None or (known is not None and number not in known):
        raise UnsupportedError(f"{name} is {written(value)}; it must be {must}")
    return number
