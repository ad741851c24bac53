"""torch's own CPU attention beside ours, in the same dtype: as exact, within a tenth."""

import numpy as np
import pytest
import torch

import regard as rg


def rms(x):
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("keys", "d"), [(256, 64), (2048, 64), (1024, 128), (300, 33)])
@pytest.mark.parametrize("sigma", [1, 4])
def test_error_is_no_larger_than_torchs(causal, keys, d, sigma):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 4, keys, d), dtype=np.float32) for _ in range(3))
    q *= np.float32(sigma)
    mask = rg.Causal() if causal else None
    exact = rg.reference.attention(q, k, v, mask=mask)
    theirs = torch.nn.functional.scaled_dot_product_attention(*map(torch.from_numpy, (q, k, v)), is_causal=causal)
    ours = rg.attention(q, k, v, mask=mask)
    assert rms(ours - exact) <= 1.1 * rms(theirs.numpy() - exact)
    np.testing.assert_allclose(ours, theirs.numpy(), atol=2e-5)
