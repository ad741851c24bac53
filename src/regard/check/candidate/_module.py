"""A torch module with projections of its own, as a function of x and four matrices.

The module itself is not changed: it is called with the probes' matrices in place of its own, its biases 0.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from regard._errors import UnsupportedError
from regard.check.answers._layers import LayerSize

from ._signature import OPERANDS, OPTIONS, Signature, role_of

# Names of projections, lower case and without underscores: of a layer inside the module, or of a parameter.
_PROJECTIONS = {
    "wq": "q wq qproj query toq wquery queryproj linearq qlinear qlin queryprojection fcq projq",
    "wk": "k wk kproj key tok wkey keyproj lineark klinear klin keyprojection fck projk",
    "wv": "v wv vproj value tov wvalue valueproj linearv vlinear vlin valueprojection fcv projv",
    "wo": "o wo oproj out outproj output toout wout outputproj linearo olinear outlin outlinear fco proj projo dense "
    "cproj",
    "packed": "qkv inproj cattn wqkv qkvproj toqkv querykeyvalue wpack",
}
_ROLES = {name: role for role, names in _PROJECTIONS.items() for name in names.split()}
_HEADS = ("num_heads", "n_heads", "heads", "n_head", "nhead", "num_attention_heads", "h")
_WANTED = (
    "check sets the projections of a module itself, and looks for layers named like q_proj, k_proj, v_proj, out_proj, "
    "or qkv and out_proj"
)


def is_module(fn: Any) -> bool:
    """Whether a value is a torch module."""
    module = getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", ())
    return isinstance(fn, module)


@dataclass(frozen=True)
class Projections:
    """Where a module keeps its matrices: by role the parameter's name; and whether they are (out, in), as Linear's."""

    names: dict[str, str]
    turned: dict[str, bool]
    heads: int

    def weights(self, torch: Any, given: dict[str, Any]) -> dict[str, Any]:
        """Parameters with these matrices, which multiply x from the right."""
        if "packed" in self.names:
            given = {"packed": self._packed(torch, [given[role] for role in ("wq", "wk", "wv")]), "wo": given["wo"]}
        return {
            name: given[role].T.contiguous() if self.turned[role] else given[role] for role, name in self.names.items()
        }

    def _packed(self, torch: Any, matrices: list[Any]) -> Any:
        """Side by side as (3, H, D); as (H, 3, D) under the name that BLOOM's and GPT-NeoX's checkpoints have."""
        if "query_key_value" not in self.names["packed"]:
            return torch.cat(matrices, dim=1)
        width = len(matrices[0])
        return torch.stack([w.view(width, self.heads, -1) for w in matrices], dim=2).reshape(width, -1)


@contextmanager
def evaluating(module: Any) -> Iterator[None]:
    """Within it no part of a module is in training; afterwards each is as it was."""
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


class PlainModule:
    """A module without projections as a function, not in training."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.__qualname__ = type(module).__name__

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call it, dropout off."""
        with evaluating(self.module):
            return self.module(*arguments, **options)


class LayerModule:
    """A module as a function ``fn(x, wq, wk, wv, wo, **options)``."""

    def __init__(self, module: Any, projections: Projections, size: LayerSize) -> None:
        self.module, self.projections, self.size = module, projections, size
        self.__qualname__ = type(module).__name__
        required, self.signature = _signature(module)
        self.operands = len(required)

    def __call__(self, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, **options: Any) -> Any:
        """Call the module with these matrices, biases 0, and everything else in x's dtype."""
        torch: Any = sys.modules["torch"]
        weights = self.projections.weights(torch, {"wq": wq, "wk": wk, "wv": wv, "wo": wo})
        others = {
            name: torch.zeros_like(p, dtype=x.dtype) if name.endswith("bias") else p.detach().to(x.dtype)
            for name, p in self.module.named_parameters()
            if p.is_floating_point()
        }
        with evaluating(self.module):
            return torch.func.functional_call(self.module, {**others, **weights}, (x,) * self.operands, options)


def as_layer(module: Any) -> LayerModule | None:
    """Find a module's projections; None for a module that has no parameters: it is a function of query, key, value.

    Raises
    ------
    UnsupportedError
        It has parameters, and they are not those of a multi-head layer, or the number of heads is not to be found.
    """
    parameters = {name: p for name, p in module.named_parameters() if p.ndim == 2}
    if not parameters:
        return None
    kind = type(module).__name__
    if getattr(module, "bias_k", None) is not None:
        raise UnsupportedError(f"{kind} has bias_k, a key that is not among x: check knows layers without")
    names = {role: name for name in parameters if (role := _role(name))}
    missing = [role for role in ("wq", "wk", "wv") if role not in names] if "packed" not in names else []
    if missing:
        raise UnsupportedError(f"{kind} has the matrices {', '.join(parameters)}; {_WANTED}: pass a function instead")
    heads = next((n for at in _HEADS if isinstance(n := getattr(module, at, None), int)), None)
    if heads is None:
        raise UnsupportedError(f"{kind} does not say how many heads it has: give it an attribute num_heads")
    width = min(parameters[names.get("wq", names.get("packed", ""))].shape)
    for role, name in names.items():
        shape = tuple(parameters[name].shape)
        if sorted(shape) != [width, 3 * width if role == "packed" else width]:
            raise UnsupportedError(f"{kind} has {name} of shape {shape}, and check knows square ones of {width} only")
    turned = {role: not _is_transposed(module, name) for role, name in names.items()}
    return LayerModule(module, Projections(names, turned, heads), LayerSize(heads, width, "wo" in names))


def _role(name: str) -> str | None:
    """Role of a parameter such as ``attention.to_out.0.weight`` or ``in_proj_weight``."""
    parts = [part for part in name.split(".") if not part.isdigit()]
    last = parts[-2] if parts[-1] == "weight" and len(parts) > 1 else parts[-1].removesuffix("_weight")
    return _ROLES.get(last.lower().replace("_", ""))


def _is_transposed(module: Any, name: str) -> bool:
    """Whether a matrix is (in, out): GPT-2's Conv1D, or a bare parameter by itself."""
    owner = module.get_submodule(name.rpartition(".")[0])
    torch: Any = sys.modules["torch"]
    return not isinstance(owner, torch.nn.Linear | torch.nn.MultiheadAttention)


def _signature(module: Any) -> tuple[list[str], Signature]:
    """Return the required operands of ``forward``, and the roles that a layer has."""
    parameters = list(inspect.signature(module.forward).parameters.values())
    roles = {p.name: role_of(p.name) for p in parameters}
    required = [
        p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    if len(required) > 1 and {roles[name] for name in required} != set(OPERANDS):
        raise UnsupportedError(
            f"{type(module).__name__}.forward requires {', '.join(required)}, and check passes x, or query, key and "
            "value: pass a function instead"
        )
    named = {role: name for name, role in roles.items() if role in OPTIONS and name not in required}
    return required, Signature(("x", "wq", "wk", "wv", "wo"), named, evidence="a torch module with projections")
