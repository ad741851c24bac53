"""The probes: small cases, simplest first, that together show every fault of the catalogue and tell them apart.

Values are standard normal from one seed, and sizes differ pairwise unless the name says square: equal sizes hide swaps,
and a head size with a whole root hides wrong roots. Scores of the stress probes lie beyond the range of exp in float64,
so that float32 and float64 functions fail alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from regard._types import Array

from ._case import Case
from ._layers import USUAL, LayerSize, layer_probes
from ._oracle import paper_slopes


@dataclass(frozen=True)
class Setting:
    """What the probes, and the right answers, depend on.

    ``layer`` is the size of a layer's probes. ``equal_widths`` gives values the width of keys, for functions that
    refuse any other. ``from_start`` and ``empty_row`` are the rules that are declared right; "any" asks nothing about
    rows without keys. ``sides`` is what a window means without causal.
    """

    seed: int = 0
    dtype: str = "float32"
    equal_widths: bool = False
    from_start: bool = False
    empty_row: str = "zero"
    sides: str = "open"
    layer: LayerSize = USUAL


@lru_cache(maxsize=16)
def probes(setting: Setting) -> tuple[Case, ...]:
    """All probes, rounded to the dtype; those that it cannot hold are left out."""
    rng = np.random.default_rng(setting.seed)
    cases = [
        *_plain(rng),
        *_options(rng),
        *_stress(rng),
        *_tiles(rng),
        *_edges(rng),
        *_others(rng),
        *_odd(rng),
        *_alibi(rng),
        *_together(rng),
        *_causal_alone(rng),
    ]
    cases += layer_probes(setting.seed, setting.layer)
    if setting.equal_widths:
        cases = [_widened(case, rng) for case in cases if case.name != "values_wide"]
    if setting.from_start:  # else the first query has only hidden keys
        cases = [case for case in cases if case.name != "keypad_causal"]
    if setting.empty_row == "any":
        cases = [case for case in cases if case.name not in ("masked_row", "mha_masked_row", "causal_tall")]
    rules: dict[str, Any] = {"from_start": setting.from_start, "nan_rows": setting.empty_row == "nan",
                             "sides": setting.sides}  # fmt: skip
    cases = [replace(case, **rules) for case in cases]
    rounded = [case.cast(setting.dtype) for case in cases]
    return tuple(
        after
        for before, after in zip(cases, rounded, strict=True)
        if all(_held(getattr(before, n), getattr(after, n)) for n in ("query", "key", "value"))
    )


@lru_cache(maxsize=16)
def finer(setting: Setting) -> tuple[Case, ...]:
    """Cases that tell variants of one fault apart: how long a tile is, what number is filled in or clamped to."""
    rng = np.random.default_rng(setting.seed)
    growing = next(case for case in probes(setting) if case.name == "tiles_growing")
    cases = [
        replace(growing, name=f"{n}_keys", key=growing.key[..., :n, :], value=growing.value[..., :n, :])
        for n in (3, 5, 9, 17, 33, 49, 65, 97, 129)
    ]
    cases += [replace(normal(rng, f"width_{d}", 5, 7, widths=(d, 6))) for d in (24, 40, 56, 100)]
    cases += [_hidden_level(rng, f"visible_below{level}", level, 0) for level in (-5, -30, -75, -500)]
    for level in (15, 35, 65, 84):
        q, k = np.zeros((2, 3, 5, 4)), np.zeros((2, 3, 7, 4))
        q[..., 0], k[..., 0], k[..., 1, 0] = 1, 2 * level, 2 * level - 4
        cases.append(Case(f"level_{level}", q, k, rng.standard_normal((2, 3, 7, 6)), exact=True))
    if setting.equal_widths:
        cases = [_widened(case, rng) for case in cases]
    return tuple(case.cast(setting.dtype) for case in cases)


def normal(
    rng: np.random.Generator, name: str, queries: int, keys: int, *, heads: int = 3, widths: tuple[int, int] = (8, 6)
) -> Case:
    """Make a case without options: two batch entries, standard normal."""
    d, dv = widths
    q, k, v = (rng.standard_normal(shape) for shape in ((2, 3, queries, d), (2, heads, keys, d), (2, heads, keys, dv)))
    return Case(name, q, k, v)


def _plain(rng: np.random.Generator) -> list[Case]:
    base, square = normal(rng, "base", 5, 7), normal(rng, "square", 6, 6, widths=(10, 10))
    return [base, square, replace(base, name="scale_arg", scale=0.7)]


def _options(rng: np.random.Generator) -> list[Case]:
    six: dict[str, Any] = {"queries": 6, "keys": 6}
    grouped = normal(rng, "gqa", 5, 10)
    pad = np.ones((2, 1, 1, 6), bool)
    pad[0, ..., 4:] = pad[1, ..., :3] = False
    capped, plain = normal(rng, "softcap_causal", **six), normal(rng, "softcap", 5, 7)
    bias = rng.standard_normal((2, 3, 6, 6))
    return [
        replace(normal(rng, "causal_sq", **six), causal=True),
        replace(normal(rng, "causal_rect", 4, 7), causal=True),
        replace(normal(rng, "mask_sq", **six), mask=_random_mask(rng)),
        replace(_two_heads(normal(rng, "keypad_BH", 4, 6)), mask=pad),
        replace(normal(rng, "mask_causal", 4, 9), causal=True, mask=_with_first_key(rng.random((2, 3, 4, 9)) < 0.6)),
        replace(normal(rng, "bias", **six), bias=bias),
        replace(plain, query=2 * plain.query, key=2 * plain.key, softcap=3.0),
        replace(capped, query=2 * capped.query, key=2 * capped.key, softcap=3.0, causal=True),
        replace(normal(rng, "softcap_bias", **six), softcap=3.0, bias=2 * bias),
        replace(normal(rng, "window", 4, 9), causal=True, window=3),
        replace(grouped, query=rng.standard_normal((2, 6, 5, 8))),
    ]


def _random_mask(rng: np.random.Generator) -> Array:
    return (rng.random((2, 3, 6, 6)) < 0.6) | np.eye(6, dtype=bool)


def _with_first_key(mask: Array) -> Array:
    mask[..., 0] = True
    return mask


def _two_heads(case: Case) -> Case:
    """Two heads and two batch entries: a mask that takes one axis for the other then still fits."""
    return replace(case, query=case.query[:, :2], key=case.key[:, :2], value=case.value[:, :2])


def _stress(rng: np.random.Generator) -> list[Case]:
    big, mixed = normal(rng, "big", 5, 7), normal(rng, "mixed_rows", 5, 7)
    rows = np.ones((5, 1))
    rows[2] = 2e4
    return [
        replace(big, query=1e5 * big.query),
        replace(mixed, query=rows * mixed.query),
        _shifted(rng, "negative_2000", -2e3),
        _shifted(rng, "very_negative", -1.5e5),
    ]


def _shifted(rng: np.random.Generator, name: str, level: float) -> Case:
    """Scores near a level: width 4 has scale 1/2, and every product and sum is exact in float32."""
    a, b = (np.round(4 * rng.standard_normal((2, 3, n))) / 4 for n in (5, 7))
    q, k = np.zeros((2, 3, 5, 4)), np.zeros((2, 3, 7, 4))
    q[..., 0], q[..., 1], k[..., 0], k[..., 1] = 1, a, 2 * level, b
    return Case(name, q, k, rng.standard_normal((2, 3, 7, 6)), exact=True)


def _tiles(rng: np.random.Generator) -> list[Case]:
    growing, falling = normal(rng, "tiles_growing", 5, 131), normal(rng, "tiles_falling", 5, 131)
    return [replace(case, **_line(levels)) for case, levels in ((growing, _rising()), (falling, _sinking()))]


def _rising() -> Array:
    levels = np.tile(np.linspace(-6, 6, 131), (5, 1))
    levels[3] = levels[3, ::-1]
    return levels


def _sinking() -> Array:
    levels = np.full((5, 131), -2000.0)
    levels[:, :64], levels[:, -1] = 0, -3000
    return levels


def _line(levels: Array) -> dict[str, Any]:
    """Make queries and keys of width 8 whose scores are the levels: rank at most 2."""
    u, sizes, vt = np.linalg.svd(levels)
    q, k = np.zeros((2, 3, 5, 8)), np.zeros((2, 3, 131, 8))
    q[..., :2], k[..., :2] = u[:, :2] * np.sqrt(sizes[:2]), vt[:2].T * np.sqrt(sizes[:2])
    return {"query": q * np.sqrt(8), "key": k}


def _edges(rng: np.random.Generator) -> list[Case]:
    base: dict[str, Any] = {"queries": 4, "keys": 6}
    hide_last = np.ones((1, 1, 4, 6), bool)
    hide_last[..., -1] = False
    some = _with_first_key(rng.random((2, 3, 4, 6)) < 0.7)
    some[..., 1, :] = False
    bad_v, bad_k = normal(rng, "nan_masked_v", **base), normal(rng, "nan_masked_k", **base)
    bad_v.value[..., -1, :] = np.nan
    bad_k.key[..., -1, :] = np.nan
    return [
        _hidden_level(rng, "masked_dominates", 0, 900),
        _hidden_level(rng, "visible_below_1e3", -2e3, 0),
        _hidden_level(rng, "visible_below_fill", -2e4, 0),
        _hidden_level(rng, "visible_below_1e9", -(2.0**31), 0),
        replace(normal(rng, "masked_row", **base), mask=some),
        replace(bad_v, mask=hide_last),
        replace(bad_k, mask=hide_last),
    ]


def _hidden_level(rng: np.random.Generator, name: str, seen: float, hidden: float) -> Case:
    """Two hidden keys at one level of score, the others at another."""
    q, k = np.zeros((2, 3, 5, 4)), np.zeros((2, 3, 7, 4))
    q[..., 0], k[..., 0], k[..., 2:4, 0] = 1, 2 * seen, 2 * hidden
    mask = np.ones((2, 3, 5, 7), bool)
    mask[..., 2:4] = False
    return Case(name, q, k, rng.standard_normal((2, 3, 7, 6)), mask=mask, exact=True)


def _others(rng: np.random.Generator) -> list[Case]:
    many = normal(rng, "dropout", 24, 24, widths=(24, 24))
    tall: dict[str, Any] = {
        "query": np.tile(many.query, (10, 1, 1, 1)),
        "key": np.tile(many.key, (10, 1, 1, 1)),
        "dropout": 0.25,
    }
    return [
        replace(many, value=np.tile(np.eye(24), (20, 3, 1, 1)), **tall),
        replace(many, value=np.ones((20, 3, 24, 24)), name="dropout_ones", **tall),
    ]


def _odd(rng: np.random.Generator) -> list[Case]:
    """Widths that are no multiple of what a processor likes, masks of keys or heads alone, and a long causal square."""
    pad = np.ones((2, 1, 1, 7), bool)
    pad[0, ..., -1:] = pad[1, ..., :2] = False
    one_batch, long = normal(rng, "mask_heads", 6, 6), normal(rng, "causal_long", 200, 200, heads=3)
    return [
        _last_loud(normal(rng, "width_7", 5, 9, widths=(7, 6))),
        _last_loud(normal(rng, "width_72", 5, 9, widths=(72, 6))),
        normal(rng, "values_wide", 4, 7, widths=(5, 9)),
        replace(normal(rng, "keypad_causal", 3, 7), causal=True, mask=pad),
        replace(one_batch, mask=_random_mask(rng)[:1]),
        replace(long, query=long.query[:, :1], key=long.key[:, :1], value=long.value[:, :1], causal=True),
    ]


def _alibi(rng: np.random.Generator) -> list[Case]:
    """Four heads: slopes of the paper are then powers of two, and given ones are others. And a window alone."""
    given = np.array([0.5, 1.0, 0.125, 0.75])
    plain, causal, paper, both = (
        replace(normal(rng, name, 5, keys, heads=4), query=rng.standard_normal((2, 4, 5, 8)), alibi=slopes)
        for name, keys, slopes in (
            ("alibi", 7, given),
            ("alibi_causal", 9, given),
            ("alibi_paper", 7, paper_slopes(4)),
            ("alibi_paper_causal", 9, paper_slopes(4)),
        )
    )
    window = replace(normal(rng, "window_alone", 5, 9), window=3)
    return [plain, replace(causal, causal=True), paper, replace(both, causal=True), window]


def _together(rng: np.random.Generator) -> list[Case]:
    """Options that a function may have without others that show the same."""
    capped = normal(rng, "softcap_mask", 5, 8)
    keep = _with_first_key(rng.random((1, 1, 5, 8)) < 0.6)
    return [replace(capped, query=2 * capped.query, key=2 * capped.key, softcap=3.0, mask=keep)]


def _causal_alone(rng: np.random.Generator) -> list[Case]:
    """Ask what hides a pair, and what a row without keys is, of functions that hide by the causal rule only.

    Row 0 of the first has scores that are multiples of 64: they are left where -1e9 is added in float32. In the others
    row i has its own feature: the keys that it sees are at one level, later ones at another.
    """
    tall = normal(rng, "causal_tall", 6, 4, widths=(4, 7))
    tall.query[..., 0, 1:], tall.query[..., 1:, 0] = 0, 0
    tall.query[..., 0, 0], tall.key[..., 0] = 1, [0, 512, 256, 768]
    below = normal(rng, "causal_below_sq", 4, 4, widths=(4, 6))
    least = normal(rng, "causal_below_1e9_sq", 4, 4, widths=(4, 6))
    for case, seen, later in ((below, (0, -2e3, -2e4, 0), (900, 0, 0, 0)), (least, -(2.0**31), 0)):
        case.query[...], case.key[...] = np.eye(4), 2 * np.where(np.tri(4, dtype=bool).T, seen, later)
    return [replace(tall, causal=True), *(replace(case, causal=True, exact=True) for case in (below, least))]


def _last_loud(case: Case) -> Case:
    """Most of q · k comes from the last feature."""
    case.query[..., -1] *= 2
    case.key[..., -1] *= 2
    return case


def _widened(case: Case, rng: np.random.Generator) -> Case:
    if "value_width" not in case.features:
        return case
    more = rng.standard_normal((*case.value.shape[:3], case.query.shape[3]))
    keep = min(more.shape[3], case.value.shape[3])
    more[..., :keep] = case.value[..., :keep]
    return replace(case, value=more)


def _held(before: Array, after: Array) -> bool:
    return bool(np.array_equal(np.isfinite(before), np.isfinite(after)))
