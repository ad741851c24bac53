"""The oracle's gradients: by differences, by laws, and what must never be part of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from gradient_judges import assert_laws, assert_slopes
from judges import refused
from test_agree import all_options

backward = rg.reference.attention_backward


def operands(rng, lead=(2,), heads=4, kv_heads=2, queries=3, keys=5, d=6, dv=4):
    shapes = (*lead, heads, queries, d), (*lead, kv_heads, keys, d), (*lead, kv_heads, keys, dv)
    return [rng.standard_normal(shape) for shape in shapes]


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lead = draw(st.sampled_from([(), (1,), (2,), (2, 1)]))
    kv_heads, group = draw(st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2)]))
    queries, keys = draw(st.sampled_from([1, 2, 5])), draw(st.sampled_from([1, 3, 6]))
    d, dv = draw(st.sampled_from([1, 4, 5])), draw(st.sampled_from([1, 3]))
    arrays = operands(rng, lead, kv_heads * group, kv_heads, queries, keys, d, dv)
    options = draw(all_options(rng, lead, kv_heads * group, queries, keys))
    for name in ("bias", "sinks"):  # a difference needs float64
        if isinstance(options.get(name), np.ndarray):
            options[name] = options[name].astype(np.float64)
    return arrays, options, rng


@settings(max_examples=200)
@given(problem=problems())
def test_gradients_are_slopes_and_keep_the_laws(problem):
    arrays, options, rng = problem
    grad_out = rng.standard_normal((*arrays[0].shape[:-1], arrays[2].shape[-1]))
    found = backward(grad_out, *arrays, **options)
    assert (found.bias is None, found.sinks is None) == ("bias" not in options, "sinks" not in options)
    assert_slopes(found, grad_out, arrays, options)
    assert_laws(found, grad_out, arrays, options)


ALONE = {
    "plain": {},
    "scale": {"scale": -0.7},
    "softcap": {"softcap": 0.8},
    "mask": {"mask": rg.Causal(), "q_offset": -1},  # row 0 is empty
    "bias": {"bias": np.random.default_rng(1).standard_normal((3, 5))},
    "bias of -inf": {"bias": np.where(np.random.default_rng(2).random((3, 5)) < 0.4, -np.inf, 0.5)},
    "sinks": {"sinks": np.array([0.3, -2.0, 5.0, 0.0])},
}


@pytest.mark.parametrize("name", ALONE)
def test_each_element_by_itself(name):
    """Every element of every gradient, by a difference of its own."""
    rng, options = np.random.default_rng(5), ALONE[name]
    arrays = operands(rng)
    grad_out = rng.standard_normal((2, 4, 3, 4))
    found = backward(grad_out, *arrays, **options)
    for at, got in enumerate(found[:3]):
        want = np.empty_like(got)
        for index in np.ndindex(got.shape):
            ends = []
            for h in (1e-5, -1e-5):
                moved = [x.copy() for x in arrays]
                moved[at][index] += h
                ends.append((rg.reference.attention(*moved, **options) * grad_out).sum())
            want[index] = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(got, want, rtol=1e-7, atol=2e-9, err_msg=f"{name}, operand {at}")


def test_shared_entries_get_the_sum():
    rng = np.random.default_rng(6)
    q, k, v = operands(rng)
    grad_out, bias = rng.standard_normal((2, 4, 3, 4)), rng.standard_normal((1, 4, 1, 5))
    found = backward(grad_out, q, k[:1], v[0], bias=bias, sinks=np.zeros(1))
    wide = backward(
        grad_out, q, np.repeat(np.repeat(k[:1], 2, 0), 2, 1), np.repeat(np.repeat(v[:1], 2, 0), 2, 1),
        bias=np.broadcast_to(bias, (2, 4, 3, 5)), sinks=np.zeros((2, 4)),
    )  # fmt: skip
    np.testing.assert_allclose(found.query, wide.query, rtol=1e-12)
    for got, each in ((found.key, wide.key), (found.value, wide.value)):
        want = each.reshape(2, 2, 2, *each.shape[-2:]).sum(axis=(0, 2))
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(found.bias, wide.bias.sum(axis=(0, 2))[None, :, None], rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(found.sinks, [wide.sinks.sum()], rtol=1e-10)


def test_one_head_without_axes():
    rng = np.random.default_rng(7)
    q, k, v, grad_out = (rng.standard_normal(shape) for shape in ((3, 4), (5, 4), (5, 2), (3, 2)))
    found = backward(grad_out, q, k, v, bias=np.zeros((3, 5)))
    whole = backward(*(x[None, None] for x in (grad_out, q, k, v)))
    assert [x.shape for x in found[:4]] == [(3, 4), (5, 4), (5, 2), (3, 5)]
    for got, want in zip(found[:3], whole[:3], strict=True):
        np.testing.assert_array_equal(got, want[0, 0])


@pytest.mark.parametrize("bias", [rg.Alibi(4), rg.Alibi(4) + np.zeros((3, 5))], ids=["formula", "sum"])
def test_a_bias_without_an_array_has_the_scores_shape(bias):
    rng = np.random.default_rng(8)
    arrays, grad_out = operands(rng), rng.standard_normal((2, 4, 3, 4))
    got = backward(grad_out, *arrays, bias=bias, q_offset=0).bias
    spelled = bias.materialize(3, 5, lead=(2,), heads=4, dtype=np.float64)
    np.testing.assert_allclose(got, backward(grad_out, *arrays, bias=spelled).bias, rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("softcap", [None, 1.0])
def test_what_is_hidden_takes_no_part(bad, softcap):
    """NaN in a hidden key and value, in a query that sees nothing, and in what comes back to it."""
    rng = np.random.default_rng(9)
    keep = rng.random((3, 5)) < 0.6
    keep[:, 0], keep[1], keep[:, 4] = True, False, False
    arrays, grad_out = operands(rng), rng.standard_normal((2, 4, 3, 4))
    want = backward(grad_out, *arrays, mask=keep, softcap=softcap)
    spoilt = [x.copy() for x in (grad_out, *arrays)]
    spoilt[0][..., 1, :] = spoilt[1][..., 1, :] = spoilt[2][..., 4, :] = spoilt[3][..., 4, :] = bad
    got = backward(*spoilt, mask=keep, softcap=softcap)
    for name in ("query", "key", "value"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name), err_msg=name)
    assert not got.query[..., 1, :].any()
    assert not got.key[..., 4, :].any()
    assert not got.value[..., 4, :].any()


def test_nan_stays_in_the_rows_that_see_it():
    rng = np.random.default_rng(10)
    arrays, grad_out = operands(rng, heads=2), rng.standard_normal((2, 2, 3, 4))
    keep = np.ones((3, 5), bool)
    keep[:2, 4] = False
    arrays[2][..., 4, :] = np.nan
    got = backward(grad_out, *arrays, mask=keep)
    assert np.isfinite(got.query[..., :2, :]).all()
    assert np.isnan(got.query[..., 2, :]).all()
    arrays[0][..., 0, :], arrays[2][..., 4, :], keep[0, 3] = np.nan, 0, False
    got = backward(grad_out, *arrays, mask=keep)
    for x in (got.key, got.value):
        assert np.isnan(x[..., :3, :]).all()
        assert np.isfinite(x[..., 3:, :]).all()


def test_no_keys_no_queries_no_heads():
    for sizes in ({"keys": 0}, {"queries": 0}, {"lead": (0,)}, {"heads": 0, "kv_heads": 0}, {"d": 0}):
        arrays = operands(np.random.default_rng(11), **sizes)
        grad_out = np.ones((*arrays[0].shape[:-1], 4))
        found = backward(grad_out, *arrays, scale=1.0)
        assert [x.shape for x in found[:3]] == [x.shape for x in arrays]
        assert all(np.isfinite(x).all() for x in found[:3])


def test_messages():
    q, k, v = operands(np.random.default_rng(12))
    call = {"call": backward}
    refused(rg.ShapeError, "(2, 4, 3)", "(2, 4, 3, 4)", args=(np.ones((2, 4, 3)), q, k, v), **call)
    refused(rg.ShapeError, "(2, 4, 4, 3)", args=(np.ones((2, 4, 4, 3)), q, k, v), **call)
    refused(rg.DTypeError, "grad_out", "int64", args=(np.ones((2, 4, 3, 4), int), q, k, v), **call)
    refused(rg.DTypeError, "bias", "bool", args=(np.ones((2, 4, 3, 4)), q, k, v), bias=True, **call)


@pytest.mark.parametrize(
    ("option", "error", "way_out"),
    [
        ({"dropout": 0.1}, rg.UnsupportedError, "dropout= is not supported by this version of regard; leave it out"),
        ({"attn_mask": None}, TypeError, "attn_mask= is another library's argument; here write mask="),
        ({"is_causal": True}, TypeError, "is_causal= is another library's argument; here write mask=rg.Causal()"),
        ({"masks": 1}, TypeError, "there is no argument 'masks'; did you mean mask=?"),
    ],
)
def test_options_that_are_not_there_are_refused_as_by_its_siblings(option, error, way_out):
    operands = [np.ones((3, 4))] * 3
    said = []
    for fn, arrays in ((backward, [operands[0], *operands]), (rg.reference.attention, operands)):
        with pytest.raises(error) as caught:
            fn(*arrays, **option)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert way_out in said[0]


def spoilers():
    """Faults, as people make them, in right gradients."""
    root = 6**0.5

    def without_delta(grad_out, q, k, v):
        P = rg.reference.attention_forward(q, k, v).weights
        dS = P * (grad_out @ v.swapaxes(-1, -2))
        return rg.reference.Gradients(dS @ k / root, dS.swapaxes(-1, -2) @ q / root, backward(grad_out, q, k, v).value)

    yield without_delta
    yield lambda *a: backward(*a)._replace(query=backward(*a).query * root)
    yield lambda *a: backward(*a)._replace(key=-backward(*a).key)
    yield lambda *a: backward(*a)._replace(value=backward(*a).value * 1.0001)
    yield lambda g, q, k, v: backward(np.roll(g, 1, -2), q, k, v)


@pytest.mark.parametrize("spoilt", list(spoilers()))
def test_the_judges_can_say_no(spoilt):
    rng = np.random.default_rng(13)
    arrays, grad_out = operands(rng, heads=2), rng.standard_normal((2, 2, 3, 4))
    with pytest.raises(AssertionError, match="the loss grows"):
        assert_slopes(spoilt(grad_out, *arrays), grad_out, arrays, {})


@pytest.mark.parametrize(
    ("law", "spoil"),
    [
        ("<q, dq>", lambda g: g._replace(query=2 * g.query)),
        ("<v, dv>", lambda g: g._replace(value=g.value[..., ::-1, :])),
        ("sum dv", lambda g: g._replace(value=g.value + 1)),
        ("sum dk", lambda g: g._replace(key=g.key + 1)),
    ],
)
def test_each_law_can_say_no(law, spoil):
    rng = np.random.default_rng(14)
    arrays, grad_out = operands(rng, heads=2), rng.standard_normal((2, 2, 3, 4))
    with pytest.raises(AssertionError, match=f"broken: .*{law}"):
        assert_laws(spoil(backward(grad_out, *arrays)), grad_out, arrays, {})
