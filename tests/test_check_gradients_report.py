"""What a report says of gradients: examples, scripts, refusals, and what is found without the catalogue."""

import json

import numpy as np
import pytest

import check_backwards
import regard as rg
from check_backwards import WRONG, back, forgets_the_sum, plain, softmax, textbook_back
from regard.check.gradients._backward import operand_of
from test_check_report import run


def weights(q, k):
    return softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype))


def test_without_a_way_back_nothing_is_asked():
    assert "gradients" not in rg.check(plain).questions
    assert "vjp" not in str(rg.check(plain))


def test_printed():
    text = str(rg.check(plain, vjp=forgets_the_sum)["NO_DELTA"])
    for part in (
        "FAULT NO_DELTA  (certain: 3 of 3 gradients are explained, 3 are wrong)",
        "times the right one",
        "law KEY_GRADIENTS_CANCEL is broken: over the keys dk sums to 0",
        "along 3 random directions the output grows by",
        "grad_out = ",
        "yours ",
        "why it matters   The output is right and training is not",
        "how to mend it   ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True))",
    ):
        assert part in text, text


def test_a_factor_is_a_number():
    lines = rg.check(plain, vjp=check_backwards.scale_was_folded_into_q)["DK_NO_SCALE"].evidence
    assert any(line.startswith("on rect: dk is 2.828427 times the right one") for line in lines), lines
    assert not any("dq is" in line or "dv is" in line for line in lines)


def test_the_smallest_example_is_small_and_right():
    finding = rg.check(plain, vjp=forgets_the_sum).findings[0]
    example = finding.example
    assert example.case.query.size <= 4
    assert example.case.key.shape[2] <= 2
    arrays = [example.case.query, example.case.key, example.case.value]
    want = rg.reference.attention_backward(example.grad_out, *arrays)
    np.testing.assert_allclose(example.expected, getattr(want, example.of), atol=1e-12)
    q, k, v, g = (x.astype(np.float32) for x in (*arrays, example.grad_out))
    got = dict(zip(("query", "key", "value"), forgets_the_sum(g, q, k, v), strict=True))[example.of]
    np.testing.assert_array_equal(example.got, got)


def test_json():
    found = json.loads(rg.check(plain, vjp=forgets_the_sum).json())["findings"][0]
    assert found["name"] == "NO_DELTA"
    assert np.shape(found["example"]["grad_out"]) == (*np.shape(found["example"]["query"])[:3], 1)


def test_scripts_need_numpy_only_and_show_the_fault(tmp_path):
    scripts = {}
    for fn, vjp, names, declared in WRONG:
        report = rg.check(fn, vjp=vjp, **declared)
        scripts |= {f"{vjp.__name__}-{name}.py": report[name].script for name in names}
    assert all(scripts.values())
    seen = run(scripts, tmp_path)
    assert seen.keys() == scripts.keys()
    assert {name: code for name, (code, _) in seen.items() if not code.startswith("FAULT")} == {}
    assert all("gradient of" in said for _, said in seen.values())


def expected_of(finding):
    """The right gradients as a script computes them."""
    known = {}
    exec(finding.script.partition("\n\ndef back")[0], known)
    return known["expected"]


def test_scripts_know_the_right_gradients():
    for fn, vjp, names, declared in WRONG:
        for finding in map(rg.check(fn, vjp=vjp, **declared).__getitem__, names):
            found, right = expected_of(finding), finding.example.right
            assert found.keys() == right.keys()
            for name, x in right.items():
                np.testing.assert_allclose(found[name], x, rtol=1e-9, atol=1e-12, err_msg=f"{finding.name} {name}")


def test_a_mended_way_back_ends_its_script_well(tmp_path):
    text = rg.check(plain, vjp=forgets_the_sum)["NO_DELTA"].script
    mended = text.replace("import forgets_the_sum as vjp", "import textbook_back as vjp")
    assert mended != text
    assert run({"mended.py": mended}, tmp_path)["mended.py"][0] == "None"


def test_a_script_of_a_local_function_holds_what_it_answered(tmp_path):
    text = rg.check(plain, vjp=lambda g, q, k, v: forgets_the_sum(g, q, k, v))["NO_DELTA"].script
    assert "cannot be imported by name" in text
    assert run({"local.py": text}, tmp_path)["local.py"][0].startswith("FAULT NO_DELTA")


def test_the_way_back_may_come_with_the_function():
    def attention(q, k, v):
        return plain(q, k, v)

    attention.vjp = forgets_the_sum
    assert "NO_DELTA" in rg.check(attention).names
    assert "NO_DELTA" not in rg.check(attention, vjp=textbook_back).names


def test_operands_in_another_order():
    def attention(value, key, query):
        return plain(query, key, value)

    def vjp(grad_out, value, key, query):
        return textbook_back(grad_out, query, key, value)[::-1]

    def mistaken(grad_out, value, key, query):
        return textbook_back(grad_out, query, key, value)

    assert not any(f.level == "fault" for f in rg.check(attention, vjp=vjp).findings)
    assert any(f.level == "fault" for f in rg.check(attention, vjp=mistaken).findings)


@pytest.mark.parametrize(
    ("name", "role"),
    [("q", "query"), ("dq", "query"), ("grad_key", "key"), ("d_v", "value"), ("dbias", "bias"), ("lse", None)],
)
def test_names_of_gradients(name, role):
    assert operand_of(name) == role


def test_gradients_of_a_wrong_output_are_not_asked_for():
    """Their own are right, and those of attention are not theirs."""

    def attention(q, k, v):
        return softmax(q @ np.swapaxes(k, -1, -2)) @ v

    def vjp(g, q, k, v):
        root = np.sqrt(q.shape[-1]).astype(q.dtype)
        dq, dk, dv, _ = back(softmax(q @ np.swapaxes(k, -1, -2)), g, q, k, v)
        return dq * root, dk * root, dv

    assert set(rg.check(attention, vjp=vjp).names) - {"EMPTY_SHAPE_CRASH"} == {"SCALE_MISSING"}


def test_gradients_of_an_output_that_is_only_rounded_are():
    """Scores in float16 are a finding of their own, and hide nothing."""
    assert {"LOWP_LOGITS", "NO_DELTA"} <= set(rg.check(plain, vjp=forgets_the_sum, dtype="float16").names)


def test_an_empty_row_that_is_nan_spoils_no_other_gradient():
    """The output of the row is wrong, and nothing is sent back to it: the other rows have right gradients."""

    def P(q, k, mask):
        s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
        s = s if mask is None else np.where(mask, s, -np.inf)
        e = np.exp(s - s.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    def attention(q, k, v, mask=None):
        return P(q, k, mask) @ v

    def clean(g, q, k, v, mask=None):
        return back(np.nan_to_num(P(q, k, mask)), g, q, k, v)[:3]

    def leaks(g, q, k, v, mask=None):
        return back(P(q, k, mask), g, q, k, v)[:3]

    assert "EMPTY_ROW_NAN" in rg.check(attention, vjp=clean).names
    assert "GRAD_NAN_EMPTY_ROW" not in rg.check(attention, vjp=clean).names
    finding = rg.check(attention, vjp=leaks)["GRAD_NAN_EMPTY_ROW"]
    assert finding.evidence == ("NaN or Inf in dq, dk, dv on without_empty_row: nothing is sent back to the empty row",)
    assert finding.level == "warning"


def test_where_the_output_is_right_they_are():
    """The causal rule is wrong for rectangles, the gradient everywhere."""

    def attention(q, k, v, causal=False):
        s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
        return softmax(np.where(np.tri(*s.shape[-2:]) > 0, s, -np.inf) if causal else s) @ v

    def vjp(g, q, k, v, causal=False):
        return [-x for x in textbook_back(g, q, k, v)]

    assert rg.check(attention, vjp=vjp).names[:2] == ("CAUSAL_TOP_LEFT", "NEGATED")


def test_a_function_that_is_always_causal():
    def attention(q, k, v):
        return check_backwards.causal(q, k, v, causal=True)

    def vjp(g, q, k, v):
        return check_backwards.causal_back(g, q, k, v, causal=True)

    assert rg.check(attention, vjp=vjp).ok
    report = rg.check(attention, vjp=textbook_back)
    assert report.names[0] == "MASK_NOT_IN_BACKWARD", report


def test_refusals():
    def raises(g, q, k, v):
        raise TypeError("not today")

    def squares_only(g, q, k, v):
        if q.shape[2] != k.shape[2]:
            raise ValueError("queries and keys must be as many")
        return textbook_back(g, q, k, v)

    def not_yet(g, q, k, v):
        raise NotImplementedError("gradients come later")

    def nothing(g, q, k, v):
        return None

    def one_array(g, q, k, v):
        return q

    for vjp, level, said in (
        (raises, "fault", "rect, square, larger: TypeError: not today"),
        (squares_only, "warning", "rect, larger: ValueError: queries and keys must be as many"),
        (not_yet, "warning", "NotImplementedError: gradients come later"),
        (nothing, "fault", "vjp returns NoneType: it must return (dq, dk, dv), or a mapping by name"),
        (one_array, "fault", "vjp returns ndarray: it must return (dq, dk, dv), or a mapping by name"),
    ):
        finding = rg.check(plain, vjp=vjp)["GRAD_REFUSES"]
        assert finding.level == level, vjp
        assert said in finding.evidence[0], finding


def test_a_gradient_that_is_none_is_named():
    def vjp(g, q, k, v):
        dq, _, dv = textbook_back(g, q, k, v)
        return dq, None, dv

    report = rg.check(plain, vjp=vjp)
    assert report.names == ("GRAD_GRAPH_CUT",)
    finding = report["GRAD_GRAPH_CUT"]
    assert finding.does == "no gradient is passed back to key"
    assert finding.evidence == ("rect, square, larger: the gradient of key is None",)


def test_a_cut_hides_no_other_fault():
    def one_is_none(g, q, k, v):
        dq, dk, _ = forgets_the_sum(g, q, k, v)
        return dq, dk, None

    def none_if_square(g, q, k, v):
        return (None, None, None) if q.shape[2] == k.shape[2] else forgets_the_sum(g, q, k, v)

    for vjp in (one_is_none, none_if_square):
        assert rg.check(plain, vjp=vjp).names == ("GRAD_GRAPH_CUT", "NO_DELTA"), vjp
    finding = rg.check(plain, vjp=none_if_square)["GRAD_GRAPH_CUT"]
    assert finding.evidence[0].endswith("no gradient is passed back: those of query, key, value are None")
    assert finding.certainty == "1 of 3 probes"


def test_a_message_is_no_cut():
    """An exception of the function's own that happens to use torch's words."""

    def vjp(g, q, k, v):
        raise RuntimeError("element 0 of tensors does not require grad")

    assert rg.check(plain, vjp=vjp).names == ("GRAD_REFUSES",)


def keys_and_values_missing(g, q, k, v):
    return textbook_back(g, q, k, v)[:1]


def test_a_script_fails_where_a_gradient_is_not_returned(tmp_path):
    text = rg.check(plain, vjp=keys_and_values_missing).findings[0].script.replace(
        f"from {__name__} import keys_and_values_missing",
        "from check_backwards import textbook_back\n\n\ndef vjp(*x):\n    return textbook_back(*x)[:1]\n\n\n#",
    )  # fmt: skip
    code, _ = run({"missing.py": text}, tmp_path)["missing.py"]
    assert code == "FAULT GRAD_UNKNOWN: wrong for key, value"
    mended = text.replace("textbook_back(*x)[:1]", "textbook_back(*x)")
    assert run({"mended.py": mended}, tmp_path)["mended.py"][0] == "None"


def test_a_script_knows_gradients_by_the_names_that_were_seen(tmp_path):
    """Names whose first letters say nothing, and one that belongs to no operand."""
    finding = rg.check(plain, vjp=check_backwards.by_odd_names)["NO_DELTA"]
    assert "roles = {'grad_xq': 'query', 'dks': 'key', 'd_values': 'value'}" in finding.script
    assert run({"named.py": finding.script}, tmp_path)["named.py"][0].startswith("FAULT NO_DELTA: wrong for")
    mended = finding.script.replace("import by_odd_names", "import by_odd_names_rightly")
    assert run({"mended.py": mended}, tmp_path)["mended.py"][0] == "None"


def test_a_gradient_that_is_missing_is_wrong():
    report = rg.check(plain, vjp=lambda g, q, k, v: textbook_back(g, q, k, v)[:2])
    assert report.names[0] == "GRAD_UNKNOWN"
    assert "dv has shape None" in str(report["GRAD_UNKNOWN"])


def test_nondeterministic():
    rng = np.random.default_rng(0)

    def vjp(g, q, k, v):
        dq, dk, dv = textbook_back(g, q, k, v)
        return dq * np.float32(1 + 1e-7 * rng.integers(-1, 2)), dk, dv

    finding = rg.check(plain, vjp=vjp, seed=3)["GRAD_NONDETERMINISTIC"]
    assert finding.level == "warning"
    assert finding.evidence[0].startswith("two calls on larger: dq differs by")


def test_imprecise():
    def vjp(g, q, k, v):
        return [x.astype(np.float16).astype(x.dtype) for x in textbook_back(g, q, k, v)]

    finding = rg.check(plain, vjp=vjp).findings[0]
    assert finding.name == "GRAD_IMPRECISE"


def dropped(q, k, v, dropout=0.0, rng=None):
    P = weights(q, k)
    return P * kept(P, dropout, rng) @ v


def kept(P, dropout, rng):
    return np.where(rng.random(P.shape) < dropout, 0, 1 / (1 - dropout)).astype(P.dtype) if dropout else np.float32(1)


def dropped_back(g, q, k, v, dropout=0.0, rng=None):
    P, c = weights(q, k), 1 / np.sqrt(q.shape[-1])
    Z = kept(P, dropout, rng)
    dP = g @ np.swapaxes(v, -1, -2) * Z
    dS = P * (dP - (P * dP).sum(axis=-1, keepdims=True))
    return c * (dS @ k), c * (np.swapaxes(dS, -1, -2) @ q), np.swapaxes(P * Z, -1, -2) @ g


def test_dropout_drops_the_same_there_and_back():
    def redrawn(g, q, k, v, dropout=0.0, rng=None):
        if rng is not None:
            rng.random()
        return dropped_back(g, q, k, v, dropout, rng)

    def seedless(q, k, v, dropout=0.0, rng=None):
        return dropped(q, k, v, dropout, np.random.default_rng())

    assert rg.check(dropped, vjp=dropped_back).ok
    assert "DROPOUT_BWD_MASK_DIFFERS" not in rg.check(seedless, vjp=redrawn).names  # it has no way to know
    finding = rg.check(dropped, vjp=redrawn)["DROPOUT_BWD_MASK_DIFFERS"]
    assert finding.level == "fault"
    assert "<v, dv> = " in finding.evidence[0]


def test_what_is_expected_does_not_fail():
    report = rg.check(plain, vjp=forgets_the_sum, expected={"NO_DELTA": "the loss is a constant"})
    assert report.ok
