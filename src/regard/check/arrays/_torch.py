"""torch's tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any

import numpy as np

from regard._libraries import TORCH as TENSORS
from regard._libraries import as_numpy
from regard._types import Array

from ._base import GraphCutError, Pullback
from ._numpy import spread


class TorchArrays:
    """Functions of tensors in CPU memory."""

    name = "torch"
    writable = True
    patience = 1
    drawing = "torch.Generator().manual_seed(11)"

    @property
    def torch(self) -> ModuleType:
        """The module, which is loaded where a function of its tensors is."""
        return sys.modules["torch"]

    def send(self, x: Array) -> Any:
        """Return a new tensor."""
        x = np.array(x, order="C")
        return self.torch.from_numpy(x) if x.dtype.kind in "biu" else TENSORS.give(x)

    def read(self, x: Any) -> Array:
        """View a tensor's memory, without its history."""
        if x is None:
            raise TypeError("it returns None")
        return as_numpy("the result", x.detach() if self.is_array(x) else x)

    def is_array(self, x: Any) -> bool:
        """Whether a value is a tensor."""
        return isinstance(x, self.torch.Tensor)

    def calling(self, dtype: str) -> AbstractContextManager[Any]:
        """Nothing is to be set."""
        return nullcontext()

    def random(self, seed: int) -> Any:
        """Return a generator."""
        return self.torch.Generator().manual_seed(seed)

    def views(self, x: Any) -> dict[str, Any]:
        """Return views whose strides are not the usual ones; torch has no negative ones."""
        array = self.read(x)
        wide = self.send(np.ascontiguousarray(spread(array).base))
        turned = self.send(np.swapaxes(array, -1, -2)).transpose(-1, -2)
        return {"every second feature of a wider tensor": wide[..., ::2], "a transposed tensor": turned}

    def pull(self, fn: Callable[..., Any], operands: Sequence[Any]) -> tuple[Any, Pullback]:
        """Call with tensors that require gradients."""
        leaves = [x.detach().requires_grad_() for x in operands]
        with self.torch.enable_grad():
            out = fn(*leaves)
        if not self.is_array(out):
            raise TypeError(
                f"the result is of type {type(out).__name__}, not a tensor: there is nothing to go back from"
            )
        if not out.requires_grad:
            raise GraphCutError("the output does not require grad: the graph is cut")

        def pullback(grad: Array) -> list[Array]:
            sent = self.send(grad.astype(self.read(out).dtype))
            found = self.torch.autograd.grad(out, leaves, sent, retain_graph=True, allow_unused=True)
            return [np.zeros(x.shape) if g is None else self.read(g) for x, g in zip(leaves, found, strict=True)]

        return out, pullback

    @contextmanager
    def threads(self, count: int) -> Iterator[None]:
        """Set the number of threads within operators."""
        before = self.torch.get_num_threads()
        self.torch.set_num_threads(count)
        try:
            yield
        finally:
            self.torch.set_num_threads(before)

    def words(self, dtype: str) -> tuple[str, str, str]:
        """Tensors are made of arrays and read as arrays."""
        to, back = (".bfloat16()", ".float()") if dtype == "bfloat16" else ("", "")
        return (
            "import torch",
            f"torch.from_numpy(np.ascontiguousarray(x)){to}",
            f"x.detach(){back}.numpy()",
        )


TORCH = TorchArrays()
