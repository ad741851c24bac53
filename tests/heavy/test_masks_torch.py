"""torch's key_padding_mask, as a mask here: the same attention as torch's own layer computes."""

import numpy as np
import pytest
import torch

import regard as rg
from regard.numerics import forward_bounds

IGNORED = np.arange(20) >= np.array([[20], [13], [1]])
IGNORED[1] = IGNORED[1, ::-1]


@pytest.mark.parametrize("form", ["bool", "float"])
def test_the_same_keys_are_ignored(normal, form):
    q, k, v = normal(3, 4, 20, 8), normal(3, 4, 20, 8), normal(3, 4, 20, 8)
    given = torch.from_numpy(IGNORED)
    if form == "float":
        given = torch.zeros(given.shape).masked_fill(given, -torch.inf)
    tensors = (torch.from_numpy(x).double() for x in (q, k, v))
    allowed = torch.from_numpy(~IGNORED)[:, None, None, :]
    want = torch.nn.functional.scaled_dot_product_attention(*tensors, attn_mask=allowed).numpy()
    mask = rg.KeyPadding.from_torch(given)
    assert mask == rg.KeyPadding(~IGNORED)
    got = rg.attention_forward(q, k, v, mask=mask)
    weights = rg.reference.attention_forward(q, k, v, mask=mask).weights
    bounds = forward_bounds(q, k, v, weights, scale=8**-0.5, tile_keys=got.plan.tile_keys)
    assert (np.abs(got.out - want) <= bounds.out).all()
