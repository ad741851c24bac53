"""`regard.check` on torch: its own functions as they are, functions and modules as people write them."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as sdpa

import check_torch as written
import regard as rg
from check_seeds import alarms

# What torch's own function does, as its documentation says of the first; all of it with the rule that is declared.
OF_SDPA = {"CAUSAL_FUTURE_NAN", "NAN_MASKED_K", "NAN_MASKED_V", "REFUSES", "SILENT_BROADCAST"}


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_sdpa_as_found(dtype):
    report = rg.check(sdpa, dtype=dtype)
    assert set(report.names) == {"CAUSAL_TOP_LEFT", *OF_SDPA}, report
    guessed = {guess.what: guess.value for guess in report.guessed}
    assert guessed["arrays"] == "torch"
    assert guessed["mask"] == "keep"


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_sdpa_with_its_rules_declared_is_ok(dtype):
    report = rg.check(sdpa, dtype=dtype, causal="top-left")
    assert report.ok, report
    assert set(report.names) == OF_SDPA


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_sdpa_with_its_rules_declared_raises_no_alarm_at_twenty_seeds(dtype):
    """Of the probes, which alone depend on the seed: it refuses two, and NaN leaks in two."""
    true_of_it = {"mask_causal", "keypad_causal", "nan_masked_k", "nan_masked_v"}
    assert alarms([sdpa], dtype, range(20), declared={sdpa: ({"causal": "top-left"}, {}, true_of_it)}) == {}


def test_a_right_function_in_torch_raises_nothing():
    for dtype in ("float64", "float32"):
        report = rg.check(written.textbook, dtype=dtype)
        assert report.ok, report
        assert set(report.names) <= {"NAN_MASKED_V", "CAUSAL_FUTURE_NAN"}


def test_regards_own_with_tensors():
    supports = {"mask", "bias", "softcap", "scale", "gqa"}
    for dtype in ("float64", "float32", "bfloat16", "float16"):
        report = rg.check(rg.attention, library="torch", supports=supports, strict=True, dtype=dtype)
        assert report.names == (), report
    report = rg.check(rg.attention, library="torch")
    assert report.names == ("GRAD_REFUSES",), report  # there are none yet, and it says so
    assert "do not exist yet" in report["GRAD_REFUSES"].evidence[0]


@pytest.mark.parametrize(
    ("fn", "names"),
    [
        (written.filled, {"SCALE_MISSING", "MASK_FILL_1E9"}),
        (written.in_place, {"INPUT_MUTATED"}),
        (written.contiguous_only, {"STRIDES_IGNORED"}),
    ],
)
def test_a_wrong_function_in_torch_is_named(fn, names):
    report = rg.check(fn)
    assert {f.name for f in report.findings if f.level == "fault"} | (names & set(report.names)) == names, report


def test_bits_that_depend_on_threads():
    report = rg.check(written.by_threads)
    assert report.names == ("THREAD_DEPENDENT",), report
    done = replayed(report["THREAD_DEPENDENT"])
    assert done.returncode == 1, done.stderr
    assert "FAULT THREAD_DEPENDENT" in done.stderr


def test_an_output_that_is_an_input():
    assert {"OUTPUT_ALIASES_INPUT", "UNKNOWN"} & set(rg.check(written.passes_through).names)


def replayed(finding):
    return subprocess.run(
        [sys.executable, "-c", finding.script], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(Path(written.__file__).parent), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.parametrize("fn", [written.filled, written.in_place, sdpa])
def test_scripts_run_and_fail(fn):
    scripts = 0
    for finding in rg.check(fn).findings:
        if finding.script:
            done = replayed(finding)
            assert done.returncode == 1, (finding.name, done.stdout, done.stderr)
            assert f"FAULT {finding.name}" in done.stderr, (finding.name, done.stderr)
            scripts += 1
    assert scripts


# Modules.


@pytest.mark.parametrize(
    "module",
    [
        written.Layer(), written.Layer(20, 5, bias=False), written.Layer(16, 1).double(), written.Packed(),
        nn.MultiheadAttention(12, 3, batch_first=True, dropout=0.5),
    ],
    ids=["layer", "larger", "one head", "packed", "torch's"],
)  # fmt: skip
def test_a_right_module_is_ok(module):
    before = {name: p.clone() for name, p in module.named_parameters()}
    report = rg.check(module, supports={"mask", "causal"} if isinstance(module, written.Layer) else {"mask"})
    assert report.ok, report
    assert module.training
    for name, p in module.named_parameters():
        assert torch.equal(p, before[name]), name


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (written.ModelWidth(), "SCALE_D_MODEL"),
        (written.PackedPerHead(), "QKV_PACK_ORDER"),
        (written.NoTranspose(), "SPLIT_NO_TRANSPOSE"),
        (written.MergedWrongly(), "MERGE_NO_TRANSPOSE"),
        (written.CausalFromOne(), "CAUSAL_PLUS_ONE"),
    ],
)
def test_a_wrong_module_is_named(module, name):
    report = rg.check(module)
    assert [f.name for f in report.findings if f.level == "fault"] == [name], report


def test_torchs_module_as_found():
    """With the batch second, as is its default; and the hint that it ignores on its fast path."""
    report = rg.check(nn.MultiheadAttention(12, 3))
    guessed = {guess.what: guess.value for guess in report.guessed}
    assert guessed["layout"] == "sbe"
    assert guessed["mask"] == "drop"
    assert guessed["result"] == "element 0 of a tuple"
    assert "EMPTY_ROW_NAN" in report.names
    assert "CAUSAL_IGNORED" in rg.check(nn.MultiheadAttention(16, 4, batch_first=True)).names


def test_modules_that_cannot_be_set_are_refused():
    with pytest.raises(rg.UnsupportedError, match=r"Linear has the matrices weight; .* q_proj.*: pass a function"):
        rg.check(nn.Linear(3, 3))
    layer = written.Layer()
    del layer.num_heads
    with pytest.raises(rg.UnsupportedError, match="does not say how many heads it has: give it an attribute num_heads"):
        rg.check(layer)
    layer = written.Layer()
    layer.k_proj = nn.Linear(12, 6)
    with pytest.raises(rg.UnsupportedError, match=r"k_proj.weight of shape \(6, 12\), .* square ones of 12"):
        rg.check(layer)


def test_a_library_that_is_not_known():
    with pytest.raises(ValueError, match="library is 'cupy'; check knows numpy, torch, jax"):
        rg.check(written.textbook, library="cupy")
