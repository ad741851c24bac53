"""Random masks for tests: expressions of all leaves, and an oracle that decides pair by pair."""

from itertools import product

import numpy as np
from hypothesis import strategies as st

import regard as rg
from regard._types import Geometry, Offsets
from regard.masks._base import And, Not, Or
from regard.masks._function import Function

# Hypothesis draws geometry, depth and seed. Node by node it repeats itself: few rows with several ranges.
GENERATORS = st.integers(0, 2**32 - 1).map(np.random.default_rng)
FARTHEST = 2**61
OFFSETS = [0, 3, -2, 8, -9]
FUNCTIONS = [
    lambda b, h, p, j: j % 3 != 1,
    lambda b, h, p, j: (p - j) % 3 != 0,
    lambda b, h, p, j: (b + j) % 2 == 0,
    lambda b, h, p, j: h == 0,
    lambda b, h, p, j: (b + 2 * h + p % 5 + j) % 4 < 2,
    lambda b, h, p, j: np.True_,
]


@st.composite
def geometries(draw, leads=((), (2,), (2, 3))):
    lead = draw(st.sampled_from(leads))
    rng = draw(GENERATORS)
    q_offset = draw(st.sampled_from([*OFFSETS, FARTHEST, -FARTHEST, *["per batch"] * 3][: 10 if lead else 7]))
    return Geometry(
        lead,
        heads=draw(st.integers(1, 2)) if len(leads) > 1 else 1,
        queries=draw(st.sampled_from([3, 5, 7, 1, 0])),
        keys=draw(st.sampled_from([5, 7, 8, 9, 1, 0])),
        q_offset=offsets(rng, lead) if q_offset == "per batch" else q_offset,
        rank=len(lead) + 3,
    )


def offsets(rng, lead):
    shape = some_lead(rng, lead)
    return Offsets(shape, tuple(rng.choice(OFFSETS, shape).ravel().tolist()))


def one_or_full(rng, axes):
    return tuple(1 if rng.random() < 0.3 else axis for axis in axes)


def some_lead(rng, lead):
    """A shape that broadcasts to the leading axes."""
    return one_or_full(rng, lead[rng.integers(len(lead) + 1) :])


def dense(rng, geometry):
    full = geometry.shape if rng.random() < 0.7 else geometry.shape[-2:]
    array = rng.random(one_or_full(rng, full)) < 0.7
    backwards = array[..., ::-1, ::-1].copy()[..., ::-1, ::-1]
    return rg.Dense([array, np.asfortranarray(array), backwards][rng.integers(3)])


def key_lengths(rng, geometry):
    return rg.KeyLengths(rng.integers(0, geometry.keys + 1, some_lead(rng, geometry.lead)))


def key_padding(rng, geometry):
    return rg.KeyPadding(rng.random((*some_lead(rng, geometry.lead), geometry.keys)) < 0.7)


def per_head(leaves):
    def draw(rng, geometry):
        return rg.PerHead([leaves[rng.integers(len(leaves))](rng, geometry) for _ in range(geometry.heads)])

    return draw


def window(rng, geometry):
    bounds = [None, 0, 1, 2, 3, 5]
    return rg.Window(bounds[rng.integers(6)], bounds[rng.integers(6)])


def documents(rng, geometry):
    """Every document in one piece among the keys; queries of any, and of none."""
    key_ids = np.sort(rng.integers(0, 4, (*some_lead(rng, geometry.lead), geometry.keys)))
    key_ids = np.array([7, -1, 3, 0])[key_ids]
    if geometry.queries == geometry.keys and rng.random() < 0.5:
        return rg.Documents(key_ids)
    return rg.Documents(rng.integers(-1, 8, (*some_lead(rng, geometry.lead), geometry.queries)), key_ids)


def mixed_documents(rng, geometry):
    ids, key_ids = (
        rng.integers(0, 3, (*some_lead(rng, geometry.lead), size)) for size in (geometry.queries, geometry.keys)
    )
    return rg.Documents(ids, key_ids)


def blocks(rng, geometry):
    block = tuple(rng.integers(1, 5, 2).tolist())
    above = one_or_full(rng, geometry.shape[:-2]) if rng.random() < 0.7 else ()
    table = rng.random((*above, -(-geometry.queries // block[0]), -(-geometry.keys // block[1]))) < 0.6
    return rg.Blocks(table, block)


def size(rng, geometry):
    return [1, 2, 3, 4, 7, 2**62, 10**30][rng.integers(7)]


# By number of array arguments and of interest, so that a draw is not mostly Full.
CLOSED = [
    *(lambda rng, geometry: rg.Full(), lambda rng, geometry: rg.Empty(), lambda rng, geometry: rg.Causal()),
    *(lambda rng, geometry, leaf=leaf: leaf(size(rng, geometry)) for leaf in (rg.Prefix, rg.Global, rg.Chunked)),
    *[window, key_lengths, documents, blocks] * 2,
    key_padding,
]
CLOSED += [per_head(CLOSED)] * 2
OPEN = [
    *(dense, mixed_documents),
    lambda rng, geometry: rg.Dilated(size(rng, geometry)),
    lambda rng, geometry: rg.from_function(FUNCTIONS[rng.integers(len(FUNCTIONS))]),
]
OPEN += [per_head(OPEN + CLOSED)]


def expression(rng, geometry, depth, leaves):
    """Any mask with at most ``depth`` operators above each leaf."""
    kind = rng.choice(["&", "|", "~", "leaf"], p=[0.35, 0.35, 0.2, 0.1]) if depth else "leaf"
    if kind == "~":
        return ~expression(rng, geometry, depth - 1, leaves)
    if kind != "leaf":
        left, right = (expression(rng, geometry, depth - 1, leaves) for _ in "ab")
        return left & right if kind == "&" else left | right
    return leaves[rng.integers(len(leaves))](rng, geometry)


@st.composite
def cases(draw, leaves=tuple(CLOSED + OPEN), leads=((), (2,), (2, 3))):
    geometry = draw(geometries(leads))
    return expression(draw(GENERATORS), geometry, draw(st.sampled_from([4, 2, 1, 3, 0])), leaves), geometry


def closed_cases():
    """Masks that all have spans."""
    return cases(tuple(CLOSED))


def position(geometry, lead, i):
    offset = geometry.q_offset
    return i + int(np.broadcast_to(offset.array(), geometry.lead)[lead] if isinstance(offset, Offsets) else offset)


def keeps(mask, geometry, lead, head, i, j):
    """One pair, straight from the table of leaves in the design: no arrays of pairs, no spans, Python's integers."""
    p = position(geometry, lead, i)
    match mask:
        case And(operands):
            return all(keeps(operand, geometry, lead, head, i, j) for operand in operands)
        case Or(operands):
            return any(keeps(operand, geometry, lead, head, i, j) for operand in operands)
        case Not(operand):
            return not keeps(operand, geometry, lead, head, i, j)
        case rg.Causal():
            return j <= p
        case rg.Window(left, right):
            return (left is None or p - left <= j) and (right is None or j <= p + right)
        case rg.Prefix(n):
            return j < n
        case rg.Global(n):
            return j < n or p < n
        case rg.Chunked(size):
            return p // size == j // size
        case rg.Dilated(step):
            return (p - j) % step == 0
        case rg.KeyLengths():
            return j < np.broadcast_to(mask.n, geometry.lead)[lead]
        case rg.KeyPadding(kept):
            return np.broadcast_to(kept, (*geometry.lead, geometry.keys))[(*lead, j)]
        case rg.PerHead(masks):
            return keeps(masks[head], geometry, lead, head, i, j)
        case rg.Documents():
            key_ids = mask.ids if mask.key_ids is None else mask.key_ids
            ids = np.broadcast_to(mask.ids, (*geometry.lead, geometry.queries))
            return ids[(*lead, i)] == np.broadcast_to(key_ids, (*geometry.lead, geometry.keys))[(*lead, j)]
        case rg.Blocks():
            table = np.broadcast_to(mask.array, geometry.shape[:-2] + mask.array.shape[-2:])
            return table[(*lead, head, i // mask.block[0], j // mask.block[1])]
        case rg.Dense():
            return np.broadcast_to(mask.array, geometry.shape)[(*lead, head, i, j)]
        case Function(function):
            entry = list(np.ndindex(geometry.lead)).index(lead)
            return function(entry, head, p, j)
    assert isinstance(mask, rg.Full | rg.Empty), f"the oracle does not know {mask!r}"
    return isinstance(mask, rg.Full)


def oracle(mask, geometry):
    table = np.zeros(geometry.shape, bool)
    for *lead, head, i, j in product(*map(range, geometry.shape)):
        table[(*lead, head, i, j)] = keeps(mask, geometry, tuple(lead), head, i, j)
    return table


def formula(mask, geometry):
    return mask.keep(geometry, np.arange(geometry.queries), np.arange(geometry.keys))


def assert_same(got, want):
    np.testing.assert_array_equal(np.broadcast_to(got, want.shape), want)
