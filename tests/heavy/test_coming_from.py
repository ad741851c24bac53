"""What docs/coming-from.md says of torch, JAX and ONNX, looked at in the libraries themselves."""

import re
from importlib.metadata import version

import jax.numpy as jnp
import numpy as np
import onnx.defs
import pytest
import torch
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jax.nn import dot_product_attention
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention as sdpa

import regard as rg
from test_docs_pages import DOCS, RUN

# torch says once per process that flex_attention is slow where it is not compiled.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
QUERIES, KEYS, D = 3, 5, 8
# All scores are 0 and the values are the unit vectors: the output is the weights.
Q, K, V = np.zeros((QUERIES, D), np.float32), np.zeros((KEYS, D), np.float32), np.eye(KEYS, D, dtype=np.float32)
TABLE = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool)


def ours(**options):
    return rg.attention(Q, K, V, **options)


def by_torch(**options):
    return sdpa(*(torch.from_numpy(x)[None, None] for x in (Q, K, V)), **options)[0, 0].numpy()


def by_flex(keep):
    mask = create_block_mask(keep, None, None, QUERIES, KEYS, device="cpu")
    return flex_attention(*(torch.from_numpy(x)[None, None] for x in (Q, K, V)), block_mask=mask)[0, 0].numpy()


def by_jax(q=Q, k=K, v=V, **options):
    out = dot_product_attention(*(jnp.asarray(x)[None, :, None] for x in (q, k, v)), **options)
    return np.asarray(out)[0, :, 0]


def same(got, want):
    np.testing.assert_allclose(got, want, atol=1e-6)


def differ(got, want):
    assert np.abs(np.asarray(got) - np.asarray(want)).max() > 0.1


@pytest.mark.parametrize("page", ["coming-from.md", "lesson/5-empty-rows.md"])
def test_versions_on_the_pages_are_those_that_run_here(page):
    said = dict(re.findall(r"\b(torch|JAX|onnx) (\d+\.\d+(?:\.\d+)?)", (DOCS / page).read_text()))
    assert said.items() <= RUN.items()
    assert {"torch", "JAX"} <= set(said)
    for library, number in said.items():
        assert f"{version(library.lower())}.".startswith(f"{number}."), library


def test_torch_counts_causal_from_the_first_key():
    theirs = by_torch(is_causal=True)
    same(theirs, ours(mask=rg.Causal(), q_offset="start"))
    differ(theirs, ours(mask=rg.Causal(), q_offset="end"))
    same(by_torch(attn_mask=causal_lower_right(QUERIES, KEYS)), ours(mask=rg.Causal(), q_offset="end"))


def test_torch_true_means_may_attend_and_an_empty_row_is_0():
    theirs = by_torch(attn_mask=torch.from_numpy(TABLE))
    same(theirs, ours(mask=TABLE))
    assert (theirs[1] == 0).all()
    lowest = torch.full((QUERIES, KEYS), torch.finfo(torch.float32).min)
    same(by_torch(attn_mask=lowest), np.broadcast_to(V.mean(0), (QUERIES, D)))


def test_torch_adds_a_float_mask():
    added = TABLE.astype(np.float32)
    same(by_torch(attn_mask=torch.from_numpy(added)), ours(bias=added))


def test_torch_drops_out_in_evaluation():
    with torch.inference_mode():
        differ(by_torch(dropout_p=0.9), by_torch())


def test_torch_refuses_a_mask_beside_is_causal_where_value_has_another_size():
    q, k, v = (torch.zeros(1, 1, 5, size) for size in (8, 8, 4))
    with pytest.raises(RuntimeError, match="attn_mask should not be set"):
        sdpa(q, k, v, attn_mask=torch.ones(5, 5, dtype=torch.bool), is_causal=True)


def test_groups_are_neighbours_in_torch_and_jax(normal):
    q, k, v = normal(1, 6, 4, D), normal(1, 2, 4, D), normal(1, 2, 4, D)
    want = rg.attention(q, k, v)
    same(sdpa(*map(torch.from_numpy, (q, k, v)), enable_gqa=True).numpy(), want)
    same(np.asarray(dot_product_attention(*(x.swapaxes(1, 2) for x in (q, k, v)))).swapaxes(1, 2), want)
    tiled = [np.concatenate([x] * 3, axis=1) for x in (k, v)]  # the order of x-transformers
    differ(rg.attention(q, *tiled), want)


def test_flex_counts_queries_from_0_and_gives_an_empty_row_0():
    same(by_flex(lambda b, h, q, k: k <= q), ours(mask=rg.Causal(), q_offset="start"))
    assert (by_flex(lambda b, h, q, k: k < 0) == 0).all()


def test_flex_scales_before_score_mod(normal):
    q = torch.from_numpy(normal(1, 1, 1, 16))
    lse = [
        flex_attention(q, q, q, score_mod=f, return_aux=AuxRequest(lse=True))[1].lse.item()
        for f in (lambda s, b, h, i, j: s, lambda s, b, h, i, j: s + 1)
    ]
    assert lse[1] - lse[0] == pytest.approx(1, abs=1e-5)


@pytest.fixture
def module():
    torch.manual_seed(0)
    return torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()


@torch.no_grad()
def test_multihead_true_means_hidden(module, normal):
    x = torch.from_numpy(normal(1, 4, 8))
    layer = rg.MultiHeadAttention.from_torch(module)
    hidden = torch.tensor([[False, True, False, True]])
    theirs = module(x, x, x, key_padding_mask=hidden)[0]
    same(theirs, layer(x, mask=rg.KeyPadding.from_torch(hidden)))
    differ(theirs, layer(x, mask=rg.KeyPadding(hidden)))
    above = torch.ones(4, 4, dtype=torch.bool).triu(1)
    same(module(x, x, x, attn_mask=above)[0], layer(x, mask=~above))
    per_head = torch.stack([above, above.flip(0)])  # (B * H, Sq, Skv)
    same(module(x, x, x, attn_mask=per_head)[0], layer(x, mask=~per_head.reshape(1, 2, 4, 4)))


def test_multihead_empty_rows_and_the_causal_hint(module, normal):
    x, hidden = torch.from_numpy(normal(1, 4, 8)), torch.ones(1, 4, dtype=torch.bool)
    torch.nn.init.normal_(module.out_proj.bias)
    assert module(x, x, x, key_padding_mask=hidden)[0].isnan().all()
    without = module(x, x, x, key_padding_mask=hidden, need_weights=False)[0].detach()
    with torch.no_grad():
        assert module(x, x, x, key_padding_mask=hidden, need_weights=False)[0].isnan().all()
        same(without, rg.MultiHeadAttention.from_torch(module)(x, mask=rg.Empty()))
    same(without, module.out_proj.bias.detach().expand(1, 4, 8))
    with pytest.raises(RuntimeError, match="Need attn_mask"):
        module(x, x, x, is_causal=True)


def test_jax_counts_causal_and_windows_from_the_first_key():
    same(by_jax(is_causal=True), ours(mask=rg.Causal(), q_offset="start"))
    theirs = by_jax(local_window_size=(1, 0))
    same(theirs, ours(mask=rg.Window(left=1, right=0), q_offset="start"))
    differ(theirs, ours(mask=rg.Window(left=1, right=0), q_offset="end"))
    same(by_jax(local_window_size=1), ours(mask=rg.Window(left=1, right=1), q_offset="start"))


def test_jax_lengths_masks_and_empty_rows():
    same(
        by_jax(key_value_seq_lengths=jnp.array([3])), rg.attention(Q[None], K[None], V[None], mask=rg.KeyLengths(3))[0]
    )
    keep = np.arange(QUERIES) < 2
    same(by_jax(query_seq_lengths=jnp.array([2])), ours(mask=keep[:, None]))
    theirs = by_jax(mask=jnp.asarray(TABLE)[None, None])
    same(theirs[[0, 2]], ours(mask=TABLE)[[0, 2]])
    same(theirs[1], V.mean(0))


def test_jax_gives_the_logsumexp_with_heads_last(normal):
    q, k, v = normal(3, 2, 4, 5, D)
    theirs = dot_product_attention(*(x.swapaxes(1, 2) for x in (q, k, v)), return_residual=True)[1]
    same(np.asarray(theirs).swapaxes(1, 2), rg.attention_forward(q, k, v).lse)


def test_splash_has_our_masks_by_other_names():
    shape, size = (QUERIES, KEYS), 2
    masks = {
        splash.CausalMask(shape, 1): (rg.Causal(), 1),
        splash.LocalMask(shape, (1, 0), 2): (rg.Window(left=1, right=0), 2),
        splash.LocalMask(shape, (None, 1), 0): (rg.Window(right=1), 0),
        splash.splash_attention_mask.ChunkedCausalMask(shape, size): (rg.Causal() & rg.Chunked(size), 0),
        splash.FullMask(shape): (rg.Full(), 0),
    }
    for theirs, (ours, q_offset) in masks.items():
        kept = ours.materialize(*shape, q_offset=q_offset)
        np.testing.assert_array_equal(theirs[:, :], kept)
        assert (rg.PerHead([ours, rg.Full()]).materialize(*shape, q_offset=q_offset, heads=2)[0] == kept).all()


def test_splash_takes_1_as_the_scale_and_the_mean_of_an_empty_row(normal):
    q, k, v, sinks = normal(2, QUERIES, D), normal(2, KEYS, D), normal(2, KEYS, D), normal(2)
    mask = splash.NumpyMask(TABLE)
    theirs = splash.make_masked_mha_reference(splash.MultiHeadMask([mask, mask]))
    ids = splash.SegmentIds(jnp.array([0, 0, 1]), jnp.array([0, 0, 1, 1, 1]))
    keep = rg.Dense(TABLE) & rg.Documents(ids.q, ids.kv)
    got = np.asarray(theirs(q, k, v, ids, sinks, attn_logits_soft_cap=3.0))
    want = rg.attention(q, k, v, mask=keep, scale=1, softcap=3, sinks=sinks)
    same(got[:, [0, 2]], want[:, [0, 2]])
    same(np.asarray(theirs(q, k, v, None, None))[:, 1], v.mean(axis=1))


def test_onnx_windows_are_inclusive_and_an_empty_row_is_0():
    text = " ".join(onnx.defs.get_schema("Attention", 25, "").doc.split())
    for said in (
        "p - left_window_size <= j <= p + right_window_size",
        "`True` indicates that the element should take part",
        "`offset = 0` when neither is provided",
        "produces a zero output row",
    ):
        assert said in text
