"""What is measured on gradients: laws that need no right answer, factors, and slopes along random directions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case
from regard.check.answers._oracle import RIGHT
from regard.check.answers._tolerance import FAIL, Refused
from regard.check.candidate._signature import OPERANDS
from regard.check.findings._finding import arrays_of

from ._judge import GradientJudge
from ._layer import ROLES
from ._oracle import SHORT, Gradients, members
from ._probes import Probe, attends
from ._search import Answer

# Step of a difference: its error is some 1e-9 of the slope.
_STEP = 1e-6


@dataclass(frozen=True)
class Sides:
    """Two numbers, or arrays, that are equal by a law, and how far rounding may set them apart."""

    left: Array
    right: Array
    slack: Array

    @property
    def differ(self) -> bool:
        """Whether the law is broken."""
        return bool((~(np.abs(self.left - self.right) <= FAIL * self.slack)).any())


@dataclass(frozen=True)
class GradientLaw:
    """A property of the gradients of softmax attention, or of a layer, in words; ``needs`` names those it is about."""

    name: str
    says: str
    sides: Callable[[GradientJudge, Gradients], Sides | None]
    needs: tuple[str, ...] = OPERANDS


def _keys(judge: GradientJudge, got: Gradients) -> Sides | None:
    if judge.probe.case.softcap is not None:  # the cap is no function of differences of scores
        return None
    total, slack = got["key"].sum(axis=-2), judge.bounds["key"].sum(axis=-2)
    return Sides(total, np.zeros_like(total), slack)


def _values(judge: GradientJudge, got: Gradients) -> Sides:
    case, grad = judge.probe.case, judge.probe.grad_out
    sent = members(case, np.where(attends(case), grad, 0).sum(axis=-2, keepdims=True)).sum(axis=2)
    return Sides(got["value"].sum(axis=-2), sent[..., 0, :], judge.bounds["value"].sum(axis=-2))


def _inner(judge: GradientJudge, got: Gradients, name: str) -> tuple[Array, Array]:
    x = _operands(judge.probe.case)[name]
    return np.asarray((x * got[name]).sum()), np.asarray((np.abs(x) * judge.bounds[name]).sum())


def _balanced(*names: str) -> Callable[[GradientJudge, Gradients], Sides]:
    """Compare <a, da> of the first with the sum of those of the others."""

    def sides(judge: GradientJudge, got: Gradients) -> Sides:
        (left, slack), *others = (_inner(judge, got, name) for name in names)
        return Sides(left, sum((x for x, _ in others), np.zeros(())), sum((x for _, x in others), slack))

    return sides


def _linear(name: str) -> Callable[[GradientJudge, Gradients], Sides]:
    """Compare <a, da> with <o, do>."""

    def sides(judge: GradientJudge, got: Gradients) -> Sides:
        left, slack = _inner(judge, got, name)
        return Sides(left, _pull(judge.probe), slack)

    return sides


def _pull(probe: Probe) -> Array:
    return np.asarray((probe.grad_out * RIGHT(replace(probe.case, nan_rows=False))).sum())


GRADIENT_LAWS = (
    GradientLaw(
        "KEY_GRADIENTS_CANCEL", "over the keys dk sums to 0: a vector added to every key changes nothing", _keys
    ),
    GradientLaw("VALUE_GRADIENTS_ADD_UP", "over the keys dv sums to the sum of do: weights sum to 1", _values),
    GradientLaw("QUERIES_BALANCE_KEYS", "<q, dq> = <k, dk>: 2 q with k / 2 changes nothing", _balanced("query", "key")),
    GradientLaw("VALUES_BALANCE_OUTPUT", "<v, dv> = <o, do>: the output is linear in the values", _linear("value")),
    GradientLaw(
        "WQ_BALANCES_WK", "<wq, dwq> = <wk, dwk>: 2 wq with wk / 2 changes nothing", _balanced("wq", "wk"), ROLES[1:3]
    ),
    GradientLaw("WV_BALANCES_OUTPUT", "<wv, dwv> = <o, do>: the output is linear in wv", _linear("wv"), ("wv",)),
    GradientLaw("WO_BALANCES_OUTPUT", "<wo, dwo> = <o, do>: the output is linear in wo", _linear("wo"), ("wo",)),
    GradientLaw(
        "X_BALANCES_MATRICES",
        "<x, dx> = <wq, dwq> + <wk, dwk> + <wv, dwv>: x enters through the three products only",
        _balanced("x", "wq", "wk", "wv"),
        ROLES[:4],
    ),
)


def broken_gradient_laws(judges: Mapping[str, GradientJudge], answers: Mapping[str, Answer]) -> list[str]:
    """Each law that is broken on some probe, and what was seen on the first."""
    found = []
    for law in GRADIENT_LAWS:
        for name, got in answers.items():
            if isinstance(got, Refused) or not _comparable(judges[name], got, law.needs):
                continue
            sides = law.sides(judges[name], got)
            if sides is not None and sides.differ:
                found.append(f"law {law.name} is broken: {law.says}; {_seen(sides)} on {name}")
                break
    return found


def _comparable(judge: GradientJudge, got: Gradients, needs: tuple[str, ...]) -> bool:
    right = judge.right
    return all(name in right and name in got and got[name].shape == right[name].shape for name in needs)


def _seen(sides: Sides) -> str:
    off = np.abs(sides.left - sides.right)
    worst = np.unravel_index(np.where(np.isfinite(off), off, np.inf).argmax(), off.shape)
    return f"{sides.left[worst]:.6g} and {sides.right[worst]:.6g}"


def ratio(got: Array, right: Array) -> tuple[float, float]:
    """Factor by which gradients are nearest to the right ones, and what is left, relative to them."""
    whole = float((right * right).sum())
    if not whole or got.shape != right.shape or not np.isfinite(got).all():
        return math.nan, math.nan
    factor = float((got * right).sum() / whole)
    return factor, float(np.sqrt(((got - factor * right) ** 2).sum() / whole))


def ratios(judge: GradientJudge, got: Gradients) -> list[str]:
    """Return a line for each gradient that is wrong."""
    lines = []
    for name in judge.wrong(got):
        shape = got[name].shape if name in got else None
        if shape != judge.right[name].shape:
            lines.append(f"{SHORT[name]} has shape {shape}, expected {judge.right[name].shape}")
            continue
        factor, left = ratio(got[name], judge.right[name])
        said = (
            "is not finite" if math.isnan(factor) else f"is {factor:.6f} times the right one, and {left:.1e} of it off"
        )
        lines.append(f"{SHORT[name]} {said}")
    return lines


def slopes(probe: Probe, got: Gradients) -> str:
    """Along 3 random directions: how fast the sum of output · grad_out grows, by differences and by the gradients."""
    case, rng = replace(probe.case, nan_rows=False), np.random.default_rng(31)
    measured, said = [], []
    for _ in range(3):
        ways = {n: rng.standard_normal(x.shape) for n, x in _operands(case).items() if n in got}
        up, down = (float((RIGHT(_moved(case, ways, h)) * probe.grad_out).sum()) for h in (_STEP, -_STEP))
        measured.append((up - down) / (2 * _STEP))
        said.append(sum(float((got[name] * way).sum()) for name, way in ways.items()))
    return (
        f"along 3 random directions the output grows by {', '.join(f'{x:.6g}' for x in measured)}; "
        f"the gradients say {', '.join(f'{x:.6g}' for x in said)}"
    )


def _operands(case: Case) -> dict[str, Array]:
    """Return what a case, or its layer, is made of, by the names that gradients have."""
    return {name: x for name, x in arrays_of(case).items() if name in (*OPERANDS, *ROLES)}


def _moved(case: Case, ways: Mapping[str, Array], step: float) -> Case:
    moved: dict[str, Any] = {name: x + step * ways[name] for name, x in _operands(case).items() if name in ways}
    if not case.layer:
        return replace(case, **moved)
    matrices = {"wq": "query", "wk": "key", "wv": "value", "wo": "out"}
    layer = replace(case.layer, **{own: moved[name] for name, own in matrices.items() if name in moved})
    x = moved.get("x", case.query)
    return replace(case, query=x, key=x, value=x, layer=layer)


def measured_lines(judges: Mapping[str, GradientJudge], answers: Mapping[str, Answer]) -> tuple[str, ...]:
    """All of it, on the first probe whose gradients are wrong and on those where a law is broken."""
    lines: list[str] = []
    for name, got in answers.items():
        if not isinstance(got, Refused) and not judges[name].passes(got):
            lines += [f"on {name}: {line}" for line in ratios(judges[name], got)]
            if _comparable(judges[name], got, tuple(judges[name].asked(got))):
                lines.append(f"on {name}: {slopes(judges[name].probe, got)}")
            break
    return (*lines, *broken_gradient_laws(judges, answers))
