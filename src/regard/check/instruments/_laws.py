"""Instrument 3: properties of softmax attention that need no right answer, only a second call.

Each law is a function that returns None, or what it saw when the law was broken. They are asked at sizes that the
probes do not have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from regard._cached import cached_attribute
from regard._types import Array
from regard.check.answers._case import Case
from regard.check.answers._tolerance import FAIL, Refused, bound
from regard.check.candidate._candidate import Candidate

Verdict: TypeAlias = "str | None"
Asked: TypeAlias = Callable[["Subject"], Verdict]


class UnansweredError(Exception):
    """The function refused a call that a law needs."""


@dataclass(frozen=True)
class Law:
    """A property, in words, and the features without which it cannot be asked."""

    name: str
    says: str
    broken: Asked
    needs: frozenset[str] = frozenset()


LAWS: list[Law] = []


def _law(name: str, says: str, *needs: str) -> Callable[[Asked], Asked]:
    def enter(broken: Asked) -> Asked:
        LAWS.append(Law(name, says, broken, frozenset(needs)))
        return broken

    return enter


@dataclass(frozen=True)
class Subject:
    """A candidate and the case that laws vary."""

    candidate: Candidate
    case: Case

    def __call__(self, case: Case) -> Array:
        answer = self.candidate(case)
        if isinstance(answer, Refused):
            raise UnansweredError(answer.message)
        if answer.shape[:3] != case.query.shape[:3] or answer.ndim != 4:
            raise UnansweredError(f"shape {answer.shape}")
        return answer

    @cached_attribute
    def base(self) -> Array:
        """The answer to the case as it is."""
        return self(self.case)

    @cached_attribute
    def slack(self) -> float:
        """How far two answers to the case may be apart."""
        return self.slack_of(self.case)

    def slack_of(self, case: Case) -> float:
        """How far two answers to a case may be apart."""
        return float(2 * FAIL * bound(case, self.candidate.dtype).max())


def subject(candidate: Candidate, supports: frozenset[str]) -> Subject:
    """Make the case of the laws: sizes unlike the probes', and not multiples of what a processor likes."""
    rng = np.random.default_rng(23)
    d, dv = (12, 9) if "value_width" in supports else (12, 12)
    q, k, v = (rng.standard_normal(shape) for shape in ((3, 4, 11, d), (3, 4, 37, d), (3, 4, 37, dv)))
    return Subject(candidate, Case("law", q, k, v, causal=candidate.words.always_causal).cast(candidate.dtype))


def broken_laws(asked: Subject, supports: frozenset[str], asks: Callable[[str], bool]) -> list[tuple[Law, str]]:
    """All laws that are broken, with what was seen; a law whose calls are refused says nothing."""
    found = []
    for law in LAWS:
        if not law.needs <= supports or (asked.case.causal and law.name in _NOT_CAUSAL):
            continue
        if not asks(f"law-{law.name}"):
            continue
        try:
            seen = law.broken(asked)
        except UnansweredError:
            continue
        if seen:
            found.append((law, seen))
    return found


_NOT_CAUSAL = {"PERMUTE_KEYS", "PERMUTE_QUERIES", "MASKED_KEYS_ARE_NOTHING"}


def _apart(got: Array, want: Array, slack: float) -> Verdict:
    if got.shape != want.shape:
        return f"shape {got.shape} in place of {want.shape}"
    if not np.array_equal(np.isfinite(got), np.isfinite(want)):
        return "NaN or Inf appears"
    moved = np.abs(np.where(np.isfinite(got), got - want, 0))
    if moved.max(initial=0) <= slack:
        return None
    where = tuple(int(i) for i in np.unravel_index(moved.argmax(), moved.shape))
    return f"element {where} is {got[where]:.6g} in place of {want[where]:.6g}"


def _same_bits(got: Array, want: Array) -> Verdict:
    return None if np.array_equal(got, want, equal_nan=True) else _apart(got, want, 0.0)


@_law("ROWS_SUM_TO_ONE", "with ones for values the output is 1")
def _ones(asked: Subject) -> Verdict:
    case = replace(asked.case, value=np.ones_like(asked.case.value))
    got = asked(case)
    return _apart(got, np.ones_like(got), asked.slack_of(case))


@_law("LINEAR_IN_VALUES", "f(q, k, 2 v + w) = 2 f(q, k, v) + f(q, k, w)")
def _linear(asked: Subject) -> Verdict:
    v = asked.case.value
    w = v[..., ::-1, :]
    got = asked(replace(asked.case, value=2 * v + w))
    return _apart(got, 2 * asked.base + asked(replace(asked.case, value=w)), 4 * asked.slack)


@_law("SHIFT_OF_KEYS", "one vector added to every key changes nothing")
def _shift(asked: Subject) -> Verdict:
    moved = replace(asked.case, key=asked.case.key + np.linspace(-1, 1, asked.case.key.shape[3]))
    return _apart(asked(moved), asked.base, asked.slack + asked.slack_of(moved))


@_law("PERMUTE_KEYS", "keys and values in another order change nothing")
def _permute_keys(asked: Subject) -> Verdict:
    order = np.random.default_rng(1).permutation(asked.case.key.shape[2])
    case = replace(asked.case, key=asked.case.key[..., order, :], value=asked.case.value[..., order, :])
    return _apart(asked(case), asked.base, asked.slack)


@_law("PERMUTE_QUERIES", "queries in another order give the same rows in that order")
def _permute_queries(asked: Subject) -> Verdict:
    order = np.random.default_rng(2).permutation(asked.case.query.shape[2])
    got = asked(replace(asked.case, query=asked.case.query[..., order, :]))
    base = asked.base
    return _apart(got, base[..., order, :], asked.slack) if base.ndim == 4 else None


@_law("BATCH_INDEPENDENT", "another batch entry's arrays change nothing, not a bit")
def _batch(asked: Subject) -> Verdict:
    return _same_bits(asked(_changed(asked.case, 0))[:2], asked.base[:2])


@_law("HEADS_INDEPENDENT", "another head's arrays change nothing, not a bit")
def _heads(asked: Subject) -> Verdict:
    return _same_bits(asked(_changed(asked.case, 1))[:, :3], asked.base[:, :3])


def _changed(case: Case, axis: int) -> Case:
    """Change the last entry of an axis in all operands."""
    where = (slice(None),) * axis + (-1,)
    arrays = {}
    for name in ("query", "key", "value"):
        arrays[name] = getattr(case, name).copy()
        arrays[name][where] *= -2
    return replace(case, **arrays)


@_law("SCALING_CANCELS", "2 q with k / 2 changes nothing")
def _scaling(asked: Subject) -> Verdict:
    return _apart(
        asked(replace(asked.case, query=2 * asked.case.query, key=asked.case.key / 2)), asked.base, asked.slack
    )


@_law("CONVEX", "no element of the output is outside of its column of values")
def _convex(asked: Subject) -> Verdict:
    got, v = asked.base, asked.case.value
    if got.shape[:2] != v.shape[:2] or got.shape[-1] != v.shape[-1]:
        return None
    over = np.maximum(got - v.max(axis=-2, keepdims=True), v.min(axis=-2, keepdims=True) - got)
    return f"by {over.max():.6g}" if over.max() > asked.slack else None


@_law("FUTURE_IS_HIDDEN", "with causal, a later key and value changes no earlier row", "causal")
def _future(asked: Subject) -> Verdict:
    n = asked.case.query.shape[2]
    k, v = asked.case.key[..., :n, :], asked.case.value[..., :n, :]
    square = replace(asked.case, key=k, value=v, causal=True)
    key, value = k.copy(), v.copy()
    key[..., -2:, :], value[..., -2:, :] = 3, -5
    return _same_bits(asked(replace(square, key=key, value=value))[..., :-2, :], asked(square)[..., :-2, :])


@_law("MASKED_KEYS_ARE_NOTHING", "a key that the mask hides from every query changes nothing", "mask", "mask_query")
def _masked(asked: Subject) -> Verdict:
    queries, keys = asked.case.query.shape[2], asked.case.key.shape[2]
    keep = np.ones((1, 1, queries, keys), bool)
    keep[..., -3:] = False
    less = replace(asked.case, key=asked.case.key[..., :-3, :], value=asked.case.value[..., :-3, :], causal=False)
    return _apart(asked(replace(asked.case, mask=keep, causal=False)), asked(less), asked.slack)
