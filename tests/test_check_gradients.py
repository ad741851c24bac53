"""Gradients that check: the oracle is the reference, faults can be told apart, and each is found by its name."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import check_backwards
import regard as rg
from check_backwards import RIGHT, WRONG
from check_power import distance
from gradient_judges import assert_slopes
from regard.check.answers._case import Case
from regard.check.answers._oracle import RIGHT as RIGHT_ANSWER
from regard.check.answers._probes import Setting
from regard.check.answers._tolerance import FAIL, Refused
from regard.check.candidate._candidate import Candidate, Words
from regard.check.candidate._signature import read
from regard.check.gradients import CATALOGUE, GROUP, VERDICTS, ByVjp, gradient_findings
from regard.check.gradients._evidence import GRADIENT_LAWS, broken_gradient_laws
from regard.check.gradients._faults import gradient_model
from regard.check.gradients._judge import GradientJudge
from regard.check.gradients._oracle import RIGHT_GRADIENTS, GradientOracle
from regard.check.gradients._probes import attends, gradient_probes, sent_back
from regard.check.gradients._search import VARIANTS, gradient_models, modelled

NAMES = """
DQ_NO_SCALE DK_NO_SCALE BOTH_NO_SCALE BOTH_TWICE NO_DELTA DELTA_MEAN DELTA_UNWEIGHTED DELTA_WRONG_AXIS
JACOBIAN_DIAGONAL NO_JACOBIAN P_SQUARED MAX_NOT_DETACHED JACOBIAN_SIGN NEGATED DV_USES_P_NOT_PT DK_NO_TRANSPOSE
DQ_USES_Q DQ_DK_SWAPPED DETACHED GQA_MEAN GQA_LAST MASK_NOT_IN_BACKWARD SOFTCAP_DERIVATIVE_MISSING DBIAS_NOT_REDUCED
DBIAS_MEAN DBIAS_SCALED
""".split()  # noqa: SIM905
SEVEN = ("rect", "square", "causal", "masked_row", "gqa", "bias", "softcap")
KNOWN = gradient_models(Setting(dtype="float64"))


def as_reference(case):
    """Arrays and options of a case, as the reference takes them."""
    mask = rg.Full() if case.mask is None else rg.Dense(case.mask)
    mask = mask & rg.Causal() if case.causal else mask
    options = {"mask": mask, "q_offset": "end", "bias": case.bias, "scale": case.scale, "softcap": case.softcap}
    return [case.query, case.key, case.value], {name: x for name, x in options.items() if x is not None}


@pytest.mark.parametrize("probe", [p for p in KNOWN.probes.values() if not p.case.layer], ids=lambda p: p.name)
def test_the_oracle_is_the_reference(probe):
    arrays, options = as_reference(probe.case)
    want = rg.reference.attention_backward(probe.grad_out, *arrays, **options)
    got = RIGHT_GRADIENTS(probe.case, probe.grad_out)
    for name, x in got.items():
        np.testing.assert_allclose(x, getattr(want, name), rtol=1e-12, atol=1e-14, err_msg=name)
    assert_slopes(want, probe.grad_out, arrays, options)


def test_all_faults_are_there_and_say_what_why_and_how():
    assert [fault.name for fault in CATALOGUE] == NAMES
    assert GROUP.name == "gradients"
    for fault in CATALOGUE:
        assert all((fault.does, fault.why, fault.mend))
        assert all(hasattr(GradientOracle, step) for steps in fault.variants.values() for step in steps)


def test_sizes_of_the_probes_differ():
    for probe in gradient_probes(Setting()):
        case = probe.case
        if probe.name in ("rect", "causal", "masked_row", "bias", "softcap", "larger"):
            sizes = [*case.query.shape, case.key.shape[2], case.value.shape[3]]
            assert len(set(sizes)) == len(sizes), (probe.name, sizes)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_every_variant_is_seen_by_a_probe(dtype):
    known = gradient_models(Setting(dtype=dtype))
    for variant in VARIANTS:
        wrong = [n for n, judge in known.judges.items() if not judge.passes(known.answer((variant,), n))]
        assert wrong, (variant.fault.name, variant.label)


def apart_by(a, b):
    """Largest difference of two answers."""
    known = not isinstance(a, Refused) and not isinstance(b, Refused)
    return max(distance(a[name], b[name]) for name in a) if known else distance(a, b)


def test_all_325_pairs_of_faults_are_separated_by_seven_probes():
    apart = {}
    for a, b in itertools.combinations(VARIANTS, 2):
        if a.fault is not b.fault:
            names = a.fault.name, b.fault.name
            most = max(apart_by(KNOWN.answer((a,), n), KNOWN.answer((b,), n)) for n in SEVEN)
            apart[names] = min(apart.get(names, math.inf), most)
    assert len(apart) == 325
    closest = min(apart, key=apart.get)
    assert apart[closest] > 0.3, (closest, apart[closest])


def called(query, key, value, mask=None, causal=False, scale=None, softcap=None, bias=None):
    """Make a case of a call."""
    q, k, v = (np.asarray(x, np.float64) for x in (query, key, value))
    bias = None if bias is None else np.asarray(bias, np.float64)
    return Case("call", q, k, v, scale=scale, causal=causal, mask=mask, bias=bias, softcap=softcap)


def attention(query, key, value, mask=None, causal=False, scale=None, softcap=None, bias=None):
    return RIGHT_ANSWER(called(query, key, value, mask, causal, scale, softcap, bias)).astype(query.dtype)


def mutant(variant):
    """Make a way back with a fault."""
    oracle = gradient_model(variant.steps)

    def vjp(grad_out, query, *arguments, **options):
        found = oracle(called(query, *arguments, **options), np.asarray(grad_out, np.float64))
        return tuple(x.astype(query.dtype) for x in found.values())

    return vjp


FEATURES = frozenset("attention mask mask_query causal scale softcap bias gqa value_width".split())  # noqa: SIM905


def asked(fn, vjp, setting, supports=FEATURES):
    """Findings on gradients alone."""
    candidate = Candidate(fn, read(fn), dtype=setting.dtype)
    return gradient_findings(ByVjp(candidate, vjp), candidate, supports & supported(fn), setting, lambda: True)


def supported(fn):
    options = (
        {"attention", "value_width"} | read(fn).options | ({"mask_query"} if "mask" in read(fn).options else set())
    )
    return options | ({"gqa"} if fn.__name__ in ("grouped", "attention") else set())


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_every_mutant_is_named(dtype):
    wrong = {}
    for variant in VARIANTS:
        found = asked(attention, mutant(variant), Setting(dtype=dtype))
        names = [finding.name for finding in found]
        first = found[0] if found else None
        if names != [variant.fault.name] or first.alternatives or not first.does.endswith(variant.label):
            wrong[variant.fault.name, variant.label] = names
        elif first.level != "fault" or first.example is None or not first.evidence:
            wrong[variant.fault.name, variant.label] = first
    assert wrong == {}


# Of those that have every option between them.
STYLES = [(fn, vjp) for fn, vjp, _ in RIGHT if vjp.__name__ in ("flash_back", "biased_back", "grouped_back")]


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_no_seed_makes_right_gradients_wrong(dtype):
    for seed in range(20):
        for fn, vjp in STYLES:
            assert asked(fn, vjp, Setting(seed=seed, dtype=dtype)) == [], (seed, vjp.__name__)


# A gradient that is off by this share is refused on one of the probes of every function, and one by half of it on none;
# a layer's on each. The page of the reference has these numbers.
REFUSED = {
    "float64": (1.01e-9, 1.01e-9), "float32": (1.2e-5, 6.2e-5), "float16": (0.031, 0.032), "bfloat16": (0.25, 0.26),
}  # fmt: skip


@pytest.mark.parametrize("dtype", REFUSED)
def test_the_smallest_factor_that_is_refused(dtype):
    """So that the judge can say no."""
    judges, (share, of_layer) = gradient_models(Setting(dtype=dtype)).judges, REFUSED[dtype]

    def errors(names, of, off):
        return [judges[n].error_of(of, judges[n].right[of] * (1 + off)) for n in names]

    for of in ("query", "key", "value"):
        assert max(errors(("rect", "square", "larger"), of, share)) > FAIL, of
    assert max(errors(("rect", "square", "larger"), "query", share / 2)) <= FAIL
    for name, judge in judges.items():
        assert judge.passes(judge.right)
        for of in judge.right if judge.probe.case.layer else ():
            (off,), (less,) = errors([name], of, of_layer), errors([name], of, of_layer / 2)
            assert less <= FAIL < off, (name, of)


def test_the_page_has_the_smallest_factors():
    page = (Path(__file__).parents[1] / "docs" / "reference" / "check.md").read_text(encoding="utf-8")
    for dtype, shares in REFUSED.items():
        cells = " | ".join(np.format_float_positional(1 + share, trim="-") for share in shares)
        assert f"| {dtype} | {cells} |" in page, (dtype, cells)


@pytest.mark.parametrize("dtype", REFUSED)
def test_right_gradients_are_well_within_the_bound(dtype):
    """At most half of one bound, of which four pass: of 20 seeds 0.42 in float16, 0.25 in float32."""
    for seed in range(20):
        known = gradient_models(Setting(seed=seed, dtype=dtype))
        for fn, vjp in STYLES:
            backward = ByVjp(Candidate(fn, read(fn), dtype=dtype), vjp)
            for name, judge in known.judges.items():
                if judge.probe.case.features <= FEATURES & supported(fn):
                    assert judge.error(backward(judge.probe.case, judge.probe.grad_out)) < 0.5, (seed, vjp, name)


def test_the_bound_of_a_shared_bias_has_the_rounding_of_its_sum():
    """One number for all of N scores: their gradients cancel, and rounding is that of a sum of N."""
    case = replace(KNOWN.probes["larger"].case, bias=np.zeros((1, 1, 1, 1))).cast("float32")
    judge = GradientJudge.of(sent_back(case), "float32")
    f = RIGHT_GRADIENTS.forward(case)
    dP = RIGHT_GRADIENTS.weights(case, f, judge.probe.grad_out)
    dS = RIGHT_GRADIENTS.scores(case, f, dP, RIGHT_GRADIENTS.delta(case, f, dP))
    assert np.abs(judge.right["bias"]) < 1e-12
    assert judge.bounds["bias"] > math.sqrt(dS.size) * 2**-24 * np.abs(dS).sum() > 1e-5


def test_nothing_is_sent_back_to_empty_rows_of_some_probes():
    empty = {name: ~attends(probe.case) for name, probe in KNOWN.probes.items() if not attends(probe.case).all()}
    assert set(empty) == {"masked_row", "without_empty_row", "mha_masked_row"}
    for name, rows in empty.items():
        assert np.any(KNOWN.probes[name].grad_out * rows) == (name == "masked_row"), name


def test_what_is_nearer_to_the_right_is_not_alike():
    """In bfloat16 much is within the slack."""
    judge = gradient_models(Setting(dtype="bfloat16")).judges["rect"]
    right, none = judge.right, {name: 0 * x for name, x in judge.right.items()}
    assert judge.alike(none, none)
    assert not judge.alike({**none, "key": right["key"]}, none)
    for share in (0.5, 0.7):  # of the way from the right ones to the others
        assert not judge.alike({name: (1 - share) * x for name, x in right.items()}, none), share


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("fn", "vjp", "declared"), RIGHT, ids=[vjp.__name__ for _, vjp, _ in RIGHT])
def test_a_right_way_back_raises_nothing(fn, vjp, declared, dtype):
    report = rg.check(fn, vjp=vjp, dtype=dtype, **declared)
    assert not of_gradients(report), report


def test_heads_that_are_looped_over_share_gradients_too():
    """A function of one head, called for each: the gradients of shared keys are summed."""
    fn, vjp = check_backwards.one_head, check_backwards.one_head_back
    candidate = Candidate(fn, read(fn), Words(layout="sd"))
    features = frozenset({"attention", "value_width", "gqa"})
    backward = ByVjp(candidate, vjp)
    assert gradient_findings(backward, candidate, features, Setting(), lambda: True) == []
    probe = gradient_models(Setting()).probes["gqa"]
    assert backward(probe.case, probe.grad_out)["key"].shape == probe.case.key.shape


def of_gradients(report):
    """Names of findings on gradients."""
    return {n for n in report.names if n in NAMES or n in {verdict.name for verdict in VERDICTS}}


@pytest.mark.parametrize(("fn", "vjp", "names", "declared"), WRONG, ids=[vjp.__name__ for _, vjp, *_ in WRONG])
def test_a_wrong_way_back_is_called_by_name(fn, vjp, names, declared):
    report = rg.check(fn, vjp=vjp, **declared)
    assert of_gradients(report) == names, report
    assert all(not report[name].alternatives for name in names)


def test_there_are_enough_of_them():
    assert len(WRONG) >= 12


def test_each_law_is_broken_by_the_faults_that_the_study_says():
    """Softmax's derivative wrong: keys do not cancel. One scale missing: the products do not balance."""
    laws = {}
    for variant in VARIANTS:
        answers = {n: modelled((variant,), KNOWN.probes[n]) for n in ("rect", "gqa")}
        lines = broken_gradient_laws(KNOWN.judges, answers)
        laws[variant.fault.name, variant.label] = {x.name for x in GRADIENT_LAWS for s in lines if x.name in s}
    jacobian = [
        "NO_DELTA", "DELTA_MEAN", "DELTA_UNWEIGHTED", "DELTA_WRONG_AXIS", "JACOBIAN_DIAGONAL", "NO_JACOBIAN",
        "P_SQUARED", "MAX_NOT_DETACHED",
    ]  # fmt: skip
    assert all("KEY_GRADIENTS_CANCEL" in found for (name, _), found in laws.items() if name in jacobian)
    assert laws["DQ_NO_SCALE", ""] == laws["DK_NO_SCALE", ""] == {"QUERIES_BALANCE_KEYS"}
    for name in ("BOTH_NO_SCALE", "BOTH_TWICE", "JACOBIAN_SIGN"):
        assert laws[name, ""] == set()
    assert laws["DETACHED", "of the values"] == {"VALUE_GRADIENTS_ADD_UP", "VALUES_BALANCE_OUTPUT"}
