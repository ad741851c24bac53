"""What counts as equal: to the right answer within a proved bound, to a wrong one within a wider and plainer one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from regard._cached import cached_attribute
from regard._types import Array
from regard.numerics import forward_bounds

from ._case import Case
from ._oracle import RIGHT, Oracle


@dataclass(frozen=True)
class Refused:
    """A call that raised: the exception's type and first line, and whether it says that it is not supported.

    ``died`` says that it is not made, because a process has died of it: a finding of its own.
    """

    message: str
    honest: bool = False
    died: bool = False


Outcome: TypeAlias = Array | Refused

# Errors above this many bounds fail: the constants are for errors of random sign.
FAIL = 4
# What may be off where every score is exact, if it is not computed as we do; four times as much is 1e-2.
_REORDERED = 2.5e-3
# A wrong answer is recognised within this, relative to its largest element.
ALIKE = {"float64": 1e-9, "float32": 2e-5, "float16": 1e-2, "bfloat16": 4e-2}
UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# The nearest two faults are 0.07 apart; where scores have few digits left, wrong answers are recognised within this.
_INEXACT = 0.02
# Statistics of 1440 rows of dropout: their standard errors are at most 0.005; of 72 that are shared, 0.02.
_STATISTIC = 0.03
# Rounding of the weights, in any dtype, moves the sum of a whole row by less.
_NEAR = 0.02


def outcome(oracle: Callable[[Case], Array], case: Case) -> Outcome:
    """Ask an oracle, right or wrong; one whose arrays do not fit refuses."""
    try:
        return observe(case, oracle(case))
    except (ValueError, IndexError, TypeError, ArithmeticError) as error:
        return Refused(f"{type(error).__name__}: {error}")


def observe(case: Case, out: Array) -> Array:
    """Return what is compared: the output, or of dropout its statistics."""
    if case.dropout is None:
        return out
    top = case.value.max() / (1 - case.dropout)
    sums = out.sum(axis=-1) / case.value[0, 0, 0].sum() if out.ndim else out
    alike = [1.0, 1.0]
    if out.ndim == 4:  # the same pairs in two heads, and in batch entries of the same arrays
        alike = [float(np.mean((a == 0) == (b == 0))) for a, b in ((out[:, :1], out[:, -1:]), (out[:-2], out[2:]))]
    return np.array([np.mean(out == 0), np.mean(np.abs(out - top) < _NEAR), sums.mean(), sums.std(), *alike])


def layer_unit(dtype: str) -> float:
    """How far a right layer may be off, to be multiplied by `FAIL`, relative to the largest element."""
    return (256 if dtype in ("float32", "float64") else 16) * UNIT[dtype]


def bound(case: Case, dtype: str) -> Array:
    """How far a right function of that dtype may be from the right answer, to be multiplied by `FAIL`."""
    if case.dropout is not None:
        return np.asarray(_STATISTIC / FAIL)
    if case.layer:
        return np.asarray(layer_unit(dtype) * np.nanmax(np.abs(RIGHT(case))))
    q, k, v = (np.where(np.isfinite(x), x, 0) for x in RIGHT.operands(case))
    k, v = RIGHT.share(case, q, k, v)
    W = exact_weights(case)
    shape = (*W.shape[:2], *q.shape[2:])
    # Kernels of 16-bit numbers round the weights to them before the second product, as tensor cores want it.
    rounded = UNIT[dtype] * (W @ np.abs(v)) if dtype in ("float16", "bfloat16") else 0.0
    computed = forward_bounds(
        np.broadcast_to(q * (not case.exact), shape), k, v, W,
        scale=RIGHT.scale(case, q, k, v), tile_keys=max(k.shape[-2], 1), softcap=case.softcap or 0,
        biases=() if case.bias is None and case.alibi is None else (_biases(case),), dtype=dtype,
    ).out  # fmt: skip
    return np.asarray(computed + rounded)


def _biases(case: Case) -> Array:
    """Return all that is added to the scores."""
    zero = np.zeros((*case.query.shape[:3], case.key.shape[2]))
    return RIGHT.shape(replace(case, softcap=None), zero)


def exact_weights(case: Case, oracle: Oracle = RIGHT) -> Array:
    """Return the weights of a case, before any of them is dropped."""
    with np.errstate(all="ignore"):
        weights: Array = oracle.attend(_clean(case))[0]
    return weights


def _clean(case: Case) -> Case:
    """Without NaN and Inf, which may stand behind a mask, and with rows of 0 where nothing is seen."""
    q, k, v = (np.where(np.isfinite(x), x, 0) for x in (case.query, case.key, case.value))
    return replace(case, query=q, key=k, value=v, dropout=None, nan_rows=False)


def coarse(case: Case, unit: float) -> Array:
    """How far a function may be off that rounds scores, weights and sums to a unit, in float64 or not."""
    if case.dropout is not None or case.layer:
        return np.asarray(0.0)
    with np.errstate(all="ignore"):
        W, s, _, (q, k, v) = RIGHT.attend(_clean(case))
        size = RIGHT.logits(case, np.abs(q), np.abs(k), v)
        peak = np.where(W > 0, s - np.log(W), -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
        most = np.exp(np.minimum(s - np.where(np.isneginf(peak), 0, peak) + 2 * unit * (1 + size), 0))
    spread = np.abs(v[..., None, :, :] - (W @ v)[..., None, :])
    off = (np.maximum(most - W, 0)[..., None] * spread).sum(axis=-2)
    off += unit * (2 + math.sqrt(k.shape[-2])) * (W @ np.abs(v))
    return np.asarray(np.minimum(off, np.ptp(v, axis=-2, keepdims=True) + np.abs(v).max(axis=-2, keepdims=True)))


@dataclass(frozen=True)
class Judge:
    """The right answer to a case, and what may pass for it."""

    case: Case
    dtype: str
    right: Array
    bound: Array

    @cached_attribute
    def inexact(self) -> Array:
        """The bound without the promise that scores are exact."""
        return bound(replace(self.case, exact=False), self.dtype)

    @classmethod
    def of(cls, case: Case, dtype: str) -> Judge:
        """Ask the oracle."""
        right, allowed = observe(case, RIGHT(case)), bound(case, dtype)
        if case.exact:  # another order of factors, such as exp2 of scores times log2 e, rounds them all the same
            rounded = bound(replace(case, exact=False), dtype)
            allowed = np.maximum(allowed, np.minimum(rounded, _REORDERED * np.nanmax(np.abs(right), initial=1)))
        return cls(case, dtype, right, allowed)

    def loosened(self, unit: float) -> Judge:
        """Return a judge who lets pass what rounding to a unit does."""
        return replace(self, bound=self.bound + coarse(self.case, unit))

    def error(self, got: Outcome) -> float:
        """Worst error in bounds; inf for a refusal, a wrong shape, or NaN where a number is wanted."""
        if isinstance(got, Refused) or got.shape != self.right.shape:
            return math.inf
        finite = np.isfinite(self.right)
        if not np.array_equal(finite, np.isfinite(got)):
            return math.inf
        if not finite.any():
            return 0.0
        allowed = np.broadcast_to(self.bound, got.shape)[finite]
        return float(np.max(np.abs(got[finite] - self.right[finite]) / np.maximum(allowed, 1e-300), initial=0))

    def passes(self, got: Outcome) -> bool:
        """Whether it is the right answer."""
        return self.error(got) <= FAIL

    def alike(self, got: Outcome, wrong: Outcome) -> bool:
        """Whether it is a certain wrong answer, and nearer to it than to the right one where it is not right."""
        if isinstance(got, Refused) or isinstance(wrong, Refused):
            return isinstance(got, Refused) and isinstance(wrong, Refused)
        if got.shape != wrong.shape or not np.array_equal(np.isfinite(got), np.isfinite(wrong)):
            return False
        finite = np.isfinite(got)
        size = max(1.0, np.abs(wrong[finite]).max(initial=0))
        slack = 2 * FAIL * self.bound.max(initial=0) + (0 if self.case.dropout else ALIKE[self.dtype] * size)
        if self.case.exact:  # with the right scale only
            slack += min(2 * FAIL * float(self.inexact.max(initial=0)), _INEXACT * size)
        distance = np.abs(got[finite] - wrong[finite]).max(initial=0)
        if distance > slack:
            return False
        return self.passes(got) or got.shape != self.right.shape or distance <= self._distance(got) / FAIL

    def _distance(self, got: Array) -> float:
        finite = np.isfinite(self.right)
        if not np.array_equal(np.isfinite(got), finite):
            return math.inf
        return float(np.abs(got[finite] - self.right[finite]).max(initial=0))
