"""Every fault of the catalogue as a plain NumPy function, and its name."""

import numpy as np

from regard.check.answers._case import Case, Layer
from regard.check.answers._fault import model
from regard.check.faults import CATALOGUE

LAYER_ONLY = {
    "SPLIT_NO_TRANSPOSE", "SPLIT_INTERLEAVED", "MERGE_NO_TRANSPOSE", "MERGE_INTERLEAVED", "HEADS_AVERAGED",
    "HEADS_SUMMED",
    "QKV_PACK_ORDER", "QK_SHARED_PROJECTION", "K_NOT_PROJECTED", "WQ_TRANSPOSED", "WO_MISSING", "WO_TRANSPOSED",
}  # fmt: skip


def _four(x):
    return None if x is None else np.asarray(x).reshape((1,) * (4 - np.ndim(x)) + np.shape(x))


def as_function(*parts):
    """An attention function with the steps of some faults replaced."""
    oracle = model(*parts)

    def attention(
        query, key, value, mask=None, causal=False, scale=None, softcap=None, bias=None, window=None, dropout=None,
        slopes=None,
    ):  # fmt: skip
        q, k, v = (np.asarray(x, np.float64) for x in (query, key, value))
        slopes = None if slopes is None else np.asarray(slopes, np.float64)
        case = Case("call", q, k, v, scale, causal, _four(mask), _four(bias), slopes, softcap, window, dropout)
        return oracle(case).astype(np.result_type(query, np.float32))

    return attention


def as_pair(*parts):
    """Output and logsumexp, with the steps of some faults replaced."""
    oracle = model(*parts)

    def attention(query, key, value):
        case = Case("call", *(np.asarray(x, np.float64) for x in (query, key, value)))
        found = oracle(case), oracle.lse(case, oracle.attend(case)[1])
        return tuple(x.astype(np.result_type(query, np.float32)) for x in found)

    return attention


def as_layer(*parts):
    """A multi-head layer with the steps of some faults replaced."""
    oracle = model(*parts)

    def layer(x, wq, wk, wv, wo, heads):
        wide = [np.asarray(a, np.float64) for a in (wq, wk, wv, wo)]
        case = Case("call", *[np.asarray(x, np.float64)] * 3, layer=Layer(heads, *wide))
        return oracle(case).astype(np.result_type(x, np.float32))

    return layer


def mutants():
    """Name, variant and function of each."""
    for fault in CATALOGUE:
        for label, steps in fault.variants.items():
            make = as_pair if fault.group == "lse" else as_layer if fault.name in LAYER_ONLY else as_function
            yield fault, label, make(steps)
