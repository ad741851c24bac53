"""Which heads of which layers look from one word to which others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Look(NamedTuple):
    """One head's look at a target: ``weight`` is what the target's tokens, at ``positions``, get together."""

    layer: int
    head: int
    positions: tuple[int, ...]
    weight: float


def strongest(
    weights: npt.NDArray[Any], query: Sequence[int], targets: Sequence[Sequence[int]], *, limit: int = 12
) -> list[Look]:
    """Return the strongest looks from a word, strongest first; equals in order of layer, head and target.

    A word of several tokens looks with the mean of its tokens' rows, and is looked at with the sum of its
    tokens' columns: both are again shares of one unit of attention.

    Parameters
    ----------
    weights
        Attention weights, ``(layers, heads, S, S)``.
    query
        Positions of the tokens of the word that looks.
    targets
        For each target, the positions of its tokens.
    limit
        How many looks to return at most.
    """
    if not targets:
        return []
    rows = weights[:, :, list(query)].mean(axis=2)
    shares = np.stack([rows[..., list(target)].sum(axis=-1) for target in targets], axis=-1)
    order = np.argsort(-shares, axis=None, kind="stable")[:limit]
    places = zip(*np.unravel_index(order, shares.shape), strict=True)
    return [Look(int(n), int(h), tuple(targets[t]), float(shares[n, h, t])) for n, h, t in places]
