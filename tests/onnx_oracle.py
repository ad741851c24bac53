"""The operator Attention written down pair by pair, in extended precision; nothing of regard's is used."""

import math

import numpy as np

WIDE = np.longdouble


def attention(
    Q, K, V, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *, is_causal=0, q_num_heads=None,
    kv_num_heads=None, qk_matmul_output_mode=0, scale=None, softcap=0.0, softmax_precision=None, left_window_size=-1,
    right_window_size=-1, opset=25,
):  # fmt: skip
    """Return Y, present_key, present_value, the asked qk output, and what a bound needs: (Q, K, V, bias, weights)."""
    packed = Q.ndim == 3
    Q, K, V = heads(Q, q_num_heads), heads(K, kv_num_heads), heads(V, kv_num_heads)
    if past_key is not None:
        K, V = np.concatenate([past_key, K], 2), np.concatenate([past_value, V], 2)
    present = K, V
    batch, count, queries, d = Q.shape
    total, group = K.shape[2], count // K.shape[1]
    Q, K, V = Q.astype(WIDE), K.astype(WIDE), V.astype(WIDE)
    scale = WIDE(1) / np.sqrt(WIDE(d)) if scale is None else WIDE(scale)
    stages = np.zeros((4, batch, count, queries, total), WIDE)
    bias = np.zeros((batch, count, queries, total), WIDE)
    Y = np.zeros((batch, count, queries, V.shape[3]), WIDE)
    for b, h, i in np.ndindex(batch, count, queries):
        position = i
        if past_key is not None:
            position += past_key.shape[2]
        if nonpad_kv_seqlen is not None:
            position += int(nonpad_kv_seqlen[b]) - queries
        kept = []
        for j in range(total):
            raw = scale * math.fsum([]) if d == 0 else scale * (Q[b, h, i] * K[b, h // group, j]).sum()
            capped = softcap * np.tanh(raw / WIDE(softcap)) if softcap else raw
            added = laid(attn_mask, (b, h, i, j), total, opset)
            hidden = (
                added == -np.inf
                or (is_causal and j > position)
                or (left_window_size >= 0 and j < position - left_window_size)
                or (right_window_size >= 0 and j > position + right_window_size)
                or (nonpad_kv_seqlen is not None and j >= nonpad_kv_seqlen[b])
            )
            bias[b, h, i, j] = -np.inf if hidden else added
            stages[:3, b, h, i, j] = raw, capped, capped + bias[b, h, i, j]
            if not hidden:
                kept.append(j)
        if kept:
            powers = np.exp(stages[2, b, h, i, kept] - stages[2, b, h, i, kept].max())
            stages[3, b, h, i, kept] = powers / powers.sum()
            Y[b, h, i] = (stages[3, b, h, i, kept][:, None] * V[b, h // group, kept]).sum(0)
    if packed:
        Y = np.concatenate(list(Y.transpose(1, 0, 2, 3)), axis=-1)
    repeated = (np.stack([x[:, h // group] for h in range(count)], 1) for x in (K, V))
    return (Y, *present, stages[qk_matmul_output_mode], (Q, *repeated, bias, stages[3]))


def heads(x, count):
    return x if x.ndim == 4 else np.stack(np.split(x, count, axis=-1), axis=1)


def laid(attn_mask, at, total, opset):
    """What the mask adds to one pair."""
    if attn_mask is None:
        return WIDE(0)
    keys = attn_mask.shape[-1]
    if opset >= 24 and at[-1] >= keys:
        return WIDE(-np.inf)
    index = tuple(0 if size == 1 else k for size, k in zip(attn_mask.shape[::-1], at[::-1], strict=False))[::-1]
    value = attn_mask[index]
    if attn_mask.dtype == bool:
        return WIDE(0) if value else WIDE(-np.inf)
    return WIDE(value)
