"""Who is timed wherever regard is: regard itself, attention as it is written in NumPy, and torch where it is."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from regard._attention.forward import attention
from regard._types import Array

from ._covers import Causal
from ._problem import Given, Problem

Call = Callable[[], Any]


class Peer:
    """A way to compute attention, under a name.

    `outside`: somebody else's, so that it counts among the best of the others. `needs`: what must be installed.
    """

    name = ""
    outside = True
    needs: tuple[str, ...] = ()

    def absent(self) -> str:
        """Why it is not there at all; empty if it is."""
        missing = [module for module in self.needs if find_spec(module) is None]
        return f"not installed: {', '.join(missing)}" if missing else ""

    def why_not(self, problem: Problem) -> str:
        """Why it cannot be asked this; empty if it can."""
        return ""

    def can(self, problem: Problem) -> bool:
        """Can it be asked this problem, here."""
        return not (self.absent() or self.why_not(problem))

    def answered(self, problem: Problem) -> Problem | None:
        """Give the problem that its answer is of; None if it gives none."""
        return problem

    def prepare(self, problem: Problem, given: Given) -> Call:
        """Make the function without arguments that is timed; what is done once per model is done here."""
        raise NotImplementedError

    def array(self, answer: Any) -> Array:
        """Turn what that function returned into an array in the query's shape."""
        return np.asarray(answer)


class Regard(Peer):
    """The library's own call."""

    name = "regard"
    outside = False

    def prepare(self, problem: Problem, given: Given) -> Call:
        """Take the arrays as they are."""
        options = {"mask": problem.mask, "bias": problem.bias}
        own = {name: cover.own() for name, cover in options.items() if cover is not None}
        return lambda: attention(*given, **own)


class InNumPy(Peer):
    """float32: what the formula says in one line each. Shared kv heads only where one query sees all keys."""

    def why_not(self, problem: Problem) -> str:
        """Refuse dtypes without a product, and shared heads."""
        if problem.dtype != "float32":
            return f"NumPy has no product of {problem.dtype} worth a time"
        folds = problem.lengths[0] == 1 and problem.mask is None and problem.bias is None
        return "" if problem.group == 1 or folds else "kv heads are shared"

    def prepare(self, problem: Problem, given: Given) -> Call:
        """Spell out mask and bias; query heads that share a kv head are its rows."""
        kept, bias = problem.spelled_out(problem.mask), problem.spelled_out(problem.bias)
        dropped = None if kept is None else ~kept
        batch, heads, queries, size = problem.query
        rows = batch, problem.key[1], problem.group * queries, size
        q, k, v = given.q.reshape(rows), given.k, given.v
        return lambda: self.attention(q, k, v, dropped, bias).reshape(batch, heads, queries, v.shape[3])

    @staticmethod
    def attention(q: Array, k: Array, v: Array, dropped: Array | None, bias: Array | None) -> Array:
        """Compute it."""
        raise NotImplementedError


class Textbook(InNumPy):
    """The formula, line by line."""

    name = "NumPy textbook"

    @staticmethod
    def attention(q: Array, k: Array, v: Array, dropped: Array | None, bias: Array | None) -> Array:
        """Compute it."""
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1]))
        if bias is not None:
            scores = scores + bias
        if dropped is not None:
            scores = np.where(dropped, np.float32(-np.inf), scores)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = weights / weights.sum(axis=-1, keepdims=True)
        return np.asarray(weights @ v)


class InPlace(InNumPy):
    """The same with no temporary that NumPy can be told to avoid."""

    name = "NumPy textbook, in place"

    @staticmethod
    def attention(q: Array, k: Array, v: Array, dropped: Array | None, bias: Array | None) -> Array:
        """Compute it."""
        scores = q @ k.swapaxes(-1, -2)
        scores *= np.float32(1 / np.sqrt(q.shape[-1]))
        if bias is not None:
            scores += bias
        if dropped is not None:
            np.copyto(scores, np.float32(-np.inf), where=dropped)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return np.asarray(scores @ v)


class Torch(Peer):
    """What all of torch's have in common: tensors over the same memory, as many threads."""

    needs = ("torch",)

    def prepare(self, problem: Problem, given: Given) -> Call:
        """Lay tensors over the arrays."""
        import torch

        torch.set_num_threads(problem.threads)
        return self.call(problem, *map(self.tensor, given))

    def call(self, problem: Problem, q: Any, k: Any, v: Any) -> Call:
        """Make the function that is timed."""
        raise NotImplementedError

    @staticmethod
    def tensor(array: Array) -> Any:
        """Take it without a copy."""
        import torch

        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    def array(self, answer: Any) -> Array:
        """As float32."""
        return np.asarray(answer.float().numpy())


class Sdpa(Torch):
    """No mask but the causal one, which it is told by a flag."""

    name = "torch sdpa"

    def why_not(self, problem: Problem) -> str:
        """Refuse what it has no flag for."""
        if problem.group != 1:
            return "kv heads are shared"
        return "" if problem.mask in (None, Causal()) and problem.bias is None else "needs its mask as an array"

    def call(self, problem: Problem, q: Any, k: Any, v: Any) -> Call:
        """Make the function that is timed."""
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        causal = problem.mask is not None
        return lambda: sdpa(q, k, v, is_causal=causal)


class MaskArray(Torch):
    """Any mask or bias, as the array that its users make once for all layers."""

    name = "torch sdpa, mask array"

    def why_not(self, problem: Problem) -> str:
        """Refuse what is not one array."""
        if problem.group != 1:
            return "kv heads are shared"
        if problem.mask is None and problem.bias is None:
            return "the problem is plain"
        return "a mask and a bias are one array" if problem.mask and problem.bias else ""

    def call(self, problem: Problem, q: Any, k: Any, v: Any) -> Call:
        """Make the function that is timed."""
        import torch
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        array = torch.from_numpy(np.array(problem.spelled_out(problem.mask or problem.bias)))
        array = array if array.dtype == torch.bool else array[None].to(q.dtype)
        return lambda: sdpa(q, k, v, attn_mask=array)


class Gqa(Torch):
    """Shared kv heads, which it is told by a flag."""

    name = "torch sdpa, enable_gqa"

    def why_not(self, problem: Problem) -> str:
        """Refuse what it has no flag for."""
        if problem.group == 1:
            return "kv heads are not shared"
        return "" if problem.mask in (None, Causal()) and problem.bias is None else "needs its mask as an array"

    def call(self, problem: Problem, q: Any, k: Any, v: Any) -> Call:
        """Make the function that is timed."""
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        causal = problem.mask is not None
        return lambda: sdpa(q, k, v, is_causal=causal, enable_gqa=True)
