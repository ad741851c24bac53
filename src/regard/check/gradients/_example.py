"""The smallest case that shows wrong gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case
from regard.check.answers._tolerance import Refused
from regard.check.findings._finding import Example
from regard.check.findings._shrink import shrink

from ._backward import Backward
from ._judge import GradientJudge
from ._oracle import SHORT, Gradients
from ._probes import Probe, sent_back
from ._search import Answer


@dataclass(frozen=True, eq=False)
class GradientExample(Example):
    """A case, what was sent back, and the gradient that is wrong: ``of`` names the operand that it belongs to.

    ``right`` holds all gradients that are compared, ``answer`` all that were given.
    """

    grad_out: Array
    of: str
    right: Gradients
    answer: Answer

    @property
    def arrays(self) -> dict[str, Array]:
        """Those of the case, and what was sent back."""
        mask = {} if self.case.mask is None else {"mask": self.case.mask}
        return {**super().arrays, **mask, "grad_out": self.grad_out}

    @property
    def what(self) -> str:
        """What ``expected`` and ``got`` are."""
        return f"{SHORT[self.of]} "


def smallest(
    probe: Probe, backward: Backward, dtype: str, equal_widths: bool, shows: Callable[[GradientJudge, Answer], bool]
) -> GradientExample:
    """Shrink a probe while its gradients show the same, large enough to be seen in print."""
    first = GradientJudge.of(probe, dtype)
    answer = backward(probe.case, probe.grad_out)
    least = min(0.05, _size(first, answer) / 4)

    def asked(case: Case) -> tuple[GradientJudge, Answer]:
        less = replace(sent_back(case.cast(dtype)), without=probe.without)
        return GradientJudge.of(less, dtype), backward(less.case, less.grad_out)

    def still(case: Case) -> bool:
        judge, got = asked(case)
        if judge.passes(got) or isinstance(got, Refused) != isinstance(answer, Refused):
            return False
        return _size(judge, got) >= least and shows(judge, got)

    case = shrink(probe.case, still, equal_widths).cast(dtype)
    judge, got = asked(case)
    name = _worst(judge, got)
    answered = got if isinstance(got, Refused) else got.get(name, Refused(f"there is no gradient of {name}"))
    compared = judge.asked({} if isinstance(got, Refused) else got)
    right = {n: judge.right[n] for n in compared}
    return GradientExample(case, right[name], answered, judge.probe.grad_out, name, right, got)


def _worst(judge: GradientJudge, got: Answer) -> str:
    """Which gradient shows it best: one of another shape, or the one that is most wrong in its own units."""
    if isinstance(got, Refused):
        return next(iter(judge.right))
    return max(judge.asked(got), key=lambda name: _size_of(judge, name, got.get(name)))


def _size(judge: GradientJudge, got: Answer) -> float:
    if isinstance(got, Refused):
        return np.inf
    return max(_size_of(judge, name, got.get(name)) for name in judge.asked(got))


def _size_of(judge: GradientJudge, name: str, got: Array | None) -> float:
    """Largest error, in units of the gradient or of 1."""
    right = judge.right[name]
    if got is None or got.shape != right.shape or not np.isfinite(got).all():
        return np.inf
    return float(np.abs(got - right).max(initial=0) / max(1.0, np.abs(right).max(initial=0)))
