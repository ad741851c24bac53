"""Each law and each habit can say no, and says nothing of right functions."""

import numpy as np
import pytest

import regard as rg
from check_right import bshd, everything, in_float64, softmax, textbook
from check_wrong import WRONG
from regard.check._behaviour import HABITS
from regard.check._guess import Declared, guess
from regard.check._laws import LAWS, broken_laws, subject


def keys_in_pairs(q, k, v):
    even = k.shape[-2] // 2 * 2
    return textbook(q, k[..., :even, :], v[..., :even, :])


def with_position(q, k, v):
    return textbook(q, k, v) + 0.01 * np.arange(q.shape[-2], dtype=q.dtype)[:, None]


def sigmoids(q, k, v):
    return (1 / (1 + np.exp(-(q @ k.swapaxes(-1, -2))))) @ v


def cosines(q, k, v):
    return textbook(q / np.linalg.norm(q, axis=-1, keepdims=True), k, v)


def mixes(axis):
    def attention(q, k, v):
        out = textbook(q, k, v)
        return np.where(out.mean(axis=axis, keepdims=True) > 0, np.nextafter(out, out + 1), out)  # one bit

    return attention


def sees_the_next_key(q, k, v, causal=False):
    n, m = q.shape[-2], k.shape[-2]
    return everything(q, k, v, mask=np.tri(n, m, m - n + 1, dtype=bool) if causal else None)


def fills_with_minus_five(q, k, v, mask=None):
    scores = q @ k.swapaxes(-1, -2) / np.float32(q.shape[-1] ** 0.5)
    return softmax(scores if mask is None else np.where(mask, scores, -5)) @ v


BREAKS = {
    "ROWS_SUM_TO_ONE": lambda q, k, v: 1.01 * textbook(q, k, v),
    "LINEAR_IN_VALUES": lambda q, k, v: textbook(q, k, np.tanh(v)),
    "SHIFT_OF_KEYS": sigmoids,
    "PERMUTE_KEYS": keys_in_pairs,
    "PERMUTE_QUERIES": with_position,
    "BATCH_INDEPENDENT": mixes(0),
    "HEADS_INDEPENDENT": mixes(1),
    "SCALING_CANCELS": cosines,
    "CONVEX": lambda q, k, v: 20 * textbook(q, k, v),
    "FUTURE_IS_HIDDEN": sees_the_next_key,
    "MASKED_KEYS_ARE_NOTHING": fills_with_minus_five,
}


def broken_by(fn):
    known = guess(fn, Declared(), "float32")
    found = broken_laws(subject(known.candidate, known.supports), known.supports, lambda: True)
    assert all(seen for _, seen in found)
    return {law.name for law, _ in found}


def test_each_law_has_a_function_that_breaks_it():
    assert BREAKS.keys() == {law.name for law in LAWS}


@pytest.mark.parametrize("name", BREAKS)
def test_a_law_can_say_no(name):
    assert name in broken_by(BREAKS[name])


def test_laws_say_nothing_of_a_right_function():
    assert broken_by(everything) == set()


def test_a_broken_law_alone_is_a_finding():
    """Too small for any probe's bound, and not a bit of another batch entry may be there."""
    report = rg.check(mixes(0))
    assert "LAW_BATCH_INDEPENDENT" in report.names
    assert not report.ok


def raw_buffers(q, k, v):
    def flat(x):
        return x if x.base is None else x.base.ravel()[: x.size].reshape(x.shape)

    return textbook(flat(q), k, v)


def returns_its_input(q, k, v):
    if q.shape[-1] == v.shape[-1] and q.size:
        q[...] = textbook(q.copy(), k, v)
        return q
    return textbook(q, k, v)


def needs_to_write(q, k, v):
    if not q.flags.writeable:
        raise ValueError("buffer is read-only")
    return textbook(q, k, v)


def squeezes_one_key(q, k, v):
    return 0 * v + textbook(q, k, v) * 2 if k.shape[-2] == 1 else textbook(q, k, v)


def without_initial(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.float32(q.shape[-1] ** 0.5)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


def narrow(q, k, v):
    single = (x.astype(np.float32) for x in (q, k, v))
    return textbook(*single).astype(q.dtype)


SHOWS = {
    "OUTPUT_ALIASES_INPUT": returns_its_input,
    "STRIDES_IGNORED": raw_buffers,
    "READ_ONLY_REFUSED": needs_to_write,
    "OUT_DTYPE": lambda q, k, v: textbook(q, k, v).astype(np.float64),
    "DTYPE_DOWNCAST": narrow,
    "ONE_KEY_WRONG": squeezes_one_key,
    "EMPTY_SHAPE_CRASH": without_initial,
    "SILENT_BROADCAST": bshd,
    "INT_INPUT_TRUNCATED": in_float64,
}


def test_each_habit_has_a_function_that_shows_it():
    assert {habit.name for habit in HABITS} <= SHOWS.keys() | {name for _, names, _ in WRONG for name in names}


@pytest.mark.parametrize("name", SHOWS)
def test_a_habit_is_seen(name):
    report = rg.check(SHOWS[name])
    assert name in report.names
    level = {habit.name: "warning" if habit.edge else "fault" for habit in HABITS}[name]
    assert report[name].level == level
    assert report[name].evidence
