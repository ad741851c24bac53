"""How a function wants to be called, found by calling it: every size differs, so that most wrong guesses raise.

Each guess carries the evidence for it, and each can be declared instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard._errors import written
from regard._types import Array
from regard.check.answers._case import MASK_AXES, Case
from regard.check.answers._layers import USUAL, LayerSize
from regard.check.answers._tolerance import Outcome, Refused
from regard.check.arrays import loaded, named, whose

from ._candidate import ALSO, LAYOUTS, Candidate, Words, is_several, quiet, refused
from ._signature import OPTIONS


@dataclass(frozen=True)
class Guess:
    """What was found out about a function, and from what."""

    what: str
    value: str
    evidence: str

    def __str__(self) -> str:
        return f"{self.what}: {self.value} ({self.evidence})"


@dataclass(frozen=True)
class Declared:
    """What the caller says about the function; None where it is to be guessed."""

    layout: str | None = None
    mask: str | None = None
    causal: str | None = None
    window: str | None = None
    supports: frozenset[str] | None = None
    library: str | None = None
    memory: str | None = None
    vjp: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Known:
    """A candidate that can be asked, the features it is asked about, and how that was found out."""

    candidate: Candidate
    supports: frozenset[str]
    guesses: tuple[Guess, ...]
    refusals: tuple[tuple[str, Refused], ...] = ()
    layer: LayerSize = USUAL
    sides: str = "open"


def guess(candidate: Candidate, declared: Declared) -> Known:
    """Find out what is not declared about a function of query, key and value."""
    signature = candidate.signature
    found = [] if signature.evidence == "their names" else [Guess("operands", "query, key, value", signature.evidence)]
    candidate, said = _with_library(candidate, declared)
    found += said
    if isinstance(answer := _first(candidate), Refused):
        return Known(candidate, frozenset(), tuple(found), (("every call", answer),))
    candidate, said = _with_causal(candidate, declared)
    return _with_options(candidate, declared, [*found, *said])


def _ask(
    queries: int = 5, keys: int = 9, width: int = 8, value_width: int = 6, *, heads: int = 3, shared: int = 1
) -> Case:
    """Make a small case, of sizes that no probe has: what a function keeps by shape then spoils no probe."""
    rng = np.random.default_rng(3)
    shapes = (2, heads * shared, queries, width), (2, heads, keys, width), (2, heads, keys, value_width)
    q, k, v = (rng.standard_normal(shape) for shape in shapes)
    return Case("guess", q, k, v)


# Library and layout.


def _with_library(candidate: Candidate, declared: Declared) -> tuple[Candidate, list[Guess]]:
    """Find the library whose arrays are answered: NumPy's are tried first, then those of whatever is imported."""
    no = None
    tries = [named(declared.library)] if declared.library else loaded()
    for library in tries:
        trial, said = _with_layout(replace(candidate, arrays=library), declared)
        answer = _first(trial)
        if isinstance(answer, Refused):
            no = no or (replace(candidate, arrays=library), answer)
            continue
        gives = whose(answer)
        if gives not in (None, library) and declared.library is None:
            assert gives
            return replace(trial, arrays=gives), [Guess("arrays", gives.name, "that is what it returns"), *said]
        other = [] if declared.library or no is None else [Guess("arrays", library.name, f"NumPy's: {no[1].message}")]
        return trial, [*other, *said]
    assert no
    return no[0], []


def _first(candidate: Candidate) -> Any:
    """Return the function's own result for a small case, or for a square one; a refusal if both are refused."""
    answers: list[Any] = []
    for case in (_ask(), _ask(5, 5, 8, 8)):
        answers.append(candidate(case))
        if not isinstance(answers[-1], Refused):
            with quiet():
                return candidate.element_of(candidate.invoke(candidate.calls(case)[0]))
    return answers[0]


def _with_layout(candidate: Candidate, declared: Declared) -> tuple[Candidate, list[Guess]]:
    if declared.layout is not None:
        if declared.layout not in (*LAYOUTS, *ALSO):
            raise ValueError(f"layout is {written(declared.layout)}; check knows {', '.join((*LAYOUTS, *ALSO))}")
        tries = [ALSO.get(declared.layout, declared.layout)]
    else:
        tries = list(LAYOUTS)
    asked = [_ask(), _ask(5, 9, 8, 8), _ask(5, 5, 8, 8)]
    for case, exact in [*((case, True) for case in asked), *((case, False) for case in asked)]:
        right = [c for layout in tries if (c := _answering(candidate, layout, case, exact))]
        if right:
            most = max(len(c.words.layout) for c in right)
            best = max((c for c in right if len(c.words.layout) == most), key=lambda c: _laws_kept(c, case))
            return best, _evidence(best, case, declared, [c.words.layout for c in right])
    return replace(candidate, words=replace(candidate.words, layout=tries[0])), []


def _answering(candidate: Candidate, layout: str, case: Case, exact: bool) -> Candidate | None:
    """Return the candidate in that layout, if it answers; of a tuple, the element that has the shape of an output."""
    want = (*case.query.shape[:3], case.value.shape[3])
    for element in (None, *range(4)):
        worded = replace(candidate, words=replace(candidate.words, layout=layout, element=element))
        answer = worded(case)
        if isinstance(answer, Refused) and element is not None:
            return None
        if not isinstance(answer, Refused) and (answer.shape == want or (not exact and answer.ndim > 1)):
            if element is None and is_several(worded, case):
                continue
            return worded
    return None


def _laws_kept(candidate: Candidate, case: Case) -> int:
    """Laws that tell axes apart: keys and values permuted together change nothing; a head minds its own business."""
    base = candidate(case)
    turned = candidate(replace(case, key=case.key[..., ::-1, :], value=case.value[..., ::-1, :]))
    other = candidate(replace(case, value=_bumped(case.value, (slice(None), 1))))
    if isinstance(base, Refused) or isinstance(turned, Refused) or isinstance(other, Refused):
        return 0
    if base.ndim < 2 or base.shape[1:2] != (3,):
        return 0
    kept = base.shape == turned.shape and np.allclose(base, turned, 1e-3, 1e-5, equal_nan=True)
    alone = base.shape == other.shape and np.allclose(base[:, [0, 2]], other[:, [0, 2]], 1e-3, 1e-5, equal_nan=True)
    return int(kept) + int(alone)


def _bumped(x: Array, where: Any) -> Array:
    x = x.copy()
    x[where] += 10
    return x


def _evidence(candidate: Candidate, case: Case, declared: Declared, layouts: list[str]) -> list[Guess]:
    found = []
    layout = candidate.words.layout
    if declared.layout is None:
        arrays = candidate.calls(case)[0].arrays
        shapes = " and ".join(str(tuple(x.shape)) for x in arrays[:2])
        others = f"also answers {', '.join(x for x in layouts if x != layout)}" if len(layouts) > 1 else "no other does"
        found.append(Guess("layout", layout, f"answers {shapes}, {others}"))
    if candidate.words.element is not None:
        found.append(Guess("result", f"element {candidate.words.element} of a tuple", "it has the shape of an output"))
    return found


# Causal.


def _with_causal(candidate: Candidate, declared: Declared) -> tuple[Candidate, list[Guess]]:
    """Find out whether a function without a causal parameter is causal all the same: later values never matter then."""
    if candidate.answers("causal"):
        return candidate, []
    told = declared.supports is not None and "causal" in declared.supports
    case = _ask(5, 5, 8, 8)
    if told or (declared.supports is None and _ignores_later_values(candidate, case)):
        always = replace(candidate, words=replace(candidate.words, always_causal=True))
        return always, [] if told else [Guess("causal", "always", "no row changes with the values after it")]
    return candidate, []


def _ignores_later_values(candidate: Candidate, case: Case) -> bool:
    base = candidate(case)
    changed = [
        candidate(replace(case, value=_bumped(case.value, (..., slice(i + 1, None), slice(None))))) for i in (0, 3)
    ]
    if isinstance(base, Refused) or any(isinstance(x, Refused) for x in changed) or base.ndim != 4:
        return False
    moved = [np.abs(np.asarray(x) - base).max(axis=(0, 1, 3)) > 1e-3 for x in changed]
    return not moved[0][:1].any() and not moved[1][:4].any() and bool(moved[0][1:].any())


def _causal_rule(candidate: Candidate) -> list[Guess]:
    """Find out where the rule starts with more keys than queries: which keys does the last query see."""
    case = replace(_ask(3, 7, 8, 8), causal=True)
    base = candidate(case)
    seen = [_moves(base, candidate(replace(case, value=_bumped(case.value, (..., j, slice(None)))))) for j in range(7)]
    count = sum(moved > 1e-3 for moved in seen)
    rule = {7: "bottom-right", 3: "top-left"}.get(count)
    return [Guess("causal rule", rule, f"the last of 3 queries sees {count} of 7 keys")] if rule else []


# Options.


def _with_options(candidate: Candidate, declared: Declared, found: list[Guess]) -> Known:
    named = candidate.signature.options
    wanted = named if declared.supports is None else named & declared.supports
    supports: set[str] = {"attention", "causal"} if candidate.words.always_causal else {"attention"}
    refusals = []
    if "mask" in wanted:
        candidate, able, said, no = _with_mask(candidate, declared)
        supports |= able
        found += said
        refusals += [("mask", no)] if no else []
    for option in OPTIONS:
        if option in wanted and option != "mask":
            no = _refusal(candidate, option)
            supports |= set() if no else {option}
            refusals += [(option, no)] if no else []
    if not isinstance(candidate(_ask(5, 5)), Refused):
        supports.add("value_width")
    supports |= _grouped(candidate, declared, found)
    if "causal" in supports and declared.causal is None:
        found += _causal_rule(candidate)
    sides = ""
    if "window" in supports and "causal" not in supports:
        sides, said_of = _sides(candidate)
        supports |= {"window_alone"} if sides else set()
        found += said_of
    if "alibi" in (declared.supports or ()) and "alibi" not in named:
        candidate = replace(candidate, words=replace(candidate.words, always_alibi=True))
        supports.add("alibi")
    if unasked := candidate.signature.unasked:
        found.append(Guess("never passed", ", ".join(unasked), "another parameter means the same to check"))
    missing = sorted(set(OPTIONS) - {"alibi"} - supports - {option for option, _ in refusals})
    if missing and declared.supports is None:
        found.append(Guess("not asked about", ", ".join(missing), "no parameter has a name of theirs"))
    honest = [(option, no) for option, no in refusals if no.honest]
    found += [Guess(option, "not supported", no.message) for option, no in honest]
    return Known(
        candidate, frozenset(supports), tuple(found), tuple(x for x in refusals if x not in honest),
        sides=sides or "open",
    )  # fmt: skip


def _sides(candidate: Candidate) -> tuple[str, list[Guess]]:
    """Find out what a window hides without causal: row 4 of 9 is asked about the next key, and the last."""
    case = replace(_ask(9, 9, 8, 8), window=3)
    base, *moved = (
        candidate(c) for c in (case, *(replace(case, value=_bumped(case.value, (..., j, slice(None)))) for j in (5, 8)))
    )
    if isinstance(base, Refused) or base.ndim != 4 or any(isinstance(x, Refused) for x in moved):
        return "", []
    next_, last = (float(np.abs(np.asarray(x) - base)[..., 4, :].max()) > 1e-3 for x in moved)
    sides = "open" if last else "both" if next_ else "left"
    seen = {"open": "all later keys", "both": "as many later keys", "left": "no later key"}
    return sides, [Guess("window without causal", sides, f"a query sees {seen[sides]}")]


def _refusal(candidate: Candidate, option: str) -> Refused | None:
    """Return how the simplest use of an option is refused; None if it answers, on unequal sizes or on a square."""
    answers = [candidate(_asked(candidate, case, option)) for case in (_ask(), _ask(5, 5, 8, 8))]
    refusals = [answer for answer in answers if isinstance(answer, Refused)]
    return refusals[0] if len(refusals) == len(answers) else None


def _asked(candidate: Candidate, case: Case, option: str) -> Case:
    values: dict[str, Any] = {"scale": 0.7, "softcap": 3.0, "window": 3, "dropout": 0.25}
    values |= {"bias": np.zeros((2, 3, 5, case.key.shape[2])), "alibi": np.array([0.5, 0.25, 0.125])}
    if option == "causal" or (option == "window" and candidate.answers("causal")):
        case = replace(case, causal=True)
    return replace(case, **({option: values[option]} if option in values else {}))


def _grouped(candidate: Candidate, declared: Declared, found: list[Guess]) -> set[str]:
    if declared.supports is not None:
        return {"gqa"} & declared.supports
    if "h" not in candidate.words.layout:
        return set()
    answer = candidate(_ask(shared=2))
    if isinstance(answer, Refused) or answer.shape != (2, 6, 5, 6):
        answer = candidate(_ask(5, 9, 8, 8, shared=2))
    if isinstance(answer, Refused) or answer.shape[:3] != (2, 6, 5):
        found.append(Guess("grouped heads", "not supported", "6 query heads with 3 key heads are refused"))
        return set()
    return {"gqa"}


# Masks.


def _with_mask(candidate: Candidate, declared: Declared) -> tuple[Candidate, set[str], list[Guess], Refused | None]:
    """Which form of mask the function takes and what it means, by hiding one key and looking whether it matters."""
    refusal = None
    for words, case in _mask_forms(candidate):
        trial = replace(candidate, words=words)
        meaning = _meaning(trial, declared, case)
        if isinstance(meaning, Refused):
            refusal = refusal or meaning
            continue
        assert case.mask is not None
        polarity, evidence = meaning
        able = {"mask", *(f"mask_{axis}" for axis, n in zip(MASK_AXES, case.mask.shape, strict=False) if n > 1)}
        said = [] if declared.mask else [Guess("mask", polarity, evidence)]
        if words.mask_shape != "full" or case.mask.shape[0] == 1:
            said.append(Guess("mask shape", str(_shown(trial, case)), "larger ones are refused"))
        return replace(candidate, words=replace(words, mask=polarity)), able, said, None
    return candidate, set(), [], refusal


def _shown(candidate: Candidate, case: Case) -> tuple[int, ...]:
    return next(tuple(x.shape) for x in candidate.calls(case)[0].arrays if x.dtype == bool)


def _mask_forms(candidate: Candidate) -> Iterator[tuple[Words, Case]]:
    """Masks from the largest to the smallest, in cases that hide the last key.

    With two heads and two batch entries a mask that takes one for the other fits: a fault to be found.
    """
    for sizes in ((5, 9, 8, 6), (5, 9, 8, 8), (5, 5, 8, 8)):
        for shape, heads, axes in (
            ("full", 3, (2, 3)),
            ("full", 2, (2, 1)),
            ("full", 3, (1, 1)),
            ("bqk", 3, (2, 1)),
            ("qk", 3, (1, 1)),
            ("bk", 3, (2, 1)),
        ):
            if (shape == "bk" and "b" not in candidate.words.layout) or (
                shape == "bqk" and len(candidate.words.layout) < 4
            ):
                continue
            mask = np.ones((*axes, 1 if shape == "bk" else sizes[0], sizes[1]), bool)
            mask[..., -1] = False
            yield replace(candidate.words, mask_shape=shape), replace(_ask(*sizes, heads=heads), mask=mask)


def _meaning(candidate: Candidate, declared: Declared, case: Case) -> tuple[str, str] | Refused:
    """Polarity and evidence; a refusal only if no polarity is answered."""
    answers: dict[str, Outcome] = {}
    plain = candidate(replace(case, mask=None))
    for polarity in (declared.mask,) if declared.mask else ("keep", "drop", "additive"):
        worded = replace(candidate, words=replace(candidate.words, mask=polarity))
        hidden, seen = (worded(replace(case, value=_bumped(case.value, (..., at, slice(None))))) for at in (-1, 0))
        base = _of_same_shape(worded(case), plain)
        answers[polarity] = base
        if isinstance(base, Refused) or isinstance(hidden, Refused) or isinstance(seen, Refused):
            continue
        if declared.mask:
            return declared.mask, "declared"
        if np.isfinite(base).all() and _moves(base, seen) > 100 * _moves(base, hidden):
            return polarity, f"one key hidden as {MEANINGS[polarity]} has no influence"
    if "keep" in answers and not isinstance(answers["keep"], Refused):
        return "keep", "assumed: a hidden key has influence however it is spelled"
    return refused(ValueError("no form of mask is taken")) if not answers else _first_refusal(answers)


def _of_same_shape(masked: Outcome, plain: Outcome) -> Outcome:
    """Refuse a mask that is broadcast to something else than scores."""
    if isinstance(masked, Refused) or isinstance(plain, Refused) or masked.shape == plain.shape:
        return masked
    return refused(ValueError(f"a mask of this shape makes the output {masked.shape}"))


MEANINGS = {"keep": "False", "drop": "True", "additive": "-inf"}


def _first_refusal(answers: dict[str, Outcome]) -> tuple[str, str] | Refused:
    for polarity, answer in answers.items():
        if not isinstance(answer, Refused):
            return polarity, "assumed: no other is answered"
    return next(answer for answer in answers.values() if isinstance(answer, Refused))


def _moves(base: Outcome, other: Outcome) -> float:
    if isinstance(base, Refused) or isinstance(other, Refused) or base.shape != other.shape:
        return 0.0
    moved = np.abs(base - other)
    return float(np.where(np.isfinite(moved), moved, 0).max(initial=0))
