"""Right functions in many styles raise nothing; wrong ones, written as people write them, are called by name."""

import numpy as np
import pytest

import regard as rg
from check_mutants import as_function
from check_right import RIGHT, everything, regards, textbook
from check_wrong import WRONG
from regard.check.faults import BY_NAME


def label(fn):
    return f"{fn.__module__.split('.')[-1]}-{fn.__name__}"


@pytest.mark.parametrize("fn", RIGHT, ids=label)
def test_a_right_function_raises_nothing(fn):
    declared, guessed, warned = RIGHT[fn]
    report = rg.check(fn, **declared)
    assert report.ok, report
    assert set(report.names) - {"EMPTY_SHAPE_CRASH"} <= warned, report
    assert guessed.items() <= {guess.what: guess.value for guess in report.guessed}.items()
    assert all(guess.evidence for guess in report.guessed)
    assert not report.unfinished


@pytest.mark.parametrize("fn", [rg.attention, regards], ids=label)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_regards_own_passes_strictly_in_every_dtype(fn, dtype):
    report = rg.check(fn, strict=True, dtype=dtype)
    assert report.names == (), report


@pytest.mark.parametrize("seed", range(1, 6))
def test_no_seed_makes_a_right_function_wrong(seed):
    for fn in (everything, textbook):
        report = rg.check(fn, seed=seed)
        assert report.ok, report


@pytest.mark.parametrize(("fn", "names", "declared"), WRONG, ids=[fn.__name__ for fn, *_ in WRONG])
def test_a_wrong_function_is_called_by_name(fn, names, declared):
    report = rg.check(fn, **declared)
    assert not report.ok
    assert {f.name for f in report.findings if f.level == "fault"} | (names & set(report.names)) == names, report
    assert not report.unfinished, report.seconds


def causal_by(fill, *, added=False, first=False):
    """A function whose only option is causal, hidden by a number; ``first``: the first query stands at key 0."""

    def attention(q, k, v, causal=False):
        scores = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(q.shape[-1]))
        n, m = scores.shape[-2:]
        keep = np.tri(n, m, 0 if first else m - n, dtype=bool) if causal else np.ones((n, m), bool)
        scores = scores + np.where(keep, 0, np.float32(fill)) if added else np.where(keep, scores, np.float32(fill))
        e = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
        return (e / e.sum(axis=-1, keepdims=True)) @ v

    return attention


@pytest.mark.parametrize(
    ("fill", "added", "names"),
    [
        (-np.inf, False, ["EMPTY_ROW_NAN"]),
        (-np.inf, True, ["EMPTY_ROW_NAN"]),
        (np.finfo(np.float32).min, False, ["EMPTY_ROW_UNIFORM"]),
        (-1e9, False, ["MASK_FILL_1E9"]),
        (-1e9, True, ["MASK_ADD_FILL"]),
        (-1e4, False, ["MASK_FILL_1E4"]),
        (-100, False, ["MASK_FILL_SMALL"]),
    ],
)
def test_a_row_that_causal_alone_empties_is_asked_about(fill, added, names):
    report = rg.check(causal_by(fill, added=added))
    assert [name for name in report.names if name.startswith(("EMPTY_ROW", "MASK_"))] == names, report
    assert not report[names[0]].alternatives


def test_a_rule_that_empties_no_row_is_not_asked_about_empty_rows():
    told = rg.check(causal_by(-np.inf, first=True), causal="top-left").names
    assert not {"EMPTY_ROW_NAN", "CAUSAL_TOP_LEFT"} & set(told)
    assert "EMPTY_ROW_NAN" not in rg.check(causal_by(-np.inf, first=True)).names
    assert "EMPTY_ROW_NAN" not in rg.check(causal_by(-np.inf), empty_row="any").names


def test_there_are_enough_of_them():
    assert len(WRONG) >= 15


def test_a_wrong_scale_is_a_number():
    report = rg.check(lambda q, k, v: textbook(q * np.float32(1.1), k, v))
    assert report.names[0] == "SCALE_UNKNOWN"
    assert "0.388909" in report.findings[0].does
    assert any("expected 0.353553" in line for line in report.measured)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("TAIL_DROPPED", "tiles of 32 keys"),
        ("TAIL_ZERO_KEYS", "tiles of 64 keys"),
        ("TILE_LAST_ONLY", "tiles of 8 keys"),
        ("TILE_NO_RESCALE", "tiles of 48 keys"),
        ("MASK_FILL_SMALL", "-100"),
        ("CLAMPED_LOGITS", "50"),
    ],
)
def test_a_number_in_a_fault_is_read_off(name, label):
    finding = rg.check(as_function(BY_NAME[name].variants[label])).findings[0]
    assert finding.name == name
    assert finding.does.endswith(f": {label}")


def test_two_known_rules_of_a_library_are_two_findings():
    """As in a function whose causal rule and window both count from the first key."""

    def attention(query, key, value, is_causal=False, window=None):
        i, j = np.arange(query.shape[2])[:, None], np.arange(key.shape[2])
        keep = np.ones((query.shape[2], key.shape[2]), bool)
        if is_causal:
            keep &= j <= i
        if window is not None:
            keep &= j > i - window
        return everything(query, key, value, mask=keep)

    assert {"CAUSAL_TOP_LEFT", "WINDOW_TOP_LEFT"} <= set(rg.check(attention).names)
