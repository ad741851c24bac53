"""What a function does with one key, with none, and with operands that do not fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from regard._types import Array
from regard.check.answers._tolerance import Judge, Refused

from ._base import Behaviour, habit


@habit(
    "ONE_KEY_WRONG",
    "with one key the output is not that key's value",
    "The first step of decoding has one key.",
    "the softmax of one score is 1: look for a squeeze or a special case",
    fault=True,
    wants="attention",
)
def _one_key(behaviour: Behaviour) -> str | None:
    case = behaviour.case
    one = replace(case, query=case.query[..., :1, :], key=case.key[..., :1, :], value=case.value[..., :1, :])
    got = behaviour.candidate(one)
    if isinstance(got, Refused):
        return f"it refuses: {got.message}"
    return (
        None if Judge.of(one, behaviour.candidate.dtype).passes(got) else f"{_few(got)} in place of {_few(one.value)}"
    )


@habit(
    "EMPTY_SHAPE_CRASH",
    "no keys, or no queries, or an empty batch, is refused or answered wrongly",
    "The last piece of a sequence that is cut up, or of a batch, may be empty.",
    "give the maximum an initial value: scores.max(axis=-1, initial=-np.inf); without keys the output is 0",
    wants="attention",
)
def _empty(behaviour: Behaviour) -> str | None:
    case = behaviour.case
    cases = {
        "no keys": replace(case, key=case.key[..., :0, :], value=case.value[..., :0, :]),
        "no queries": replace(case, query=case.query[..., :0, :]),
        "no batch": replace(case, query=case.query[:0], key=case.key[:0], value=case.value[:0]),
    }
    for name, one in cases.items():
        if (name == "no batch" and "b" not in behaviour.candidate.words.layout) or (case.causal and name != "no batch"):
            continue
        got = behaviour.candidate(one)
        if isinstance(got, Refused):
            return f"{name}: {got.message}"
        if got.shape != (*one.query.shape[:3], one.value.shape[3]) or got.any():
            return f"{name}: shape {got.shape}, or not 0"
    return None


@habit(
    "SILENT_BROADCAST",
    "values with another number of positions than the keys are accepted",
    "A wrong cache length is not noticed: the result has the right shape.",
    "check that key and value have the same number of positions",
    wants="attention",
)
def _broadcast(behaviour: Behaviour) -> str | None:
    case = behaviour.case
    for count in (1, case.key.shape[2] - 1):
        got = behaviour.candidate(replace(case, value=case.value[..., :count, :]))
        if not isinstance(got, Refused):
            return f"{case.key.shape[2]} keys with {count} values are answered"
    return None


def _few(x: Array) -> str:
    return np.array2string(x.ravel()[:3], precision=4)
