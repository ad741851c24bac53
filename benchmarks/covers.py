"""Masks and biases as problems.toml has them."""

from __future__ import annotations

from regard.bench import Alibi, Causal, Lengths, Random, Window


def as_mask(given, queries, keys):
    """A mask of what problems.toml says."""
    match given:
        case None:
            return None
        case "causal":
            return Causal()
        case {"window": size}:
            return Window(size)
        case {"lengths": lengths}:
            return Lengths(tuple(lengths))
        case {"random": keep}:
            return Random(keep, queries, keys)
    known = "'causal', or window = size, lengths = [one per batch entry] or random = probability"
    raise ValueError(f"mask = {given!r}; it is {known}")


def as_bias(given, heads):
    """A bias of what problems.toml says."""
    if given not in (None, "alibi"):
        raise ValueError(f"bias = {given!r}; it is 'alibi'")
    return Alibi(heads) if given else None
