"""What the user reads when a mask is refused: the fact, the values and the way out."""

import operator

import numpy as np
import pytest

from regard._errors import MaskError, RegardError
from regard._types import Geometry
from regard.masks import (
    Blocks,
    Causal,
    Chunked,
    Dense,
    Dilated,
    Documents,
    Empty,
    Full,
    Global,
    KeyLengths,
    Prefix,
    Window,
    from_function,
)

SCORES = Geometry(lead=(2,), heads=4, queries=5, keys=7)


def assert_says(error, parts):
    missing = [part for part in parts if part not in str(error.value)]
    assert not missing, f"{missing} not in {str(error.value)!r}"


def test_the_judge_says_no():
    with pytest.raises(MaskError) as error:
        Window(left=-1)
    with pytest.raises(AssertionError, match="right"):
        assert_says(error, ["left", "right=-1"])


@pytest.mark.parametrize("ask", [bool, operator.not_, lambda mask: mask and Full(), lambda mask: mask or Full()])
def test_a_mask_has_no_truth_value(ask):
    with pytest.raises(TypeError) as error:
        ask(Causal())
    assert_says(error, ["a mask has no truth value", "combine masks with & | ~, not and / or / not"])


ARRAY = np.ones((5, 7), bool)


@pytest.mark.parametrize(
    ("combine", "got"),
    [
        (lambda: Causal() & ARRAY, ["ndarray", "bool", "(5, 7)"]),
        (lambda: Causal() | ARRAY, ["ndarray", "bool", "(5, 7)"]),
        (lambda: ARRAY & Causal(), ["ndarray", "bool", "(5, 7)"]),
        (lambda: ARRAY | Causal(), ["ndarray", "bool", "(5, 7)"]),
        (lambda: Causal() & ARRAY.astype(np.float32), ["ndarray", "float32", "(5, 7)"]),
        (lambda: [True] & Causal(), ["list"]),
        (lambda: Causal() | None, ["NoneType", "Full()"]),
        (lambda: True & Causal(), ["bool"]),
    ],
)
def test_masks_combine_with_masks_only(combine, got):
    with pytest.raises(MaskError) as error:
        combine()
    assert_says(error, ["masks only", "Dense(array)", *got])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("value", [-1, -7, 2.0, 1.5, "3", True, np.True_, np.float32(4), np.int64(-2)])
def test_a_window_bound_is_a_natural_number(side, value):
    with pytest.raises(MaskError) as error:
        Window(**{side: value})
    assert_says(error, [f"Window({side}={value!r})", "0 or more", f"{side}=None"])


@pytest.mark.parametrize("value", [0, 3, np.int32(3), np.uint8(3)])
def test_a_window_takes_any_integer(value):
    assert Window(left=value) == Window(left=int(value))


@pytest.mark.parametrize(
    ("leaf", "name", "way"),
    [
        (Prefix, "n", "write Empty()"),
        (Global, "n", "leave it out"),
        (Chunked, "size", "write Full()"),
        (Dilated, "step", "write Full()"),
    ],
)
@pytest.mark.parametrize("value", [0, -1, 2.0, 1.5, "3", True, np.True_, None, np.float32(4), np.int64(-2), [1]])
def test_a_number_of_keys_is_positive(leaf, name, way, value):
    with pytest.raises(MaskError) as error:
        leaf(value)
    assert_says(error, [f"{leaf.__name__}({value!r})", f"{name} is an integer, 1 or more", way])
    assert leaf(np.uint8(3)) == leaf(3)


@pytest.mark.parametrize(
    ("n", "got"),
    [
        ([3.0, 5.0], ["float64", "(2,)", "np.asarray(n, int)"]),
        (2.5, ["float64", "()"]),
        (True, ["bool", "()"]),
        (np.ones((2, 7), bool), ["bool", "(2, 7)", "Dense(mask[:, None, None, :])"]),
        (None, ["object"]),
        (np.array([2**63], np.uint64), ["uint64", "(1,)"]),
    ],
)
def test_key_lengths_are_integers(n, got):
    with pytest.raises(MaskError) as error:
        KeyLengths(n)
    assert_says(error, ["KeyLengths takes integers", *got])


@pytest.mark.parametrize(
    ("n", "lead"),
    [([1, 2, 3], (2,)), ([[1, 2]], (2,)), ([1], ()), ([[1], [2]], (3, 4)), ([1, 2], (2, 3))],
)
def test_key_lengths_broadcast_to_the_leading_axes(n, lead):
    with pytest.raises(MaskError) as error:
        KeyLengths(n).check(Geometry(lead, 1, 5, 7))
    assert_says(error, [f"has shape {np.shape(n)}", f"leading axes {lead}", f"in shape {lead}", "one int for all"])


@pytest.mark.parametrize(("n", "value"), [([3, 8], 8), ([-1, 3], -1), (9, 9), ([[-5], [0]], -5)])
def test_key_lengths_count_keys(n, value):
    lead = np.shape(n) or (2,)
    with pytest.raises(MaskError) as error:
        KeyLengths(n).check(Geometry(lead, 1, 5, 7))
    assert_says(error, [f"the length {value},", "Skv = 7", "0 ... 7"])


@pytest.mark.parametrize(
    ("n", "lead"),
    [(7, (2,)), ([0, 7], (2,)), ([4], (2,)), ([1, 2, 3], (2, 3)), ([[1], [2]], (2, 3)), (3, ())],
)
def test_key_lengths_that_fit(n, lead):
    assert KeyLengths(n).check(Geometry(lead, 1, 5, 7)) is None


@pytest.mark.parametrize(
    ("make", "name", "got"),
    [
        (lambda: Documents([1.0, 2.0]), "ids", ["float64", "(2,)"]),
        (lambda: Documents([True]), "ids", ["bool", "(1,)"]),
        (lambda: Documents(["a", "b"]), "ids", ["<U1", "(2,)", "np.unique(names, return_inverse=True)[1]"]),
        (lambda: Documents(3), "ids", ["int64", "()", "(Sq,) or (*lead, Sq)"]),
        (lambda: Documents([1], 3), "key_ids", ["int64", "()", "(Skv,) or (*lead, Skv)"]),
        (lambda: Documents([1], [2**63]), "key_ids", ["uint64", "(1,)"]),
        (lambda: Documents([1], [2**70]), "key_ids", ["object", "(1,)"]),
    ],
)
def test_document_ids_are_integers(make, name, got):
    with pytest.raises(MaskError) as error:
        make()
    assert_says(error, [f"Documents takes integers as {name}, of shape", *got])


def test_the_way_out_for_named_documents_works():
    names = np.array(["b", "b", "a"])
    assert Documents(np.unique(names, return_inverse=True)[1]) == Documents([1, 1, 0])


def test_documents_of_queries_and_of_keys_are_both_given():
    with pytest.raises(MaskError) as error:
        Documents(np.zeros(5, int)).check(SCORES)
    assert_says(error, ["(5,)", "no key_ids", "Sq = 5", "Skv = 7", "write Documents(ids, key_ids)", "one per key"])


@pytest.mark.parametrize(
    ("ids", "key_ids", "told"),
    [
        ((6,), (7,), ["ids of shape (6,)", "per query", "(5,) or (2, 5)"]),
        ((5,), (5,), ["key_ids of shape (5,)", "per key", "(7,) or (2, 7)"]),
        ((3, 5), (7,), ["ids of shape (3, 5)", "(5,) or (2, 5)"]),
        ((5,), (2, 1), ["key_ids of shape (2, 1)", "(7,) or (2, 7)"]),
        ((5,), (1, 2, 7), ["key_ids of shape (1, 2, 7)", "each leading axis 1 or full"]),
    ],
)
def test_documents_print_the_shapes(ids, key_ids, told):
    with pytest.raises(MaskError) as error:
        Documents(np.zeros(ids, int), np.zeros(key_ids, int)).check(SCORES)
    assert_says(error, ["Documents has", *told])


@pytest.mark.parametrize(("ids", "key_ids"), [((5,), (7,)), ((2, 5), (1, 7)), ((1, 5), (2, 7))])
def test_documents_that_fit(ids, key_ids):
    assert Documents(np.zeros(ids, int), np.zeros(key_ids, int)).check(SCORES) is None


@pytest.mark.parametrize("block", [0, -2, True, 2.0, "64", None, (64,), (64, 64, 64), (0, 64), (64, 1.5), (True, 2)])
def test_a_block_is_a_size(block):
    with pytest.raises(MaskError) as error:
        Blocks([[True]], block)
    assert_says(error, [f"Blocks(..., {block!r})", "1 or more", "(rows, keys)"])


def test_a_block_takes_any_integers():
    assert Blocks([[True]], np.int8(4)) == Blocks([[True]], [4, np.uint8(4)]) == Blocks([[True]], (4, 4))


@pytest.mark.parametrize(
    ("shape", "block", "told"),
    [
        ((2, 2), 2, ["3 x 4 blocks of 2 x 2", "shape (3, 4)"]),
        ((4, 3), 2, ["3 x 4 blocks of 2 x 2"]),
        ((1, 4), 2, ["3 x 4 blocks of 2 x 2"]),
        ((5, 7), (4, 3), ["2 x 3 blocks of 4 x 3", "shape (2, 3)"]),
        ((3, 3, 4), 2, ["rank of the scores"]),
        ((2, 3, 4), 2, ["rank of the scores"]),
        ((2, 3, 3, 4), 2, ["each axis before these 1 or full"]),
        ((1, 2, 4, 3, 4), 2, ["rank of the scores"]),
        ((4,), 2, ["rank of the scores"]),
        ((), 2, ["rank of the scores"]),
    ],
)
def test_blocks_print_the_table_and_what_it_must_cover(shape, block, told):
    with pytest.raises(MaskError) as error:
        Blocks(np.ones(shape, bool), block).check(SCORES)
    assert_says(error, [f"table of shape {shape}", "scores of shape (2, 4, 5, 7)", *told])


@pytest.mark.parametrize(
    ("shape", "block"), [((3, 4), 2), ((2, 4, 3, 4), 2), ((1, 4, 3, 4), 2), ((1, 1, 1, 1), 7), ((5, 2), (1, 4))]
)
def test_blocks_that_fit(shape, block):
    assert Blocks(np.ones(shape, bool), block).check(SCORES) is None


@pytest.mark.parametrize("f", [None, 3, Causal(), np.ones((2, 2), bool)])
def test_from_function_takes_functions(f):
    with pytest.raises(MaskError) as error:
        from_function(f)
    assert_says(error, [f"from_function({f!r})", "f(b, h, p, j)", "lambda b, h, p, j: j <= p"])


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (lambda b, h, p, j: p - j, ["dtype int64 and shape (1, 1, 5, 7)"]),
        (lambda b, h, p, j: (p - j) / 2, ["dtype float64"]),
        (lambda b, h, p, j: np.ones((5, 8), bool), ["dtype bool and shape (5, 8)"]),
        (lambda b, h, p, j: np.ones((3, 1, 5, 7), bool), ["shape (3, 1, 5, 7)"]),
        (lambda b, h, p, j: np.ones((1, 2, 4, 5, 7), bool), ["shape (1, 2, 4, 5, 7)"]),
        (lambda b, h, p, j: np.ones((1, 1, 1, 1, 1), bool), ["shape (1, 1, 1, 1, 1)"]),
        (lambda b, h, p, j: True, ["True"]),
        (lambda b, h, p, j: None, ["None"]),
        (lambda b, h, p, j: [True], ["[True]"]),
        (lambda b, h, p, j: 1.5, ["1.5"]),
    ],
)
def test_a_function_returns_bools_for_the_block(answer, got):
    mask = ~from_function(answer)
    with pytest.raises(MaskError) as error:
        mask.keep(SCORES, np.arange(5), np.arange(7))
    assert_says(error, ["from_function(<lambda>) returned", *got, "block of shape (2, 4, 5, 7)", "bool array"])


@pytest.mark.parametrize("leaf", [Dense, lambda array: Blocks(array, 4)])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_tables_refuse_integers(leaf, dtype):
    with pytest.raises(MaskError) as error:
        leaf(np.ones((5, 7), dtype))
    assert_says(error, [np.dtype(dtype).name, "(5, 7)", "mask.astype(bool)", "~mask.astype(bool)", "masked out"])
    assert "bias" not in str(error.value)


@pytest.mark.parametrize("leaf", [Dense, lambda array: Blocks(array, 4)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_tables_refuse_floats(leaf, dtype):
    with pytest.raises(MaskError) as error:
        leaf(np.zeros((5, 7), dtype))
    assert_says(error, [np.dtype(dtype).name, "(5, 7)", "a bias is float and is added", "bias=", "mask.astype(bool)"])


def test_dense_refuses_a_mask():
    with pytest.raises(MaskError) as error:
        Dense(Causal() & Full())
    assert_says(error, ["Causal() & Full()", "a mask already", "bool arrays"])


@pytest.mark.parametrize(
    ("shape", "geometry", "ways"),
    [
        ((2, 7), SCORES, ["mask[:, None, None, :]"]),
        ((2, 5, 7), SCORES, ["mask[:, None]"]),
        ((2, 1, 7), SCORES, ["mask[:, :, None, :]"]),
        ((4, 5, 7), SCORES, ["mask[None, :]"]),
        ((2, 4, 7), SCORES, ["mask[:, :, None, :]"]),
        ((7,), SCORES, ["mask[None, None, None, :]"]),
        ((4, 7), Geometry((4,), 4, 5, 7), ["mask[:, None, None, :]", "mask[None, :, None, :]"]),
        ((2, 3, 7), Geometry((2, 3), 4, 5, 7, rank=5), ["mask[:, :, None, None, :]"]),
        ((4, 7), Geometry((), 4, 5, 7, rank=3), ["mask[:, None, :]"]),
        ((7,), Geometry((), 1, 5, 7, rank=2), ["mask[None, :]"]),
        ((6, 7), SCORES, []),
        ((5, 8), SCORES, []),
        ((3, 1, 5, 7), SCORES, []),
        ((1, 2, 4, 5, 7), SCORES, []),
    ],
)
def test_dense_prints_the_shapes_and_the_indexing(shape, geometry, ways):
    mask = Dense(np.ones(shape, bool))
    with pytest.raises(MaskError) as error:
        mask.check(geometry)
    told = [
        f"shape {shape}",
        f"shape {geometry.user_shape}",
        f"(Sq, Skv) = ({geometry.queries}, {geometry.keys})",
    ]
    assert_says(error, [*told, "each axis 1 or full", *ways])
    assert str(error.value).count("mask[") == len(ways)
    for way in ways:
        assert Dense(eval(way, {"mask": mask.array, "None": None})).check(geometry) is None


@pytest.mark.parametrize(
    ("shape", "geometry"),
    [
        ((5, 7), SCORES),
        ((1, 7), SCORES),
        ((5, 1), SCORES),
        ((2, 4, 5, 7), SCORES),
        ((1, 1, 1, 1), SCORES),
        ((2, 7), Geometry((2,), 4, 2, 7)),  # B == Sq: a (B, Skv) array is a legal (Sq, Skv) mask
        ((1, 5, 7), Geometry((), 1, 5, 7, rank=2)),
        ((2, 1, 5, 7), Geometry((2,), 1, 5, 7)),
    ],
)
def test_dense_shapes_that_fit(shape, geometry):
    assert Dense(np.ones(shape, bool)).check(geometry) is None


@pytest.mark.parametrize(
    "wrap", [lambda m: ~m, lambda m: Causal() & m, lambda m: m | Full(), lambda m: ~(Empty() | ~m)]
)
def test_an_expression_checks_its_leaves(wrap):
    for leaf in (KeyLengths(8), Dense(np.ones((6, 7), bool)), Documents([1]), Blocks([[True]], 6)):
        with pytest.raises(RegardError):
            wrap(leaf).check(SCORES)
    assert wrap(KeyLengths(7)).check(SCORES) is None
