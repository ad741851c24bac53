"""torch, in ways in which only a careful user asks it."""

from __future__ import annotations

from regard.bench import Lengths, Torch


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


class Sliced(Torch):
    """A call for each sequence of a padded batch, without its padding; nothing is copied but the output."""

    name = "torch sdpa, a call per sequence"

    def why_not(self, problem):
        if problem.group != 1:
            return "kv heads are shared"
        return "" if isinstance(problem.mask, Lengths) and problem.bias is None else "the mask is no padding"

    def call(self, problem, q, k, v):
        import torch
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        lengths = problem.mask.lengths

        def call():
            entries = (sdpa(q[b : b + 1], k[b : b + 1, :, :n], v[b : b + 1, :, :n]) for b, n in enumerate(lengths))
            return torch.cat(tuple(entries))

        return call


class Flex(Torch):
    """flex_attention, compiled by a call that nobody times; its block mask is made once, a bias is a rule."""

    name = "torch flex, compiled"

    def why_not(self, problem):
        if problem.mask is None and problem.bias is None:
            return "the problem is plain"
        covers = [cover for cover in (problem.mask, problem.bias) if cover is not None]
        return "" if all(hasattr(cover, "rule") for cover in covers) else "the mask has no rule"

    def call(self, problem, q, k, v):
        import torch
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        options = {"enable_gqa": problem.group != 1}
        if problem.mask is not None:
            batch = len(q) if isinstance(problem.mask, Lengths) else None
            rule = problem.mask.rule(torch.tensor)
            options["block_mask"] = create_block_mask(rule, batch, None, *problem.lengths, device="cpu")
        if problem.bias is not None:
            bias = problem.bias.rule(torch.tensor)
            options["score_mod"] = lambda score, b, h, i, j: score + bias(b, h, i, j)
        # What is compiled for eight problems before this one would leave it uncompiled, thirty times as slow.
        torch.compiler.reset()
        compiled = torch.compile(flex_attention, dynamic=False)

        def call():
            return compiled(q, k, v, **options)

        call()
        return call


TORCH = (Folded(), Sliced(), Flex())
