"""What a function does where an option says that nothing may pass: behind masks, in later keys, in random numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case
from regard.check.answers._tolerance import Refused

from ._base import Behaviour, habit, largest, same


@habit(
    "CAUSAL_FUTURE_NAN",
    "with causal, NaN in a later key or value spoils earlier rows: 0 · NaN is NaN",
    "A cache that is longer than what was written into it may hold NaN.",
    "end each row's loop at its last key, or leave hidden values out of the product",
    wants="attention causal",
)
def _future_nan(behaviour: Behaviour) -> str | None:
    case = replace(behaviour.case, causal=True)
    want = _earlier(behaviour, case)
    if want is None or not np.isfinite(want).all():
        return None
    for name in ("value", "key"):
        if not _kept(behaviour, _last_is(case, name, 3.0), want):
            continue  # no NaN is needed: the causal rule is wrong
        if not _kept(behaviour, _last_is(case, name, np.nan), want):
            return f"NaN in the last {name} reaches the rows before it"
    return None


def _last_is(case: Case, name: str, number: float) -> Case:
    changed: Array = getattr(case, name).copy()
    changed[..., -1, :] = number
    arrays: dict[str, Any] = {name: changed}
    return replace(case, **arrays)


def _earlier(behaviour: Behaviour, case: Case) -> Array | None:
    """Return all rows but the last, which no change of the last key may reach."""
    got = behaviour.candidate(case)
    return None if isinstance(got, Refused) or got.ndim != 4 else got[..., :-1, :]


def _kept(behaviour: Behaviour, case: Case, want: Array) -> bool:
    got = _earlier(behaviour, case)
    return got is None or (got.shape == want.shape and np.allclose(got, want, 1e-2, 1e-3))


@habit(
    "INF_MASKED",
    "Inf in a hidden key or value spoils the output, although NaN does not",
    "Padding that was never written may hold anything.",
    "test with isfinite, not with isnan; or leave hidden values out of the product",
    wants="attention mask",
)
def _inf_masked(behaviour: Behaviour) -> str | None:
    case = behaviour.case
    whole = "mask_query" in behaviour.supports
    keep = np.ones((1 if whole else len(case.query), 1, case.query.shape[2] if whole else 1, case.key.shape[2]), bool)
    keep[..., -1] = False
    hidden = replace(case, mask=keep, causal=False)
    for name in ("value", "key"):
        with_nan, with_inf = (_finite(behaviour, _last_is(hidden, name, x)) for x in (np.nan, np.inf))
        if with_nan and not with_inf:
            return f"Inf in the last {name}, which the mask hides, reaches the output"
    return None


def _finite(behaviour: Behaviour, case: Case) -> bool:
    got = behaviour.candidate(case)
    return isinstance(got, Refused) or bool(np.isfinite(got).all())


@habit(
    "SEED_IGNORED",
    "with dropout, the same seed gives another result",
    "A run that went wrong cannot be repeated, nor a forward pass be computed again for its gradient.",
    "draw from the generator that was passed, or from one made of the seed",
    fault=True,
    wants="attention dropout",
)
def _seed(behaviour: Behaviour) -> str | None:
    roles = {*behaviour.candidate.signature.positional, *behaviour.candidate.signature.named}
    if not roles & {"seed", "rng"}:
        return None
    case = replace(behaviour.case, dropout=0.5)
    first, second = (behaviour.answer(behaviour.call(case)).copy() for _ in range(2))
    return None if same(first, second) else f"two calls with one seed differ by {largest(first - second):.3g}"


@habit(
    "DROPOUT_ACTIVE_IN_EVAL",
    "weights are dropped although no dropout was asked for",
    "A model is evaluated with noise: its results are worse, and differ from run to run.",
    "let dropout be 0 unless it is asked for; in a layer, pass it only in training",
    fault=True,
    wants="attention dropout",
)
def _active(behaviour: Behaviour) -> str | None:
    first, second = (behaviour.answer(behaviour.call()).astype(float) for _ in range(2))
    apart = largest(first - second)
    return f"two calls without dropout differ by {apart:.3g}" if apart > 1e-3 * largest(first) else None
