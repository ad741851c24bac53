"""torch, in ways in which only a careful user asks it."""

from __future__ import annotations

from regard.bench import Torch


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
    """flex_attention with a block mask that is made once, compiled by a call that nobody times."""

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

        def call():
            return compiled(q, k, v, block_mask=blocks, enable_gqa=shared)

        call()
        return call


TORCH = (Folded(), Flex())
