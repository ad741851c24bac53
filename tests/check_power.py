"""How well the probes find faults and tell them apart: counted over the models, without any function."""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from regard.check.answers._fault import model
from regard.check.answers._probes import Setting
from regard.check.answers._tolerance import Refused, outcome
from regard.check.faults import BY_NAME
from regard.check.faults.precision import GROUP
from regard.check.instruments._dictionary import VARIANTS, Search, models
from regard.check.instruments._precise import roundings
from regard.check.instruments._sites import sites

# Right unless another rule is declared.
DECLARED_ONLY = {"CAUSAL_BOTTOM_RIGHT", "EMPTY_ROW_ZERO"}
SEARCHED = [v for v in VARIANTS if v.fault.name not in DECLARED_ONLY]
FIRST = [v for v in SEARCHED if v.label == next(iter(v.fault.variants))]


def shown(known, variants):
    """Probes whose answer is wrong with these faults."""
    return {name for name in known.cases if not known.judges[name].passes(known.answer(variants, name))}


def distance(a, b):
    """Largest difference of two answers; infinite where one is NaN, refused or of another shape."""
    if isinstance(a, Refused) or isinstance(b, Refused):
        return 0.0 if isinstance(a, Refused) and isinstance(b, Refused) else math.inf
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return math.inf
    finite = np.isfinite(a)
    return float(np.abs(a[finite] - b[finite]).max(initial=0))


def nearest(known, enough=0.2):
    """Count pairs of variants of different faults; list those that no probe separates by more than ``enough``."""
    count, near = 0, []
    for a, b in itertools.combinations(SEARCHED, 2):
        if a.fault is b.fault:
            continue
        count, apart = count + 1, 0.0
        for name in known.cases:
            apart = max(apart, distance(known.answer((a,), name), known.answer((b,), name)))
            if apart > enough:
                break
        if apart <= enough:
            near.append((apart, a, b))
    return count, sorted(near, key=lambda pair: pair[0])


def greedy(known):
    """Choose probes, each the one that shows most faults that were not shown yet: (probe, how many more)."""
    finds = {name: set() for name in known.cases}
    for variant in FIRST:
        for name in shown(known, (variant,)):
            finds[name].add(variant.fault.name)
    chosen, left = [], {v.fault.name for v in FIRST}
    while left:
        best = max(finds, key=lambda name: len(finds[name] & left))
        assert finds[best] & left, left
        chosen.append((best, len(finds[best] & left)))
        left -= finds[best]
    return chosen


@dataclass
class Doubles:
    """What became of a sample of two faults at once."""

    pairs: int = 0
    cancelled: int = 0
    own: int = 0
    like_one: int = 0
    like_another: int = 0
    both_named: int = 0


def composable():
    """Pairs of faults that replace different steps."""
    able = [v for v in FIRST if not v.fault.edge]
    return [(a, b) for a, b in itertools.combinations(able, 2) if a.steps.keys().isdisjoint(b.steps)]


def doubles(known, size, seed=7, tick=lambda: None, search=False):
    """Plant a sample of pairs, and say which single fault they look like, or that it is none."""
    all_pairs, found = composable(), Doubles()
    for i in np.random.default_rng(seed).choice(len(all_pairs), size, replace=False):
        a, b = all_pairs[i]
        answers = {name: known.answer((a, b), name) for name in known.cases}
        looking = Search(known, answers, lambda: True)
        alone = {v.fault.name for one in looking._singles() for v in one} if looking.failing else set()
        found.pairs += 1
        found.cancelled += not looking.failing
        found.own += bool(looking.failing) and not alone
        found.like_one += bool(alone & {a.fault.name, b.fault.name})
        found.like_another += bool(alone) and not alone & {a.fault.name, b.fault.name}
        if search and not alone:
            names = [{v.fault.name for v in one} for one in looking.run().explanations]
            found.both_named += {a.fault.name, b.fault.name} in names
        tick()
    return found


def rounding_named(fault, label, dtype):
    """Names of roundings found in answers that are a model's own."""
    steps = BY_NAME[fault].variants[label]
    planted = model(steps)
    return [one.fault.name for one in roundings(lambda case: outcome(planted, case), dtype, (), lambda: True)]


def roundings_apart():
    """Smallest difference of two roundings at the site where they differ most, in bounds; and of which."""
    variants = [(fault, label) for fault in GROUP.faults for label in fault.variants]
    places = [site for _, some in sites("float32") for site in some]
    answers = {
        (f.name, label): [(site.judge, outcome(model(f.variants[label]), site.case)) for site in places]
        for f, label in variants
    }
    near = {}
    for a, b in itertools.combinations(answers, 2):
        if a[0] != b[0]:
            near[a, b] = max(
                distance(x, y) / judge.bound.max()
                for (judge, x), (_, y) in zip(answers[a], answers[b], strict=True)
            )  # fmt: skip
    pair = min(near, key=near.get)
    return len(near), near[pair], pair


def known_models(seed=0, dtype="float32"):
    """Models over the probes of a seed."""
    return models(Setting(seed=seed, dtype=dtype))
