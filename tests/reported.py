"""What the tests of reported faults share: a textbook of their own, everything that answers, small problems."""

import math

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from judges import assert_close

DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
IDS = [np.dtype(d).name for d in DTYPES]
# Of values around 1 or of the value itself, for moderate scores; 16-bit inputs are exact, and outputs rounded once.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2}

CAUSAL = rg.Causal()
GARBAGE = [np.nan, np.inf, -np.inf]


def textbook(q, k, v, keep=True, *, bias=0.0, scale=None, softcap=None, sinks=None):
    """Row by row over the keys that it keeps and no others, in float64; knows nothing of regard."""
    q, k, v = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
    shape = (*q.shape[:-1], k.shape[-2])
    keep, bias = np.broadcast_to(keep, shape), np.broadcast_to(np.asarray(bias).astype(np.float64), shape)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    for at in np.ndindex(shape[:-1]):
        kept = keep[at] & (bias[at] != -np.inf)
        if not kept.any():
            continue
        s = scale * (k[at[:-1]][kept] @ q[at])
        s = (s if softcap is None else softcap * np.tanh(s / softcap)) + bias[at][kept]
        e = np.exp(s - s.max())
        total = e.sum() + (0 if sinks is None else np.exp(sinks[at[-2]] - s.max()))
        out[at] = e @ v[at[:-1]][kept] / total
    return out


def answers(arrays, **options):
    """The same question put to everything that answers it."""
    q, k, v = arrays
    result = rg.attention_forward(q, k, v, **options)
    yield "attention", rg.attention(q, k, v, **options)
    yield "attention_forward", result.out
    state = rg.merge_states(rg.attention_forward(q, k, v, aux=rg.Aux(state=True), **options).state)
    yield "state", state.out if options.get("sinks") is None else with_sinks(state, options["sinks"])
    yield "reference", rg.reference.attention(q, k, v, **options)
    yield "online", rg.reference.online_attention(q, k, v, block_rows=3, block_keys=2, **options)
    if np.isfinite(v.astype(np.float64)).all():
        yield "weights", result.weights[...] @ np.repeat(v, q.shape[-3] // v.shape[-3], axis=-3).astype(np.float64)


def with_sinks(state, sinks):
    """A state's output as the definition of a sink has it: times sigmoid(lse - sink), 0 for an empty row."""
    share = 1 / (1 + np.exp(np.asarray(sinks, np.float64)[:, None] - state.lse))
    return np.where(np.isneginf(state.lse)[..., None], 0, state.out * share[..., None])


def assert_right(arrays, want, wrong=None, **options):
    """Every path gives ``want``; ``wrong``, the value of the fault, would have been noticed."""
    dtype = arrays[0].dtype
    bound = TOLERANCE[dtype.name] * np.maximum(1, np.abs(np.nan_to_num(want)))
    for name, got in answers(arrays, **options):
        try:
            assert_close(got, np.broadcast_to(want, got.shape), bound)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
    if wrong is not None:
        with pytest.raises(AssertionError):
            assert_close(np.broadcast_to(wrong, got.shape), np.broadcast_to(want, got.shape), bound)


def counting(rows, keys, dtype=np.float32, batch=1):
    """Equal scores, values 0, 1, 2, ...: a row comes out as the mean of the numbers of the keys that it sees."""
    v = np.tile(np.arange(keys)[:, None], (batch, 1, 1, 4)).astype(dtype)
    return np.zeros((batch, 1, rows, 4), dtype), np.zeros((batch, 1, keys, 4), dtype), v


def rows_of(*means):
    """What ``counting`` gives: one mean per row."""
    return np.array(means, float)[:, None]


def drawn(*shapes, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32).astype(dtype) for shape in shapes]
