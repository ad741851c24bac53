"""What a user of regard.onnx reads when a call is wrong: the operator's own names, the values, the way out."""

import sys

import numpy as np
import pytest

import regard as rg
import regard.onnx
from test_imports import loaded


def f32(*shape):
    return np.ones(shape, np.float32)


FLAT = {"Q": f32(2, 3, 24), "K": f32(2, 7, 12), "V": f32(2, 7, 6), "q_num_heads": 4, "kv_num_heads": 2}
HEADS = {"Q": f32(2, 4, 3, 6), "K": f32(2, 2, 7, 6), "V": f32(2, 2, 7, 3)}
PAST = {"past_key": f32(2, 2, 5, 6), "past_value": f32(2, 2, 5, 3)}


def refused(error, parts, call, function=regard.onnx.attention):
    with pytest.raises(error) as caught:
        function(**call)
    assert isinstance(caught.value, rg.RegardError)
    text = str(caught.value)
    assert "\n" not in text
    for part in parts:
        assert part in text, text


def test_the_calls_that_are_changed_below_are_right():
    regard.onnx.attention(**FLAT, **PAST)
    regard.onnx.attention(**HEADS, **PAST)
    regard.onnx.attention(**HEADS, q_num_heads=4, kv_num_heads=2, opset=24)
    regard.onnx.rotary_embedding(**ROTARY)
    regard.onnx.rotary_embedding(**(ROTARY | {"num_heads": None}))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"q_num_heads": None}, ["Q is 3-D", "(2, 3, 24)", "pass q_num_heads="]),
        ({"kv_num_heads": None}, ["K is 3-D", "(2, 7, 12)", "pass kv_num_heads="]),
        ({"q_num_heads": 5}, ["Q has shape (2, 3, 24)", "q_num_heads is 5", "24 must be a multiple"]),
        ({"q_num_heads": 0}, ["q_num_heads is 0", "1 or more"]),
        ({"kv_num_heads": 4}, ["V has shape (2, 7, 6)", "kv_num_heads is 4", "6 must be a multiple"]),
        ({"K": f32(2, 2, 7, 6)}, ["(2, 3, 24), (2, 2, 7, 6), (2, 7, 6)", "4-D (B, H, L, D)", "3-D (B, L, H * D)"]),
        ({"K": f32(1, 7, 12)}, ["(1, 7, 12)", "axis 0 is the batch"]),
        ({"V": f32(2, 6, 6)}, ["with K there are 7 keys", "with V 6 values"]),
    ],
)
def test_flat_inputs(changes, parts):
    refused(rg.ShapeError, parts, FLAT | changes)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"q_num_heads": 4}, ["q_num_heads is 4", "Q is 4-D", "from opset 25 on", "leave it out"]),
        ({"kv_num_heads": 2}, ["kv_num_heads is 2", "K is 4-D", "from opset 25 on", "leave it out"]),
        ({"kv_num_heads": 4, "opset": 24}, ["kv_num_heads is 4", "K has 2 heads", "leave it out"]),
        ({"past_key": f32(2, 2, 5, 6)}, ["past_key is given and past_value is not", "pass both or none"]),
        ({"past_value": f32(2, 2, 5, 3)}, ["past_value is given and past_key is not", "pass both or none"]),
        (PAST | {"past_key": f32(2, 1, 5, 6)}, ["past_key has shape (2, 1, 5, 6)", "(2, 2, past length, 6)"]),
        (PAST | {"past_value": f32(2, 5, 6)}, ["past_value has shape (2, 5, 6)", "(2, 2, past length, 3)"]),
        (PAST | {"past_value": f32(2, 2, 4, 3)}, ["with past_key there are 12 keys", "with past_value 11 values"]),
        ({"attn_mask": np.array(True)}, ["attn_mask has shape ()", "(2, 4, 3, 7)", "1 to 4 axes"]),
        ({"attn_mask": f32(1, 2, 4, 3, 7)}, ["(1, 2, 4, 3, 7)", "1 to 4 axes"]),
        ({"attn_mask": f32(8)}, ["attn_mask has shape (8,)", "matched from the right, each 1 or full"]),
        ({"attn_mask": f32(2, 3, 7)}, ["(2, 3, 7)", "axis 0 of three is heads", "attn_mask[:, None]"]),
        ({"attn_mask": f32(2, 7)}, ["(2, 7)", "attn_mask[:, None, None, :]"]),
        ({"nonpad_kv_seqlen": np.array([7])}, ["int64 of shape (1,)", "shape (2,)"]),
        ({"nonpad_kv_seqlen": np.array([7.0, 7.0])}, ["float64 of shape (2,)", "an integer per batch entry"]),
        ({"nonpad_kv_seqlen": np.array([3, 8])}, ["reaches from 3 to 8", "K has 7 keys"]),
        ({"nonpad_kv_seqlen": np.array([-1, 7])}, ["reaches from -1 to 7", "0 to 7"]),
    ],
)
def test_shapes(changes, parts):
    refused(rg.ShapeError, parts, HEADS | changes)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"attn_mask": np.ones((3, 7), np.int64)}, ["attn_mask is int64", "attn_mask.astype(bool)"]),
        ({"Q": f32(2, 4, 3, 6).astype(np.float64)}, ["Q is float64 and K is float32", "only V may differ"]),
        (PAST | {"past_key": PAST["past_key"].astype(np.float16)}, ["past_key is float16 and K is float32"]),
        ({"V": np.ones((2, 2, 7, 3), int)}, ["V has the integer dtype int64", "V.astype(np.float32)"]),
    ],
)  # fmt: skip
def test_dtypes(changes, parts):
    refused(rg.DTypeError, parts, HEADS | changes)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        (PAST | {"nonpad_kv_seqlen": np.array([7, 7])}, ["nonpad_kv_seqlen and past_key are both given", "leave one"]),
        ({"nonpad_kv_seqlen": np.array([7, 7]), "opset": 23}, ["nonpad_kv_seqlen came with opset 24", "opset is 23"]),
        ({"attn_mask": f32(3, 5), "opset": 23}, ["attn_mask of 5 keys for 7", "opset 24", "False (-inf)"]),
        ({"left_window_size": 2, "opset": 24}, ["left_window_size=2 came with opset 25", "opset is 24"]),
        ({"right_window_size": 0, "opset": 23}, ["right_window_size=0 came with opset 25", "leave it out"]),
        ({"right_window_size": -2}, ["right_window_size is -2", "-1 for no bound"]),
        ({"left_window_size": 1.5}, ["left_window_size is 1.5", "a number of keys"]),
        ({"opset": 22}, ["opset is 22", "since opset 23"]),
        ({"opset": "25"}, ["opset is '25'", "23, 24, or 25 and above"]),
        ({"is_causal": 2}, ["is_causal is 2", "0 or 1"]),
        ({"qk_matmul_output_mode": 4}, ["qk_matmul_output_mode is 4", "3 after the softmax"]),
        ({"softmax_precision": 7}, ["softmax_precision is 7", "1 (FLOAT)", "16 (BFLOAT16)"]),
        ({"softcap": -1.0}, ["softcap is -1.0", "above 0"]),
        ({"scale": np.inf}, ["scale is inf", "finite"]),
    ],
)
def test_options(changes, parts):
    refused(rg.UnsupportedError, parts, HEADS | changes)


TABLE = np.ones((9, 3), np.float32)
ROTARY = {"X": f32(2, 4, 3, 6), "cos_cache": TABLE, "sin_cache": TABLE, "position_ids": np.zeros((2, 3), np.int64)}


@pytest.mark.parametrize(
    ("error", "changes", "parts"),
    [
        (rg.ShapeError, {"X": f32(3, 6)}, ["X has shape (3, 6)", "4-D (B, H, L, D)"]),
        (rg.ShapeError, {"X": f32(2, 3, 24)}, ["X is 3-D", "(2, 3, 24)", "pass num_heads="]),
        (rg.ShapeError, {"num_heads": 3}, ["num_heads is 3", "X has 4 heads"]),
        (rg.ShapeError, {"X": f32(2, 4, 3, 5)}, ["5 features", "even rotary_embedding_dim, 4 at most"]),
        (rg.ShapeError, {"rotary_embedding_dim": 8}, ["8 features of heads of size 6", "6 at most"]),
        (rg.ShapeError, {"rotary_embedding_dim": 4}, ["cos_cache has shape (9, 3)", "r / 2 = 2"]),
        (rg.ShapeError, {"sin_cache": TABLE[:, :2]}, ["sin_cache has shape (9, 2)", "r / 2 = 3"]),
        (rg.ShapeError, {"position_ids": None}, ["cos_cache has shape (9, 3)", "without position_ids", "(2, 3, 3)"]),
        (rg.ShapeError, {"position_ids": np.zeros((1, 3), int)}, ["int64 of shape (1, 3)", "shape (2, 3)"]),
        (rg.UnsupportedError, {"position_ids": np.full((2, 3), 9)}, ["from 9 to 9", "cos_cache has 9 rows", "0 to 8"]),
        (rg.UnsupportedError, {"position_ids": np.full((2, 3), -1)}, ["from -1 to -1", "0 to 8"]),
        (rg.UnsupportedError, {"interleaved": 2}, ["interleaved is 2", "0 or 1"]),
        (rg.DTypeError, {"X": np.ones((2, 4, 3, 6), int)}, ["integer dtype int64"]),
    ],
)
def test_rotary(error, changes, parts):
    refused(error, parts, ROTARY | changes, regard.onnx.rotary_embedding)


def test_without_the_package_the_way_to_get_it(monkeypatch):
    for name in ("onnx", "onnx.reference", "onnx.reference.op_run"):
        monkeypatch.setitem(sys.modules, name, None)
    refused(
        rg.UnsupportedError, ["needs the package onnx", "pip install 'regard[onnx]'"], {}, regard.onnx.reference_ops
    )


def test_nothing_but_reference_ops_imports_the_package():
    assert loaded("import regard.onnx as o, numpy as np; o.attention(*[np.ones((1, 1, 2, 4))] * 3)") == []


@pytest.mark.parametrize("short", ["K", "V", "past"])
def test_one_value_per_key(short):
    """Where a mask is shorter than the keys, both are cut, and must have been of one length before."""
    rows = {"K": (3, 5, 0, 0), "V": (5, 3, 0, 0), "past": (4, 4, 2, 3)}[short]
    K, V, past_key, past_value = (np.zeros((1, 1, n, 8), np.float32) for n in rows)
    past = {"past_key": past_key, "past_value": past_value} if short == "past" else {}
    with pytest.raises(rg.ShapeError, match="one value per key"):
        regard.onnx.attention(np.zeros((1, 1, 4, 8), np.float32), K, V, np.ones((4, 3), bool), **past)
