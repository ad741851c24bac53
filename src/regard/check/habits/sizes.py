"""Sizes at which a function that is right on the probes goes wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from regard.check.answers._case import Case
from regard.check.answers._fault import Steps, model
from regard.check.answers._tolerance import Judge, Refused, outcome

from ._base import Behaviour

SIZES = ((1, 2, 1), (2, 3, 7), (9, 33, 16), (3, 65, 40), (70, 67, 72), (33, 200, 5), (4, 300, 130))


def wrong_size(behaviour: Behaviour, known: tuple[Steps, ...] = ()) -> Case | None:
    """Find an odd or larger size that is answered as neither what is right nor what is known of the function explains.

    Nothing is asked of a function that is not explained at a small one.
    """
    rng = np.random.default_rng(29)
    if not _explained(behaviour.case, behaviour, known):
        return None
    for queries, keys, width in SIZES:
        wide = 3 if "value_width" in behaviour.supports else width
        shapes = (2, 3, queries, width), (2, 3, keys, width), (2, 3, keys, wide)
        q, k, v = (rng.standard_normal(shape) for shape in shapes)
        for causal in _rules(behaviour, queries <= keys):
            case = replace(behaviour.case, query=q, key=k, value=v, causal=causal).cast(behaviour.candidate.dtype)
            if not _explained(case, behaviour, known):
                return case
    return None


def _explained(case: Case, behaviour: Behaviour, known: tuple[Steps, ...]) -> bool:
    got, judge = behaviour.candidate(case), Judge.of(case, behaviour.candidate.dtype)
    if isinstance(got, Refused) or judge.passes(got):
        return True
    return bool(known) and judge.alike(got, outcome(model(*known), case))


def _rules(behaviour: Behaviour, no_empty_rows: bool) -> list[bool]:
    """Causal or not, as far as the function can be asked; what is right in rows without keys is asked elsewhere."""
    causal = [True] if no_empty_rows and "causal" in behaviour.supports else []
    return causal if behaviour.case.causal else [False, *causal]
