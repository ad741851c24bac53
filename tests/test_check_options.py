"""Options that few functions have: a logsumexp beside the output, linear biases, a window without causal, dropout."""

import math

import numpy as np
import pytest

import regard as rg
from check_right import softmax

NATURAL = np.log


def with_lse(lse, layout="bhsd"):
    def attention(q, k, v):
        if layout == "bshd":
            q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
        s = q @ k.swapaxes(-1, -2) / q.dtype.type(math.sqrt(q.shape[-1]))
        top = s.max(axis=-1)
        e = np.exp(s - top[..., None])
        out, beside = e / e.sum(axis=-1, keepdims=True) @ v, lse(top, e.sum(axis=-1))
        return (out.swapaxes(1, 2), beside.swapaxes(1, 2)) if layout == "bshd" else (out, beside)

    return attention


def faults(fn, **declared):
    report = rg.check(fn, **declared)
    return {finding.name for finding in report.findings if finding.level == "fault"}


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize(
    ("lse", "names"),
    [
        (lambda top, total: top + np.log(total), set()),
        (lambda top, total: (top + np.log(total))[..., None], set()),
        (lambda top, total: (top + np.log(total)) / math.log(2), {"LSE_BASE2"}),
        (lambda top, total: top + np.log2(total), {"LSE_BASE2"}),
        (lambda top, total: -top - np.log(total), {"LSE_SIGN"}),
        (lambda top, total: np.log(total), {"LSE_NO_MAX"}),
        (lambda top, total: total, {"LSE_NO_LOG"}),
        (lambda top, total: (top + np.log(total)) / math.sqrt(8), {"LSE_SCALE"}),
        (lambda top, total: top * total, {"LSE_WRONG"}),
    ],
)
def test_a_returned_logsumexp(lse, names, layout):
    if layout == "bshd" and lse(np.ones(1), np.ones(1)).ndim > 1:
        return  # (B, S, 1, H) is no shape that anybody returns
    assert faults(with_lse(lse, layout)) == names


def test_what_cannot_be_merged_says_by_how_much():
    finding = rg.check(with_lse(lambda top, total: -top - np.log(total)))["LSE_SIGN"]
    assert any("halves of the keys, merged by it, are off by" in line for line in finding.evidence)
    assert finding.example.case.query.size <= 4
    assert "logsumexp expected" in str(finding)


def test_regards_own_logsumexp_is_right():
    def attention(query, key, value):
        result = rg.attention_forward(query, key, value)
        return result.out, result.lse

    assert rg.check(attention).names == ("RETURNS_TUPLE",)


def linear(sign=1, distance=np.abs, slopes=lambda given: given):
    def attention(query, key, value, causal=False, alibi_slopes=None):
        s = query @ key.swapaxes(-1, -2) / query.dtype.type(math.sqrt(query.shape[-1]))
        n, m = s.shape[-2:]
        d = np.arange(m) - np.arange(n)[:, None] - (m - n)
        if alibi_slopes is not None:
            s = s - sign * slopes(alibi_slopes)[:, None, None] * distance(d)
        return softmax(np.where(d <= 0, s, -np.inf) if causal else s).astype(query.dtype) @ value

    return attention


def adding(**how):
    """The slopes of the paper, always."""
    inner = linear(**how)

    def attention(query, key, value, causal=False):
        heads = query.shape[1]
        return inner(query, key, value, causal, 2.0 ** (-8 / heads * np.arange(1, heads + 1)))

    return attention


LINEAR = [
    ({}, set()),
    ({"sign": -1}, {"ALIBI_SIGN"}),
    ({"distance": np.negative}, {"ALIBI_ABS"}),
    ({"slopes": lambda given: given[::-1]}, {"ALIBI_SLOPES"}),
    ({"slopes": lambda given: 0 * given}, {"ALIBI_IGNORED"}),
]


@pytest.mark.parametrize(("how", "names"), LINEAR)
def test_linear_biases_by_a_parameter(how, names):
    assert faults(linear(**how)) == names


@pytest.mark.parametrize(("how", "names"), LINEAR)
def test_linear_biases_that_are_always_added(how, names):
    assert faults(adding(**how), supports={"causal", "alibi"}) == names


def test_an_example_keeps_the_heads_that_slopes_are_made_for():
    report = rg.check(adding(slopes=lambda given: 0.5 ** np.arange(1, len(given) + 1)), supports={"alibi"})
    slopes = report["ALIBI_SLOPES"].example.case.alibi
    np.testing.assert_array_equal(slopes, rg.Alibi(slopes.size).slopes)


def windowed(keeps):
    def attention(query, key, value, window=None):
        s = query @ key.swapaxes(-1, -2) / query.dtype.type(math.sqrt(query.shape[-1]))
        n, m = s.shape[-2:]
        d = np.arange(m) - np.arange(n)[:, None] - (m - n)
        return softmax(s if window is None else np.where(keeps(d, window), s, -np.inf)).astype(query.dtype) @ value

    return attention


@pytest.mark.parametrize(
    ("keeps", "sides", "names"),
    [
        (lambda d, w: (d > -w) & (d <= 0), "left", set()),
        (lambda d, w: abs(d) < w, "both", set()),
        (lambda d, w: d > -w, "open", set()),
        (lambda d, w: abs(d) <= w, "both", {"WINDOW_PLUS_ONE"}),
        (lambda d, w: (d > -w + 1) & (d <= 0), "left", {"WINDOW_MINUS_ONE"}),
    ],
)
def test_a_window_without_causal_is_understood_by_what_it_hides(keeps, sides, names):
    report = rg.check(windowed(keeps))
    assert {guess.what: guess.value for guess in report.guessed}["window without causal"] == sides
    assert {f.name for f in report.findings if f.level == "fault"} == names


@pytest.mark.parametrize("axis", [0, 1])
def test_dropout_that_is_shared(axis):
    def attention(query, key, value, dropout=0.0, rng=None):
        weights = softmax(query @ key.swapaxes(-1, -2) / query.dtype.type(math.sqrt(query.shape[-1])))
        if dropout:
            shape = [1 if i == axis else n for i, n in enumerate(weights.shape)]
            weights = np.where(rng.random(shape) < dropout, 0, weights / (1 - dropout))
        return (weights @ value).astype(query.dtype)

    assert faults(attention) == {("DROPOUT_SAME_ALL_BATCH", "DROPOUT_SAME_ALL_HEADS")[axis]}


def test_dropout_of_one_head_at_a_time_is_not_shared():
    def attention(q, k, v, dropout=0.0, rng=None):
        weights = softmax(q @ k.T / math.sqrt(q.shape[-1]))
        weights = np.where(rng.random(weights.shape) < dropout, 0, weights / (1 - dropout)) if dropout else weights
        return (weights @ v).astype(q.dtype)

    assert faults(attention) == set()


def padded_to_the_left(q, k, v, attention_mask=None, is_causal=False):
    """As if all padding were at the end."""
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    n, m = s.shape[-2:]
    keep = np.tri(n, m, m - n, dtype=bool) if is_causal else np.ones((n, m), bool)
    if attention_mask is not None:
        keep = keep & (np.arange(m) < attention_mask.sum(axis=-1)[:, None, None, None])
    return softmax(np.where(keep, s, -np.inf)) @ v


def keeps_sixteen(q, k, v):
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if s.shape[-1] > 16:
        s = np.where(s >= np.sort(s, axis=-1)[..., -16, None], s, -np.inf)
    return softmax(s) @ v


def merges_halves(q, k, v):
    """Two halves of the keys, merged in base 2 by natural logarithms."""
    half = k.shape[-2] // 2
    if not half:
        return softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])) @ v
    outs, sums = [], []
    for part in (slice(0, half), slice(half, None)):
        s = q @ k[..., part, :].swapaxes(-1, -2) / math.sqrt(q.shape[-1])
        top = s.max(axis=-1, keepdims=True)
        sums.append(top + np.log(np.exp(s - top).sum(axis=-1, keepdims=True)))
        outs.append(softmax(s) @ v[..., part, :])
    first = 1 / (1 + np.exp2(np.clip(sums[1] - sums[0], -1000, 1000)))
    return (first * outs[0] + (1 - first) * outs[1]).astype(q.dtype)


def leaves_the_diagonal_open(q, k, v, causal=False):
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    n, m = s.shape[-2:]
    i, j = np.arange(n)[:, None] + m - n, np.arange(m)
    return softmax(np.where(j // 32 <= i // 32, s, -np.inf) if causal else s) @ v


def whole_vectors_only(q, k, v):
    whole = q.shape[-1] // 8 * 8
    return softmax(q[..., :whole] @ k[..., :whole].swapaxes(-1, -2) / math.sqrt(q.shape[-1])) @ v


@pytest.mark.parametrize(
    ("fn", "name", "said"),
    [
        (padded_to_the_left, "PAD_SIDE", "at the front"),
        (keeps_sixteen, "TOP_K_SILENT", "the 16 largest"),
        (merges_halves, "SPLIT_MERGE_BASE2", "2 parts, the second longer"),
        (leaves_the_diagonal_open, "DIAG_TILE_UNMASKED", "tiles of 32"),
        (whole_vectors_only, "D_NOT_MULTIPLE", "vectors of 8"),
    ],
)
def test_a_number_is_read_off(fn, name, said):
    report = rg.check(fn)
    assert {f.name for f in report.findings if f.level == "fault"} == {name}, report
    assert report[name].does.endswith(said)
