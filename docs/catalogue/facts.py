"""What is known of each name: `check` is asked about a function that has the fault, and the catalogue about others."""

from __future__ import annotations

import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from regard.check.answers._case import Case
from regard.check.answers._fault import Fault
from regard.check.answers._probes import Setting
from regard.check.faults import CATALOGUE
from regard.check.findings import _demonstrate
from regard.check.findings._finding import Finding
from regard.check.gradients import CATALOGUE as GRADIENTS
from regard.check.instruments._dictionary import VARIANTS, Models, Variant, models
from regard.check.report._names import Entry, entries

from .planted import distance, planted_for

# Answers of two faults that are no further apart are the same.
_SAME = 1e-6
# Their evidence is a number that is another one each time.
_VARYING = {
    "NONDETERMINISTIC",
    "SEED_IGNORED",
    "DROPOUT_ACTIVE_IN_EVAL",
    "GRAD_NONDETERMINISTIC",
    "QUADRATIC_MEMORY",
    "THREAD_DEPENDENT",
}
LAWS_BROKEN = "laws broken: "


@dataclass(frozen=True)
class Facts:
    """What a page shows.

    ``called`` are the names that the function of the page is given, gravest first, and ``finding`` is that of the page,
    or the first. ``nearest`` holds faults with the same wrong answers, each with the probe that tells it apart.
    """

    entry: Entry
    finding: Finding
    declared: dict[str, Any]
    called: tuple[str, ...]
    pictures: tuple[tuple[str, str], ...] = ()
    laws: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    seen_by: tuple[str, ...] = ()
    nearest: tuple[tuple[str, str], ...] = ()
    source: str = ""
    question: str = ""


def all_facts() -> list[Facts]:
    """Everything, in the order of the catalogue; two processes ask, while this one compares faults."""
    with ProcessPoolExecutor(2) as pool:
        asked = pool.map(_asked, entries(), chunksize=4)
        _nearest()
        return [_compared(known) for known in asked]


def facts(entry: Entry) -> Facts:
    """Return what is known of one name."""
    return _compared(_asked(entry))


def _asked(entry: Entry) -> Facts:
    """Ask check about a function that has what a name stands for."""
    made = planted_for(entry)
    report = made.report()
    explained = entry.kind == "law" and entry.name not in report.names  # a fault is why it is broken
    finding = report.findings[0] if explained else report[entry.name]
    if entry.name in _VARYING:
        finding = replace(finding, evidence=tuple(re.sub(r"\d[\d.e+-]*", "…", line) for line in finding.evidence))
    said = next((line for line in finding.evidence if line.startswith(LAWS_BROKEN)), "")
    laws = tuple(f"LAW_{name}" for name in said.removeprefix(LAWS_BROKEN).split(", ") if name)
    declared = {name: value for name, value in made.declared.items() if not callable(value)}
    return Facts(
        entry, finding, declared, report.names, _pictures(entry, report.pictures),
        laws if entry.kind == "fault" else (), source=made.source, question=_questions().get(entry.name, ""),
    )  # fmt: skip


def _compared(known: Facts) -> Facts:
    """Add what the catalogue says of a fault, and of those that are like it."""
    fault = next((f for f in (*CATALOGUE, *GRADIENTS) if f.name == known.entry.name), None)
    if fault is None:
        return known
    labels, first = tuple(label for label in fault.variants if label), _first(fault)
    if first is None:
        return replace(known, variants=labels)
    return replace(known, variants=labels, seen_by=_seen_by(first), nearest=_nearest()[first])


def _pictures(entry: Entry, pictures: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Which pairs are kept says something of faults of masks only."""
    wanted = {"causal": ("causal", "window"), "mask": ("mask", "causal")}.get(entry.group, ())
    return tuple(picture for picture in pictures if picture[0] in wanted)[:1]


def _questions() -> dict[str, str]:
    """How each law and habit is asked about."""
    return {**_demonstrate._LAWS, **_demonstrate._EXACT, **_demonstrate._NEARLY}


# What tells faults apart.


def _first(fault: Fault) -> Variant | None:
    """Its first variant; a fault that is seen in what is returned, and not in its numbers, has none."""
    return next((variant for variant in VARIANTS if variant.fault is fault), None)


def _known() -> Models:
    return models(Setting())


@cache
def _failed(variant: Variant) -> tuple[str, ...]:
    """Probes that show a fault."""
    known = _known()
    return tuple(name for name in known.cases if not known.judges[name].passes(known.answer((variant,), name)))


def _seen_by(variant: Variant) -> tuple[str, ...]:
    return tuple(described(_known().cases[name]) for name in _failed(variant))


def described(case: Case) -> str:
    """Say a probe in words."""
    if case.layer:
        return f"a layer of {case.layer.heads} heads over {case.query.shape[1]} positions ({case.name})"
    heads, kv_heads = case.query.shape[1], case.key.shape[1]
    shared = "" if heads == kv_heads else f", {heads} heads over {kv_heads}"
    options = "".join(
        f", {name}" if isinstance(value, np.ndarray) or value is True else f", {name} {value:g}"
        for name, value in sorted(case.options.items())
    )
    return f"{case.query.shape[2]} queries, {case.key.shape[2]} keys{shared}{options} ({case.name})"


@lru_cache(maxsize=1)
def _nearest() -> dict[Variant, tuple[tuple[str, str], ...]]:
    """For each fault the three that share most wrong answers with it, and the probe where they differ most."""
    firsts = [first for fault in CATALOGUE if (first := _first(fault))]
    found: dict[Variant, list[tuple[int, str, str]]] = {variant: [] for variant in firsts}
    for a, b in combinations(firsts, 2):
        wrong = set(_failed(a)) & set(_failed(b))
        if not wrong:
            continue
        shared = sum(_distance(a, b, name) <= _SAME for name in wrong)
        if not shared:
            continue
        told = max(_known().cases, key=lambda name: _distance(a, b, name))
        if _distance(a, b, told) > _SAME:
            found[a].append((shared, b.fault.name, described(_known().cases[told])))
            found[b].append((shared, a.fault.name, described(_known().cases[told])))
    return {
        variant: tuple((name, told) for _, name, told in sorted(others, key=lambda other: -other[0])[:3])
        for variant, others in found.items()
    }


def _distance(a: Variant, b: Variant, name: str) -> float:
    """How far two answers to a probe are apart; infinite where one is NaN, refused or of another shape."""
    return float(distance(_known().answer((a,), name), _known().answer((b,), name)))
