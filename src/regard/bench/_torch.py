"""torch's scaled_dot_product_attention, in the ways of `regard bench`."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard._types import Array

from ._covers import Causal
from ._judge import UnfairError
from ._peers import Call, Peer
from ._problem import Given, Problem


class Torch(Peer):
    """What all of torch's have in common: tensors over the same memory, as many threads."""

    needs = ("torch",)

    def prepare(self, problem: Problem, given: Given) -> Call:
        """Lay tensors over the arrays."""
        import torch

        torch.set_num_threads(problem.threads)
        UnfairError.unless(problem.threads, torch.get_num_threads())
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
        return self.why_not_flagged(problem)

    @staticmethod
    def why_not_flagged(problem: Problem) -> str:
        """Refuse masks and biases that no flag says."""
        return "" if problem.mask in (None, Causal()) and problem.bias is None else "needs its mask as an array"

    def call(self, problem: Problem, q: Any, k: Any, v: Any) -> Call:
        """Make the function that is timed."""
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        flags = {"is_causal": problem.mask is not None, "enable_gqa": problem.group != 1}
        said = {flag: True for flag, needed in flags.items() if needed}
        return lambda: sdpa(q, k, v, **said)


class Gqa(Sdpa):
    """Shared kv heads, which it is told by another."""

    name = "torch sdpa, enable_gqa"

    def why_not(self, problem: Problem) -> str:
        """Refuse what it has no flag for."""
        if problem.group == 1:
            return "kv heads are not shared"
        return self.why_not_flagged(problem)


class MaskArray(Torch):
    """Any mask or bias, as the array that its users make once for all layers.

    The array is in the query's dtype: torch turns a bool one into that at every call. Padding is a row of keys for each
    batch entry, which torch lays over all queries.
    """

    name = "torch sdpa, mask array"

    def why_not(self, problem: Problem) -> str:
        """Refuse what has none."""
        if problem.group != 1:
            return "kv heads are shared"
        return "" if problem.mask or problem.bias else "the problem is plain"

    def call(self, problem: Problem, q: Any, k: Any, v: Any) -> Call:
        """Make the function that is timed."""
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        added = problem.added()
        assert added is not None  # or why_not has refused
        array = self.tensor(added)
        return lambda: sdpa(q, k, v, attn_mask=array)
