"""Shared fixtures: every target that this machine can run, and random problems."""

from __future__ import annotations

import hypothesis
import ml_dtypes
import numpy as np
import pytest

import regard as rg
from regard import _runtime

# How long an example takes is the machine's business: one that is busy would fail.
hypothesis.settings.register_profile("regard", deadline=None)
hypothesis.settings.load_profile("regard")

USABLE = [info.name for info in _runtime.describe() if info.usable]


@pytest.fixture(params=USABLE)
def target(request):
    """Run the test once per target that this machine can use, two threads."""
    with rg.config(target=request.param, num_threads=2):
        yield request.param


@pytest.fixture
def rng():
    return np.random.default_rng(20261129)


@pytest.fixture
def normal(rng):
    def make(*shape):
        return rng.standard_normal(shape, dtype=np.float32)

    return make


DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]


@pytest.fixture(params=DTYPES, ids=[np.dtype(d).name for d in DTYPES])
def dtype(request):
    """Run the test once per float dtype."""
    return np.dtype(request.param)
