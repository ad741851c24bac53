"""torch's own CPU attention beside ours, in the same dtype: as exact, within a tenth."""

import numpy as np
import pytest
import torch

import regard as rg


def rms(x):
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
# Between the two; outputs are below 4, of which a 16-bit dtype's last place is so large.
APART = {"float32": 2e-5, "float16": 2.0**-9, "bfloat16": 2.0**-6}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("keys", "d"), [(256, 64), (2048, 64), (1024, 128), (300, 33)])
@pytest.mark.parametrize("sigma", [1, 4])
def test_error_is_no_larger_than_torchs(causal, keys, d, sigma, dtype):
    """Beside the exact output of the inputs that both are given, rounded to their dtype."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 4, keys, d), dtype=np.float32) for _ in range(3))
    given = [torch.from_numpy(x).to(DTYPES[dtype]) for x in (np.float32(sigma) * q, k, v)]
    mask = rg.Causal() if causal else None
    exact = rg.reference.attention(*(x.double().numpy() for x in given), mask=mask)
    theirs = torch.nn.functional.scaled_dot_product_attention(*given, is_causal=causal).double().numpy()
    ours = rg.attention(*given, mask=mask).double().numpy()
    assert rms(ours - exact) <= 1.1 * rms(theirs - exact)
    np.testing.assert_allclose(ours, theirs, atol=APART[dtype])


def test_what_torch_does_with_an_empty_row():
    q, k = torch.ones(1, 1, 4), torch.ones(1, 3, 4)
    hidden = torch.zeros(1, 1, 3, dtype=torch.bool)
    assert (torch.nn.functional.scaled_dot_product_attention(q, k, k + 5, attn_mask=hidden) == 0).all()
    layer = torch.nn.MultiheadAttention(4, 1, batch_first=True)
    drop = torch.ones(1, 3, dtype=torch.bool)
    assert layer(q, k, k, key_padding_mask=drop, need_weights=True)[0].isnan().all()
    # A second sequence is whole, and the loss looks at that one alone: the weights still get NaN.
    two, drop = k.expand(2, 3, 4), torch.tensor([[True] * 3, [False] * 3])
    layer(two, two, two, key_padding_mask=drop, need_weights=True)[0][1].sum().backward()
    assert layer.in_proj_weight.grad.isnan().any()
