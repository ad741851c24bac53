"""The probes of a whole multi-head layer: x, four square matrices, and masks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ._case import Case, Layer


@dataclass(frozen=True)
class LayerSize:
    """What is fixed in a layer: its heads, the width of x, and whether there is a matrix after the heads."""

    heads: int = 3
    width: int = 12
    has_out: bool = True


USUAL = LayerSize()


def layer_case(rng: np.random.Generator, name: str, size: LayerSize, *, batch: int = 2, positions: int = 5) -> Case:
    """Make a case without options; scores spread about as much as those of the other probes."""
    width = size.width
    x = rng.standard_normal((batch, positions, width))
    matrices = [rng.standard_normal((width, width)) * (4 / 3 / width) ** 0.5 for _ in range(4)]
    if not size.has_out:
        matrices[3] = np.eye(width)
    return Case(name, x, x, x, layer=Layer(size.heads, *matrices))


def layer_probes(seed: int, size: LayerSize) -> list[Case]:
    """Make all probes of a layer."""
    rng = np.random.default_rng((seed, 1))
    names = ("mha", "mha_causal", "mha_mask", "mha_mask_shared", "mha_keypad", "mha_masked_row")
    plain, causal, mask, shared, keypad, empty = (layer_case(rng, name, size) for name in names)
    own = np.eye(5, dtype=bool)
    pad = np.ones((2, 1, 1, 5), bool)
    pad[0, ..., 3:] = pad[1, ..., :2] = False
    some = rng.random((1, 1, 5, 5)) < 0.7
    some[..., 0], some[..., 1, :] = True, False
    return [
        plain,
        replace(causal, causal=True),
        replace(mask, mask=(rng.random((2, size.heads, 5, 5)) < 0.6) | own),
        replace(shared, mask=(rng.random((1, 1, 5, 5)) < 0.6) | own),
        replace(keypad, mask=pad),
        replace(empty, mask=some),
    ]
