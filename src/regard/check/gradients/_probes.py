"""The probes of gradients: small cases, and with each the gradient of the output that is sent back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from regard._types import Array, BoolArray
from regard.check.answers._case import Case
from regard.check.answers._layers import layer_probes
from regard.check.answers._oracle import RIGHT
from regard.check.answers._probes import Setting

# Probes on which a row may attend nowhere; those to whose empty rows nothing is sent back come first.
ELSEWHERE = ("without_empty_row", "mha_masked_row")
EMPTY_ROWS = (*ELSEWHERE, "masked_row")


@dataclass(frozen=True, eq=False)
class Probe:
    """A case and the gradient of its output; ``without`` names gradients that the function cannot have."""

    case: Case
    grad_out: Array
    without: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The case's."""
        return self.case.name


def sent_back(case: Case) -> Probe:
    """Send back multiples of 1/8, exact in every dtype; nothing to the empty rows of cases that are named so."""
    shape = case.query.shape if case.layer else (*case.query.shape[:3], case.value.shape[3])
    numbers = np.random.default_rng([29, *shape]).standard_normal(shape)
    grad = np.clip(np.round(8 * numbers), -16, 16) / 8
    return Probe(case, np.where(attends(case), grad, 0) if case.name in ELSEWHERE else grad)


def attends(case: Case) -> BoolArray:
    """Which rows may attend anywhere: ``(B or 1, H or 1, Sq, 1)``; in all heads of a layer: ``(B or 1, S, 1)``."""
    keep = RIGHT.visible(case, case.query.shape[-2], case.key.shape[-2])
    found: BoolArray = np.asarray(keep.any(axis=-1, keepdims=True))
    found = found.reshape((1,) * (4 - found.ndim) + found.shape)
    return np.asarray(found.all(axis=1)) if case.layer else found


@lru_cache(maxsize=16)
def gradient_probes(setting: Setting, causal: bool = False) -> tuple[Probe, ...]:
    """All probes, simplest first, those of a layer last; ``causal`` is for a function that always is."""
    rng = np.random.default_rng(setting.seed)
    cases = [*_cases(rng, setting.equal_widths), *layer_probes(setting.seed, setting.layer)]
    if setting.empty_row != "zero":  # what is sent back to such a row has no right answer then
        cases = [case for case in cases if case.name in ELSEWHERE or case.name not in EMPTY_ROWS]
    rules: dict[str, Any] = {"from_start": setting.from_start, "nan_rows": setting.empty_row == "nan"}
    cases = [replace(case, causal=causal or case.causal, **rules).cast(setting.dtype) for case in cases]
    without = frozenset() if setting.layer.has_out else frozenset({"wo"})
    return tuple(replace(sent_back(case), without=without) for case in cases)


def _cases(rng: np.random.Generator, equal_widths: bool) -> list[Case]:
    def normal(name: str, *sizes: int, shared: int = 1, **options: Any) -> Case:
        batch, heads, queries, keys, d, dv = sizes
        dv = d if equal_widths else dv
        shapes = (batch, heads * shared, queries, d), (batch, heads, keys, d), (batch, heads, keys, dv)
        q, k, v = (rng.standard_normal(shape) for shape in shapes)
        return Case(name, q, k, v, **options)

    mask = rng.random((1, 1, 5, 7)) < 0.7
    mask[..., 0], mask[..., 1, :] = True, False
    capped = normal("softcap", 2, 3, 4, 5, 8, 7, softcap=1.5)
    row = normal("masked_row", 2, 3, 5, 7, 8, 6, mask=mask)
    return [
        normal("rect", 2, 3, 4, 5, 8, 6),
        normal("square", 2, 3, 6, 6, 10, 10),
        normal("causal", 2, 3, 4, 7, 8, 5, causal=True),
        row,
        normal("gqa", 3, 2, 4, 5, 8, 7, shared=3),
        normal("bias", 2, 3, 4, 5, 18, 7, bias=rng.standard_normal((1, 3, 4, 5))),
        replace(capped, query=1.5 * capped.query, key=1.5 * capped.key),
        replace(row, name=ELSEWHERE[0]),
        normal("larger", 3, 4, 11, 37, 12, 9),
    ]
