"""Wrong attention functions as people write them, each with the names that must be found.

Nothing here is taken from the catalogue.
"""

import math

import numpy as np

WRONG = []


def wrong(*names, **declared):
    def enter(fn):
        WRONG.append((fn, set(names), declared))
        return fn

    return enter


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@wrong("SCALE_MISSING")
def forgot_the_root(Q, K, V):
    return softmax(Q @ K.transpose(0, 1, 3, 2)) @ V


@wrong("SCALE_1_OVER_D")
def forgot_sqrt(q, k, v):
    return softmax(q @ k.swapaxes(-1, -2) / q.shape[-1]) @ v


@wrong("SOFTMAX_OVER_QUERIES")
def softmax_axis_of_queries(q, k, v):
    return softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]), axis=2) @ v


@wrong("NO_MAX")
def naive_exp(query, key, value):
    e = np.exp(np.einsum("bhid,bhjd->bhij", query, key) / np.sqrt(query.shape[-1]))
    return np.einsum("bhij,bhjd->bhid", e / e.sum(-1, keepdims=True), value)


@wrong("CAUSAL_STRICT", "EMPTY_ROW_NAN")
def triu_with_the_wrong_k(q, k, v, causal=False):
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        n, m = s.shape[-2:]
        s[..., np.triu(np.ones((n, m), bool), k=m - n)] = -np.inf
    return softmax(s) @ v


@wrong("CAUSAL_TOP_LEFT")
def tril_of_a_rectangle(q, k, v, is_causal=False):
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if is_causal:
        s = np.where(np.tril(np.ones(s.shape[-2:])) == 0, -1e9, s)
    return softmax(s) @ v


@wrong("MASK_AFTER_SOFTMAX")
def masks_the_weights(q, k, v, mask=None):
    weights = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]))
    if mask is not None:
        weights = weights * mask
    return weights @ v


@wrong("MASK_MULTIPLICATIVE")
def masks_by_multiplying(q, k, v, mask=None):
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = s * mask
    return softmax(s) @ v


@wrong("MASK_FILL_SMALL")
def fills_with_minus_hundred(q, k, v, mask=None):
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, np.float32(-100.0))
    return softmax(s) @ v


@wrong("MASK_INVERTED", mask="keep")
def notebook_polarity(q, k, v, mask=None):
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, -np.inf, s)
    return softmax(s) @ v


@wrong("GQA_TILE")
def grouped_by_tiling(q, k, v):
    times = q.shape[1] // k.shape[1]
    k, v = np.concatenate([k] * times, axis=1), np.concatenate([v] * times, axis=1)
    return softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])) @ v


@wrong("WINDOW_PLUS_ONE")
def window_off_by_one(q, k, v, causal=False, window=None):
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    i = np.arange(q.shape[-2])[:, None] + k.shape[-2] - q.shape[-2]
    j = np.arange(k.shape[-2])
    if causal:
        s = np.where(j > i, -np.inf, s)
    if window:
        s = np.where(i - j > window, -np.inf, s)
    return softmax(s) @ v


@wrong("SOFTCAP_NO_MUL")
def cap_without_factor(q, k, v, softcap=None):
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if softcap:
        s = np.tanh(s / softcap)
    return softmax(s) @ v


@wrong("BIAS_BEFORE_SCALE")
def bias_scaled_too(q, k, v, attn_bias=None):
    s = q @ k.swapaxes(-1, -2)
    if attn_bias is not None:
        s = s + attn_bias
    return softmax(s / math.sqrt(q.shape[-1])) @ v


@wrong("TILE_NO_RESCALE")
def flash_without_correction(q, k, v):
    block = 32
    m = np.full(q.shape[:-1], -np.inf)
    norm, acc = np.zeros(q.shape[:-1]), np.zeros((*q.shape[:-1], v.shape[-1]))
    for start in range(0, k.shape[-2], block):
        s = q @ k[..., start : start + block, :].swapaxes(-1, -2) / math.sqrt(q.shape[-1])
        m = np.maximum(m, s.max(-1))
        p = np.exp(s - m[..., None])
        norm += p.sum(-1)
        acc += p @ v[..., start : start + block, :]
    return (acc / norm[..., None]).astype(q.dtype)


@wrong("TILE_MAX_REPLACED")
def flash_with_the_tiles_own_maximum(q, k, v):
    m = norm = acc = None
    parts = max(1, -(-k.shape[-2] // 44))
    for ks, vs in zip(np.array_split(k, parts, -2), np.array_split(v, parts, -2), strict=True):
        s = q @ ks.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
        top = s.max(-1, keepdims=True)
        p = np.exp(s - top)
        if m is None:
            norm, acc = p.sum(-1, keepdims=True), p @ vs
        else:
            fix = np.exp(m - top)
            norm, acc = norm * fix + p.sum(-1, keepdims=True), acc * fix + p @ vs
        m = top
    return acc / norm


@wrong("SPLIT_NO_TRANSPOSE")
def reshapes_to_heads(x, wq, wk, wv, wo, n_heads):
    b, s, e = x.shape
    q, k, v = ((x @ w).reshape(b, n_heads, s, e // n_heads) for w in (wq, wk, wv))
    out = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(e // n_heads)) @ v
    return out.swapaxes(1, 2).reshape(b, s, e) @ wo


@wrong("SCALE_D_MODEL")
def scales_by_the_models_width(x, W_q, W_k, W_v, W_o, num_heads):
    b, s, e = x.shape
    q, k, v = ((x @ w).reshape(b, s, num_heads, -1).swapaxes(1, 2) for w in (W_q, W_k, W_v))
    out = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(e)) @ v
    return out.swapaxes(1, 2).reshape(b, s, e) @ W_o


@wrong("DROPOUT_NO_RESCALE")
def drops_without_rescaling(q, k, v, dropout_p=0.0, rng=None):
    weights = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]))
    if dropout_p:
        weights = weights * (rng.random(weights.shape) > dropout_p)
    return weights @ v


@wrong("K_RESHAPED_NOT_TRANSPOSED")
def reshaped_keys(q, k, v):
    b, h, n, d = k.shape
    return softmax(q @ k.reshape(b, h, d, n) / math.sqrt(d)) @ v


@wrong("SCALE_ARG_TIMES_DEFAULT")
def scale_on_top(q, k, v, scale=1.0):
    return softmax(scale * (q @ k.swapaxes(-1, -2)) / math.sqrt(q.shape[-1])) @ v


@wrong("SCALE_MISSING", "CAUSAL_PLUS_ONE")
def two_at_once(q, k, v, causal=False):
    s = q @ k.swapaxes(-1, -2)
    if causal:
        n, m = s.shape[-2:]
        s = np.where(np.tri(n, m, m - n + 1, dtype=bool), s, -np.inf)
    return softmax(s) @ v


@wrong("WO_MISSING", "SPLIT_INTERLEAVED")
def a_layer_with_two_faults(x, wq, wk, wv, wo, heads):
    b, s, e = x.shape
    q, k, v = (np.moveaxis((x @ w).reshape(b, s, e // heads, heads), 3, 1) for w in (wq, wk, wv))
    out = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(e // heads)) @ v
    return out.swapaxes(1, 2).reshape(b, s, e)


@wrong("SCALE_UNKNOWN")
def a_scale_of_its_own(q, k, v):
    return softmax(0.2 * (q @ k.swapaxes(-1, -2))) @ v


@wrong("NOT_SOFTMAX")
def squares_of_scores(q, k, v):
    s = (q @ k.swapaxes(-1, -2)) ** 2
    return s / s.sum(-1, keepdims=True) @ v


@wrong("INPUT_MUTATED")
def scales_in_place(q, k, v):
    q /= math.sqrt(q.shape[-1])
    return softmax(q @ k.swapaxes(-1, -2)) @ v


@wrong("LOWP_LOGITS")
def scores_in_half(q, k, v):
    s = (q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])).astype(np.float16).astype(q.dtype)
    return softmax(s) @ v


_MASKS = {}


@wrong("STALE_CACHE")
def remembers_the_first_mask_of_a_shape(q, k, v, mask=None):
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = s + _MASKS.setdefault((s.shape, mask.shape), np.where(mask, 0, -1e9))
    return softmax(s) @ v


_BUFFERS = {}


@wrong("OUTPUT_BUFFER_REUSED")
def returns_its_buffer(q, k, v):
    weights = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]))
    out = _BUFFERS.setdefault((*q.shape[:-1], v.shape[-1]), np.empty((*q.shape[:-1], v.shape[-1]), q.dtype))
    np.matmul(weights, v, out=out)
    return out


@wrong("D_NOT_MULTIPLE")
def forgets_features_beyond_64(q, k, v):
    s = q[..., :64] @ k[..., :64].swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    return softmax(s) @ v


@wrong("NONDETERMINISTIC")
def drops_in_evaluation_too(q, k, v):
    weights = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]))
    weights = weights * (1 + 1e-7 * np.random.default_rng().random(weights.shape))
    return (weights @ v).astype(q.dtype)


@wrong("MASK_MUTATED")
def writes_into_the_mask(q, k, v, mask=None, causal=False):
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    keep = np.ones(s.shape, bool) if mask is None else mask
    if causal:
        n, m = s.shape[-2:]
        keep &= np.tri(n, m, m - n, dtype=bool)
    return softmax(np.where(keep, s, -1e9)) @ v
