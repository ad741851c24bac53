"""Sizes at which a function that is right on the probes goes wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from regard.check.answers._case import Case
from regard.check.answers._tolerance import FAIL, Judge, Refused

from ._base import Behaviour

SIZES = ((1, 2, 1), (2, 3, 7), (9, 33, 16), (3, 65, 40), (70, 67, 72), (33, 200, 5), (4, 300, 130))


def wrong_size(behaviour: Behaviour) -> Case | None:
    """Find an odd or larger size that is answered wrongly, by a function that is right at a small one."""
    rng = np.random.default_rng(29)
    if behaviour.error(behaviour.case) > FAIL:
        return None
    for queries, keys, width in SIZES:
        wide = 3 if "value_width" in behaviour.supports else width
        shapes = (2, 3, queries, width), (2, 3, keys, width), (2, 3, keys, wide)
        q, k, v = (rng.standard_normal(shape) for shape in shapes)
        for causal in _rules(behaviour, queries <= keys):
            case = replace(behaviour.case, query=q, key=k, value=v, causal=causal).cast(behaviour.candidate.dtype)
            got = behaviour.candidate(case)
            if not isinstance(got, Refused) and not Judge.of(case, behaviour.candidate.dtype).passes(got):
                return case
    return None


def _rules(behaviour: Behaviour, no_empty_rows: bool) -> list[bool]:
    """Causal or not, as far as the function can be asked; what is right in rows without keys is asked elsewhere."""
    causal = [True] if no_empty_rows and "causal" in behaviour.supports else []
    return causal if behaviour.case.causal else [False, *causal]
