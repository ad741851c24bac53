"""Cases that each make one rounding visible, and leave the others alone.

What is stored where cannot be seen in random numbers. Here every number is exact at all places but one: operands have
few digits where scores need many, or many where scores need few; weights are equal where values need many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case
from regard.check.answers._tolerance import Judge


@dataclass(frozen=True)
class Site:
    """A place where a function may round: a case and its judge."""

    judge: Judge

    @property
    def case(self) -> Case:
        """The case, rounded to the dtype."""
        return self.judge.case


# The sites of each fault, in the order in which faults are told apart; operands and weights of 16 bits are no fault
# where the inputs have as many.
_WIDE = {
    "TF32_OR_BF16X1_GEMM": "operands_qk operands_v",
    "BF16X3_GEMM": "operands_split",
    "LOWP_WEIGHTS": "weights",
}
_ALL = {
    "LOWP_LOGITS": "scores",
    "FP16_OVERFLOW_BEFORE_SCALE": "fp16_const",
    "LOWP_SUM": "count_ones",
    "FP16_PV_OVERFLOW": "values_6e4",
    "LOWP_CARRY": "carry carry_half",
    "EXP_APPROX_COARSE": "octaves",
}


@lru_cache(maxsize=4)
def sites(dtype: str) -> tuple[tuple[str, tuple[Site, ...]], ...]:
    """Names of faults that a dtype can have, and where each shows."""
    asked = {**_WIDE, **_ALL} if dtype in ("float32", "float64") else _ALL
    cases = {case.name: case.cast(dtype) for case in _cases()}
    return tuple(
        (fault, tuple(Site(Judge.of(cases[name], dtype)) for name in names.split())) for fault, names in asked.items()
    )


def _cases() -> list[Case]:
    """Widths of 4 and 64 have an exact scale. Values are positive, so that none cancels."""
    return [
        *_operands(), _scores(), _weights(),
        Case("fp16_const", np.full((1, 2, 1, 64), 40.0), np.full((1, 2, 5, 64), 40.0), _values(5, 64), exact=True),
        Case("count_ones", np.ones((1, 1, 1, 4)), np.ones((1, 1, 4096, 4)), np.ones((1, 1, 4096, 4)), exact=True),
        _carry("carry", 15.3), _carry("carry_half", 18.3),
        _octaves(),
        Case("values_6e4", np.ones((1, 2, 1, 4)), np.ones((1, 2, 8, 4)), np.full((1, 2, 8, 4), 6e4), exact=True),
    ]  # fmt: skip


def _values(keys: int, width: int = 4) -> Array:
    return np.random.default_rng(41).integers(1, 9, (1, 2, keys, width)).astype(float)


def _pairs(first: Array, second: Array, query: tuple[float, float] = (1.0, 1.0)) -> tuple[Array, Array]:
    """Two heads of one query, whose scores are half of ``query · (first, second)``."""
    q, k = np.zeros((1, 2, 1, 4)), np.zeros((1, 2, second.shape[-1], 4))
    q[..., :2], k[..., 0], k[..., 1] = query, first, second
    return q, k


def _scores() -> Case:
    """Scores near 70 and 1000 that differ by less than a step of theirs in 8 or 11 digits; operands have few."""
    near = np.array([0, 12, 37, -21, 73, -48, 29, 96]) / 32
    return Case("scores", *_pairs(np.array([[140.0], [2000.0]]), near), _values(8), exact=True)


def _operands() -> list[Case]:
    """Operands of many digits: scores that have few, and a mean of values of equal weight."""
    near = np.array([0.25, 1.5, 2.25, 3.5, 4.75, 5.25, 6.5, 7.25])
    low = np.array([-14, -9, -5, -2, 3, 6, 11, 15]) / 64
    values = np.broadcast_to(1024.375 + np.arange(1.0, 9)[:, None], (1, 2, 8, 4))
    return [
        Case("operands_qk", *_pairs(1024 + near, np.full(8, -1024.0)), _values(8), exact=True),
        Case("operands_v", np.ones((1, 2, 1, 4)), np.ones((1, 2, 8, 4)), values, exact=True),
        Case("operands_split", *_pairs(64 + low, -64 - low, (1027.5, 1024.0)), _values(8)),
    ]


def _weights() -> Case:
    near = np.array([0, 3, 7, -5, 10, -13, 1, 6]) / 4
    return Case("weights", *_pairs(near, np.zeros(8)), _values(8), exact=True)


# Scores in thirteenths of ln 2: what an approximation of 2^f does to f comes again after 13 keys. A table has no such
# number of entries.
PHASES, OCTAVES = 13, 5


def _octaves() -> Case:
    """Show the largest weight, and five octaves of others, through the identity."""
    keys = 1 + PHASES * OCTAVES
    q, k = np.zeros((1, 1, 1, keys)), np.zeros((1, 1, keys, keys))
    q[..., 0], k[..., 1:, 0] = 1, -math.sqrt(keys) * math.log(2) / PHASES * (0.3 + np.arange(keys - 1))
    return Case("octaves", q, k, np.broadcast_to(np.eye(keys), (1, 1, keys, keys)))


def _carry(name: str, halvings: float) -> Case:
    """One large weight, first or last, and 2047 that are too small for a tile of them to change a rounded sum."""
    s = -(halvings + np.random.default_rng(43).uniform(-0.25, 0.25, (2, 2048))) * math.log(2)
    s[0, 0] = s[1, -1] = 0
    v = np.ones((1, 2, 2048, 4))
    v[:, 0, 0] = v[:, 1, -1] = 8
    return Case(name, *_pairs(2 * s, np.zeros(2048)), v)
