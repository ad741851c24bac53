"""Faults of precision: the right formula, rounded where it must not be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from regard._types import Array, BoolArray
from regard.check.answers._fault import Group, Steps
from regard.check.answers._oracle import RIGHT

GROUP = Group(
    "precision",
    "Tests with short sequences and small scores pass. The error grows with the scores or with the length, and a "
    "trained model has both.",
)
SINGLE = "keep scores, their sum and the running output in float32, whatever the dtype of the inputs"


def _to_bits(bits: int) -> Callable[[Array], Array]:
    """Round to a number of binary digits, the range left as it is."""

    def rounded(x: Array) -> Array:
        fraction, exponent = np.frexp(x)
        return np.asarray(np.where(np.isfinite(x), np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits), x))

    return rounded


def _to_half(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float64)


# Digits of bfloat16 and TF32; float16 has those of TF32 and a small range.
BFLOAT16, TF32 = _to_bits(8), _to_bits(11)
STORED: Mapping[str, Callable[[Array], Array]] = {"bfloat16": BFLOAT16, "float16": _to_half}
MULTIPLIED: Mapping[str, Callable[[Array], Array]] = {"bfloat16": BFLOAT16, "TF32 or float16": TF32}
HALF_MAX = 65504.0


def _product(rounded: Any) -> Steps:
    return {"product": lambda m, case, q, k: RIGHT.product(case, rounded(q), rounded(k))}


def _weighted(rounded: Any) -> Steps:
    return {"combine": lambda m, case, P, v, keep: RIGHT.combine(case, rounded(P), rounded(v), keep)}


def _split_product(m: Any, case: Any, q: Array, k: Array) -> Array:
    """Three products of two halves in bfloat16: the fourth, of the small parts, is left out."""
    (q_high, q_low), (k_high, k_low) = ((BFLOAT16(x), BFLOAT16(x - BFLOAT16(x))) for x in (q, k))
    return sum(RIGHT.product(case, a, b) for a, b in ((q_high, k_high), (q_high, k_low), (q_low, k_high)))  # type: ignore[return-value]


def _stored_scores(rounded: Any) -> Steps:
    return {"shape": lambda m, case, s: RIGHT.shape(case, rounded(s))}


def _stored_exponentials(rounded: Any, summed: bool) -> Steps:
    def normalise(m: Any, case: Any, s: Array) -> Array:
        peak = s.max(axis=-1, keepdims=True, initial=-np.inf)
        e = np.exp(s - np.where(np.isneginf(peak), 0, peak))
        return np.asarray(rounded(e) / (rounded(e) if summed else e).sum(axis=-1, keepdims=True))

    return {"normalise": normalise}


def _one_by_one(rounded: Any) -> Steps:
    """Add one exponential after the other, each sum rounded: 1 more is nothing to 256 in bfloat16."""

    def total(m: Any, case: Any, e: Array) -> Array:
        sums = np.zeros((*e.shape[:-1], 1))
        for j in range(e.shape[-1]):
            sums = rounded(sums + e[..., j : j + 1])
        return sums

    return {"total": total}


def _carried(rounded: Any, of_sum: bool, of_output: bool, size: int) -> Steps:
    """Fold tiles of keys; running sum and output are rounded after each."""

    def combine(m: Any, case: Any, s: Array, v: Array, keep: BoolArray) -> Array:
        if s.shape[-1] <= size or case.dropout is not None:
            return RIGHT.combine(case, RIGHT.drop(case, RIGHT.weights(case, s, keep)), v, keep)
        top = np.full((*s.shape[:-1], 1), -np.inf)
        l, o = np.zeros(top.shape), np.zeros((*s.shape[:-1], v.shape[-1]))  # noqa: E741
        for first in range(0, s.shape[-1], size):
            part = s[..., first : first + size]
            new = np.maximum(top, part.max(axis=-1, keepdims=True))
            base = np.where(np.isneginf(new), 0, new)
            shrink, e = np.exp(top - base), np.exp(part - base)
            l = l * shrink + e.sum(axis=-1, keepdims=True)  # noqa: E741
            o = o * shrink + e @ np.where(np.isfinite(v), v, 0)[..., first : first + size, :]
            l, o = rounded(l) if of_sum else l, rounded(o) if of_output else o  # noqa: E741
            top = new
        return np.asarray(np.where(l == 0, 0, o / np.where(l == 0, 1, l)))

    return {"combine": combine, "weights": lambda m, case, s, keep: s, "drop": lambda m, case, s: s}


def _approximate(power: Any) -> Steps:
    """Take 2^i exactly and 2^f, for f of 0 to 1, from a function."""

    def normalise(m: Any, case: Any, s: Array) -> Array:
        peak = m.peak(case, s)
        x = (s - np.where(np.isneginf(peak), 0, peak)) * math.log2(math.e)
        whole = np.floor(np.where(np.isfinite(x), x, 0))
        e = np.where(np.isfinite(x), np.ldexp(power(x - whole), whole.astype(int)), np.exp(s))
        return np.asarray(e / m.total(case, e))

    return {"normalise": normalise}


def _polynomial(degree: int) -> Callable[[Array], Array]:
    """Meet 2^f at f = 0 and 1, and between them where the error is least."""
    at = (1 - np.cos(np.pi * np.arange(degree + 1) / degree)) / 2
    return np.poly1d(np.polyfit(at, 2**at, degree))


def _table(steps: int) -> Callable[[Array], Array]:
    return lambda f: 2 ** (np.floor(f * steps) / steps)


def _too_large(x: Array) -> Array:
    return np.where(np.abs(x) > HALF_MAX, np.sign(x) * np.inf, x)


def _overflowing_output(m: Any, case: Any, P: Array, v: Array, keep: BoolArray) -> Array:
    """Divide at the end: until then the largest weight is 1, and the sum may be larger than any value."""
    top = P.max(axis=-1, keepdims=True, initial=0)
    return np.asarray(_too_large(RIGHT.combine(case, P / np.where(top == 0, 1, top), v, keep)) * top)


GROUP.add(
    "TF32_OR_BF16X1_GEMM",
    "a matrix product rounds its operands to few digits",
    "multiply in float32, or in six products of bfloat16 parts; in torch: set_float32_matmul_precision('highest')",
    {
        **{f"q · k in {name}": _product(rounded) for name, rounded in MULTIPLIED.items()},
        **{f"weights · v in {name}": _weighted(rounded) for name, rounded in MULTIPLIED.items()},
        **{f"both in {name}": {**_product(rounded), **_weighted(rounded)} for name, rounded in MULTIPLIED.items()},
    },
    why="Every score and every value has an error of 1e-3, where float32 has 1e-7.",
)
GROUP.add(
    "BF16X3_GEMM",
    "q · k is computed in three products of bfloat16 parts: 16 digits where float32 has 24",
    "use six products, which are as good as float32; three do only while scores are below 20",
    product=_split_product,
)
GROUP.add(
    "LOWP_LOGITS",
    "the scores are stored in low precision",
    SINGLE,
    {f"in {name}": _stored_scores(rounded) for name, rounded in STORED.items()},
    why="Half a step at a score of 64 makes weights wrong by 13 % in bfloat16 and by 1.6 % in float16; at 256 by 65 % "
    "and 6 %. Below 8 nobody sees it.",
)
GROUP.add(
    "LOWP_WEIGHTS",
    "float32 inputs, and the weights are stored in low precision",
    SINGLE,
    {
        **{f"in {name}": {"drop": lambda m, case, P, to=to: RIGHT.drop(case, to(P))} for name, to in STORED.items()},
        **{f"exponentials in {name}": _stored_exponentials(to, False) for name, to in STORED.items()},
        **{f"exponentials in {name}, and so summed": _stored_exponentials(to, True) for name, to in STORED.items()},
    },
    why="Each weight is wrong by up to 0.4 % in bfloat16 and by 0.05 % in float16, where float32 has 1e-7.",
)
GROUP.add(
    "FP16_OVERFLOW_BEFORE_SCALE",
    "q · k exceeds 65504 in float16 before it is scaled",
    "scale q first, or store q · k in float32",
    product=lambda m, case, q, k: _too_large(RIGHT.product(case, q, k)),
    why="q = k = 40 at a width of 64 is enough: Inf, and NaN after the softmax.",
)
GROUP.add(
    "LOWP_SUM",
    "the exponentials are added one by one in low precision: the sum stops growing",
    SINGLE,
    {f"in {name}": _one_by_one(rounded) for name, rounded in STORED.items()},
    why="With weights that are nearly equal, a sum stops at 256 keys in bfloat16 and at 2048 in float16.",
)
GROUP.add(
    "LOWP_CARRY",
    "what is carried from tile to tile is stored in low precision",
    SINGLE,
    {
        f"{what} in {name}{tiles}": _carried(STORED[name], *which, size)
        for what, which in (("sum and output", (True, True)), ("the sum", (True, False)), ("the output", (False, True)))
        for name, tiles, size in (("bfloat16", "", 64), ("float16", "", 64), ("float16", ", short tiles", 16))
    },
    why="The error grows with the number of tiles: with 1024 of them a bfloat16 output is as wrong as it is large.",
)
GROUP.add(
    "EXP_APPROX_COARSE",
    "exp is approximated by few digits",
    "use a polynomial of degree 5 for 2^f, or the library's exp",
    {
        **{f"2^f by a polynomial of degree {n}": _approximate(_polynomial(n)) for n in (1, 2, 3)},
        **{f"2^f from a table of {n}": _approximate(_table(n)) for n in (16, 64, 256)},
    },
    why="Every weight is wrong, by an amount that comes again whenever a score changes by ln 2.",
)
GROUP.add(
    "FP16_PV_OVERFLOW",
    "the sum of weighted values exceeds 65504 in float16 before it is divided",
    "carry the output in float32, or divide the weights first",
    combine=_overflowing_output,
    why="Values of 6e4 have a mean of 6e4, and Inf is returned.",
)


def unit_of(name: str, label: str) -> float:
    """Half a step of what a fault rounds to, at 1."""
    if name == "BF16X3_GEMM":
        return 2.0**-16
    return 2.0**-8 if "bfloat16" in label else 2.0**-11
