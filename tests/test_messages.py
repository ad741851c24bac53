"""What a user reads when a call is wrong: the fact, the values, the way out."""

import numpy as np
import pytest

import regard as rg

F = np.ones


def f32(*shape):
    return np.ones(shape, np.float32)


Q, K, V = f32(2, 4, 3, 8), f32(2, 2, 7, 8), f32(2, 2, 7, 5)


def refused(error, *parts, query=Q, key=K, value=V, call=rg.attention, **options):
    with pytest.raises(error) as caught:
        call(query, key, value, **options)
    assert isinstance(caught.value, rg.RegardError)
    assert isinstance(caught.value, ValueError)
    text = str(caught.value)
    for part in parts:
        assert part in text, text
    assert "\n" not in text


@pytest.mark.parametrize("call", [rg.attention, rg.attention_forward, rg.plan, rg.reference.attention])
def test_every_way_in_checks_alike(call):
    refused(rg.ShapeError, "head size 8", "9", call=call, key=f32(2, 2, 7, 9))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"query": f32(8)}, ["query", "(8,)", "at least two axes"]),
        ({"key": f32(2, 2, 7, 9)}, ["head size 8", "has 9", "last axes must be equal"]),
        ({"value": f32(2, 2, 6, 5)}, ["key has 7 rows", "value has 6", "one value per key"]),
        (
            {"key": f32(2, 3, 7, 8), "value": f32(2, 3, 7, 5)},
            ["4 heads", "has 3", "4 % 3", "swapaxes(-3, -2)"],
        ),
        ({"value": f32(2, 1, 7, 5)}, ["key has 2 heads", "value has 1"]),
        ({"key": f32(3, 2, 7, 8)}, ["(2,)", "(3,)", "do not broadcast"]),
        ({"query": f32(2, 4, 3, 0), "key": f32(2, 2, 7, 0)}, ["head size 0", "pass scale="]),
    ],
)
def test_shapes(changes, parts):
    refused(rg.ShapeError, *parts, **changes)


@pytest.mark.parametrize(
    ("dtype", "parts"),
    [
        (
            "float64",
            ["query has dtype float64", "float32", "query.astype(np.float32)", "reference.attention"],
        ),
        ("float16", ["float16", "astype(np.float32)"]),
        ("int64", ["integer dtype (int64)", "astype(np.float32)"]),
        ("bool", ["bool", "astype(np.float32)"]),
        (">f4", ["'>f4'", "byte order", "astype(np.float32)"]),
        ("object", ["object", "astype(np.float32)"]),
        ("complex64", ["complex64"]),
    ],
)
def test_dtypes(dtype, parts):
    refused(rg.DTypeError, *parts, query=Q.astype(dtype), key=K.astype(dtype), value=V.astype(dtype))


def test_other_containers():
    refused(rg.DTypeError, "float64", query=[[1, 2]], key=[[1, 2]], value=[[1, 2]])
    refused(rg.DTypeError, "not an array of numbers", query=[[1, 2], [3]])
    refused(rg.DTypeError, "masked array", "query.data", query=np.ma.masked_array(Q))
    refused(
        rg.DTypeError,
        "key is float64",
        "cast them to one",
        key=K.astype(np.float64),
        call=rg.reference.attention,
    )
    torch_like = type("Tensor", (), {"__module__": "torch"})()
    refused(rg.UnsupportedError, "torch array", "query.detach().numpy()", query=torch_like)
    jax_like = type("ArrayImpl", (), {"__module__": "jaxlib._jax"})()
    refused(rg.UnsupportedError, "np.asarray(", query=jax_like)


@pytest.mark.parametrize(
    ("mask", "parts"),
    [
        (True, ["rg.Causal()", "bool array"]),
        ("causal", ["'causal'", "mask=rg.Causal()"]),
        (3.5, ["float", "rg.Causal() & rg.KeyLengths(lengths)"]),
        (np.ones((3, 7), np.uint8), ["uint8", "astype(bool)"]),
        (np.zeros((3, 7), np.float32), ["float32", "bias="]),
        (np.ones((2, 7), bool), ["(2, 7)", "mask[:, None, None, :]"]),
        (np.ones((2, 3, 7), bool), ["(2, 3, 7)", "mask[:, None]"]),
        (rg.KeyLengths([3, 8]), ["8", "7"]),
        (rg.KeyLengths([3, 4, 5]), ["(3,)", "(2,)"]),
    ],
)
def test_masks(mask, parts):
    refused(rg.MaskError, *parts, mask=mask)


def test_alignment_prints_both_choices():
    refused(
        rg.AlignmentError, "Causal()", "3 queries", "7 keys", 'q_offset="start"', 'q_offset="end"', "position 4 + i",
        mask=rg.Causal(),
    )  # fmt: skip
    refused(
        rg.AlignmentError, "KeyLengths([3, 5])", "q_offset=lengths - Sq", mask=rg.Causal() & rg.KeyLengths([3, 5]),
        q_offset="end",
    )  # fmt: skip
    refused(rg.AlignmentError, "'bottom'", '"start"', '"end"', q_offset="bottom")
    refused(rg.AlignmentError, "True", "an int", q_offset=True)
    refused(rg.AlignmentError, "1.5", q_offset=1.5)
    refused(rg.AlignmentError, str(2**63), "2**62", q_offset=2**63)
    rg.attention(Q, K, V, mask=rg.KeyLengths([3, 5]))
    rg.attention(Q, f32(2, 2, 3, 8), f32(2, 2, 3, 5), mask=rg.Causal())


@pytest.mark.parametrize("scale", [np.nan, np.inf, "1", True, 1e39, [1.0, 2.0], None.__class__])
def test_scale(scale):
    refused(rg.UnsupportedError, "scale is", "finite number", scale=scale)


@pytest.mark.parametrize(
    ("options", "way_out"),
    [
        ({"bias": np.zeros((3, 7), np.float32)}, "mask=(bias == 0)"),
        ({"softcap": 30.0}, "leave it out"),
        ({"sinks": np.zeros(4, np.float32)}, "sigmoid(lse - sink)"),
        ({"dropout": 0.1}, "leave it out"),
        ({"out": Q}, "out[...] = attention(...)"),
        ({"q_offset": [1, 2]}, "call once per offset"),
    ],
)
def test_what_comes_later_is_refused(options, way_out):
    refused(rg.UnsupportedError, "not supported by this version", way_out, **options)


def test_aux_is_refused():
    refused(rg.UnsupportedError, "aux", ".lse", call=rg.attention_forward, aux="lse")


def test_config():
    for threads in (0, -1, 2000, 1.5, True, "2"):
        with pytest.raises(rg.UnsupportedError, match="an integer from 1 to 1024"):
            rg.config(num_threads=threads)
    with pytest.raises(rg.UnsupportedError, match=r"'sse9'; the targets that this machine can use are scalar"):
        rg.config(target="sse9")


def test_weights_index():
    weights = rg.attention_forward(Q, K, V).weights
    for index, text in [
        ((0, 0, slice(None), slice(None, None, 2)), "step 2"),
        ((0, 0, 0, 0, 0), "4 axes"),
        ((0, 0, 3), "index 3 is out of range for an axis of size 3"),
        ((2,), "out of bounds"),
        (("a",), "not by str"),
        ((True,), "not by bool"),
        (([0, 1],), "not by list"),
        ((Ellipsis, Ellipsis), "too many"),
    ]:
        with pytest.raises(IndexError, match=text):
            weights[index]
