"""What the reference and the bounds refuse, and how they say it."""

import numpy as np
import pytest

import regard as rg
from judges import refused

X = np.ones((1, 3, 4), np.float32)


@pytest.mark.parametrize("name", ["block_rows", "block_keys"])
@pytest.mark.parametrize("size", [-1, 0, 1.5, None, True])
def test_tiles_have_a_size(name, size):
    parts = f"{name} is {size}", "an integer, 1 or more"
    refused(rg.ShapeError, *parts, call=rg.reference.online_attention, args=(X, X, X), **{name: size})


@pytest.mark.parametrize("precision", ["i4", np.int64, bool, complex])
def test_precision_is_of_floats(precision):
    parts = f"precision is {np.dtype(precision)}", "pass a float dtype, such as np.longdouble"
    refused(rg.DTypeError, *parts, call=rg.reference.attention_forward, args=(X, X, X), precision=precision)
    refused(rg.DTypeError, *parts, call=rg.reference.scores, args=(X, X), precision=precision)


@pytest.mark.parametrize("precision", [np.float32, "f8", np.longdouble])
def test_precision_is_what_is_computed_in(precision):
    assert rg.reference.attention_forward(X, X, X, precision=precision).out.dtype == precision


@pytest.mark.parametrize(
    ("error", "options", "parts"),
    [
        (rg.ShapeError, {"tile_keys": 0}, ["tile_keys is 0", "1 or more"]),
        (rg.ShapeError, {"tile_keys": 1.5}, ["tile_keys is 1.5"]),
        (
            rg.DTypeError,
            {"dtype": "i4"},
            ["dtype is 'i4'", "float64, float32, float16, bfloat16", "one of these names"],
        ),
        (rg.DTypeError, {"dtype": np.float32}, ["dtype is <class 'numpy.float32'>"]),
    ],
)
def test_bounds_are_of_a_kernel(error, options, parts):
    arrays = X, X, X, np.full((1, 3, 3), 1 / 3)
    given = {"scale": 0.5, "tile_keys": 96, **options}
    refused(error, *parts, call=rg.numerics.forward_bounds, args=arrays, **given)
