"""Multi-head attention written out plainly: one batch entry, one head, one query at a time, in float64."""

import math

import numpy as np


def turned(row, position, base):
    """Pair c is features c and c + D/2, and turns by position * base^(-2c/D)."""
    half = len(row) // 2
    out = row.copy()
    for c in range(half):
        angle = position * base ** (-2 * c / len(row))
        a, b = row[c], row[c + half]
        out[c], out[c + half] = a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)
    return out


def dense(layer, query, key, value, *, keep=None, bias=None, first=None, base=None):
    """Output ``(B, Sq, out)``, weights ``(B, H, Sq, Skv + extra)`` and logsumexp ``(B, H, Sq)``.

    ``layer`` is the arguments of MultiHeadAttention; ``keep`` and ``bias`` are ``(B, H, Sq, Skv)``; ``first`` is the
    position of query 0 in each entry, and ``base`` that of the rotation.
    """
    get = {name: np.asarray(x, np.float64) for name, x in layer.items() if isinstance(x, np.ndarray)}.get
    heads, groups = layer["num_heads"], layer.get("num_kv_heads") or layer["num_heads"]
    size = len(get("query_weight")) // heads
    value_size = len(get("value_weight")) // groups
    scale = layer.get("scale")
    scale = 1 / math.sqrt(size) if scale is None else scale

    def project(x, name):
        y = np.einsum("bsi,oi->bso", np.asarray(x, np.float64), get(f"{name}_weight"))
        return y + (0 if get(f"{name}_bias") is None else get(f"{name}_bias"))

    q, k, v = project(query, "query"), project(key, "key"), project(value, "value")
    extra = 0 if get("extra_key") is None else len(get("extra_key"))
    batch, queries, keys = len(q), q.shape[1], k.shape[1]
    mixed = np.zeros((batch, queries, heads * value_size))
    weights = np.zeros((batch, heads, queries, keys + extra))
    lse = np.full((batch, heads, queries), -np.inf)
    for b, h, i in np.ndindex(batch, heads, queries):
        group = h * groups // heads
        mine, theirs = slice(group * size, group * size + size), slice(group * value_size, (group + 1) * value_size)
        row = q[b, i, h * size : h * size + size]
        if base is not None:
            turned_row = turned(row, first[b] + i, base)
        scores, values, at = [], [], []
        for j in range(keys + extra):
            if j < keys and keep is not None and not keep[b, h, i, j]:
                continue
            if j >= keys:
                s = row @ get("extra_key")[j - keys, mine]
            elif base is not None:
                s = turned_row @ turned(k[b, j, mine], j, base)
            else:
                s = row @ k[b, j, mine]
            s *= scale
            if layer.get("softcap"):
                s = layer["softcap"] * math.tanh(s / layer["softcap"])
            if j < keys and bias is not None:
                s += bias[b, h, i, j]
            scores.append(s)
            values.append(v[b, j, theirs] if j < keys else get("extra_value")[j - keys, theirs])
            at.append(j)
        if not scores:
            continue
        total = sum(math.exp(s) for s in scores)
        lse[b, h, i] = math.log(total)
        if get("sinks") is not None:
            total += math.exp(get("sinks")[h])
        weights[b, h, i, at] = [math.exp(s) / total for s in scores]
        mixed[b, i, h * value_size : (h + 1) * value_size] = weights[b, h, i, at] @ np.array(values)
    return project(mixed, "output"), weights, lse
