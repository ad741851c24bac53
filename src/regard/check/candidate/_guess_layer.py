"""How a whole layer wants to be called, found by calling it: its arrays, layout, causal rule and masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from regard._errors import written
from regard._types import Array
from regard.check.answers._case import MASK_AXES, Case
from regard.check.answers._layers import LayerSize, layer_case
from regard.check.answers._tolerance import Refused
from regard.check.arrays import loaded, named, whose

from ._candidate import LAYER_LAYOUTS, Candidate, Words, is_several
from ._guess import MEANINGS, Declared, Guess, Known

_POSITIONS = 7
_ALSO = {"bsd": "bse", "bnd": "bse", "bne": "bse", "sbd": "sbe", "nbd": "sbe", "nbe": "sbe"}


def guess_layer(candidate: Candidate, declared: Declared, size: LayerSize) -> Known:
    """Find out what is not declared about a layer."""
    found = [Guess("kind", "a whole multi-head layer", candidate.signature.evidence)]
    case = layer_case(np.random.default_rng(3), "guess", size, positions=_POSITIONS)
    candidate, said = _with_arrays(candidate, declared, case)
    found += said
    answer = candidate(case)
    if isinstance(answer, Refused):
        return Known(candidate, frozenset(), tuple(found), (("every call", answer),), size)
    supports = {"layer"}
    refusals: list[tuple[str, Refused]] = []
    wanted = candidate.signature.options & {"mask", "causal"}
    wanted = wanted if declared.supports is None else wanted & declared.supports
    if "causal" in wanted:
        no = candidate(replace(case, causal=True))
        supports |= set() if isinstance(no, Refused) else {"causal"}
        refusals += [("causal", no)] if isinstance(no, Refused) else []
    elif _is_causal(candidate, case):
        candidate = replace(candidate, words=replace(candidate.words, always_causal=True))
        supports.add("causal")
        found.append(Guess("causal", "always", "no row changes with later positions"))
    if "mask" in wanted:
        candidate, able, said, refused = _with_mask(candidate, declared, case)
        supports |= able
        found += said
        refusals += refused
    return Known(candidate, frozenset(supports), tuple(found), tuple(refusals), size)


def _with_arrays(candidate: Candidate, declared: Declared, case: Case) -> tuple[Candidate, list[Guess]]:
    """Library, layout, and where the output is in what is returned."""
    layouts: tuple[str, ...] = LAYER_LAYOUTS
    if declared.layout is not None:
        if declared.layout not in (known := (*LAYER_LAYOUTS, *_ALSO)):
            raise ValueError(f"layout is {written(declared.layout)}; of a layer check knows {', '.join(known)}")
        layouts = (_ALSO.get(declared.layout, declared.layout),)
    first = None
    for library in [named(declared.library)] if declared.library else loaded():
        trials = [_answering(_worded(replace(candidate, arrays=library), layout=x), case) for x in layouts]
        right = [trial for trial in trials if trial is not None]
        if right:
            best = max(right, key=lambda c: _minds_its_batch(c, case))
            return _as_returned(best, case), _said(best, declared, case, len(right))
        first = first or replace(candidate, arrays=library)
    assert first
    return first, []


def _worded(candidate: Candidate, **words: Any) -> Candidate:
    return replace(candidate, words=replace(candidate.words, **words))


def _answering(candidate: Candidate, case: Case) -> Candidate | None:
    for element in (None, *range(4)):
        trial = _worded(candidate, element=element)
        answer = trial(case)
        if isinstance(answer, Refused):
            if element is None:
                continue
            return None
        if answer.shape == case.query.shape and not (element is None and is_several(trial, case)):
            return trial
    return None


def _as_returned(candidate: Candidate, case: Case) -> Candidate:
    gives = whose(candidate.element_of(candidate.invoke(candidate.calls(case)[0])))
    return candidate if gives is None else replace(candidate, arrays=gives)


def _said(candidate: Candidate, declared: Declared, case: Case, count: int) -> list[Guess]:
    found = []
    if declared.library is None and candidate.arrays.name != "numpy":
        found.append(Guess("arrays", candidate.arrays.name, "NumPy's are refused"))
    if declared.layout is None:
        why = "an entry of the batch minds its own business" if count > 1 else "no other is answered"
        found.append(Guess("layout", candidate.words.layout, why))
    if candidate.words.element is not None:
        found.append(Guess("result", f"element {candidate.words.element} of a tuple", "it has the shape of the output"))
    return found


def _minds_its_batch(candidate: Candidate, case: Case) -> bool:
    """Whether the first entry of the batch stays as it is when the second one changes."""
    base, other = candidate(case), candidate(_with_x(case, _changed(case.query, 1)))
    return not isinstance(base, Refused) and not isinstance(other, Refused) and _near(base[0], other[0])


def _is_causal(candidate: Candidate, case: Case) -> bool:
    base, other = candidate(case), candidate(_with_x(case, _changed(case.query, (slice(None), -1))))
    if isinstance(base, Refused) or isinstance(other, Refused):
        return False
    return _near(base[:, :-1], other[:, :-1]) and not _near(base[:, -1:], other[:, -1:])


def _with_x(case: Case, x: Array) -> Case:
    return replace(case, query=x, key=x, value=x)


def _changed(x: Array, where: Any) -> Array:
    x = x.copy()
    x[where] *= -2
    return x


def _near(a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, 1e-3, 1e-3, equal_nan=True))


# Masks.


def _forms(words: Words, size: LayerSize) -> Iterator[tuple[Words, tuple[int, ...]]]:
    for shape, axes in (
        ("full", (2, size.heads, _POSITIONS)),
        ("full", (2, 1, _POSITIONS)),
        ("flat", (2, size.heads, _POSITIONS)),
        ("full", (1, 1, _POSITIONS)),
        ("qk", (1, 1, _POSITIONS)),
        ("bk", (2, 1, 1)),
    ):
        yield replace(words, mask_shape=shape), axes


def _with_mask(
    candidate: Candidate, declared: Declared, case: Case
) -> tuple[Candidate, set[str], list[Guess], list[tuple[str, Refused]]]:
    """Hide the last position from all: then it matters to no row before it, if the mask is understood."""
    first: Refused | None = None
    assert case.layer
    for words, axes in _forms(candidate.words, LayerSize(case.layer.heads)):
        mask = np.ones((*axes, _POSITIONS), bool)
        mask[..., -1] = False
        masked = replace(case, mask=mask)
        answered = None
        for meaning in (declared.mask,) if declared.mask else tuple(MEANINGS):
            trial = replace(candidate, words=replace(words, mask=meaning))
            base, other = trial(masked), trial(_with_x(masked, _changed(case.query, (slice(None), -1))))
            if isinstance(base, Refused) or isinstance(other, Refused):
                first = first or (base if isinstance(base, Refused) else None)
                continue
            answered = answered or trial
            if _near(base[:, :-1], other[:, :-1]) and np.isfinite(base).all():
                return trial, _able(mask), _meaning(trial, declared, mask), []
        if answered:
            said = Guess("mask", answered.words.mask, "assumed: a hidden key has influence however it is spelled")
            return answered, _able(mask), [said], []
    return candidate, set(), [], [("mask", first)] if first else []


def _able(mask: Array) -> set[str]:
    return {"mask", *(f"mask_{axis}" for axis, n in zip(MASK_AXES, mask.shape, strict=False) if n > 1)}


def _meaning(candidate: Candidate, declared: Declared, mask: Array) -> list[Guess]:
    words = candidate.words
    seen = f"one key hidden as {MEANINGS[words.mask]} has no influence"
    shapes = {"full": str(mask.shape), "flat": "(batch * heads, queries, keys)", "qk": "(queries, keys)"}
    shape = Guess("mask shape", shapes.get(words.mask_shape, "(batch, keys)"), "the largest that is answered")
    return [shape] if declared.mask else [Guess("mask", words.mask, seen), shape]
