"""torch's tensors in CPU memory."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np

from regard._errors import DTypeError, RegardError, UnsupportedError
from regard._types import FLOAT_DTYPES, Array

from ._dtypes import bfloat16, of_ml_dtypes, require_giveable


class Torch:
    """torch, which is loaded where one of its tensors is."""

    what = "torch tensor"

    @property
    def torch(self) -> ModuleType:
        """The module; not kept, so that results can be pickled."""
        return sys.modules["torch"]

    def read(self, name: str, value: Any) -> Array:
        """View a tensor's memory; bfloat16, which torch does not export to NumPy, through the integers of its bits."""
        torch = self.torch
        if (value.requires_grad and torch.is_grad_enabled()) or self._has_tangent(value):
            raise UnsupportedError(
                f"{name} requires grad, and gradients of regard's attention do not exist yet: call it under "
                f"`with torch.no_grad():`, or pass {name}.detach()"
            )
        try:
            if value.dtype is torch.bfloat16:
                array: Array = value.view(torch.int16).numpy().view(bfloat16())
            else:
                array = value.numpy()
        except MemoryError:
            raise
        except Exception as error:  # subclasses of tensors raise what they like
            raise self._refusal(name, value, error) from None
        if array.size and not value.data_ptr():
            raise UnsupportedError(f"{name} is a torch tensor whose storage was freed: it has no elements to read")
        return array

    def target(self, out: Any, shape: tuple[int, ...]) -> Array:
        """View the memory of a tensor that is to be written to."""
        if not isinstance(out, self.torch.Tensor):
            raise UnsupportedError(
                f"out is of type {type(out).__name__} and query is a torch tensor; pass a torch tensor of shape {shape}"
            )
        return self.read("out", out)

    def wrote(self, out: Any) -> None:
        """Count a write, so that a backward pass that has kept the tensor's old values knows that they are gone."""
        self.torch.autograd.graph.increment_version(out)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return a new array; torch takes any memory."""
        return np.empty(shape, dtype)

    def give(self, array: Array) -> Any:
        """Return a tensor that has the array's memory."""
        torch = self.torch
        if of_ml_dtypes(array.dtype):  # bfloat16 is all that comes out
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        require_giveable("torch", array.dtype)
        return torch.from_numpy(array)

    def dtype(self, dtype: np.dtype[Any]) -> Any:
        """Return torch's dtype."""
        require_giveable("torch", dtype)
        return getattr(self.torch, dtype.name)

    def _has_tangent(self, tensor: Any) -> bool:
        forward = self.torch.autograd.forward_ad
        # The private number says cheaply that no derivative is being computed; without it the public way tells.
        return getattr(forward, "_current_level", 0) >= 0 and forward.unpack_dual(tensor).tangent is not None

    def _refusal(self, name: str, tensor: Any, error: Exception) -> RegardError:
        if tensor.is_nested:
            return UnsupportedError(
                f"{name} is a nested tensor, whose sequences differ in length: pass "
                f"torch.nested.to_padded_tensor({name}, 0.0) and mask=rg.KeyLengths(lengths)"
            )
        if tensor.layout is not self.torch.strided:
            return UnsupportedError(
                f"{name} is a tensor of layout {tensor.layout}, and attention reads strided ones: pass "
                f"{name}.to_dense()"
            )
        if tensor.device.type != "cpu":
            data = "; a meta tensor has no data, and rg.plan needs none" if tensor.device.type == "meta" else ""
            return UnsupportedError(
                f"{name} is a torch tensor on device {tensor.device}, and regard computes on the CPU: pass "
                f"{name}.cpu(){data}"
            )
        if tensor.is_complex():
            return DTypeError(
                f"{name} is complex ({tensor.dtype}); attention is defined for real numbers: pass {name}.real"
            )
        if tensor.is_neg():
            return UnsupportedError(
                f"{name} is a tensor that is negated when it is read (torch.is_neg), not in memory: pass "
                f"{name}.resolve_neg()"
            )
        known = ", ".join(FLOAT_DTYPES)
        if tensor.is_quantized:
            return DTypeError(
                f"{name} is quantized ({tensor.dtype}); attention computes {known}: pass {name}.dequantize()"
            )
        if tensor.is_floating_point() and str(tensor.dtype).removeprefix("torch.") not in FLOAT_DTYPES:
            return DTypeError(
                f"{name} has dtype {tensor.dtype}; attention computes {known}: pass {name}.to(torch.float32)"
            )
        return UnsupportedError(
            f"{name} is a {type(tensor).__name__} whose memory cannot be read ({error}): inside torch.vmap, torch.func "
            "and fake tensor modes there are no numbers yet; call attention outside of them, on plain tensors"
        )
