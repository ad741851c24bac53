"""The smallest case that still shows a fault: axes are halved, then values rounded, while the fault stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case, Layer


def shrink(case: Case, shows: Callable[[Case], bool], equal_widths: bool = False) -> Case:
    """Return a case with axes no longer than needed and values as round as possible; dropout stays whole."""
    if case.dropout is not None:
        return case
    smaller = True
    while smaller:
        smaller = False
        for less in _smaller(case, equal_widths):
            if shows(less):
                case, smaller = less, True
                break
    for plainer in _plainer(case):
        matrices = replace(case, layer=plainer(case.layer))
        case = matrices if shows(matrices) else case
    for digits in (2, 1, 0):
        rounded = _rounded(case, digits)
        case = rounded if shows(rounded) else case
    return case


def _smaller(case: Case, equal_widths: bool) -> Iterator[Case]:
    """Cases with one axis halved, either half, or one shorter; long axes are tried first."""
    sizes = _sizes(case)
    for axis in sorted(sizes, key=lambda name: -sizes[name]):
        n = sizes[axis]
        parts = [slice(0, n // 2), slice(n // 2, n), slice(0, n - 1), slice(1, n)]
        for part in [p for i, p in enumerate(parts) if n > 1 and (n > 2 or i < 2)]:
            yield _cut(case, axis, part, equal_widths)


def _sizes(case: Case) -> dict[str, int]:
    batch, _, queries, *_ = case.query.shape if not case.layer else (len(case.query), 1, case.query.shape[1])
    if case.layer:
        return {"batch": batch, "positions": queries}
    heads, keys, width = case.key.shape[1:]
    return {
        "keys": keys,
        "queries": queries,
        "batch": batch,
        "heads": heads,
        "width": width,
        "values": case.value.shape[3],
    }


def _cut(case: Case, axis: str, part: slice, equal_widths: bool) -> Case:
    if case.layer:
        if axis == "batch":
            x = case.query[part]
            return replace(case, query=x, key=x, value=x, **_laid(case, 0, part))
        x = case.query[:, part]
        case = replace(case, query=x, key=x, value=x, **_laid(case, 2, part))
        return replace(case, **_laid(case, 3, part))
    q, k, v = case.query, case.key, case.value
    if axis == "batch":
        return replace(case, query=q[part], key=k[part], value=v[part], **_laid(case, 0, part))
    if axis == "heads":
        group = q.shape[1] // k.shape[1]
        many = slice(part.start * group, part.stop * group)
        return replace(case, query=q[:, many], key=k[:, part], value=v[:, part], **_laid(case, 1, many))
    if axis == "queries":
        return replace(case, query=q[..., part, :], **_laid(case, 2, part))
    if axis == "keys":
        return replace(case, key=k[..., part, :], value=v[..., part, :], **_laid(case, 3, part))
    if axis == "width" or equal_widths:
        value = v[..., part] if equal_widths else v
        return replace(case, query=q[..., part], key=k[..., part], value=value)
    return replace(case, value=v[..., part])


def _plainer(case: Case) -> list[Callable[[Any], Layer]]:
    """Ways to make one matrix of a layer the identity."""

    def with_identity(name: str) -> Callable[[Any], Layer]:
        return lambda layer: replace(layer, **{name: np.eye(len(layer.query))})

    return [with_identity(name) for name in ("query", "key", "value", "out")] if case.layer else []


def _laid(case: Case, axis: int, part: slice) -> dict[str, Any]:
    """Mask and bias cut along an axis that they have."""
    where = (slice(None),) * axis + (part,)
    arrays = {"mask": case.mask, "bias": case.bias}
    cut = {name: x[where] if x.shape[axis] > 1 else x for name, x in arrays.items() if x is not None}
    return cut | ({"alibi": case.alibi[part]} if case.alibi is not None and axis == 1 else {})


def _rounded(case: Case, digits: int) -> Case:
    def near(x: Array) -> Array:
        return np.round(x, digits) + 0.0  # no -0

    rounded = replace(case, query=near(case.query), key=near(case.key), value=near(case.value))
    if case.bias is not None:
        rounded = replace(rounded, bias=near(case.bias))
    if case.layer:
        matrices: dict[str, Any] = {n: near(getattr(case.layer, n)) for n in ("query", "key", "value", "out")}
        rounded = replace(rounded, layer=replace(case.layer, **matrices))
    return rounded
