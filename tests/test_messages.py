"""What a user reads when a call is wrong: the fact, the values, the way out."""

import re

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
            ["4 heads", "has 3", "4 is no multiple of 3", "swapaxes(-3, -2)"],
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
            "int64",
            ["query has the integer dtype int64", "float32, float64, float16, bfloat16", "query.astype(np.float32)"],
        ),
        ("bool", ["dtype bool", "astype(np.float32)"]),
        (">f4", ["'>f4'", "byte order", "astype(np.float32)"]),
        ("object", ["not an array of numbers", "object"]),
        ("complex64", ["complex64"]),
        ("longdouble", ["float128" if np.dtype("longdouble").itemsize == 16 else "longdouble"]),
        ("U3", ["<U3"]),
    ],
)
def test_dtypes(dtype, parts):
    refused(rg.DTypeError, *parts, query=Q.astype(dtype), key=K.astype(dtype), value=V.astype(dtype))


def test_other_containers():
    assert rg.attention([[1, 2]], [[1, 2]], [[1, 2, 3]]).dtype == np.float64
    refused(rg.DTypeError, "query is float64", "cast them to one", query=[[1, 2]])
    refused(rg.DTypeError, "not an array of numbers", query=[[1, 2], [3]])
    refused(rg.DTypeError, "masked array", "query.data", query=np.ma.masked_array(Q))
    refused(
        rg.DTypeError,
        "key is float64",
        "cast them to one",
        key=K.astype(np.float64),
        call=rg.reference.attention,
    )


@pytest.mark.parametrize(
    ("mask", "parts"),
    [
        (True, ["rg.Causal()", "bool array"]),
        ("causal", ["'causal'", "mask=rg.Causal()"]),
        (3.5, ["float", "rg.Causal() & rg.KeyLengths(lengths)"]),
        (np.ones((3, 7), np.uint8), ["uint8", "mask != 0"]),
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
    refused(rg.AlignmentError, str(2**63), "2**61", q_offset=2**63)
    rg.attention(Q, K, V, mask=rg.KeyLengths([3, 5]))
    rg.attention(Q, f32(2, 2, 3, 8), f32(2, 2, 3, 5), mask=rg.Causal())


@pytest.mark.parametrize("scale", [np.nan, np.inf, "1", True, 1e39, [1.0, 2.0], None.__class__])
def test_scale(scale):
    refused(rg.UnsupportedError, "scale is", "finite number", scale=scale)


def test_what_comes_later_is_refused():
    refused(rg.UnsupportedError, "dropout= is not supported by this version", "leave it out", dropout=0.1)


@pytest.mark.parametrize("softcap", [0, -1.0, np.nan, np.inf, True, "50"])
def test_softcap(softcap):
    refused(rg.UnsupportedError, "softcap is", "leave it out", softcap=softcap)


@pytest.mark.parametrize(
    ("error", "bias", "parts"),
    [
        (rg.MaskError, np.ones((3, 7), bool), ["bool", "pass mask="]),
        (rg.DTypeError, np.ones((3, 7), int), ["bias has the integer dtype", "astype(np.float32)"]),
        (rg.ShapeError, f32(2, 7), ["the bias has shape (2, 7)", "(2, 4, 3, 7)", "bias[:, None, None, :]"]),
        (rg.ShapeError, f32(4, 3, 7), ["(4, 3, 7)", "bias[None, :]"]),
        (rg.ShapeError, f32(7), ["(7,)", "bias[None, None, None, :]"]),
    ],
)
def test_bias(error, bias, parts):
    refused(error, *parts, bias=bias)


@pytest.mark.parametrize("call", [rg.attention, rg.attention_forward, rg.plan, rg.reference.attention])
@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("is_causal", "mask=rg.Causal()"),
        ("attn_mask", "bias= for a float one"),
        ("key_padding_mask", "rg.KeyLengths(lengths)"),
        ("sm_scale", "scale="),
        ("need_weights", ".weights"),
        ("colour", "the options are mask, bias"),
    ],
)
def test_names_of_other_libraries(call, name, ours):
    with pytest.raises(TypeError, match=re.escape(ours)) as caught:
        call(Q, K, V, **{name: True})
    assert name in str(caught.value)


@pytest.mark.parametrize("call", [rg.attention, rg.attention_forward, rg.plan])
@pytest.mark.parametrize("mask", [None, np.ones((3, 7), bool), rg.Causal()])
def test_a_mask_by_position_is_told_its_name(call, mask):
    with pytest.raises(TypeError, match=r"and 4 arguments were given: name the others, mask= for .* bias= for a float"):
        call(Q, K, V, mask)


def test_classes_and_shapes_in_place_of_values():
    refused(rg.MaskError, "Causal(...), with parentheses", mask=rg.Causal)
    refused(rg.DTypeError, "query is of type tuple", ".shape and .dtype", query=(2, 3), call=rg.plan)
    refused(rg.DTypeError, "query is None", query=None)
    refused(rg.DTypeError, "complex64", "query.real", query=Q.astype(np.complex64))
    odd = type("Odd", (), {"shape": (2, 3), "dtype": "torch.float32"})()
    refused(rg.DTypeError, "torch.float32", "not a NumPy dtype", query=odd, call=rg.plan)
    named = type("Named", (), {"shape": (2, 3), "dtype": np.float32})()
    assert rg.plan(named, named, named).problem.dtype == "float32"
    huge = type("Huge", (), {"shape": (2, 2**24 + 1), "dtype": np.float32})()
    refused(rg.ShapeError, "head size 16777217", "16777216", query=huge, key=huge, value=huge, call=rg.plan)


def test_odd_values():
    refused(
        rg.ShapeError,
        "(11.0, 9.0)",
        "integers",
        call=rg.plan,
        query=type("F", (), {"shape": (11.0, 9.0), "dtype": "f4"})(),
    )
    refused(rg.ShapeError, "(-1, 9)", call=rg.plan, query=type("F", (), {"shape": (-1, 9), "dtype": "f4"})())
    refused(rg.MaskError, "masked array", "mask.filled(False)", mask=np.ma.masked_array(np.ones((3, 7), bool)))
    refused(rg.MaskError, "not an array", mask=[[True], [True, False]])
    refused(rg.UnsupportedError, "scale is", scale=10**400)
    refused(rg.UnsupportedError, "scale is b'1'", scale=b"1")
    with pytest.raises(rg.UnsupportedError, match="the targets that this machine can use"):
        rg.config(target=["avx2"])
    weights = rg.attention_forward(Q, K, V).weights
    with pytest.raises(IndexError, match="not by ndarray"):
        weights[0, np.array(1)]
    with pytest.raises(ValueError, match="always new"):
        weights.__array__(copy=False)  # np.asarray(weights, copy=False), which NumPy 1.26 lacks


def test_sinks():
    refused(rg.ShapeError, "sinks has shape (3,)", "(2, 4)", "(4,)", sinks=f32(3))
    refused(rg.DTypeError, "sinks has the integer dtype", sinks=np.ones(4, int))


def test_offsets_per_batch():
    refused(rg.AlignmentError, "q_offset has shape (3,)", "(2,)", mask=rg.Causal(), q_offset=[1, 2, 3])
    refused(rg.AlignmentError, "at most 2**61", mask=rg.Causal(), q_offset=np.uint64([2**63, 1]))
    refused(rg.AlignmentError, "ints per batch", mask=rg.Causal(), q_offset=[1.0, 2.0])


def test_out():
    good = f32(2, 4, 3, 5)
    refused(rg.ShapeError, "out has shape (3, 5)", "(2, 4, 3, 5)", out=f32(3, 5))
    refused(rg.DTypeError, "float64", "float32", out=good.astype(np.float64))
    refused(rg.UnsupportedError, "list", "NumPy array of shape (2, 4, 3, 5)", out=[1])
    refused(rg.UnsupportedError, "read-only", out=np.broadcast_to(np.float32(0), (2, 4, 3, 5)))
    square = f32(2, 4, 3, 8)
    refused(
        rg.UnsupportedError, "share memory with query", "pass a copy", query=square, key=square.copy(),
        value=square.copy(), out=square,
    )  # fmt: skip
    shared = "share memory with {}, which is read while out is written"
    for mask in (good.view(bool)[..., :3, :7], good[0, 0].view(bool)[:1, :7]):
        refused(rg.UnsupportedError, shared.format("mask"), mask=mask, out=good)
        refused(rg.UnsupportedError, shared.format("mask"), mask=rg.Full() & ~rg.Dense(mask), out=good)
    refused(rg.UnsupportedError, shared.format("bias"), bias=good[:1, :1, :, :1], out=good)
    refused(rg.UnsupportedError, shared.format("sinks"), sinks=good[0, :, 0, 0], out=good)
    good[...] = 0
    mask = rg.KeyLengths(good.view(np.int32).ravel()[:2]) & rg.Documents(
        good.view(np.int32).ravel()[:3], np.zeros(7, int)
    )
    rg.attention(Q, K, V, mask=mask, out=good)  # these are copies


def test_aux():
    refused(rg.UnsupportedError, "'lse'", "rg.Aux(lse=..., state=...)", call=rg.attention_forward, aux="lse")
    result = rg.attention_forward(Q, K, V, aux=rg.Aux(lse=False))
    with pytest.raises(rg.UnsupportedError, match=r"pass aux=rg\.Aux\(state=True\)"):
        _ = result.state
    with pytest.raises(rg.UnsupportedError, match=r"pass aux=rg\.Aux\(lse=True\)"):
        _ = result.lse


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


class Shape:
    """What a plan needs of an array, at sizes that no memory holds."""

    dtype = np.dtype(np.float32)

    def __init__(self, *shape):
        self.shape = shape


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ((1,) * 39 + (2, 5, 8), ["42 axes", "32"]),
        ((2**40, 1, 5, 8), ["2**31 heads", "(1099511627776, 1, 5, 5)"]),
        ((1, 8, 2**40, 8), ["2**62 scores", "split it"]),
        ((2**62, 2**62, 1, 1), ["2**31 heads"]),
    ],
)
def test_sizes_beyond_counting(shape, parts):
    with pytest.raises(rg.ShapeError) as caught:
        rg.plan(*[Shape(*shape)] * 3)
    assert all(part in str(caught.value) for part in parts), caught.value


@pytest.mark.parametrize("shape", [(2**31, 1, 8), (2**12, 2**13, 1, 8)])
def test_a_plan_of_more_heads_than_memory_holds(shape):
    """At 60 bytes each 2**31 heads would take over 100 GB."""
    with pytest.raises(
        rg.UnsupportedError, match=r"heads of all batch entries.*up to 16,777,216: ask for fewer heads or batch entries"
    ):
        rg.plan(*[Shape(*shape)] * 3)


def test_a_plan_without_a_mask_counts_at_once():
    tiles = rg.plan(*[Shape(1, 8, 2**20, 64)] * 3).tiles
    assert (tiles.visited, tiles.partial, tiles.skipped) == (8 * (-(-(2**20) // 96)) ** 2, 0, 0)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("masks", ["no argument 'masks'", "did you mean mask=?", "softcap, sinks"]),
        ("alibi_slopes", ["bias=rg.Alibi(slopes)"]),
        ("cu_seqlens_q", ["rg.varlen_attention"]),
        ("dropuot", ["the options are mask, bias, q_offset, scale, softcap, sinks"]),
    ],
)
def test_words_that_are_not_options(name, parts):
    with pytest.raises(TypeError) as caught:
        rg.attention(Q, K, V, **{name: 1})
    assert all(part in str(caught.value) for part in parts), caught.value


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("size", "size= is another library's argument; here write left= and right=, how many keys a query sees before"),
        ("lefft", "Window has no argument 'lefft'; did you mean left=?; it has left, right"),
        ("up", "Window has no argument 'up'; it has left, right"),
    ],
)
def test_words_that_are_not_a_windows(name, words):
    with pytest.raises(TypeError, match=re.escape(words)):
        rg.Window(**{name: 3})


@pytest.mark.parametrize(
    ("mask", "words"),
    [(lambda b, h, p, j: j <= p, "rg.from_function(f)"), (rg.Alibi([0.5]), "pass bias=Alibi([0.5])")],
)
def test_what_is_meant_for_another_argument(mask, words):
    refused(rg.MaskError, words, mask=mask)


def test_alignment_names_an_integer_too():
    refused(rg.AlignmentError, "or the position of query 0", mask=rg.Causal())
