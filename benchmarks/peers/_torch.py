"""torch, in the ways in which it can be asked."""

from __future__ import annotations

import numpy as np

from benchmarks.covers import Causal
from benchmarks.peers._peer import Peer


def tensor(array):
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


class Torch(Peer):
    """What all have in common: tensors over the same memory, as many threads."""

    needs = ("torch",)

    def prepare(self, problem, given):
        import torch

        torch.set_num_threads(problem.threads)
        return self.call(problem, *map(tensor, given))

    def array(self, answer):
        return answer.float().numpy()


class Sdpa(Torch):
    """No mask but the causal one, which it is told by a flag."""

    name = "torch sdpa"

    def why_not(self, problem):
        if problem.group != 1:
            return "kv heads are shared"
        return "" if problem.mask in (None, Causal()) and problem.bias is None else "needs its mask as an array"

    def call(self, problem, q, k, v):
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        causal = problem.mask is not None
        return lambda: sdpa(q, k, v, is_causal=causal)


class MaskArray(Torch):
    """Any mask or bias, as the array that its users make once for all layers."""

    name = "torch sdpa, mask array"

    def why_not(self, problem):
        if problem.group != 1:
            return "kv heads are shared"
        if problem.mask is None and problem.bias is None:
            return "the problem is plain"
        return "a mask and a bias are one array" if problem.mask and problem.bias else ""

    def call(self, problem, q, k, v):
        import torch
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        cover = problem.mask or problem.bias
        array = torch.from_numpy(np.array(cover.dense(*problem.lengths)))
        array = array if array.dtype == torch.bool else array[None].to(q.dtype)
        return lambda: sdpa(q, k, v, attn_mask=array)


class Gqa(Torch):
    """Shared kv heads, which it is told by a flag."""

    name = "torch sdpa, enable_gqa"

    def why_not(self, problem):
        if problem.group == 1:
            return "kv heads are not shared"
        return "" if problem.mask in (None, Causal()) and problem.bias is None else "needs its mask as an array"

    def call(self, problem, q, k, v):
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        causal = problem.mask is not None
        return lambda: sdpa(q, k, v, is_causal=causal, enable_gqa=True)


class Folded(Torch):
    """The query heads of one kv head as rows: what a careful user writes for one query, since all see all keys."""

    name = "torch sdpa, heads folded into rows"

    def why_not(self, problem):
        if problem.group == 1:
            return "kv heads are not shared"
        return "" if problem.lengths[0] == 1 and problem.mask is None and problem.bias is None else "not one query"

    def call(self, problem, q, k, v):
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        batch, heads, _, size = problem.query
        rows = batch, problem.key[1], problem.group, size
        return lambda: sdpa(q.reshape(rows), k, v).reshape(batch, heads, 1, size)


class Flex(Torch):
    """flex_attention, compiled, with a block mask that is made once. Compilation is not timed."""

    name = "torch flex, compiled"

    def why_not(self, problem):
        if problem.mask is None or not hasattr(problem.mask, "rule"):
            return "the mask has no rule"
        return "" if problem.bias is None else "the bias is not translated"

    def call(self, problem, q, k, v):
        import torch
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        rule = problem.mask.rule
        blocks = create_block_mask(lambda b, h, i, j: rule(i, j), None, None, *problem.lengths, device="cpu")
        compiled, shared = torch.compile(flex_attention, dynamic=False), problem.group != 1
        return lambda: compiled(q, k, v, block_mask=blocks, enable_gqa=shared)


TORCH = (Sdpa(), MaskArray(), Gqa(), Folded(), Flex())
