"""The tensors of a safetensors file, given out as float32."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from regard._errors import ShapeError, UnsupportedError
from regard._libraries import bfloat16

from ._folder import ModelError, missing_extra, read_whole, shown

FloatArray: TypeAlias = npt.NDArray[np.float32]


_AS_FLOAT32: dict[str, Callable[[bytes], FloatArray]] = {
    "F32": lambda raw: np.frombuffer(raw, "<f4"),
    "F16": lambda raw: np.frombuffer(raw, "<f2").astype(np.float32),
    "BF16": lambda raw: np.frombuffer(raw, bfloat16()).astype(np.float32),
}


class Weights:
    """Named tensors of one file; names are given without the prefix ``bert.``, which some files carry.

    Parameters
    ----------
    path
        A ``.safetensors`` file.
    """

    def __init__(self, path: Path) -> None:
        try:
            # Not safetensors.numpy: it knows no bfloat16.
            from safetensors import SafetensorError, deserialize
        except ImportError:
            raise missing_extra("models", "safetensors") from None
        try:
            tensors = dict(deserialize(read_whole(path)))  # type: ignore[no-untyped-call]
        except SafetensorError as error:
            raise ModelError(f"{path} is damaged or cut short ({error}); fetch it again") from None
        self._path = path
        self._tensors = {_name(stored): tensor for stored, tensor in tensors.items()}

    def take(self, name: str, *shape: int) -> FloatArray:
        """Tensor ``name`` as float32; it must have the given shape."""
        tensor = self._tensors.get(name)
        if tensor is None:
            near = difflib.get_close_matches(name, _comparable(self._tensors), n=3, cutoff=0.0)
            raise ModelError(
                f"{self._path} has no tensor {name}; nearest: {', '.join(near) or 'none, it is empty'}; "
                "is it a BERT encoder with the layers that config.json says?"
            )
        if tensor["dtype"] not in _AS_FLOAT32:
            raise UnsupportedError(
                f"tensor {name} is {tensor['dtype']}; save the model as one of {', '.join(_AS_FLOAT32)}"
            )
        if tuple(tensor["shape"]) != shape:
            raise ShapeError(
                f"tensor {name} has shape {shown(tuple(tensor['shape']))}, config.json says {shape}; "
                "take both files from the same model"
            )
        return _AS_FLOAT32[tensor["dtype"]](tensor["data"]).reshape(shape)


def _comparable(names: Iterable[str]) -> list[str]:
    """Names that are compared in no time: a file may hold any number of any length, and real ones have 60 letters."""
    return list(islice((name for name in names if len(name) <= 200), 2000))


def _name(stored: str) -> str:
    """Today's name of a stored tensor: old files call a norm's weight gamma and its bias beta."""
    name = stored.removeprefix("bert.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
