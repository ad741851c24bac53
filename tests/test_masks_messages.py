"""What the user reads when a mask is refused: the fact, the values and the way out."""

import operator

import numpy as np
import pytest

import regard as rg
from regard._types import Geometry

SCORES = Geometry(lead=(2,), heads=4, queries=5, keys=7)


def assert_says(error, parts):
    missing = [part for part in parts if part not in str(error.value)]
    assert not missing, f"{missing} not in {str(error.value)!r}"


def test_the_judge_says_no():
    with pytest.raises(rg.MaskError) as error:
        rg.Window(left=-1)
    with pytest.raises(AssertionError, match="right"):
        assert_says(error, ["left", "right=-1"])


@pytest.mark.parametrize("ask", [bool, operator.not_, lambda mask: mask and rg.Full(), lambda mask: mask or rg.Full()])
def test_a_mask_has_no_truth_value(ask):
    with pytest.raises(TypeError) as error:
        ask(rg.Causal())
    assert_says(error, ["a mask has no truth value", "combine masks with & | ~, not and / or / not"])


ARRAY = np.ones((5, 7), bool)


@pytest.mark.parametrize(
    ("combine", "got"),
    [
        (lambda: rg.Causal() & ARRAY, ["ndarray", "bool", "(5, 7)"]),
        (lambda: rg.Causal() | ARRAY, ["ndarray", "bool", "(5, 7)"]),
        (lambda: ARRAY & rg.Causal(), ["ndarray", "bool", "(5, 7)"]),
        (lambda: ARRAY | rg.Causal(), ["ndarray", "bool", "(5, 7)"]),
        (lambda: rg.Causal() & ARRAY.astype(np.float32), ["ndarray", "float32", "(5, 7)"]),
        (lambda: [True] & rg.Causal(), ["list"]),
        (lambda: rg.Causal() | None, ["NoneType", "Full()"]),
        (lambda: True & rg.Causal(), ["bool"]),
    ],
)
def test_masks_combine_with_masks_only(combine, got):
    with pytest.raises(rg.MaskError) as error:
        combine()
    assert_says(error, ["masks only", "Dense(array)", *got])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("value", [-1, -7, 2.0, 1.5, "3", True, np.True_, np.float32(4), np.int64(-2)])
def test_a_window_bound_is_a_natural_number(side, value):
    with pytest.raises(rg.MaskError) as error:
        rg.Window(**{side: value})
    assert_says(error, [f"Window({side}={value!r})", "0 or more", f"{side}=None"])


@pytest.mark.parametrize("value", [0, 3, np.int32(3), np.uint8(3)])
def test_a_window_takes_any_integer(value):
    assert rg.Window(left=value) == rg.Window(left=int(value))


@pytest.mark.parametrize(
    ("leaf", "name", "way"),
    [
        (rg.Prefix, "n", "write Empty()"),
        (rg.Global, "n", "leave it out"),
        (rg.Chunked, "size", "write Full()"),
        (rg.Dilated, "step", "write Full()"),
    ],
)
@pytest.mark.parametrize("value", [0, -1, 2.0, 1.5, "3", True, np.True_, None, np.float32(4), np.int64(-2), [1]])
def test_a_number_of_keys_is_positive(leaf, name, way, value):
    with pytest.raises(rg.MaskError) as error:
        leaf(value)
    assert_says(error, [f"{leaf.__name__}({value!r})", f"{name} is an integer, 1 or more", way])
    assert leaf(np.uint8(3)) == leaf(3)


@pytest.mark.parametrize(
    ("n", "got"),
    [
        ([3.0, 5.0], ["float64", "(2,)", "np.asarray(n, int)"]),
        (2.5, ["float64", "()"]),
        (True, ["bool", "()"]),
        (np.ones((2, 7), bool), ["bool", "(2, 7)", "KeyPadding(mask)"]),
        (None, ["object"]),
        (np.array([2**63], np.uint64), ["uint64", "(1,)"]),
    ],
)
def test_key_lengths_are_integers(n, got):
    with pytest.raises(rg.MaskError) as error:
        rg.KeyLengths(n)
    assert_says(error, ["KeyLengths takes integers", *got])


@pytest.mark.parametrize(
    ("n", "lead"),
    [([1, 2, 3], (2,)), ([[1, 2]], (2,)), ([1], ()), ([[1], [2]], (3, 4)), ([1, 2], (2, 3))],
)
def test_key_lengths_broadcast_to_the_leading_axes(n, lead):
    with pytest.raises(rg.MaskError) as error:
        rg.KeyLengths(n).check(Geometry(lead, 1, 5, 7))
    assert_says(error, [f"has shape {np.shape(n)}", f"leading axes {lead}", f"in shape {lead}", "one int for all"])


@pytest.mark.parametrize(("n", "value"), [([3, 8], 8), ([-1, 3], -1), (9, 9), ([[-5], [0]], -5)])
def test_key_lengths_count_keys(n, value):
    lead = np.shape(n) or (2,)
    with pytest.raises(rg.MaskError) as error:
        rg.KeyLengths(n).check(Geometry(lead, 1, 5, 7))
    assert_says(error, [f"the length {value},", "Skv = 7", "0 ... 7"])


@pytest.mark.parametrize(
    ("n", "lead"),
    [(7, (2,)), ([0, 7], (2,)), ([4], (2,)), ([1, 2, 3], (2, 3)), ([[1], [2]], (2, 3)), (3, ())],
)
def test_key_lengths_that_fit(n, lead):
    assert rg.KeyLengths(n).check(Geometry(lead, 1, 5, 7)) is None


@pytest.mark.parametrize(
    ("kept", "got"),
    [
        ([0, 1], ["int64", "(2,)", "mask != 0", "mask == 0"]),
        (np.zeros((2, 7), np.float32), ["float32", "(2, 7)"]),
        (True, ["KeyPadding(True)", "(Skv,) or (*lead, Skv)"]),
        (rg.Causal(), ["Causal() is a mask already; KeyPadding() is for bool arrays"]),
    ],
)
def test_key_padding_is_bool(kept, got):
    with pytest.raises(rg.MaskError) as error:
        rg.KeyPadding(kept)
    assert_says(error, got)


@pytest.mark.parametrize(
    ("given", "got"),
    [
        ([[0, 1]], ["dtype int64, shape (1, 2)", "array != 0 if 1 means ignore"]),
        (np.ones((2, 7), np.uint8), ["dtype uint8, shape (2, 7)"]),
        (
            [[0.0, -1e4]],
            ["dtype float64, shape (1, 2), a -10000.0 among its numbers", "pass bias=array[:, None, None, :]"],
        ),
        ([np.inf, 0], ["a inf among its numbers"]),
        ([0, np.nan], ["a nan among its numbers"]),
        (["a"], ["dtype <U1"]),
    ],
)
def test_torchs_padding_is_bool_or_0_and_minus_inf(given, got):
    with pytest.raises(rg.MaskError) as error:
        rg.KeyPadding.from_torch(given)
    assert_says(error, ["bool, True = ignore, or float, 0 = keep and -inf = ignore", *got])


@pytest.mark.parametrize("shape", [(6,), (2, 6), (3, 7), (1, 2, 7), (2, 1, 1, 7), (2, 1)])
def test_key_padding_prints_the_shapes(shape):
    with pytest.raises(rg.MaskError) as error:
        rg.KeyPadding(np.ones(shape, bool)).check(SCORES)
    assert_says(error, [f"KeyPadding has shape {shape}", "(7,) or (2, 7)", "each leading axis 1 or full"])


@pytest.mark.parametrize("shape", [(7,), (2, 7), (1, 7)])
def test_key_padding_that_fits(shape):
    assert rg.KeyPadding(np.ones(shape, bool)).check(SCORES) is None


@pytest.mark.parametrize("masks", [[], None, rg.Causal(), [rg.Causal(), None], [np.ones((5, 7), bool)], 4, "ab"])
def test_per_head_takes_masks(masks):
    with pytest.raises(rg.MaskError) as error:
        rg.PerHead(masks)
    assert_says(error, ["PerHead(", "a list of masks, one for each query head", "Dense(array)", "write Full()"])


@pytest.mark.parametrize("count", [1, 3, 5])
@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: ~m & rg.Causal(), lambda m: rg.PerHead([m] * 4)])
def test_there_is_a_mask_for_each_head(count, wrap):
    with pytest.raises(rg.MaskError) as error:
        wrap(rg.PerHead([rg.Causal()] * count)).check(SCORES)
    masks = "1 mask and" if count == 1 else f"{count} masks and"
    assert_says(
        error, [f"PerHead has {masks} the scores have 4 query heads", "one mask for each", "PerHead([mask] * 4)"]
    )


def test_the_masks_of_heads_are_checked_too():
    with pytest.raises(rg.MaskError, match="KeyLengths has the length 8"):
        rg.PerHead([rg.Causal(), rg.Full(), rg.Causal() & rg.KeyLengths(8), rg.Full()]).check(SCORES)


@pytest.mark.parametrize(
    ("make", "name", "got"),
    [
        (lambda: rg.Documents([1.0, 2.0]), "ids", ["float64", "(2,)"]),
        (lambda: rg.Documents([True]), "ids", ["bool", "(1,)"]),
        (lambda: rg.Documents(["a", "b"]), "ids", ["<U1", "(2,)", "np.unique(names, return_inverse=True)[1]"]),
        (lambda: rg.Documents(3), "ids", ["int64", "()", "(Sq,) or (*lead, Sq)"]),
        (lambda: rg.Documents([1], 3), "key_ids", ["int64", "()", "(Skv,) or (*lead, Skv)"]),
        (lambda: rg.Documents([1], [2**63]), "key_ids", ["uint64", "(1,)"]),
        (lambda: rg.Documents([1], [2**70]), "key_ids", ["object", "(1,)"]),
    ],
)
def test_document_ids_are_integers(make, name, got):
    with pytest.raises(rg.MaskError) as error:
        make()
    assert_says(error, [f"Documents takes integers as {name}, of shape", *got])


def test_the_way_out_for_named_documents_works():
    names = np.array(["b", "b", "a"])
    assert rg.Documents(np.unique(names, return_inverse=True)[1]) == rg.Documents([1, 1, 0])


def test_documents_of_queries_and_of_keys_are_both_given():
    with pytest.raises(rg.MaskError) as error:
        rg.Documents(np.zeros(5, int)).check(SCORES)
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
    with pytest.raises(rg.MaskError) as error:
        rg.Documents(np.zeros(ids, int), np.zeros(key_ids, int)).check(SCORES)
    assert_says(error, ["Documents has", *told])


@pytest.mark.parametrize(("ids", "key_ids"), [((5,), (7,)), ((2, 5), (1, 7)), ((1, 5), (2, 7))])
def test_documents_that_fit(ids, key_ids):
    assert rg.Documents(np.zeros(ids, int), np.zeros(key_ids, int)).check(SCORES) is None


@pytest.mark.parametrize("block", [0, -2, True, 2.0, "64", None, (64,), (64, 64, 64), (0, 64), (64, 1.5), (True, 2)])
def test_a_block_is_a_size(block):
    with pytest.raises(rg.MaskError) as error:
        rg.Blocks([[True]], block)
    assert_says(error, [f"Blocks(..., {block!r})", "1 or more", "(rows, keys)"])


def test_a_block_takes_any_integers():
    assert rg.Blocks([[True]], np.int8(4)) == rg.Blocks([[True]], [4, np.uint8(4)]) == rg.Blocks([[True]], (4, 4))


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
    with pytest.raises(rg.MaskError) as error:
        rg.Blocks(np.ones(shape, bool), block).check(SCORES)
    assert_says(error, [f"table of shape {shape}", "scores of shape (2, 4, 5, 7)", *told])


@pytest.mark.parametrize(
    ("shape", "block"), [((3, 4), 2), ((2, 4, 3, 4), 2), ((1, 4, 3, 4), 2), ((1, 1, 1, 1), 7), ((5, 2), (1, 4))]
)
def test_blocks_that_fit(shape, block):
    assert rg.Blocks(np.ones(shape, bool), block).check(SCORES) is None


@pytest.mark.parametrize("f", [None, 3, rg.Causal(), np.ones((2, 2), bool), lambda p, j: j <= p, np.less])
def test_from_function_takes_functions(f):
    with pytest.raises(rg.MaskError) as error:
        rg.from_function(f)
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
    mask = ~rg.from_function(answer)
    with pytest.raises(rg.MaskError) as error:
        mask.keep(SCORES, np.arange(5), np.arange(7))
    assert_says(error, ["from_function(<lambda>) returned", *got, "block of shape (2, 4, 5, 7)", "bool array"])


@pytest.mark.parametrize("leaf", [rg.Dense, lambda array: rg.Blocks(array, 4)])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_tables_refuse_integers(leaf, dtype):
    with pytest.raises(rg.MaskError) as error:
        leaf(np.ones((5, 7), dtype))
    assert_says(error, [np.dtype(dtype).name, "(5, 7)", "mask != 0", "mask == 0", "masked out"])
    assert "bias" not in str(error.value)


@pytest.mark.parametrize("leaf", [rg.Dense, lambda array: rg.Blocks(array, 4)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_tables_refuse_floats(leaf, dtype):
    with pytest.raises(rg.MaskError) as error:
        leaf(np.zeros((5, 7), dtype))
    assert_says(error, [np.dtype(dtype).name, "(5, 7)", "a bias is float and is added", "bias=", "mask != 0"])


def test_dense_refuses_a_mask():
    with pytest.raises(rg.MaskError) as error:
        rg.Dense(rg.Causal() & rg.Full())
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
    mask = rg.Dense(np.ones(shape, bool))
    with pytest.raises(rg.MaskError) as error:
        mask.check(geometry)
    told = [
        f"shape {shape}",
        f"shape {geometry.user_shape}",
        f"(Sq, Skv) = ({geometry.queries}, {geometry.keys})",
    ]
    assert_says(error, [*told, "each axis 1 or full", *ways])
    assert str(error.value).count("mask[") == len(ways)
    for way in ways:
        assert rg.Dense(eval(way, {"mask": mask.array, "None": None})).check(geometry) is None


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
    assert rg.Dense(np.ones(shape, bool)).check(geometry) is None


@pytest.mark.parametrize(
    "wrap", [lambda m: ~m, lambda m: rg.Causal() & m, lambda m: m | rg.Full(), lambda m: ~(rg.Empty() | ~m)]
)
def test_an_expression_checks_its_leaves(wrap):
    for leaf in (rg.KeyLengths(8), rg.Dense(np.ones((6, 7), bool)), rg.Documents([1]), rg.Blocks([[True]], 6)):
        with pytest.raises(rg.RegardError):
            wrap(leaf).check(SCORES)
    assert wrap(rg.KeyLengths(7)).check(SCORES) is None
