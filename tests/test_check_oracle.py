"""The oracle that faults are planted in is the reference; the catalogue is whole, and its entries can be told apart."""

import numpy as np
import pytest

import regard as rg
from check_power import (
    DECLARED_ONLY,
    FIRST,
    SEARCHED,
    doubles,
    greedy,
    nearest,
    rounding_named,
    roundings_apart,
    shown,
)  # fmt: skip
from regard.check.answers._oracle import RIGHT, Oracle
from regard.check.answers._probes import Setting, probes
from regard.check.answers._tolerance import FAIL
from regard.check.faults import BY_NAME, CATALOGUE
from regard.check.faults.precision import GROUP
from regard.check.instruments._dictionary import BACKGROUNDS, VARIANTS, Search, models

# What the study coded as mutants, all of which must be there.
CODED = """
SCALE_MISSING SCALE_1_OVER_D SCALE_TWICE SCALE_D_MODEL SCALE_TIMES_SQRT_D SCALE_SQRT_NK SCALE_SQRT_NQ SCALE_SQRT_DV
SCALE_SQRT_HEADS SCALE_INT_SQRT SCALE_2SQRT SCALE_D_QUARTER SCALE_HALF_D EXP2_NO_LOG2E LOG2E_TWICE SCALE_ARG_IGNORED
SCALE_ARG_TIMES_DEFAULT SCALE_AFTER_SOFTMAX VALUES_SCALED QK_NORMALISED SOFTMAX_OVER_QUERIES SOFTMAX_OVER_HEADS
SOFTMAX_OVER_BATCH SOFTMAX_FLATTENED NO_NORMALISATION MEAN_NORM SOFTMAX_PLUS_ONE PLUS_ONE_AFTER_SHIFT NORM_EPS SIGMOID
RELU L1 LOG_SOFTMAX SOFTMAX_TWICE HARDMAX MAX_WRONG_AXIS RETURNS_WEIGHTS RETURNS_TUPLE RETURNS_LSE NO_MAX MAX_GLOBAL
MAX_INIT_ZERO MAX_INIT_FINITE CLAMPED_LOGITS TILE_NO_RESCALE TILE_L_NOT_RESCALED TILE_O_NOT_RESCALED
TILE_ALPHA_INVERTED TILE_MAX_REPLACED TILE_LAST_ONLY TILE_NORMALISED_EACH TAIL_DROPPED TAIL_ZERO_KEYS MASK_IGNORED
MASK_INVERTED MASK_AFTER_SOFTMAX MASK_AFTER_RENORM MASK_MULTIPLICATIVE MASK_FILL_TINY MASK_FILL_SMALL MASK_FILL_1E4
MASK_FILL_1E9 MASK_ADD_FILL EMPTY_ROW_NAN EMPTY_ROW_UNIFORM EMPTY_ROW_FIRST_V MASK_BOOL_ADDED MASK_TRANSPOSED
MASK_ON_QUERIES MASK_BATCH0 MASK_HEAD0 MASK_BATCH_AS_HEAD MASK_DROPPED_IF_CAUSAL CAUSAL_DROPPED_IF_MASK NAN_MASKED_V
NAN_MASKED_K CAUSAL_IGNORED CAUSAL_TRANSPOSED CAUSAL_INVERTED CAUSAL_STRICT CAUSAL_PLUS_ONE CAUSAL_TOP_LEFT
CAUSAL_BOTTOM_RIGHT WINDOW_IGNORED WINDOW_PLUS_ONE WINDOW_MINUS_ONE WINDOW_TWO_SIDED WINDOW_TOP_LEFT BIAS_BEFORE_SCALE
BIAS_AFTER_SOFTMAX BIAS_IGNORED BIAS_NEGATED BIAS_TRANSPOSED BIAS_HEAD0 SOFTCAP_IGNORED SOFTCAP_CLIPPED SOFTCAP_NO_DIV
SOFTCAP_NO_MUL SOFTCAP_MULT SOFTCAP_BEFORE_SCALE SOFTCAP_AFTER_MASK SOFTCAP_AFTER_BIAS SOFTCAP_DROPPED_BACKEND
SPLIT_NO_TRANSPOSE MERGE_NO_TRANSPOSE SPLIT_INTERLEAVED MERGE_INTERLEAVED HEADS_AVERAGED HEADS_SUMMED HEAD0_KV
BATCH0_ONLY BATCH_MEAN HEADS_MEAN BATCH_LEAK AXES_SWAPPED K_RESHAPED_NOT_TRANSPOSED QK_SWAPPED P_TRANSPOSED_V K_IS_V
V_IS_K QK_SHARED_PROJECTION K_NOT_PROJECTED WQ_TRANSPOSED WO_MISSING WO_TRANSPOSED MHA_SCALE_DMODEL GQA_TILE GQA_FIRST
GQA_K_TILE_V_REPEAT OUT_PLUS_QUERY DROPOUT_IGNORED DROPOUT_NO_RESCALE DROPOUT_RENORMALISED DROPOUT_P_SWAPPED
DROPOUT_ON_OUTPUT
""".split()  # noqa: SIM905

DEFAULT = Setting()


def test_the_oracle_is_the_reference():
    for case in probes(Setting(dtype="float64")):
        if case.layer or case.dropout is not None:
            continue
        mask = rg.Full() if case.mask is None else rg.Dense(case.mask)
        if case.causal:
            mask = mask & rg.Causal()
        if case.window is not None:
            mask = mask & rg.Window(left=case.window - 1)
        want = rg.reference.attention(
            case.query,
            case.key,
            case.value,
            mask=mask,
            bias=case.bias if case.alibi is None else rg.Alibi(case.alibi),
            scale=case.scale,
            softcap=case.softcap,
            q_offset="end",
        )
        np.testing.assert_allclose(RIGHT(case), want, rtol=1e-12, atol=1e-13, err_msg=case.name)


def test_the_layer_of_the_oracle_is_regards():
    case = next(case for case in probes(Setting(dtype="float64")) if case.layer)
    layer = rg.MultiHeadAttention(
        query_weight=case.layer.query.T, key_weight=case.layer.key.T, value_weight=case.layer.value.T,
        output_weight=case.layer.out.T, num_heads=3,
    )  # fmt: skip
    np.testing.assert_allclose(RIGHT(case), layer(case.query), rtol=1e-11)


def test_every_coded_fault_is_in_the_catalogue():
    assert [name for name in CODED if name not in BY_NAME] == []
    assert len(CODED) >= 125
    assert len(BY_NAME) == sum(len(fault.names) for fault in CATALOGUE), "a name stands for two faults"


@pytest.mark.parametrize("fault", CATALOGUE, ids=lambda fault: fault.name)
def test_every_fault_says_what_why_and_how(fault):
    assert all((fault.does, fault.why, fault.mend))
    assert all(hasattr(Oracle, step) for steps in fault.variants.values() for step in steps)


def test_sizes_of_the_probes_differ():
    for case in probes(DEFAULT):
        if case.name in ("base", "causal_rect", "scale_arg", "softcap", "big", "mixed_rows", "tiles_growing"):
            sizes = [*case.query.shape, case.key.shape[2], case.value.shape[3]]
            assert len(set(sizes)) == len(sizes), (case.name, sizes)


def test_every_variant_is_seen_by_a_probe():
    known = models(DEFAULT)
    assert {v.fault.name for v in VARIANTS if not shown(known, (v,))} == DECLARED_ONLY


def test_all_pairs_of_faults_are_separated():
    count, near = nearest(models(DEFAULT))
    assert count > 50_000
    assert [(a.fault.name, b.fault.name, apart) for apart, a, b in near if apart < 0.03] == []


def test_every_variant_is_named_and_no_other_beside_it():
    known, wrong = models(DEFAULT), {}
    for variant in SEARCHED:
        answers = {name: known.answer((variant,), name) for name in known.cases}
        found = Search(known, answers, lambda: True).simple().explanations
        if [[v.fault for v in one] for one in found] != [[variant.fault]]:
            wrong[variant.fault.name, variant.label] = [[v.fault.name for v in one] for one in found]
    assert wrong == {}


def test_few_probes_show_every_fault():
    chosen = greedy(models(DEFAULT))
    assert len(chosen) <= 18
    assert sum(more for _, more in chosen) == len(FIRST)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_rounding_is_named_by_its_model(dtype):
    for fault in GROUP.faults:
        for label in fault.variants:
            assert rounding_named(fault.name, label, dtype) == [fault.name], label


def test_all_pairs_of_roundings_are_separated():
    count, apart, pair = roundings_apart()
    assert count > 400
    assert apart > FAIL, pair


def test_double_faults_do_not_cancel_and_have_a_name():
    found = doubles(models(DEFAULT), 8, search=True)
    assert found.cancelled == found.like_another == 0
    assert found.own + found.like_one == found.pairs
    assert found.both_named >= found.own - 2


def test_the_right_answers_are_no_fault():
    known = models(DEFAULT)
    answers = {name: judge.right for name, judge in known.judges.items()}
    assert Search(known, answers, lambda: True).run().failing == ()


def test_backgrounds_begin_with_none():
    assert BACKGROUNDS[0] == ()
    assert len(set(BACKGROUNDS)) == len(BACKGROUNDS)
