"""regard.onnx against ONNX's own node tests, by the functions and by the reference runtime, and whole models."""

import inspect
import re
import textwrap
import warnings
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import regard.onnx
import regard.onnx._attention as bridge

OPERATORS = {"Attention": regard.onnx.attention, "RotaryEmbedding": regard.onnx.rotary_embedding}
CASES_OF_1_23 = {"Attention": 93, "RotaryEmbedding": 8}


def collected():
    """Every node test of our operators that is not an expansion into other operators, by operator."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other operators' cases overflow as they are made
        cases = collect_testcases(None)
    return {
        op: [c for c in cases if [n.op_type for n in c.model.graph.node] == [op] and not c.name.endswith("_expanded")]
        for op in OPERATORS
    }


CASES = collected()
every_case = pytest.mark.parametrize("case", [c for op in CASES for c in CASES[op]], ids=lambda case: case.name)


def by_function(case):
    """Run the case's one node by the function of its name; yield what came and what is wanted."""
    (node,) = case.model.graph.node
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Attention":
        attributes |= {"opset": case.model.opset_import[0].version, "want_qk": len(node.output) > 3}
    for inputs, wanted in case.data_sets:
        named = dict(zip([i.name for i in case.model.graph.input], inputs, strict=True))
        got = OPERATORS[node.op_type](*(named.get(name) for name in node.input), **attributes)
        got = got if isinstance(got, tuple) else (got,)
        yield [value for name, value in zip(node.output, got, strict=False) if name], wanted


def by_runtime(case):
    evaluator = ReferenceEvaluator(case.model, new_ops=regard.onnx.reference_ops())
    for inputs, wanted in case.data_sets:
        named = dict(zip([i.name for i in case.model.graph.input], inputs, strict=True))
        yield evaluator.run(None, named), wanted


def judge(outputs, wanted):
    """Compare as ONNX's own runner does."""
    assert len(outputs) == len(wanted)
    for got, want in zip(outputs, wanted, strict=True):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        rtol = 2**-6 if want.dtype.name == "bfloat16" else 1e-3
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=1e-7)


@pytest.mark.parametrize("op", OPERATORS)
def test_all_cases_are_found(op):
    assert len(CASES[op]) >= CASES_OF_1_23[op]
    assert {c.model.opset_import[0].version for c in CASES["Attention"]} >= {23, 24, 25}


@every_case
@pytest.mark.parametrize("run", [by_function, by_runtime])
def test_node(case, run):
    runs = list(run(case))
    assert runs
    for outputs, wanted in runs:
        judge(outputs, wanted)


def failures():
    """Names of the cases that fail as the bridge stands now."""
    found = []
    for case in CASES["Attention"]:
        try:
            for outputs, wanted in by_function(case):
                judge(outputs, wanted)
        except AssertionError:
            found.append(case.name)
    return found


class TestPlantedFaults:
    """What others got wrong, put into the bridge: the node tests say no."""

    def test_nothing_planted(self):
        assert failures() == []

    def test_queries_at_the_start_whatever_the_cache(self, monkeypatch):
        lay = bridge.lay
        monkeypatch.setattr(bridge, "lay", lambda *given: replace(lay(*given), q_offset=0))
        assert "test_attention_4d_causal_with_past_and_present" in failures()
        assert any("ext_cache" in name for name in failures())

    def test_queries_at_the_end_without_a_cache(self, monkeypatch):
        def faulty(attn_mask, lengths, inputs, attributes):
            _, _, queries, keys = inputs.scores_shape
            return replace(lay(attn_mask, lengths, inputs, attributes), q_offset=keys - queries)

        lay = bridge.lay
        monkeypatch.setattr(bridge, "lay", faulty)
        assert "test_attention_4d_causal" in failures()

    def test_kv_heads_tiled_and_not_repeated(self, monkeypatch):
        def faulty(*given):
            inputs = as_inputs(*given)
            heads, kv_heads = inputs.query.shape[1], inputs.key.shape[1]
            order = np.arange(heads) // (heads // kv_heads) + np.arange(heads) % (heads // kv_heads) * kv_heads
            return replace(inputs, query=inputs.query[:, order])

        as_inputs = bridge.as_inputs
        monkeypatch.setattr(bridge, "as_inputs", faulty)
        assert "test_attention_4d_gqa" in failures()
        assert "test_attention_4d" not in failures()

    def test_softcap_after_the_mask(self, monkeypatch):
        def faulty(query, key, value, *, out, **options):
            cap, bias = options["softcap"], options["bias"]
            if cap is None or bias is None:
                exact(query, key, value, out=out, **options)
            else:
                scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]) + bias
                powers = np.exp(cap * np.tanh(scores / cap))
                out[...] = powers / powers.sum(-1, keepdims=True) @ value

        exact = bridge.exact_attention
        monkeypatch.setattr(bridge, "exact_attention", faulty)
        found = [name for name in failures() if "softcap_neginf_mask" in name]
        assert len(found) == len([c for c in CASES["Attention"] if "softcap_neginf_mask" in c.name]) == 2

    @pytest.mark.parametrize(
        ("change", "case"),
        [
            ({"softcap": None}, "test_attention_4d_softcap"),
            ({"scale": None}, "test_attention_4d_scaled"),
            ({"causal": False}, "test_attention_4d_causal"),
            ({"left": None}, "test_attention_local_window"),
            ({"mode": 0}, "test_attention_4d_with_qk_matmul_softmax"),
        ],
    )
    def test_an_attribute_is_forgotten(self, monkeypatch, change, case):
        as_attributes = bridge.as_attributes
        monkeypatch.setattr(bridge, "as_attributes", lambda *given: replace(as_attributes(*given), **change))
        assert case in failures()


def model(opset, lengths=False):
    """x · W → causal attention of two heads, x for queries, keys and values → · W."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "tokens", 16])]
    names = ["h", "h", "h"]
    if lengths:
        inputs.append(helper.make_tensor_value_info("lengths", TensorProto.INT64, ["batch"]))
        names += ["", "", "", "lengths"]
    weight = np.random.default_rng(1).standard_normal((16, 16), dtype=np.float32) / 4
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Attention", names, ["a"], is_causal=1, q_num_heads=2, kv_num_heads=2),
        helper.make_node("MatMul", ["a", "w"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "tokens", 16])]
    graph = helper.make_graph(nodes, "block", inputs, outputs, [onnx.numpy_helper.from_array(weight, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    onnx.checker.check_model(made, full_check=True)
    return made, weight


@pytest.mark.parametrize(("opset", "lengths"), [(23, False), (24, False), (24, True), (25, False), (25, True)])
def test_a_whole_model(opset, lengths):
    made, weight = model(opset, lengths)
    x = np.random.default_rng(0).standard_normal((3, 70, 16), dtype=np.float32)
    feed = {"x": x} | ({"lengths": np.array([0, 20, 70])} if lengths else {})
    theirs = ReferenceEvaluator(made).run(None, feed)[0]
    # [evaluator]
    evaluator = ReferenceEvaluator(made, new_ops=regard.onnx.reference_ops())
    (got,) = evaluator.run(None, feed)
    # [/evaluator]
    np.testing.assert_allclose(got, theirs, rtol=1e-4, atol=1e-6)
    hidden = x @ weight
    Y = regard.onnx.attention(
        hidden, hidden, hidden, None, None, None, feed.get("lengths"), is_causal=1, q_num_heads=2, kv_num_heads=2
    ).Y  # fmt: skip
    np.testing.assert_array_equal(got, Y @ weight)  # ours ran: NumPy's sums have other bits
    assert (got != theirs).any()


def test_the_opset_of_the_model_counts():
    made, _ = model(25)
    made.opset_import[0].version = 23
    made.graph.node[1].attribute.append(helper.make_attribute("left_window_size", 4))
    evaluator = ReferenceEvaluator(made, new_ops=regard.onnx.reference_ops())
    with pytest.raises(regard.UnsupportedError, match="left_window_size=4 came with opset 25, and opset is 23"):
        evaluator.run(None, {"x": np.ones((1, 3, 16), np.float32)})


def test_the_example_of_reference_ops():
    (code,) = re.findall(r"::\n\n(.*)\Z", inspect.cleandoc(regard.onnx.reference_ops.__doc__), re.S)
    x = np.random.default_rng(0).standard_normal((3, 70, 16), dtype=np.float32)
    names = {"onnx": onnx, "regard": regard, "model": model(25)[0], "inputs": {"x": x}}
    exec(textwrap.dedent(code), names)
    (want,) = ReferenceEvaluator(names["model"], new_ops=regard.onnx.reference_ops()).run(None, {"x": x})
    np.testing.assert_array_equal(names["outputs"][0], want)
