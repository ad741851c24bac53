"""The logsumexp that a function returns beside its output: what it is, and whether parts can be merged by it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case
from regard.check.answers._fault import model
from regard.check.answers._oracle import RIGHT, Oracle
from regard.check.answers._tolerance import UNIT, Refused
from regard.check.candidate._candidate import Candidate, quiet, refused
from regard.check.faults.lse import GROUP
from regard.check.findings._demonstrate import demonstration
from regard.check.findings._finding import Example, Finding
from regard.check.findings._shrink import shrink

# Errors of a logsumexp, in units of its dtype at its own size and that of its scores.
_UNITS = 64
# An example whose logsumexp is off by less shows nothing.
_SEEN = 0.05


@dataclass(frozen=True)
class Pair:
    """A function that returns an output and, as another element, something of the shape of a logsumexp."""

    candidate: Candidate
    element: int

    def __call__(self, case: Case) -> tuple[Array, Array]:
        """Answer a case: output and logsumexp, in float64; errors go through."""
        with quiet():
            outs = [self.candidate.invoke(call) for call in self.candidate.calls(case)]
            parts = [self.candidate.arrays.read(out[self.element]).astype(np.float64) for out in outs]
            return self.candidate.receive(case, outs), _laid(parts, case, self.candidate.words.layout)


def pair_of(candidate: Candidate, case: Case) -> Pair | None:
    """Find the element; None if there is none."""
    if candidate.words.element is None or isinstance(candidate(case), Refused):
        return None
    with quiet():
        out = candidate.invoke(candidate.calls(case)[0])
    for element in range(len(out) if isinstance(out, tuple | list) else 0):
        if element == candidate.words.element:
            continue
        try:
            Pair(candidate, element)(case)
        except (ValueError, TypeError, AttributeError, IndexError):
            continue
        return Pair(candidate, element)
    return None


def _laid(parts: list[Array], case: Case, layout: str) -> Array:
    """(B, H, Sq), of whatever order and calls."""
    rows = case.query.shape[2]
    lead = [case.query.shape[axis] for axis, name in enumerate("bh") if name not in layout]
    own = [case.query.shape["bh".index(name)] for name in layout if name in "bh"]
    found = []
    for part in parts:
        x = part[..., 0] if part.ndim == len(own) + 2 and part.shape[-1] == 1 else part
        if x.shape == (*own[:-1], rows, *own[-1:]) and "sh" in layout:
            x = np.swapaxes(x, -1, -2)
        if x.shape != (*own, rows):
            raise ValueError(f"shape {part.shape} is no logsumexp's")
        found.append(x)
    return np.stack(found).reshape(*lead, *found[0].shape)


def lse_findings(candidate: Candidate, cases: Mapping[str, Case]) -> Iterator[Finding]:
    """Name what is wrong with a returned logsumexp, of a function whose output is right."""
    asked = [cases[name] for name in ("base", "causal_sq") if name in cases and _can(candidate, cases[name])]
    pair = pair_of(candidate, asked[0]) if asked else None
    if pair is None:
        return
    answers = list(_answers(pair, asked))
    if not answers or all(_near(got, right_lse(case), candidate.dtype, case) for case, got in answers):
        return
    merged = () if candidate.words.always_causal else (_merging(pair, asked[0]),)
    for fault in GROUP.faults:
        fits = [
            label
            for label, steps in fault.variants.items()
            if all(_near(got, right_lse(case, model(steps)), candidate.dtype, case) for case, got in answers)
        ]
        if fits or not fault.variants:
            label = fits[0] if fits else ""
            case = _small(pair, answers[0][0], model(fault.variants[label]) if fits else None)
            got = pair(case)[1]
            yield Finding(
                fault.name, "fault", "certain: all of its numbers are explained" if fits else "seen",
                f"{fault.does}: {label}" if label else fault.does, fault.why, fault.mend,
                (f"element {pair.element} has the shape of a logsumexp", *merged), (),
                _Lse(case, right_lse(case), got), _script(fault.name, fault.does, pair),
            )  # fmt: skip
            return


def _script(name: str, does: str, pair: Pair) -> str:
    """Write a program that looks at the logsumexp; none where its axes are turned, or every call is causal."""
    words = pair.candidate.words
    if "sh" in words.layout or words.always_causal:
        return ""
    return demonstration(name, does, replace(pair.candidate, words=replace(words, element=pair.element)))


def _answers(pair: Pair, cases: Iterable[Case]) -> Iterator[tuple[Case, Array]]:
    """Logsumexps of the cases that are not refused."""
    for case in cases:
        try:
            yield case, pair(case)[1]
        except BaseException as error:
            refused(error)


def _small(pair: Pair, case: Case, wrong: Oracle | None) -> Case:
    """Shrink a case while its logsumexp is wrong, and as wrong as the fault makes it."""

    def shows(less: Case) -> bool:
        less = less.cast(pair.candidate.dtype)
        try:
            got = pair(less)[1]
        except Exception:
            return False
        dtype = pair.candidate.dtype
        off = np.abs(got - right_lse(less)).max(initial=0)
        return bool(off > _SEEN and (wrong is None or _near(got, right_lse(less, wrong), dtype, less)))

    return shrink(case, shows, equal_widths=case.query.shape[3] == case.value.shape[3]).cast(pair.candidate.dtype)


class _Lse(Example):
    @property
    def what(self) -> str:
        return "logsumexp "


def right_lse(case: Case, oracle: Oracle = RIGHT) -> Array:
    """Return the logsumexp of each row's scores."""
    with np.errstate(all="ignore"):
        return oracle.lse(case, oracle.attend(case)[1])


def _can(candidate: Candidate, case: Case) -> bool:
    causal = candidate.answers("causal") or candidate.words.always_causal
    return case.causal == candidate.words.always_causal or (case.causal and causal)


def _near(got: Array, want: Array, dtype: str, case: Case) -> bool:
    q, k = np.abs(case.query).max(), np.abs(case.key).max()
    size = 1 + np.abs(want).max() + q * k * np.sqrt(case.query.shape[3])
    return bool(np.allclose(got, want, 0, _UNITS * UNIT[dtype] * size))


def _merging(pair: Pair, case: Case) -> str:
    """Say how far two halves of the keys, merged by it, are from the whole."""
    half = case.key.shape[2] // 2
    parts = [replace(case, key=case.key[..., x, :], value=case.value[..., x, :], causal=False)
             for x in (slice(0, half), slice(half, None))]  # fmt: skip
    try:
        (a, la), (b, lb), (whole, _) = pair(parts[0]), pair(parts[1]), pair(replace(case, causal=False))
    except Exception:
        return "halves of the keys are refused"
    first = 1 / (1 + np.exp(lb - la))[..., None]
    return f"halves of the keys, merged by it, are off by {np.abs(first * a + (1 - first) * b - whole).max():.3g}"
