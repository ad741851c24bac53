"""Instrument 1: compare the answers with the right ones and with those of every known fault.

A fault that explains every answer is the diagnosis. Textbook functions have two or three harmless-looking habits at
once, what a row without keys is and what NaN behind a mask does: these make a *background*, with which every other
fault is tried. Two faults at once are tried last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product

from regard.check.answers._case import Case
from regard.check.answers._fault import Fault, Steps, model
from regard.check.answers._probes import Setting, probes
from regard.check.answers._tolerance import Judge, Outcome, outcome
from regard.check.faults import BY_NAME, SEARCHED


@dataclass(frozen=True)
class Variant:
    """A fault in one of its variants."""

    fault: Fault
    label: str

    @property
    def steps(self) -> Steps:
        """The steps that it replaces."""
        return self.fault.variants[self.label]


VARIANTS = tuple(Variant(fault, label) for group in SEARCHED for fault in group.faults for label in fault.variants)


def _named(name: str) -> list[Variant]:
    return [variant for variant in VARIANTS if variant.fault is BY_NAME[name]]


def _backgrounds() -> Iterator[tuple[Variant, ...]]:
    """Habits at the edges that go together: how pairs are hidden, what an empty row is, whether NaN leaks."""
    empties = [[], *([v] for n in ("EMPTY_ROW_NAN", "EMPTY_ROW_UNIFORM", "EMPTY_ROW_FIRST_V") for v in _named(n))]
    leaks = [[], _named("NAN_MASKED_V")]
    fills = [[v] for n in ("MASK_FILL_1E9", "MASK_ADD_FILL", "MASK_FILL_1E4") for v in _named(n)]
    for hide, empty, leak in product([[], _named("NAN_MASKED_K")], empties, leaks):
        yield (*hide, *empty, *leak)
    for fill, leak in product(fills, leaks):
        yield (*fill, *leak)


BACKGROUNDS = tuple(sorted(_backgrounds(), key=len))


_KEPT = frozenset([*((variant,) for variant in VARIANTS), *BACKGROUNDS])
# Pairs of faults that are tried before a function is called unknown: some seconds.
PAIRS = 8000


class Models:
    """What each set of faults answers to each probe, computed when first asked for."""

    def __init__(self, setting: Setting) -> None:
        self.cases = {case.name: case for case in probes(setting)}
        self.judges = {name: Judge.of(case, setting.dtype) for name, case in self.cases.items()}
        self._known: dict[tuple[tuple[Variant, ...], str], Outcome] = {}

    def loosened(self, unit: float) -> Models:
        """Return the same models, with judges who let pass what rounding to a unit does."""
        looser = copy(self)
        looser.judges = {name: judge.loosened(unit) for name, judge in self.judges.items()}
        return looser

    def answer(self, variants: tuple[Variant, ...], name: str) -> Outcome:
        """Answer a probe with the faults planted; answers of pairs are too many to be kept."""
        where = variants, name
        if where in self._known:
            return self._known[where]
        answer = outcome(model(*(v.steps for v in variants)), self.cases[name])
        if variants in _KEPT:
            self._known[where] = answer
        return answer


@lru_cache(maxsize=8)
def models(setting: Setting) -> Models:
    """All models over the probes of a setting."""
    return Models(setting)


@dataclass(frozen=True)
class Diagnosis:
    """Sets of faults that explain every answer, equally well; empty where none does."""

    explanations: tuple[tuple[Variant, ...], ...]
    failing: tuple[str, ...]
    asked: tuple[str, ...]


class Search:
    """The search for faults that explain some answers."""

    def __init__(
        self,
        known: Models,
        answers: Mapping[str, Outcome],
        in_time: Callable[[], bool],
        extra: tuple[Variant, ...] = (),
    ) -> None:
        self.known, self.answers, self.in_time = known, answers, in_time
        self.variants = (*VARIANTS, *extra)
        self.failing = [name for name in answers if not known.judges[name].passes(answers[name])]
        self.order = [*self.failing, *(name for name in answers if name not in self.failing)]

    @property
    def features(self) -> frozenset[str]:
        """What the function was asked about."""
        return frozenset().union(*(self.known.cases[name].features for name in self.answers))

    def run(self) -> Diagnosis:
        """Try one fault, then one with a background, then two."""
        simple = self.simple()
        return simple if simple.explanations else self.pairs()

    def simple(self) -> Diagnosis:
        """Try one fault, then habits at the edges, then one with a background."""
        return self._first_of(self._singles, self._backgrounds_alone, self._with_background)

    def pairs(self) -> Diagnosis:
        """Try two faults, which takes seconds."""
        return self._first_of(self._pairs)

    def _first_of(self, *attempts: Callable[[], Iterator[tuple[Variant, ...]]]) -> Diagnosis:
        for attempt in attempts:
            found = list(attempt()) if self.failing else []
            if found:
                return Diagnosis(self._simplest(found), tuple(self.failing), tuple(self.answers))
        return Diagnosis((), tuple(self.failing), tuple(self.answers))

    def explains(self, variants: tuple[Variant, ...], names: Sequence[str]) -> bool:
        """Whether faults give these answers."""
        return all(self.known.judges[n].alike(self.answers[n], self.known.answer(variants, n)) for n in names)

    def _singles(self) -> Iterator[tuple[Variant, ...]]:
        yield from ((variant,) for variant in self.variants if self.explains((variant,), self.order))

    def _backgrounds_alone(self) -> Iterator[tuple[Variant, ...]]:
        yield from (background for background in BACKGROUNDS[1:] if self.explains(background, self.order))

    def _likely(self) -> list[tuple[Variant, ...]]:
        """Backgrounds by the number of answers that they explain; the simplest of equals first."""
        names = [name for name in self.failing if _hides(self.known.cases[name])]
        return sorted(BACKGROUNDS[1:], key=lambda b: -sum(self.explains(b, [name]) for name in names))

    def _with_background(self) -> Iterator[tuple[Variant, ...]]:
        plain = [name for name in self.order if not _hides(self.known.cases[name])]  # no background acts there
        able = [v for v in self.variants if not v.fault.edge and self.explains((v,), plain)]
        for background in self._likely():
            found = [
                self._least(v, background)
                for v in able
                if self.in_time() and _apart(v, background) and self.explains((v, *background), self.order)
            ]
            yield from found
            if found:
                return

    def _least(self, variant: Variant, background: tuple[Variant, ...]) -> tuple[Variant, ...]:
        """Without the parts of a background that explain nothing."""
        for part in background:
            less = tuple(v for v in background if v is not part)
            if self.explains((variant, *less), self.order):
                return self._least(variant, less)
        return (variant, *background)

    def _pairs(self) -> Iterator[tuple[Variant, ...]]:
        """Two faults: the first explains some answers alone, where the second is not asked about."""
        core = [v for v in self.variants if not v.fault.edge and self._matters(v)]
        some = [v for v in core if any(self.explains((v,), [name]) for name in self.failing)]
        tried = 0
        for background in [(), *self._likely()[:3]]:
            for a, b in _ordered(some, core):
                tried += 1
                if tried > PAIRS or not self.in_time():
                    return
                if _apart(a, background) and _apart(b, background) and self.explains((a, b, *background), self.order):
                    yield (a, b, *background)
                    return

    def _matters(self, variant: Variant) -> bool:
        """Whether a fault changes an answer that is wrong."""
        return any(not self.known.judges[n].passes(self.known.answer((variant,), n)) for n in self.failing)

    def _simplest(self, found: list[tuple[Variant, ...]]) -> tuple[tuple[Variant, ...], ...]:
        """Of variants of one and the same set of faults, the first; the less likely last.

        Faults of tiles need several tiles; in a layer, whose width is at hand, 1/sqrt(width) is likelier than 1/d.
        """
        unlikely = {"SCALE_1_OVER_D"} if "layer" in self.features else set()
        odd = [{v for v in one if v.fault.group == "tiles" or v.fault.name in unlikely} for one in found]
        found = [one for _, one in sorted(zip(odd, found, strict=True), key=lambda pair: len(pair[0]))]
        if any(all(v in VARIANTS for v in variants) for variants in found):  # what has a name goes first
            found = [variants for variants in found if all(v in VARIANTS for v in variants)]
        least = min(map(len, found))
        by_faults: dict[tuple[str, ...], tuple[Variant, ...]] = {}
        for variants in found:
            if len(variants) == least:
                by_faults.setdefault(tuple(v.fault.name for v in variants), variants)
        return tuple(by_faults.values())

    def deciding(self, explanations: Sequence[tuple[Variant, ...]]) -> list[str]:
        """Probes that were not answered and whose answers would tell explanations apart."""
        return [
            name
            for name in self.known.cases
            if name not in self.answers
            and ("layer" in self.known.cases[name].features) == ("layer" in self.features)
            and any(
                not self.known.judges[name].alike(self.known.answer(a, name), self.known.answer(b, name))
                for a, b in combinations(explanations, 2)
            )
        ]


def _ordered(some: list[Variant], core: list[Variant]) -> Iterator[tuple[Variant, Variant]]:
    seen = set()
    for a, b in product(some or core, core):
        if a.fault is not b.fault and frozenset((a, b)) not in seen:
            seen.add(frozenset((a, b)))
            yield (a, b)
            if not a.steps.keys().isdisjoint(b.steps):
                yield (b, a)


def _apart(variant: Variant, background: tuple[Variant, ...]) -> bool:
    """Whether a fault leaves the steps of a background alone."""
    return all(variant.steps.keys().isdisjoint(other.steps) for other in background)


def _hides(case: Case) -> bool:
    return case.causal or case.mask is not None
