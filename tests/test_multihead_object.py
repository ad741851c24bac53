"""The multi-head layer as an object: how it shows itself, how it is copied, and what it refuses."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest

import regard as rg
from judges import assert_same_bits
from multihead_random import build, make

# --- the object -----------------------------------------------------------------------------------


def test_repr():
    rng = np.random.default_rng(0)
    layer = rg.MultiHeadAttention(**make(rng, kv_heads=2, extra=1, softcap=30.0, scale=0.5, sinks=np.zeros(4)))
    assert repr(layer) == (
        "MultiHeadAttention(4 heads of 6, 2 kv heads, values of 5; query 10, key 9, value 7 -> 8; float64; "
        "extra keys: 1; scale 0.5; softcap 30.0; sinks)"
    )
    inputs = [rng.standard_normal((3, width)) for width in (10, 9, 7)]
    assert repr(layer.forward(*inputs)) == (
        "MultiHeadResult: out float64 (3, 8), weights float64 (4, 3, 4) computed when indexed"
    )


def test_frozen_and_copied():
    rng = np.random.default_rng(0)
    arguments = make(rng, widths=(10, 10, 10, 8), extra=1)
    layer = rg.MultiHeadAttention(**arguments)
    with pytest.raises(dataclasses.FrozenInstanceError):
        layer.scale = 2.0
    with pytest.raises(ValueError, match="read-only"):
        layer.query_weight[0] = 0
    assert np.shares_memory(layer.query_weight, arguments["query_weight"])
    assert arguments["query_weight"].flags.writeable
    x = rng.standard_normal((3, 10))
    for twin in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer), dataclasses.replace(layer)):
        assert_same_bits(twin(x), layer(x))
    assert not np.array_equal(dataclasses.replace(layer, scale=2.0)(x), layer(x))


def test_inputs_are_not_changed():
    rng = np.random.default_rng(0)
    layer = build(make(rng, widths=(10, 10, 10, 8), extra=1), 10.0)
    x = rng.standard_normal((2, 3, 10))
    kept = x.copy()
    x.flags.writeable = False
    layer(x, mask=rg.Causal())
    assert_same_bits(x, kept)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"num_heads": 0}, rg.ShapeError, "num_heads is 0; it must be an integer, 1 or more"),
        ({"num_kv_heads": 3}, rg.ShapeError, r"4 query heads cannot share 3 kv heads, 4 % 3 = 1"),
        ({"query_weight": np.ones((25, 10))}, rg.ShapeError, r"shape \(25, 10\).*multiple of 4 query heads"),
        ({"query_weight": np.ones(24)}, rg.ShapeError, r"query_weight has shape \(24,\); it must have two axes"),
        ({"query_weight": np.ones((0, 10))}, rg.ShapeError, r"query_weight has shape \(0, 10\)"),
        ({"query_weight": None}, rg.DTypeError, "query_weight is None"),
        (
            {"key_weight": np.ones((12, 9))},
            rg.ShapeError,
            r"key_weight has shape \(12, 9\) and must have \(24, any\), 4 kv heads of 6 \(grouped.*num_kv_heads=2\)",
        ),
        (
            {"key_weight": np.ones((9, 24))},
            rg.ShapeError,
            r"key_weight has shape \(9, 24\).*\(outputs, inputs\).*pass key_weight\.T",
        ),
        ({"value_weight": np.ones((19, 7))}, rg.ShapeError, r"value_weight has shape \(19, 7\).*of 4 kv heads"),
        (
            {"output_weight": np.ones((20, 8))},
            rg.ShapeError,
            r"output_weight has shape \(20, 8\) and must have \(any, 20\), inputs for 4 heads with values of 5; .*\.T",
        ),
        ({"value_bias": np.ones(19)}, rg.ShapeError, r"value_bias has shape \(19,\).* \(20,\), a number per row"),
        ({"output_bias": np.ones((8, 1))}, rg.ShapeError, r"output_bias has shape \(8, 1\) and must have \(8,\)"),
        ({"sinks": np.ones(3)}, rg.ShapeError, r"sinks has shape \(3,\) and must have \(4,\), a logit per query head"),
        ({"extra_key": np.ones((1, 24))}, rg.ShapeError, "extra_key and extra_value come together"),
        (
            {"extra_key": np.ones(24), "extra_value": np.ones(20)},
            rg.ShapeError,
            r"extra_key has shape \(24,\) and must have \(24, 24\), rows of 4 kv heads of 6",
        ),
        (
            {"extra_key": np.ones((2, 24)), "extra_value": np.ones((1, 20))},
            rg.ShapeError,
            r"extra_value has shape \(1, 20\) and must have \(2, 20\), a row per extra key, 4 of 5",
        ),
        ({"scale": np.nan}, rg.UnsupportedError, "scale is nan"),
        ({"softcap": -1}, rg.UnsupportedError, "softcap is -1"),
        ({"key_bias": np.ones(24, np.float32)}, rg.DTypeError, "query_weight is float64.*key_bias is float32.*cast"),
        ({"key_weight": np.ones((24, 9), int)}, rg.DTypeError, "key_weight has the integer dtype int64"),
    ],
    ids=str,
)  # fmt: skip
def test_messages_of_the_constructor(change, kind, message):
    with pytest.raises(kind, match=message):
        rg.MultiHeadAttention(**{**make(np.random.default_rng(0)), **change})


def test_messages_of_a_call():
    rng = np.random.default_rng(0)
    layer = rg.MultiHeadAttention(**make(rng))
    q, k, v = (rng.standard_normal((2, 5, width)) for width in (10, 9, 7))
    cases = [
        (
            rg.ShapeError,
            r"key has shape \(2, 5, 10\) and must have \(\.\.\., S, 9\).*key_weight of shape \(24, 9\)",
            (q,),
        ),
        (rg.ShapeError, r"query has shape \(2, 5, 9\) and must have \(\.\.\., S, 10\)", (k, k, v)),
        (rg.ShapeError, r"value has shape \(2, 5, 9\) and must have \(\.\.\., S, 7\)", (q, k)),
        (rg.ShapeError, r"query has shape \(10,\) and must have \(\.\.\., S, 10\)", (q[0, 0], k, v)),
        (rg.ShapeError, r"key has 5 rows and value has 4", (q, k, v[:, :4])),
        (rg.ShapeError, r"leading \(batch\) axes", (q, k[[0, 1, 1]], v)),
        (rg.DTypeError, "query is float64, key is float32, value is float64", (q, np.float32(k), v)),
        (
            rg.DTypeError,
            r"query is float32 and the layer's weights are float64: cast query to float64",
            tuple(map(np.float32, (q, k, v))),
        ),
        (rg.DTypeError, "query has the integer dtype", (q.astype(int), k.astype(int), v.astype(int))),
        (rg.DTypeError, "key is None", (q, None, v)),
    ]
    for kind, message, inputs in cases:
        with pytest.raises(kind, match=message):
            layer(*inputs)
    with pytest.raises(rg.MaskError, match=r"mask has shape \(2, 5\) and the scores have shape \(2, 4, 5, 5\)"):
        layer(q, k, v, mask=np.ones((2, 5), bool))
    for name, way in (("key_padding_mask", "KeyLengths"), ("is_causal", "Causal"), ("need_weights", "weights")):
        with pytest.raises(TypeError, match=f"{name}= is another library's argument.*{way}"):
            layer(q, k, v, **{name: None})
    with pytest.raises(
        TypeError, match=r"scale belongs to the layer: write dataclasses\.replace\(layer, scale=\.\.\.\)"
    ):
        layer(q, k, v, scale=1.0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("embed_dim", r"embed_dim= is another library's argument; here write the weights, .*from_torch\(module\)"),
        ("add_zero_attn", "write extra_key= and extra_value="),
        ("is_causal", r"write layer\(x, mask=rg\.Causal\(\)\), in the call"),
        (
            "num_head",
            r"MultiHeadAttention has no argument 'num_head'; did you mean num_heads=\?; it has query_weight, ",
        ),
        ("xyz", "MultiHeadAttention has no argument 'xyz'; it has query_weight, .*, rotary$"),
    ],
)
def test_arguments_that_a_layer_has_not(name, said):
    with pytest.raises(TypeError, match=said):
        rg.MultiHeadAttention(**{name: 8})
    with pytest.raises(TypeError, match=said):
        rg.MultiHeadAttention(**make(np.random.default_rng(0)), **{name: 8})


def test_a_rotary_that_turns_in_place(rng):
    """The keys of no position are scored with queries that were not turned, whatever the function does to its x."""
    x, (w, o) = rng.standard_normal((5, 8)), rng.standard_normal((2, 8, 8))
    extra = {"extra_key": rng.standard_normal((1, 8)), "extra_value": rng.standard_normal((1, 8))}

    def in_place(a, positions):
        a[...] = rg.rotary_embedding(a, positions)
        return a

    made = [
        rg.MultiHeadAttention(
            query_weight=w, key_weight=w, value_weight=w, output_weight=o, num_heads=2, rotary=rotary, **extra
        )
        for rotary in (rg.rotary_embedding, in_place)
    ]
    assert_same_bits(made[1](x), made[0](x))
    with pytest.raises(rg.UnsupportedError, match="rotary is True; it is a function"):
        dataclasses.replace(made[0], rotary=True)
