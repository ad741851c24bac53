"""Attention functions with a way back written by hand: right ones in several styles, wrong ones as people write them.

Nothing here is taken from the catalogue. A way back takes the gradient of the output, then what the function takes.
"""

import math

import numpy as np

RIGHT, WRONG = [], []


def softmax(scores):
    """Rows without keys give zeros."""
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def right(fn, **declared):
    def enter(vjp):
        RIGHT.append((fn, vjp, declared))
        return vjp

    return enter


def wrong(fn, *names, **declared):
    def enter(vjp):
        WRONG.append((fn, vjp, set(names), declared))
        return vjp

    return enter


def T(x):
    return np.swapaxes(x, -1, -2)


def plain(q, k, v):
    return softmax(q @ T(k) / math.sqrt(q.shape[-1])) @ v


def causal(q, k, v, causal=False):
    return causal_weights(q, k, causal) @ v


def causal_weights(q, k, causal):
    s = q @ T(k) / math.sqrt(q.shape[-1])
    if causal:
        n, m = s.shape[-2:]
        s = np.where(np.tri(n, m, m - n, dtype=bool), s, -np.inf)
    return softmax(s)


def grouped(q, k, v):
    group = q.shape[1] // k.shape[1]
    return plain(q, np.repeat(k, group, axis=1), np.repeat(v, group, axis=1))


def biased(q, k, v, bias=None, softcap=None):
    return biased_weights(q, k, bias, softcap)[0] @ v


def biased_weights(q, k, bias, softcap):
    s, bent = q @ T(k) / math.sqrt(q.shape[-1]), None
    if softcap is not None:
        bent = np.tanh(s / softcap)
        s = softcap * bent
    return softmax(s if bias is None else s + bias), bent


def masked(q, k, v, mask=None):
    s = q @ T(k) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    return softmax(s) @ v


def one_head(q, k, v):
    (_, d), (_, _), (_, _) = q.shape, k.shape, v.shape
    return softmax(q @ k.T / math.sqrt(d)) @ v


def by_position(q, k, v):
    """(batch, position, head, feature)."""
    return plain(*(x.swapaxes(1, 2) for x in (q, k, v))).swapaxes(1, 2)


def back(P, g, q, k, v):
    c = 1 / math.sqrt(q.shape[-1])
    dP = g @ T(v)
    dS = P * (dP - (P * dP).sum(axis=-1, keepdims=True))
    return c * (dS @ k), c * (T(dS) @ q), T(P) @ g, dS


def unbroadcast(x, shape):
    axes = tuple(i for i, n in enumerate(shape) if n != x.shape[i])
    return x.sum(axis=axes, keepdims=True)


@right(plain)
def textbook_back(g, q, k, v):
    return back(softmax(q @ T(k) / math.sqrt(q.shape[-1])), g, q, k, v)[:3]


@right(plain)
def flash_back(g, q, k, v, tile=3):
    """Tiles of keys, the logsumexp, and delta from output and its gradient."""
    c, wide = 1 / math.sqrt(q.shape[-1]), np.result_type(q, np.float32)
    q, k, v, g = (x.astype(wide) for x in (q, k, v, g))
    s = c * (q @ T(k))
    top = s.max(axis=-1, keepdims=True)
    lse = top + np.log(np.exp(s - top).sum(axis=-1, keepdims=True))
    delta = (g * plain(q, k, v)).sum(axis=-1, keepdims=True)
    dq, dk, dv = (np.zeros_like(x) for x in (q, k, v))
    for at in range(0, k.shape[-2], tile):
        part = np.s_[..., at : at + tile, :]
        P = np.exp(c * (q @ T(k[part])) - lse)
        dS = P * (g @ T(v[part]) - delta)
        dq += c * (dS @ k[part])
        dk[part], dv[part] = c * (T(dS) @ q), T(P) @ g
    return {"q": dq, "k": dk, "v": dv}


@right(plain)
def einsum_back(g, q, k, v):
    c = q.shape[-1] ** -0.5
    g, q, k, v = (x.astype(np.result_type(x, np.float32)) for x in (g, q, k, v))
    P = softmax(np.einsum("bhid,bhjd->bhij", q, k) * c)
    dS = np.einsum("bhij,bhic,bhjc->bhij", P, g, v)
    dS -= P * dS.sum(axis=-1, keepdims=True)
    return [np.einsum("bhij,bhjd->bhid", dS, k) * c, np.einsum("bhij,bhid->bhjd", dS, q) * c, T(P) @ g]


@right(causal)
def causal_back(g, q, k, v, causal=False):
    return back(causal_weights(q, k, causal), g, q, k, v)[:3]


@right(grouped)
def grouped_back(g, q, k, v):
    B, H, group = *k.shape[:2], q.shape[1] // k.shape[1]
    many = [np.repeat(x, group, axis=1) for x in (k, v)]
    dq, dk, dv, _ = back(softmax(q @ T(many[0]) / math.sqrt(q.shape[-1])), g, q, *many)
    return dq, *(x.reshape(B, H, group, *x.shape[2:]).sum(axis=2) for x in (dk, dv))


@right(biased)
def biased_back(g, q, k, v, bias=None, softcap=None):
    P, bent = biased_weights(q, k, bias, softcap)
    *_, dv, dS = back(P, g, q, k, v)
    added = dS
    if softcap is not None:
        dS = dS * (1 - bent**2)
    c = 1 / math.sqrt(q.shape[-1])
    found = {"query": c * (dS @ k), "key": c * (T(dS) @ q), "value": dv}
    return found if bias is None else {**found, "bias": unbroadcast(added, bias.shape)}


@right(masked)
def masked_back(g, q, k, v, mask=None):
    s = q @ T(k) / math.sqrt(q.shape[-1])
    return back(softmax(s if mask is None else np.where(mask, s, -np.inf)), g, q, k, v)[:3]


@right(one_head)
def one_head_back(g, q, k, v):
    return back(softmax(q @ k.T / math.sqrt(q.shape[-1])), g, q, k, v)[:3]


@right(by_position)
def by_position_back(g, q, k, v):
    return [x.swapaxes(1, 2) for x in textbook_back(*(x.swapaxes(1, 2) for x in (g, q, k, v)))]


@wrong(plain, "NO_DELTA")
def forgets_the_sum(g, q, k, v):
    c = 1 / math.sqrt(q.shape[-1])
    P = softmax(q @ T(k) * c)
    dS = P * (g @ T(v))
    return c * (dS @ k), c * (T(dS) @ q), T(P) @ g


@wrong(plain, "DELTA_WRONG_AXIS")
def sums_over_queries(g, q, k, v):
    c = 1 / math.sqrt(q.shape[-1])
    P = softmax(q @ T(k) * c)
    dP = np.einsum("bhic,bhjc->bhij", g, v)
    dS = P * (dP - np.einsum("bhij,bhij->bhj", P, dP)[:, :, None, :])
    return c * (dS @ k), c * (T(dS) @ q), T(P) @ g


@wrong(plain, "JACOBIAN_DIAGONAL")
def softmax_like_a_sigmoid(g, q, k, v):
    c = 1 / math.sqrt(q.shape[-1])
    P = softmax(q @ T(k) * c)
    dS = (g @ T(v)) * P * (1 - P)
    return c * (dS @ k), c * (T(dS) @ q), T(P) @ g


@wrong(plain, "DK_NO_SCALE")
def scale_was_folded_into_q(g, q, k, v):
    """The queries were scaled, but dk is made with the ones that were not."""
    P = softmax(q @ T(k) / math.sqrt(q.shape[-1]))
    dq, _, dv, dS = back(P, g, q, k, v)
    return dq, T(dS) @ q, dv


@wrong(plain, "BOTH_TWICE")
def scaled_here_and_there(g, q, k, v):
    c = 1 / math.sqrt(q.shape[-1])
    dq, dk, dv, _ = back(softmax(q @ T(k) * c), g, q, k, v)
    return dq * c, dk * c, dv


@wrong(plain, "NEGATED")
def goes_downhill(g, q, k, v):
    return [-x for x in textbook_back(g, q, k, v)]


@wrong(plain, "DETACHED")
def keys_from_a_frozen_cache(g, q, k, v):
    dq, dk, dv = textbook_back(g, q, k, v)
    return dq, np.zeros_like(dk), dv


@wrong(plain, "DQ_DK_SWAPPED")
def returns_them_in_the_wrong_order(g, q, k, v):
    dq, dk, dv = textbook_back(g, q, k, v)
    return dk, dq, dv


@wrong(plain, "DV_USES_P_NOT_PT")
def forgets_a_transpose(g, q, k, v):
    dq, dk, _ = textbook_back(g, q, k, v)
    return dq, dk, softmax(q @ T(k) / math.sqrt(q.shape[-1])) @ g


@wrong(causal, "MASK_NOT_IN_BACKWARD")
def recomputes_without_the_mask(g, q, k, v, causal=False):
    return textbook_back(g, q, k, v)


@wrong(grouped, "GQA_LAST")
def writes_over_the_group(g, q, k, v):
    group, c = q.shape[1] // k.shape[1], 1 / math.sqrt(q.shape[-1])
    dq, dk, dv = (np.zeros_like(x) for x in (q, k, v))
    for h in range(q.shape[1]):
        one = [x[:, h : h + 1] for x in (g, q)] + [x[:, [h // group]] for x in (k, v)]
        P = softmax(one[1] @ T(one[2]) * c)
        dq[:, h : h + 1], dk[:, [h // group]], dv[:, [h // group]], _ = back(P, *one)
    return dq, dk, dv


@wrong(biased, "SOFTCAP_DERIVATIVE_MISSING")
def forgets_the_cap(g, q, k, v, bias=None, softcap=None):
    dq, dk, dv, dS = back(biased_weights(q, k, bias, softcap)[0], g, q, k, v)
    return (dq, dk, dv) if bias is None else (dq, dk, dv, unbroadcast(dS, bias.shape))


@wrong(biased, "DBIAS_NOT_REDUCED")
def bias_as_wide_as_the_scores(g, q, k, v, bias=None, softcap=None):
    found = biased_back(g, q, k, v, bias, softcap)
    if bias is not None:
        found["bias"] = back(biased_weights(q, k, bias, softcap)[0], g, q, k, v)[3]
    return found


@wrong(masked, "GRAD_NAN_EMPTY_ROW")
def mends_the_output_only(g, q, k, v, mask=None):
    s = q @ T(k) / math.sqrt(q.shape[-1])
    s = s if mask is None else np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return back(e / e.sum(axis=-1, keepdims=True), g, q, k, v)[:3]


@wrong(one_head, "BOTH_NO_SCALE")
def one_head_without_scale(g, q, k, v):
    _, _, dv, dS = back(softmax(q @ k.T / math.sqrt(q.shape[-1])), g, q, k, v)
    return dS @ k, dS.T @ q, dv


@wrong(by_position, "NO_DELTA", "DK_NO_SCALE")
def two_mistakes(g, q, k, v):
    g, q, k, v = (x.swapaxes(1, 2) for x in (g, q, k, v))
    c = 1 / math.sqrt(q.shape[-1])
    P = softmax(q @ T(k) * c)
    dS = P * (g @ T(v))
    return [x.swapaxes(1, 2) for x in (c * (dS @ k), T(dS) @ q, T(P) @ g)]


@wrong(plain, "GRAD_UNKNOWN")
def gradients_of_a_neighbour(g, q, k, v):
    return textbook_back(g, q, np.roll(k, 1, axis=-2), v)


def by_odd_names(*arguments):
    return oddly(forgets_the_sum(*arguments))


def by_odd_names_rightly(*arguments):
    return oddly(textbook_back(*arguments))


def oddly(gradients):
    return dict(zip(("grad_xq", "dks", "d_values"), gradients, strict=True)) | {"lse": gradients[0][..., 0]}


# Whole layers.


def projected(x, wq, wk, wv, heads):
    return (split(x @ w, heads) for w in (wq, wk, wv))


def split(y, heads):
    return y.reshape(*y.shape[:2], heads, -1).swapaxes(1, 2)


def merge(y):
    return y.swapaxes(1, 2).reshape(y.shape[0], y.shape[2], -1)


def layer_weights(q, k, mask, causal):
    s = q @ T(k) / math.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf)
    return softmax(s if mask is None else np.where(mask, s, -np.inf))


def layer(x, wq, wk, wv, wo, heads, mask=None, causal=False):
    q, k, v = projected(x, wq, wk, wv, heads)
    return merge(layer_weights(q, k, mask, causal) @ v) @ wo


def layer_by(way):
    """Make the way back of the layer, around one of its heads."""

    def way_back(g, x, wq, wk, wv, wo, heads, mask=None, causal=False):
        q, k, v = projected(x, wq, wk, wv, heads)
        P = layer_weights(q, k, mask, causal)
        dq, dk, dv = map(merge, way(P, split(g @ wo.T, heads), q, k, v))
        matrices = [np.einsum("bsi,bso->io", x, d) for d in (dq, dk, dv)]
        return dq @ wq.T + dk @ wk.T + dv @ wv.T, *matrices, np.einsum("bsi,bso->io", merge(P @ v), g)

    return way_back


def heads_back(P, g, q, k, v):
    return back(P, g, q, k, v)[:3]


def heads_forget_the_sum(P, g, q, k, v):
    c, dS = 1 / math.sqrt(q.shape[-1]), P * (g @ T(v))
    return c * (dS @ k), c * (T(dS) @ q), T(P) @ g


def heads_with_two_mistakes(P, g, q, k, v):
    dq, dk, dv = heads_forget_the_sum(P, g, q, k, v)
    return dq * math.sqrt(q.shape[-1]), dk, dv


def layer_back(*arguments, **options):
    return layer_by(heads_back)(*arguments, **options)


def layer_forgets_the_sum(*arguments, **options):
    return layer_by(heads_forget_the_sum)(*arguments, **options)


def layer_with_two_mistakes(*arguments, **options):
    return layer_by(heads_with_two_mistakes)(*arguments, **options)


def layer_named_back(*arguments, **options):
    return dict(zip(("dx", "grad_wq", "wk", "d_wv", "dwo"), layer_back(*arguments, **options), strict=True))


def layer_forgets_wo(*arguments, **options):
    found = layer_named_back(*arguments, **options)
    return {name: x for name, x in found.items() if name != "dwo"}


def layer_of_zeros(*arguments, **options):
    return [0 * x for x in layer_back(*arguments, **options)]
