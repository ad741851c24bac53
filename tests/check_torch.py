"""Attention in torch as people write it: right and wrong functions, and modules with projections of their own."""

import math

import torch
from torch import nn


def textbook(query, key, value, attn_mask=None, is_causal=False, scale=None):
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    n, m = scores.shape[-2:]
    if is_causal:
        scores = scores.masked_fill(~torch.ones(n, m, dtype=torch.bool).tril(m - n), -math.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    weights = scores.softmax(-1)
    return torch.where(torch.isnan(weights) & (scores == -math.inf), 0, weights) @ value


def filled(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    return scores.softmax(-1) @ v


def in_place(q, k, v):
    q *= 1 / math.sqrt(q.shape[-1])
    return (q @ k.mT).softmax(-1) @ v


def passes_through(q, k, v):
    v *= 1
    return v


def contiguous_only(q, k, v):
    """Reads memory as if it were contiguous."""
    q, k = (torch.as_strided(x, x.shape, torch.empty(x.shape).stride()) for x in (q, k))
    return textbook(q, k, v)


def by_threads(q, k, v):
    """Sums in as many pieces as there are threads."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    weights = scores.softmax(-1)
    pieces = zip(weights.chunk(torch.get_num_threads(), -1), v.chunk(torch.get_num_threads(), -2), strict=True)
    return sum(w @ x for w, x in pieces)


class Layer(nn.Module):
    """Right, with an option for each mistake."""

    def __init__(self, width=12, heads=3, bias=True):
        super().__init__()
        self.num_heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, width, bias) for _ in range(4))

    def split(self, x):
        return x.view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)

    def merge(self, x):
        return x.transpose(1, 2).flatten(2)

    def scale(self, q):
        return q.shape[-1] ** -0.5

    def forward(self, x, mask=None, is_causal=False):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        return self.out_proj(self.merge(textbook(q, k, v, mask, is_causal, self.scale(q))))


class Packed(Layer):
    """One matrix for query, key and value, and the mistakes' names in `to_out`."""

    def __init__(self, width=12, heads=3):
        nn.Module.__init__(self)
        self.heads = heads
        self.num_heads = heads
        self.to_qkv = nn.Linear(width, 3 * width, bias=False)
        self.to_out = nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5))

    def forward(self, x):
        q, k, v = (self.split(part) for part in self.to_qkv(x).chunk(3, dim=-1))
        return self.to_out(self.merge(textbook(q, k, v)))


class PackedPerHead(Packed):
    def forward(self, x):
        packed = self.to_qkv(x).view(*x.shape[:2], self.heads, 3, -1)
        q, k, v = (part.transpose(1, 2) for part in packed.unbind(3))
        return self.to_out(self.merge(textbook(q, k, v)))


class ModelWidth(Layer):
    def scale(self, q):
        return (self.num_heads * q.shape[-1]) ** -0.5


class NoTranspose(Layer):
    def split(self, x):
        return x.reshape(x.shape[0], self.num_heads, x.shape[1], -1)


class MergedWrongly(Layer):
    def merge(self, x):
        return x.reshape(x.shape[0], x.shape[2], -1)


class CausalFromOne(Layer):
    def forward(self, x, mask=None, is_causal=False):
        if is_causal:
            n = x.shape[1]
            mask = torch.ones(n, n, dtype=torch.bool).tril(1)
        return super().forward(x, mask)
