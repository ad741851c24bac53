"""Gradients of whole layers: the chain, and what is found in ways back that are written by hand."""

from dataclasses import replace

import numpy as np
import pytest

import check_backwards as written
import regard as rg
from check_backwards import layer
from regard.check.answers._case import Case
from regard.check.answers._oracle import RIGHT
from regard.check.answers._probes import Setting
from regard.check.candidate._candidate import Candidate
from regard.check.candidate._signature import read
from regard.check.gradients import CATALOGUE, VERDICTS, ByVjp, gradient_findings
from regard.check.gradients._backward import operand_of
from regard.check.gradients._evidence import GRADIENT_LAWS, broken_gradient_laws
from regard.check.gradients._faults import gradient_model
from regard.check.gradients._layer import ROLES
from regard.check.gradients._oracle import RIGHT_GRADIENTS
from regard.check.gradients._search import VARIANTS, gradient_models
from test_check_gradients_report import expected_of
from test_check_report import run

KNOWN = gradient_models(Setting(dtype="float64"))
PROBES = {name: probe for name, probe in KNOWN.probes.items() if probe.case.layer}
NAMES = {fault.name for fault in CATALOGUE} | {verdict.name for verdict in VERDICTS}
SUPPORTS = frozenset({"layer", "mask", "mask_batch", "mask_head", "mask_query", "causal"})
# What a layer has no option for, and heads of its own.
NOT_THERE = {"GQA_MEAN", "GQA_LAST", "SOFTCAP_DERIVATIVE_MISSING", "DBIAS_NOT_REDUCED", "DBIAS_MEAN", "DBIAS_SCALED"}


def of_gradients(vjp, **declared):
    """Names of findings on gradients, and the report."""
    report = rg.check(layer, vjp=vjp, **declared)
    assert "gradients" in report.questions
    return [name for name in report.names if name in NAMES], report


@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)
def test_the_chain_is_the_slope(probe):
    """Central differences of the layer itself along random directions of x and each matrix."""
    case, rng, step = probe.case, np.random.default_rng(7), 1e-5
    found = RIGHT_GRADIENTS(case, probe.grad_out)
    assert tuple(found) == ROLES

    def moved(of, way):
        if of == "x":
            x = case.query + way
            return replace(case, query=x, key=x, value=x)
        name = {"wq": "query", "wk": "key", "wv": "value", "wo": "out"}[of]
        return replace(case, layer=replace(case.layer, **{name: getattr(case.layer, name) + way}))

    for of, got in found.items():
        for _ in range(3):
            way = rng.standard_normal(got.shape)
            up, down = (float((RIGHT(moved(of, h * way)) * probe.grad_out).sum()) for h in (step, -step))
            slope, said = (up - down) / (2 * step), float((got * way).sum())
            assert abs(slope - said) < 1e-7 * (1 + abs(up) + np.abs(got * way).sum()), (of, slope, said)


def test_the_slopes_can_say_no():
    """The chain with a wrong step is not the slope."""
    probe = PROBES["mha"]
    wrong = gradient_model({"delta": lambda m, case, f, dP: np.zeros(())})(probe.case, probe.grad_out)
    assert all(np.abs(wrong[n] - RIGHT_GRADIENTS(probe.case, probe.grad_out)[n]).max() > 0.1 for n in ("x", "wq", "wk"))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_right_way_back_raises_nothing(dtype):
    for vjp in (written.layer_back, written.layer_named_back):
        assert of_gradients(vjp, dtype=dtype)[0] == []


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_no_seed_makes_right_gradients_wrong(dtype):
    candidate = Candidate(layer, read(layer), dtype=dtype)
    candidate = replace(candidate, words=replace(candidate.words, layout="bse"))
    for seed in range(20):
        setting = Setting(seed=seed, dtype=dtype)
        backward = ByVjp(candidate, written.layer_back)
        assert gradient_findings(backward, candidate, SUPPORTS, setting, lambda: True) == [], seed
        for name, judge in gradient_models(setting).judges.items():
            if name in PROBES:
                assert judge.error(backward(judge.probe.case, judge.probe.grad_out)) < 2, (seed, name)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.fault.name not in NOT_THERE], ids=lambda v: v.fault.name)
def test_every_mutant_is_named(variant):
    found, report = of_gradients(written.layer_by(mutant(variant)))
    if variant.label == "of the bias":
        assert found == []
        return
    assert len(found) == 1
    finding = report[found[0]]
    assert variant.fault.name in {finding.name, *finding.alternatives}, report
    assert finding.example is not None
    assert finding.script


def mutant(variant):
    oracle = gradient_model(variant.steps)

    def heads_back(P, g, q, k, v):
        keep = (P > 0) | (P == 0).all(axis=-1, keepdims=True)
        case = Case("heads", q, k, v, mask=None if keep.all() else P > 0)
        found = oracle(case, g)
        return [found[name].astype(g.dtype) for name in ("query", "key", "value")]

    return heads_back


def test_what_is_said_of_a_fault():
    found, report = of_gradients(written.layer_forgets_the_sum)
    assert found == ["NO_DELTA"]
    text = str(report["NO_DELTA"])
    for part in (
        "gradients are explained",
        "on mha: dwq is",
        "on mha: along 3 random directions the output grows by",
        "on mha: dx is",
        "grad_out = ",
        "expected",
    ):
        assert part in text, text
    example = report["NO_DELTA"].example
    assert example.case.query.shape[:2] < (2, 5)
    np.testing.assert_array_equal(example.expected, RIGHT_GRADIENTS(example.case, example.grad_out)[example.of])


def test_two_faults_are_told_apart():
    found, report = of_gradients(written.layer_with_two_mistakes)
    assert found == ["DQ_NO_SCALE", "NO_DELTA"]
    assert any("law WQ_BALANCES_WK is broken" in line for line in report["NO_DELTA"].evidence)


def test_a_variant_has_its_label():
    def no_keys(P, g, q, k, v):
        dq, dk, dv = written.heads_back(P, g, q, k, v)
        return dq, 0 * dk, dv

    found, report = of_gradients(written.layer_by(no_keys))
    assert found == ["DETACHED"]
    finding = report["DETACHED"]
    assert finding.does.endswith(": of the keys")
    expected, right = expected_of(finding), finding.example.right
    assert finding.example.case.query.shape[1] > 1  # one key has no gradient
    for name, x in right.items():
        np.testing.assert_allclose(expected[name], x, rtol=1e-9, atol=1e-12, err_msg=name)


def test_the_matrices_are_looked_at():
    found, report = of_gradients(written.layer_of_zeros)
    assert found == ["GRAD_UNKNOWN"]
    assert "law WO_BALANCES_OUTPUT is broken" in str(report["GRAD_UNKNOWN"])
    found, report = of_gradients(written.layer_forgets_wo)
    assert found == ["GRAD_UNKNOWN"]
    assert "on mha: dwo has shape None, expected (12, 12)" in str(report["GRAD_UNKNOWN"])
    found, _ = of_gradients(lambda *x, **options: written.layer_back(*x, **options)[::-1])
    assert found


def test_cuts_and_refusals():
    def cut(*arguments, **options):
        return written.layer_named_back(*arguments, **options) | {"wk": None}

    def no_masks(*arguments, mask=None, **options):
        if mask is not None:
            raise NotImplementedError("masks come later")
        return written.layer_back(*arguments, **options)

    def raises(*arguments, **options):
        raise ValueError("not today")

    found, report = of_gradients(cut)
    assert found == ["GRAD_GRAPH_CUT"]
    assert report["GRAD_GRAPH_CUT"].does == "no gradient is passed back to wk"
    found, report = of_gradients(no_masks)
    assert found == ["GRAD_REFUSES"]
    assert report["GRAD_REFUSES"].level == "warning"
    assert "masks come later" in report["GRAD_REFUSES"].evidence[0]
    found, report = of_gradients(raises)
    assert found == ["GRAD_REFUSES"]
    assert report["GRAD_REFUSES"].level == "fault"
    found, report = of_gradients(lambda *x, **options: None)
    assert "vjp returns NoneType: it must return (dx, dwq, dwk, dwv, dwo), or" in report["GRAD_REFUSES"].evidence[0]


def test_nondeterministic():
    rng = np.random.default_rng(0)

    def vjp(*arguments, **options):
        dx, *others = written.layer_back(*arguments, **options)
        return dx * np.float32(1 + 1e-6 * rng.standard_normal()), *others

    found, report = of_gradients(vjp)
    assert found == ["GRAD_NONDETERMINISTIC"]
    assert "dx differs by" in report["GRAD_NONDETERMINISTIC"].evidence[0]


def test_scripts(tmp_path):
    scripts = {}
    wrong = ("layer_forgets_the_sum", "layer_with_two_mistakes", "layer_of_zeros", "layer_forgets_wo")
    for vjp in (getattr(written, name) for name in wrong):
        found, report = of_gradients(vjp)
        scripts |= {f"{vjp.__name__}-{name}.py": report[name].script for name in found}
    local = rg.check(layer, vjp=lambda *x, **options: written.layer_of_zeros(*x, **options)).findings[0].script
    assert "cannot be imported by name" in local
    assert all(f'"{name}": ' in local.partition("def back():")[2] for name in ROLES)
    seen = run(scripts | {"local-GRAD_UNKNOWN.py": local}, tmp_path)
    assert len(seen) == 6
    assert {name: code for name, (code, _) in seen.items() if f"FAULT {name[:-3].split('-')[1]}" not in code} == {}
    mended = scripts["layer_forgets_the_sum-NO_DELTA.py"].replace("import layer_forgets_the_sum", "import layer_back")
    named = scripts["layer_forgets_wo-GRAD_UNKNOWN.py"].replace("import layer_forgets_wo", "import layer_named_back")
    named = named.replace("'wk': 'wk'", "'wk': 'wk', 'dwo': 'wo'")  # which was not seen
    seen = run({"mended.py": mended, "named.py": named}, tmp_path)
    assert {name: code for name, (code, _) in seen.items()} == {"mended.py": "None", "named.py": "None"}


@pytest.mark.parametrize(
    ("name", "role"), [("dx", "x"), ("grad_wq", "wq"), ("dwo", "wo"), ("d_w_k", "wk"), ("query", None)]
)
def test_names_of_gradients(name, role):
    assert operand_of(name, ROLES) == role


def test_each_law_can_be_broken():
    judges = {"mha": KNOWN.judges["mha"]}
    right = dict(judges["mha"].right)
    assert broken_gradient_laws(judges, {"mha": right}) == []
    laws = {law.name: law.needs for law in GRADIENT_LAWS if law.needs[0] in ROLES}
    assert len(laws) == 4
    for name, needs in laws.items():
        lines = broken_gradient_laws(judges, {"mha": {**right, needs[0]: 1.01 * right[needs[0]]}})
        assert any(name in line for line in lines), name
