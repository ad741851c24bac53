"""A layer's weights from the named tensors of other libraries, which are not imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from regard._arrays import as_input
from regard._errors import ShapeError, UnsupportedError, listed
from regard._types import Array

_PARTS = ("query", "key", "value", "output")
_KINDS = ("weight", "bias")
_NAMES_SHOWN = 12


class NamedTensors:
    """Tensors by name below a prefix; remembers which were read."""

    def __init__(self, tensors: Any, prefix: str) -> None:
        if not isinstance(tensors, Mapping):
            raise UnsupportedError(
                f"weights come as a mapping of names to tensors, and {type(tensors).__name__} is none: "
                "pass a state dict, or arrays to MultiHeadAttention(...)"
            )
        start = f"{prefix}." if prefix else ""
        self._where = f"below {prefix!r}" if prefix else "given"
        named = {str(name): tensor for name, tensor in tensors.items()}
        self._tensors = {name.removeprefix(start): t for name, t in named.items() if name.startswith(start)}
        self._others = list(named)
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str) -> Array:
        """Give a tensor as an array; one that is not there is an error."""
        if name not in self._tensors:
            found = f"{self._where}: {listed(self._tensors, _NAMES_SHOWN)}"
            if not self._tensors:
                found = f"{self._where}: none, of the names {listed(self._others, _NAMES_SHOWN)}"
            raise UnsupportedError(f"there is no tensor {name}; tensors {found}")
        self._read.add(name)
        tensor = self._tensors[name]
        # Parameters require grad, and a layer is for inference.
        return as_input(name, tensor.detach() if hasattr(tensor, "detach") else tensor)

    def find(self, name: str) -> Array | None:
        """Give a tensor as an array if it is there."""
        return self.take(name) if name in self else None

    def finish(self, *ignored: str) -> None:
        """Raise UnsupportedError for tensors that were not read, but for ignored ones: the layer would differ."""
        left = [name for name in self._tensors if name not in self._read and not name.startswith(ignored)]
        if left:
            raise UnsupportedError(
                f"the layer has no place for {listed(left, _NAMES_SHOWN)} {self._where}: it would compute something "
                "else than the model; leave these tensors out if that is what you want"
            )


def torch_weights(module: Any, num_heads: int | None, add_zero_attn: bool, prefix: str) -> dict[str, Any]:
    """Read what ``torch.nn.MultiheadAttention`` holds, as arguments of the layer."""
    if hasattr(module, "state_dict"):
        own = getattr(module, "num_heads", None)  # a module around the attention does not have it
        if own is not None and num_heads not in (None, own):
            raise ShapeError(f"num_heads is {num_heads} and the module has {own} heads: leave num_heads out")
        num_heads = num_heads if own is None else own
        add_zero_attn = add_zero_attn or bool(getattr(module, "add_zero_attn", False))
        module = module.state_dict()
    tensors = NamedTensors(module, prefix)
    found = _torch_projections(tensors)
    if num_heads is None:
        raise ShapeError("the number of heads is not among the tensors: pass num_heads=")
    found["output_weight"], found["output_bias"] = tensors.take("out_proj.weight"), tensors.find("out_proj.bias")
    extra = [[tensors.take(f"bias_{x}").reshape(1, -1) for x in "kv"]] if "bias_k" in tensors else []
    if add_zero_attn:
        extra.append([np.zeros((1, len(found[f"{x}_weight"])), found[f"{x}_weight"].dtype) for x in ("key", "value")])
    if extra:
        found["extra_key"], found["extra_value"] = (np.concatenate(rows) for rows in zip(*extra, strict=True))
    tensors.finish()
    return {**found, "num_heads": num_heads}


def _torch_projections(tensors: NamedTensors) -> dict[str, Any]:
    if "q_proj_weight" in tensors:  # as the module keeps them where kdim or vdim is given
        found = {f"{part}_weight": tensors.take(f"{part[0]}_proj_weight") for part in _PARTS[:3]}
    else:
        found = _thirds(tensors, "weight")
    return found | (_thirds(tensors, "bias") if "in_proj_bias" in tensors else {})


def _thirds(tensors: NamedTensors, part: str) -> dict[str, Array]:
    """Cut ``in_proj_weight`` or ``in_proj_bias`` into the rows of query, key and value."""
    joined = tensors.take(f"in_proj_{part}")
    if joined.ndim != 2 - (part == "bias") or len(joined) % 3:
        raise ShapeError(
            f"in_proj_{part} has shape {joined.shape}; its rows are those of query, key and value, 3 * width"
        )
    return {f"{name}_{part}": third for name, third in zip(_PARTS, np.split(joined, 3), strict=False)}


def bert_weights(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Read the attention of a BERT layer, as arguments of the layer."""
    names = {part: f"self.{part}" for part in _PARTS[:3]} | {"output": "output.dense"}
    named = NamedTensors(tensors, prefix)
    found = {f"{part}_{kind}": named.take(f"{name}.{kind}") for part, name in names.items() for kind in _KINDS}
    named.finish("output.LayerNorm.")  # the residual's
    return found


def llama_weights(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Read the attention of a Llama layer, as arguments of the layer."""
    named = NamedTensors(tensors, prefix)
    found: dict[str, Any] = {"sinks": named.find("sinks")}
    for part in _PARTS:
        found[f"{part}_weight"] = named.take(f"{part[0]}_proj.weight")
        found[f"{part}_bias"] = named.find(f"{part[0]}_proj.bias")
    named.finish("rotary_emb.")  # frequencies, which follow from the rule
    return found
