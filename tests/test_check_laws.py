"""Each law and each habit can say no, and says nothing of right functions."""

import numpy as np
import pytest

import regard as rg
from check_right import always_causal, bshd, everything, in_float64, softmax, textbook, tiled
from check_wrong import WRONG
from processes import linux
from regard.check.candidate._guess import Declared
from regard.check.candidate._understand import understand
from regard.check.habits import HABITS
from regard.check.instruments._laws import LAWS, broken_laws, subject
from test_check_report import run


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
    known = understand(fn, Declared(), "float32")
    found = broken_laws(subject(known.candidate, known.supports), known.supports, lambda question: True)
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


def cleans_nan_only(q, k, v, mask=None):
    scores = q @ k.swapaxes(-1, -2) / np.float32(q.shape[-1] ** 0.5)
    return softmax(scores if mask is None else np.where(mask, scores, -np.inf)) @ np.where(np.isnan(v), 0, v)


def draws_from_its_own(q, k, v, dropout=0.0, rng=None):
    keep = np.random.default_rng().random((*q.shape[:-1], k.shape[-2])) >= dropout
    weights = softmax(q @ k.swapaxes(-1, -2) / np.float32(q.shape[-1] ** 0.5))
    return (np.where(keep, weights / (1 - dropout), 0) @ v).astype(q.dtype)


def drops_by_default(q, k, v, dropout=0.1):
    return draws_from_its_own(q, k, v, dropout)


def contiguous_only(q, k, v):
    if not q.flags.c_contiguous:
        raise TypeError("contiguous arrays only")
    return textbook(q, k, v)


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
    "CAUSAL_FUTURE_NAN": always_causal,
    "INF_MASKED": cleans_nan_only,
    "SEED_IGNORED": draws_from_its_own,
    "DROPOUT_ACTIVE_IN_EVAL": drops_by_default,
    "QUADRATIC_MEMORY": textbook,
    "VIEWS_REFUSED": contiguous_only,
}
DECLARED = {"QUADRATIC_MEMORY": {"memory": "linear"}}
# NumPy's functions have no threads to be set: heavy/test_check_torch.py shows it.
ELSEWHERE = {"THREAD_DEPENDENT"}


def test_each_habit_has_a_function_that_shows_it():
    shown = SHOWS.keys() | ELSEWHERE | {name for _, names, _ in WRONG for name in names}
    assert {habit.name for habit in HABITS} <= shown


@pytest.mark.parametrize("name", SHOWS)
def test_a_habit_is_seen(name):
    report = rg.check(SHOWS[name], **DECLARED.get(name, {}))
    assert name in report.names
    level = {habit.name: "warning" if habit.edge else "fault" for habit in HABITS}[name]
    assert report[name].level == level
    assert report[name].evidence


def test_each_habit_has_a_script_that_shows_it(tmp_path):
    scripts = {}
    for name, fn in sorted(SHOWS.items(), key=lambda item: item[0] != "QUADRATIC_MEMORY"):  # a peak is seen once
        if fn.__name__ != "<lambda>":
            script = rg.check(fn, **DECLARED.get(name, {}))[name].script
            assert script, name
            scripts[f"x-{name}.py"] = script
    seen = run(scripts, tmp_path, after="")  # this module, which they import, imports regard
    assert {name: said for name, said in seen.items() if f"FAULT {name[2:-3]}" not in said[0]} == {}


@linux
def test_memory_that_is_declared_linear():
    for fn in (rg.attention, tiled):
        assert rg.check(fn, memory="linear").ok
    assert "QUADRATIC_MEMORY" not in rg.check(textbook).names
    seen = rg.check(textbook, memory="linear")["QUADRATIC_MEMORY"].evidence[0]
    assert "4096 queries and keys raise the peak by 1" in seen  # 12 bytes for each pair


def loops_over_queries(q, k, v):
    return np.concatenate([textbook(q[..., i : i + 1, :], k, v) for i in range(q.shape[-2])] or [0 * q], axis=-2)


def test_facts_are_told_and_are_no_faults():
    ours, loop, plain = (rg.check(fn) for fn in (rg.attention, loops_over_queries, textbook))
    same = "rows with the same bits alone as among others: 4 of 4; an entry of the batch alone has the same bits"
    assert same in ours.measured
    assert same in loop.measured
    assert same not in plain.measured
    assert "memory: NumPy's arrays grow with queries plus keys" in ours.measured
    assert any("grow with queries times keys, 1" in line for line in plain.measured)
    assert any("more calls for each query: a loop over queries" in line for line in loop.measured)
    assert not any("loop" in line for line in (*ours.measured, *plain.measured))
