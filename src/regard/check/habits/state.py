"""What a function does to its inputs, and keeps between calls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from regard.check.answers._tolerance import FAIL

from ._base import Behaviour, habit, largest, same


@habit(
    "INPUT_MUTATED",
    "the function writes into its inputs",
    "The caller's arrays are changed: the next layer reads something else, and no test of the output sees it.",
    "work on copies: q = q * scale, not q *= scale",
    fault=True,
)
def _mutated(behaviour: Behaviour) -> str | None:
    call = behaviour.call()
    before = [x.copy() for x in behaviour.read(call)]
    behaviour.run(call)
    changed = [i for i, (a, b) in enumerate(zip(before, behaviour.read(call), strict=True)) if not same(a, b)]
    return f"argument {changed[0] + 1} differs after the call" if changed else None


@habit(
    "MASK_MUTATED",
    "the function writes into its mask",
    "A mask is shared by all layers: the second one gets another.",
    "work on a copy: keep = mask & causal, not mask &= causal",
    fault=True,
    wants="mask mask_query",
)
def _mask_mutated(behaviour: Behaviour) -> str | None:
    axis = 1 if behaviour.case.layer else 2
    keep = np.ones((1, 1, behaviour.case.query.shape[axis], behaviour.case.key.shape[axis]), bool)
    keep[..., -1] = False
    causal = "causal" in behaviour.supports
    call = behaviour.call(replace(behaviour.case, mask=keep, causal=causal))
    before = behaviour.read(call)[-1].copy()
    behaviour.run(call)
    return None if same(before, behaviour.read(call)[-1]) else "the mask differs after the call"


@habit(
    "OUTPUT_ALIASES_INPUT",
    "the output is memory of an input",
    "Who writes into the result, such as a residual connection in place, changes the inputs.",
    "return a new array",
    fault=True,
)
def _aliases(behaviour: Behaviour) -> str | None:
    call = behaviour.call()
    if not behaviour.candidate.arrays.writable:
        return None
    out = behaviour.answer(call)
    shared = [i for i, x in enumerate(behaviour.read(call)) if np.shares_memory(out, x)]
    return f"it shares memory with argument {shared[0] + 1}" if shared else None


@habit(
    "OUTPUT_BUFFER_REUSED",
    "a second call overwrites the first one's result",
    "Two results are held at once wherever there are two layers.",
    "return a new array from each call",
    fault=True,
)
def _reused(behaviour: Behaviour) -> str | None:
    first = behaviour.answer(behaviour.call())
    before = first.copy()
    behaviour.run(behaviour.call(replace(behaviour.case, value=-behaviour.case.value)))
    return None if same(before, first) else "the first result differs after the second call"


@habit(
    "STALE_CACHE",
    "a result depends on earlier calls",
    "Something is kept from a call of other sizes or other values: results are right in a test and wrong in a loop.",
    "key what is cached by everything that it depends on, or do not cache",
    fault=True,
    wants="attention",
)
def _stale(behaviour: Behaviour) -> str | None:
    rng, case = np.random.default_rng(31), behaviour.case
    queries, keys = case.query.shape[2], case.key.shape[2]
    errors = []
    for n in (1, 3, 1):
        one = replace(case, key=case.key[..., n:, :] * rng.choice([-1, 1]), value=case.value[..., n:, :] + rng.random())
        if {"mask", "mask_query"} <= behaviour.supports:
            keep = rng.random((1, 1, queries, keys - n)) < 0.5
            keep[..., 0] = True
            one = replace(one, mask=keep)
        errors.append(behaviour.error(one))
    if max(errors) <= FAIL or errors[0] > FAIL:
        return None
    return f"wrong when called with {keys - 1}, {keys - 3}, then {keys - 1} keys, of other values"


@habit(
    "NONDETERMINISTIC",
    "the same call gives different results",
    "Failures cannot be repeated; without dropout nothing should be drawn.",
    "draw random numbers only where dropout is asked for; sum in a fixed order",
    fault=True,
)
def _nondeterministic(behaviour: Behaviour) -> str | None:
    first, second = (behaviour.answer(behaviour.call()).copy() for _ in range(2))
    return None if same(first, second) else f"two calls differ by {largest(first - second):.3g}"
