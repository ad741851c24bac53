"""Who is timed wherever regard is: regard itself, and attention as it is written in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from regard._attention.forward import attention
from regard._types import Array

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

    def start(self) -> None:
        """Do what is to be done before this process is pinned: some libraries count processors once."""

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
        options = problem.own()
        return lambda: attention(*given, **options)


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


class ByToken(Peer):
    """Another, asked for a causal answer as a decoder asks: a call for each query, with the keys up to it."""

    def __init__(self, inner: Peer) -> None:
        self.inner, self.name, self.outside, self.needs = inner, inner.name, inner.outside, inner.needs

    def absent(self) -> str:
        """Ask the other."""
        return self.inner.absent()

    def start(self) -> None:
        """Start the other."""
        self.inner.start()

    def why_not(self, problem: Problem) -> str:
        """Ask the other, of the last call."""
        return self.inner.why_not(problem.token(problem.lengths[1]))

    def prepare(self, problem: Problem, given: Given) -> Call:
        """Prepare all calls, and make them one after the other."""
        calls = [self.inner.prepare(*step) for step in problem.steps(given)]
        return lambda: [call() for call in calls]

    def array(self, answer: Any) -> Array:
        """Join the answers."""
        return np.concatenate([self.inner.array(token) for token in answer], axis=2)
