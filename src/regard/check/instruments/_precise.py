"""Where a function rounds: one place after the other, each with what was found before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from regard.check.answers._fault import Fault, Steps, model
from regard.check.answers._tolerance import FAIL, Judge, Outcome, Refused, outcome
from regard.check.candidate._candidate import Candidate
from regard.check.faults import BY_NAME
from regard.check.faults.precision import unit_of

from ._dictionary import Variant
from ._sites import PHASES, Site, sites

# A rounding is recognised if the answer is this much nearer to it than to what there is without it.
_NEARER = 4
# Variants that explain an answer nearly as well as the best one are named beside it.
_AS_WELL = 2


@dataclass(frozen=True)
class Rounded:
    """A fault of precision: what fits, in words and steps, and where it was seen best.

    ``unit`` is half a step of what it rounds to; ``error`` is in bounds.
    """

    fault: Fault
    label: str
    steps: Steps
    unit: float
    site: Site
    error: float

    @property
    def has_small_range(self) -> bool:
        """Whether it ends at 65504."""
        return self.fault.name.startswith("FP16") or "float16" in self.label.replace("bfloat16", "")

    @property
    def evidence(self) -> str:
        """What was measured."""
        case = self.site.case
        return f"{case.name} ({case.key.shape[2]} keys): error {self.error:.3g} of the bound of rounding errors"


@dataclass(frozen=True)
class _Asked:
    """A site, what the function answers there, and what it would answer with the faults that are known."""

    site: Site
    got: Outcome
    without: Outcome

    @property
    def far(self) -> float:
        """How far the answer is from the known, in bounds."""
        return 0.0 if self.site.judge.passes(self.got) else _apart(self.site.judge, self.got, self.without)

    def miss(self, steps: tuple[Steps, ...]) -> float:
        """How far it is from a model, of what is allowed; 1 is the most that counts as alike."""
        allowed = max(self.far / _NEARER, FAIL)
        return _apart(self.site.judge, self.got, outcome(model(*steps), self.site.case)) / allowed


def roundings(
    candidate: Candidate, dtype: str, known: tuple[Steps, ...], in_time: Callable[[], bool]
) -> Iterator[Rounded]:
    """Find each fault of precision that explains an answer which neither what is right nor what is known explains."""
    found = list(known)
    for name, places in sites(dtype):
        if not in_time():
            return
        answers = [(site, candidate(site.case)) for site in places]
        asked = [
            _Asked(site, got, site.judge.right if site.judge.passes(got) else outcome(model(*found), site.case))
            for site, got in answers
            if not isinstance(got, Refused) and got.shape == site.judge.right.shape
        ]
        if any(one.far > FAIL for one in asked) and (seen := _recognised(BY_NAME[name], asked, tuple(found))):
            found.insert(0, seen.steps)
            yield seen


def _recognised(fault: Fault, asked: list[_Asked], found: tuple[Steps, ...]) -> Rounded | None:
    """Which variant it is; of an approximation of exp that is no variant, how coarse."""
    worst = max(asked, key=lambda one: one.far)
    fits = _nearest(fault, asked, found)
    wave = _wave(worst) if fault.name == "EXP_APPROX_COARSE" else 0.0
    if not fits and not wave:
        return None
    label = " or ".join(v.label for v in fits) if fits else f"weights are off by up to {wave / 2:.2%}"
    unit = 2 * wave or unit_of(fault.name, label)
    return Rounded(fault, label, fits[0].steps if fits else {}, unit, worst.site, worst.site.judge.error(worst.got))


def _wave(asked: _Asked) -> float:
    """Height of what is left of the logarithms of weights, if it comes again after an octave; else 0."""
    got = asked.got
    if isinstance(got, Refused) or not np.all(got > 0):
        return 0.0
    left = np.log(got / asked.site.judge.right)[..., 1:].reshape(-1, PHASES)
    height = float(np.ptp(left.mean(axis=0)))
    return height if np.ptp(left - left.mean(axis=0)) < height / _NEARER else 0.0


def _nearest(fault: Fault, asked: list[_Asked], found: tuple[Steps, ...]) -> tuple[Variant, ...]:
    """Variants whose answers are alike at every site, the most alike first."""
    variants = [Variant(fault, label) for label in fault.variants]
    misses = {v: max(one.miss((v.steps, *found)) for one in asked) for v in variants}
    best = min(misses.values())
    if best > 1:
        return ()
    alike = [v for v in variants if misses[v] <= max(_AS_WELL * best, 1 / _NEARER) and misses[v] <= 1]
    return tuple(sorted(alike, key=lambda v: misses[v]))


def _apart(judge: Judge, a: Outcome, b: Outcome) -> float:
    """Largest difference of two answers in bounds; infinite where only one is finite."""
    if isinstance(a, Refused) or isinstance(b, Refused) or a.shape != b.shape:
        return np.inf
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return np.inf
    allowed = np.broadcast_to(judge.bound, a.shape)[finite]
    return float(np.max(np.abs(a[finite] - b[finite]) / allowed, initial=0))
