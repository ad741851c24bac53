"""Attention as it is written in NumPy."""

from __future__ import annotations

import numpy as np

import regard as rg
from benchmarks.peers._peer import Peer


class InNumPy(Peer):
    """float32 and as many query heads as kv heads: what the formula says in one line each."""

    def why_not(self, problem):
        if problem.dtype != "float32":
            return f"NumPy has no product of {problem.dtype} worth a time"
        return "" if problem.group == 1 else "kv heads are shared"

    def prepare(self, problem, given):
        dropped = None if problem.mask is None else ~problem.mask.dense(*problem.lengths)
        bias = None if problem.bias is None else problem.bias.dense(*problem.lengths)
        return lambda: self.attention(*given, dropped, bias)


class Textbook(InNumPy):
    name = "NumPy textbook"

    @staticmethod
    def attention(q, k, v, dropped, bias):
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1]))
        if bias is not None:
            scores = scores + bias
        if dropped is not None:
            scores = np.where(dropped, np.float32(-np.inf), scores)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = weights / weights.sum(axis=-1, keepdims=True)
        return weights @ v


class InPlace(InNumPy):
    """The same with no temporary that NumPy can be told to avoid."""

    name = "NumPy textbook, in place"

    @staticmethod
    def attention(q, k, v, dropped, bias):
        scores = q @ k.swapaxes(-1, -2)
        scores *= np.float32(1 / np.sqrt(q.shape[-1]))
        if bias is not None:
            scores += bias
        if dropped is not None:
            np.copyto(scores, np.float32(-np.inf), where=dropped)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return scores @ v


class Online(Peer):
    """The tiles of the lesson."""

    name = "NumPy online, 256 x 512 tiles"

    def why_not(self, problem):
        return "" if problem.dtype == "float32" else f"NumPy has no product of {problem.dtype} worth a time"

    def prepare(self, problem, given):
        options = {
            "mask": None if problem.mask is None else problem.mask.own(),
            "bias": None if problem.bias is None else problem.bias.own(),
        }
        return lambda: rg.reference.online_attention(*given, **options)


NUMPY = (Textbook(), InPlace(), Online())
