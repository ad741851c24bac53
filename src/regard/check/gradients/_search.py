"""The search for faults that explain gradients: one, then two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import TypeAlias

from regard.check.answers._probes import Setting
from regard.check.answers._tolerance import FAIL, Refused
from regard.check.instruments._dictionary import Variant

from ._faults import CATALOGUE, gradient_model
from ._judge import GradientJudge
from ._oracle import Gradients
from ._probes import Probe, gradient_probes


@dataclass(frozen=True)
class Cut(Refused):
    """A refusal because nothing leads back from the output: no question about how it is gone back."""


Answer: TypeAlias = Gradients | Refused
VARIANTS = tuple(Variant(fault, label) for fault in CATALOGUE for label in fault.variants)


def modelled(variants: tuple[Variant, ...], probe: Probe) -> Answer:
    """Answer a probe with faults planted; what does not fit together refuses."""
    try:
        return gradient_model(*(v.steps for v in variants))(probe.case, probe.grad_out)
    except ValueError as error:
        return Refused(str(error))


class GradientModels:
    """What each fault answers to each probe, computed when first asked for."""

    def __init__(self, setting: Setting, causal: bool) -> None:
        self.probes = {probe.name: probe for probe in gradient_probes(setting, causal)}
        self.judges = {name: GradientJudge.of(probe, setting.dtype) for name, probe in self.probes.items()}
        self._known: dict[tuple[tuple[Variant, ...], str], Answer] = {}

    def answer(self, variants: tuple[Variant, ...], name: str) -> Answer:
        """Answer a probe with faults planted; only those of one fault are kept."""
        if (variants, name) not in self._known:
            answer = modelled(variants, self.probes[name])
            if len(variants) > 1:
                return answer
            self._known[variants, name] = answer
        return self._known[variants, name]


@lru_cache(maxsize=8)
def gradient_models(setting: Setting, causal: bool = False) -> GradientModels:
    """All models over the probes of a setting."""
    return GradientModels(setting, causal)


class GradientSearch:
    """The search for faults that explain some answers."""

    def __init__(self, known: GradientModels, answers: Mapping[str, Answer], in_time: Callable[[], bool]) -> None:
        self.known, self.answers, self.in_time = known, answers, in_time
        self.failing = [name for name in answers if not known.judges[name].passes(answers[name])]
        self.order = [*self.failing, *(name for name in answers if name not in self.failing)]

    def singles(self) -> list[tuple[Variant, ...]]:
        """Return the faults that explain every answer, nearest first."""
        return self._nearest([(variant,) for variant in VARIANTS if self.failing and self.explains((variant,))])

    def explains(self, variants: tuple[Variant, ...]) -> bool:
        """Whether faults give these answers."""
        return all(
            self.known.judges[name].alike(self.answers[name], self.known.answer(variants, name)) for name in self.order
        )

    def _misfit(self, variants: tuple[Variant, ...]) -> float:
        """How far the answers are from those of faults, in units of what counts as alike."""
        return max(
            self.known.judges[name].misfit(self.answers[name], self.known.answer(variants, name)) for name in self.order
        )

    def _nearest(self, found: list[tuple[Variant, ...]]) -> list[tuple[Variant, ...]]:
        """Of variants of one fault the nearest, without faults that are clearly farther: 16-bit numbers blur much."""
        misfits = sorted(((self._misfit(variants), variants) for variants in found), key=lambda one: one[0])
        by_name: dict[str, tuple[Variant, ...]] = {}
        for misfit, variants in misfits:
            if misfit <= FAIL * misfits[0][0]:
                by_name.setdefault(variants[0].fault.name, variants)
        return list(by_name.values())

    def pairs(self) -> list[tuple[Variant, ...]]:
        """Return the first two faults that explain every answer.

        Of two for the same step, the first counts, so that both orders are tried.
        """
        for a, b in permutations(VARIANTS, 2):
            if not self.in_time():
                break
            ordered = not a.steps.keys().isdisjoint(b.steps) or VARIANTS.index(a) < VARIANTS.index(b)
            if self.failing and a.fault is not b.fault and ordered and self.explains((a, b)):
                return [(a, b)]
        return []
