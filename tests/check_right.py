"""Right attention functions in the styles that people write, with the words in which each must be understood."""

import math

import numpy as np

import regard as rg


def softmax(scores):
    """Rows without keys give zeros."""
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def textbook(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    return softmax(scores) @ v


def one_head(Q, K, V):
    return softmax(Q @ K.T / math.sqrt(Q.shape[1])) @ V


def positional(a, b, c, /):
    return textbook(a, b, c)


def value_first(value, key, query):
    return textbook(query, key, value)


def bshd(query, key, value, is_causal=False):
    scores = np.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(query.shape[-1])
    if is_causal:
        n, m = scores.shape[-2:]
        scores = np.where(np.tri(n, m, m - n, dtype=bool), scores, -np.inf)
    return np.einsum("bhqk,bkhd->bqhd", softmax(scores), value)


def drop_polarity(q, k, v, key_padding_mask=None):
    """True hides; the mask is (batch, keys)."""
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if key_padding_mask is not None:
        scores = np.where(key_padding_mask[:, None, None, :], -np.inf, scores)
        v = np.where(key_padding_mask[:, None, :, None], 0, v)
    return softmax(scores) @ v


def additive(q, k, v, attn_mask=None):
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if attn_mask is not None:
        scores = scores + attn_mask
    return softmax(scores) @ v


def always_causal(q, k, v):
    n, m = q.shape[-2], k.shape[-2]
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    return softmax(np.where(np.tri(n, m, m - n, dtype=bool), scores, -np.inf)) @ v


def top_left(q, k, v, causal=False):
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    return softmax(scores) @ v


def everything(
    query, key, value, mask=None, causal=False, scale=None, softcap=None, bias=None, window=None, dropout=0.0, rng=None
):
    """All options, grouped heads, nothing hidden read."""
    group = query.shape[1] // key.shape[1]
    key, value = np.repeat(key, group, axis=1), np.repeat(value, group, axis=1)
    n, m = query.shape[2], key.shape[2]
    scores = query @ key.swapaxes(-1, -2) * query.dtype.type(query.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    behind = np.arange(n)[:, None] + m - n - np.arange(m)
    keep = np.ones((n, m), bool)
    if causal:
        keep = keep & (behind >= 0)
    if window is not None:
        keep = keep & (behind < window)
    if mask is not None:
        keep = keep & mask
    weights = softmax(np.where(keep, scores, -np.inf))
    if dropout:
        weights = np.where(rng.random(weights.shape) < dropout, 0, weights / (1 - dropout)).astype(query.dtype)
    seen = np.broadcast_to(keep, weights.shape).any(axis=-2)[..., None]
    return weights @ np.where(seen, value, 0)


def tiled(q, k, v, scale=None, tile=16):
    """Online softmax."""
    scale = q.dtype.type(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    m = np.full((*q.shape[:-1], 1), -np.inf, q.dtype)
    total, out = np.zeros_like(m), np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    for first in range(0, k.shape[-2], tile):
        scores = scale * (q @ k[..., first : first + tile, :].swapaxes(-1, -2))
        new = np.maximum(m, scores.max(axis=-1, keepdims=True))
        shrink, e = np.exp(m - new), np.exp(scores - new)
        total = total * shrink + e.sum(axis=-1, keepdims=True)
        out = out * shrink + e @ v[..., first : first + tile, :]
        m = new
    return out / np.where(total == 0, 1, total)


def in_float64(q, k, v, scale=None):
    wide = q.astype(float), k.astype(float), v.astype(float)
    scores = wide[0] @ wide[1].swapaxes(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    return (softmax(scores) @ wide[2]).astype(q.dtype)


def with_weights(q, k, v):
    weights = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]))
    return weights @ v, weights


def layer(x, w_q, w_k, w_v, w_o, num_heads):
    def split(y):
        return y.reshape(y.shape[0], y.shape[1], num_heads, -1).transpose(0, 2, 1, 3)

    out = textbook(split(x @ w_q), split(x @ w_k), split(x @ w_v))
    return out.transpose(0, 2, 1, 3).reshape(x.shape) @ w_o


def regards(query, key, value, mask=None, causal=False, scale=None, softcap=None, bias=None, window=None):
    """regard's own, with flags for its masks."""
    found = rg.Full() if mask is None else rg.Dense(mask)
    if causal:
        found = found & rg.Causal()
    if window is not None:
        found = found & rg.Window(left=window - 1, right=None if causal else 0)
    return rg.attention(query, key, value, mask=found, q_offset="end", bias=bias, scale=scale, softcap=softcap)


# Each with what is declared, what must be guessed, and the warnings that are true of it.
RIGHT = {
    textbook: ({}, {"layout": "bhsd"}, set()),
    one_head: ({}, {"layout": "sd"}, {"EMPTY_SHAPE_CRASH"}),
    positional: ({}, {"layout": "bhsd"}, set()),
    value_first: ({}, {"layout": "bhsd"}, set()),
    bshd: ({}, {"layout": "bshd"}, {"SILENT_BROADCAST", "CAUSAL_FUTURE_NAN"}),
    drop_polarity: ({}, {"mask": "drop"}, set()),
    additive: ({}, {"mask": "additive"}, {"NAN_MASKED_V", "NAN_MASKED_K"}),
    always_causal: ({}, {"causal": "always"}, {"CAUSAL_FUTURE_NAN"}),
    top_left: ({"causal": "top-left"}, {"layout": "bhsd"}, {"CAUSAL_FUTURE_NAN"}),
    everything: ({}, {"mask": "keep"}, {"SILENT_BROADCAST", "CAUSAL_FUTURE_NAN"}),
    tiled: ({}, {"layout": "bhsd"}, set()),
    in_float64: ({}, {"layout": "bhsd"}, {"INT_INPUT_TRUNCATED"}),
    with_weights: ({}, {"result": "element 0 of a tuple"}, {"RETURNS_TUPLE"}),
    layer: ({}, {"kind": "a whole multi-head layer"}, set()),
    regards: ({}, {"layout": "bhsd"}, set()),
    rg.attention: ({}, {"mask": "keep"}, set()),
    rg.reference.attention: ({"dtype": "float64"}, {"mask": "keep"}, set()),
    rg.reference.online_attention: ({"supports": {"mask", "softcap", "bias", "scale"}}, {"mask": "keep"}, set()),
}
