"""`regard.transformers`: registering, what one layer's call means, and what is refused."""

import re
import subprocess
import sys

import pytest
import torch
import transformers as hf
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import regard as rg
import regard.transformers
import tiny_models

regard.transformers.register()
pytestmark = pytest.mark.filterwarnings("default")

# Rows of a few keys of order 1: two float32 computations of one row differ by some roundings of 6e-8.
TOLERANCE = 2e-6


def attend(*arguments, **options):
    return hf.AttentionInterface()["regard"](*arguments, **options)


class Layer(torch.nn.Module):
    """As much of a model's attention layer as transformers' own functions look at."""

    def __init__(self, is_causal=False, groups=2):
        super().__init__()
        self.is_causal, self.num_key_value_groups = is_causal, groups


@pytest.fixture
def qkv():
    generator = torch.Generator().manual_seed(0)
    sizes = (2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6)
    return [torch.randn(size, generator=generator) for size in sizes]


def assert_equal_to_sdpa(layer, qkv, mask, **options):
    got, weights = attend(layer, *qkv, mask, **options)
    want, _ = sdpa_attention_forward(layer, *qkv, mask, **options)
    assert weights is None
    assert got.is_contiguous()
    assert got.shape == want.shape == (2, qkv[0].shape[2], 4, 6)
    assert (got - want).abs().max() <= TOLERANCE


# --- registering ----------------------------------------------------------------------------------


def test_registering_twice_changes_nothing():
    before = hf.AttentionInterface()["regard"], hf.AttentionMaskInterface()["regard"]
    regard.transformers.register()
    regard.transformers.register("regard")
    assert (hf.AttentionInterface()["regard"], hf.AttentionMaskInterface()["regard"]) == before


def test_another_name():
    regard.transformers.register("exact")
    model = tiny_models.llama().eval()
    model.set_attn_implementation("exact")
    with torch.no_grad():
        ids = torch.arange(2, 9)[None]
        assert torch.equal(model(ids).logits, (model.set_attn_implementation("regard"), model(ids).logits)[1])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sdpa", "'sdpa' cannot be the name"),
        ("my_flash", "'my_flash' cannot be the name: it must be an identifier without flash, sdpa"),
        ("someone/kernel", "'someone/kernel' cannot be the name"),
        (None, 'None cannot be the name: .* pass one such as "regard"'),
        ("taken", "transformers has an attention of the name 'taken' already, .* pass another name"),
        ("taken_mask", "an attention of the name 'taken_mask' already"),
    ],
)
def test_names_that_are_refused(monkeypatch, name, message):
    monkeypatch.setitem(hf.AttentionInterface._global_mapping, "taken", print)
    monkeypatch.setitem(hf.AttentionMaskInterface._global_mapping, "taken_mask", print)
    before = dict(hf.AttentionInterface._global_mapping), dict(hf.AttentionMaskInterface._global_mapping)
    with pytest.raises(rg.UnsupportedError, match=message):
        regard.transformers.register(name)
    assert before == (hf.AttentionInterface._global_mapping, hf.AttentionMaskInterface._global_mapping)


def fresh(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_torch_and_transformers_are_imported_by_register_alone():
    code = """
import sys, pkgutil, importlib
import regard.transformers
for module in pkgutil.iter_modules(regard.transformers.__path__, "regard.transformers."):
    importlib.import_module(module.name)
def loaded():
    return [name for name in ("torch", "transformers") if name in sys.modules]
print("before", *loaded())
regard.transformers.register()
print("after", *loaded())
"""
    assert fresh(code) == ["before", "after", "torch", "transformers"]


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_without_the_extra(missing):
    code = f"""
import sys
sys.modules[{missing!r}] = None
import regard.transformers
try:
    regard.transformers.register()
except regard.UnsupportedError as error:
    print(error)
"""
    said = " ".join(fresh(code))
    assert said.startswith("register() needs torch and transformers 5.24 or newer (")
    assert said.endswith("): pip install 'regard[transformers]'")


def test_an_old_version(monkeypatch):
    # transformers puts another module object in its own place when the first model is made.
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "5.3.1.dev0")
    with pytest.raises(
        rg.UnsupportedError, match=r"needs transformers 5.24 or newer, .* of 5.3.1.dev0: pip install -U"
    ):
        regard.transformers.register()


def test_from_pretrained(tmp_path):
    made = tiny_models.llama()
    made.save_pretrained(tmp_path)
    model = hf.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="regard").eval()
    ids = torch.arange(2, 19)[None]
    with torch.no_grad():
        want = made.eval()(ids).logits
        assert (model(ids).logits - want).abs().max() <= 1e-5 * want.abs().max()


# --- one call -------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("given", [None, True, False])
@pytest.mark.parametrize("queries", [1, 5])
def test_without_a_mask(qkv, causal, given, queries):
    query, key, value = qkv
    for keys in (queries, 7):
        arrays = query[:, :, :queries], key[:, :, :keys], value[:, :, :keys]
        assert_equal_to_sdpa(Layer(causal), arrays, None, is_causal=given, scaling=0.3)
        assert_equal_to_sdpa(Layer(causal), arrays, None, is_causal=given)


def masks():
    generator = torch.Generator().manual_seed(1)
    kept = torch.rand(2, 4, 5, 7, generator=generator) < 0.7
    kept[..., 0] = True
    added = torch.randn(2, 4, 5, 7, generator=generator)
    lowest = torch.finfo(torch.float32).min
    eager = torch.where(kept, 0.0, lowest)
    eager[1, :, 2] = lowest  # a row that is masked from end to end: the mean of the values, as transformers has it
    return {
        "bool": kept, "bool, one batch and head": kept[:1, :1], "bool, one query": kept[:, :, :1],
        "added": added, "added, one head": added[:, :1], "lowest": eager, "lowest, one head": eager[:, :1],
        "-inf": torch.where(kept, added, -torch.inf),
    }  # fmt: skip


@pytest.mark.parametrize("name", masks())
@pytest.mark.parametrize("bias", [False, True])
def test_masks_of_the_users(qkv, name, bias):
    position_bias = torch.randn(1, 4, 5, 7, generator=torch.Generator().manual_seed(2)) if bias else None
    assert_equal_to_sdpa(Layer(True), qkv, masks()[name], position_bias=position_bias, scaling=1.0)


def test_position_bias_alone(qkv):
    position_bias = torch.randn(2, 4, 5, 7, generator=torch.Generator().manual_seed(2))
    for causal in (True, False):
        assert_equal_to_sdpa(Layer(causal), qkv, None, position_bias=position_bias)


def test_softcap_and_sinks(qkv):
    """By formula, because sdpa has neither."""
    query, key, value = qkv
    sinks = torch.randn(4, generator=torch.Generator().manual_seed(3))
    kept = masks()["bool"]
    out, weights = attend(Layer(), *qkv, kept, scaling=0.4, softcap=1.5, s_aux=sinks, output_attentions=True)
    scores = 0.4 * query @ key.repeat_interleave(2, 1).mT
    scores = torch.where(kept, 1.5 * torch.tanh(scores / 1.5), -torch.inf)
    joined = torch.cat([scores, sinks[:, None, None].expand(2, 4, 5, 1)], dim=-1)
    want = joined.softmax(dim=-1)[..., :-1]
    assert (weights - want).abs().max() <= TOLERANCE
    assert (out.transpose(1, 2) - want @ value.repeat_interleave(2, 1)).abs().max() <= TOLERANCE


def test_a_row_without_keys_is_zero(qkv):
    kept = masks()["bool"].clone()
    kept[0, 1, 2] = False
    out, _ = attend(Layer(), *qkv, kept)
    assert torch.equal(out[0, 2, 1], torch.zeros(6))
    assert out.isfinite().all()


def test_slices_of_a_cache_are_read_as_they_lie(qkv):
    query, key, value = qkv
    cache = [torch.full((2, 2, 32, x.shape[-1]), torch.nan) for x in (key, value)]
    for whole, part in zip(cache, (key, value), strict=True):
        whole[:, :, 3:10] = part
    seen = [whole[:, :, 3:10] for whole in cache]
    assert torch.equal(attend(Layer(), query, *seen, None)[0], attend(Layer(), *qkv, None)[0])


def test_inference_mode(qkv):
    with torch.inference_mode():
        assert_equal_to_sdpa(Layer(), qkv, None)


def test_what_layers_pass_and_nobody_reads(qkv):
    extra = {"sliding_window": 3, "position_ids": torch.arange(5), "use_cache": True, "cu_seq_lens_q": None}
    assert torch.equal(attend(Layer(), *qkv, None, **extra)[0], attend(Layer(), *qkv, None)[0])


def test_torch_compile():
    eager, ours = tiny_models.pair(tiny_models.mistral)
    ids = torch.arange(2, 19)[None]
    given = torch.ones_like(ids)
    given[:, :4] = 0
    with torch.no_grad():
        want = eager(ids, attention_mask=given, use_cache=False).logits
        got = torch.compile(ours, backend="eager")(ids, attention_mask=given, use_cache=False).logits
    assert (got - want)[given.bool()].abs().max() <= 1e-5 * want.abs().max()


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mask", "options", "kind", "message"),
    [
        (None, {"dropout": 0.1}, rg.UnsupportedError, "dropout 0.1, as it does in training.* model.eval()"),
        (None, {"indices": torch.zeros(2, 5, 3)}, rg.UnsupportedError, "passes indices= .* chooses keys or"),
        (None, {"block_indices": torch.zeros(1)}, rg.UnsupportedError, "passes block_indices= "),
        (
            None,
            {"sinks": torch.zeros(2, 4, 5, 1)},
            rg.UnsupportedError,
            r'passes sinks= .* call model.set_attn_\w+\("eager"\)',
        ),
        (torch.ones(2, 1, 5, 7).long(), {}, rg.MaskError, r"\(2, 1, 5, 7\) and dtype torch.int64: .* mask.bool\(\)"),
        (torch.ones(2, 7).bool(), {}, rg.ShapeError, r"shape \(2, 7\) and the scores are .* = \(2, 4, 5, 7\): .* four"),
        (torch.ones(5, 7).bool(), {}, rg.ShapeError, r"shape \(5, 7\) and the scores"),
        (torch.ones(2, 1, 5, 9).bool(), {}, rg.ShapeError, r"shape \(2, 1, 5, 9\) and the scores"),
        (object(), {}, rg.MaskError, "attention_mask is of type object, which belongs to another attention: pass"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_calls_that_are_refused(qkv, mask, options, kind, message):
    with pytest.raises(kind, match=message):
        attend(Layer(), *qkv, mask, **options)


def make_mask(queries, keys, **options):
    interface = hf.AttentionMaskInterface()
    return interface["regard"](batch_size=2, q_length=queries, kv_length=keys, **options)


@pytest.mark.parametrize(("queries", "keys"), [(1, 7), (5, 1), (5, 6), (4, 7)])
def test_a_mask_of_other_sizes_is_not_stretched(qkv, queries, keys):
    with pytest.raises(rg.ShapeError, match=re.escape(f"shape (2, 1, {queries}, {keys}) and the scores")):
        attend(Layer(), *qkv, make_mask(queries, keys))
    assert attend(Layer(), *qkv, make_mask(5, 7, q_offset=2))[0].shape == (2, 5, 4, 6)


def test_masks_that_cannot_be_made():
    with pytest.raises(rg.UnsupportedError, match=r'the model is on device cuda.* model.to\("cpu"\)'):
        make_mask(5, 7, device="cuda")
    with pytest.raises(rg.MaskError, match=r"attention_mask has shape \(2, 5, 7\): it has a number for each token"):
        make_mask(5, 7, attention_mask=torch.ones(2, 5, 7, dtype=torch.bool))
    with pytest.raises(rg.MaskError, match="KeyPadding has shape"):
        attend(Layer(), *(torch.ones(2, 4, 5, 8),) * 3, make_mask(5, 5, attention_mask=torch.eye(3, 5).bool()))


def test_gradients_are_refused(qkv):
    qkv[1].requires_grad_()
    with pytest.raises(rg.UnsupportedError, match=r"key requires grad.*torch.no_grad"):
        attend(Layer(), *qkv, None)
    model = tiny_models.llama().eval()
    model.set_attn_implementation("regard")
    with pytest.raises(rg.UnsupportedError, match=r"query requires grad.*torch.no_grad"):
        model(torch.arange(2, 9)[None])


def test_dropout_in_training_is_refused():
    model = tiny_models.bert().train()
    model.set_attn_implementation("regard")
    with torch.no_grad(), pytest.raises(rg.UnsupportedError, match=r"dropout 0.1, .* call model.eval\(\)"):
        model(torch.arange(2, 9)[None])


def test_other_devices_are_refused():
    query = torch.empty(1, 2, 3, 4, device="meta")
    with pytest.raises(rg.UnsupportedError, match="query is a torch tensor on device meta"):
        attend(Layer(), query, query, query, None)


def test_a_model_that_chooses_keys_itself_is_refused():
    """DeepSeek-V3.2 hands chosen keys over to attentions other than transformers' own two."""
    config = hf.DeepseekV32Config(
        **tiny_models.DECODER, num_key_value_heads=4, moe_intermediate_size=32, n_routed_experts=4, n_group=2,
        topk_group=1, num_experts_per_tok=2, first_k_dense_replace=1, q_lora_rank=16, kv_lora_rank=16,
        qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=12, index_topk=4, index_n_heads=2, index_head_dim=16,
    )  # fmt: skip
    model = hf.DeepseekV32ForCausalLM(config).eval()
    model.set_attn_implementation("regard")
    with torch.no_grad(), pytest.raises(rg.UnsupportedError, match="passes indices= to its attention"):
        model(torch.arange(2, 11)[None])


@pytest.mark.parametrize("options", [{}, {"output_attentions": True}])
@pytest.mark.parametrize("queries", [1, 5])
def test_the_result_lies_as_projections_read_it(options, queries):
    query, key = torch.randn(2, 4, queries, 8), torch.randn(2, 2, 7, 8)
    out, weights = attend(None, query, key, key, None, **options)
    assert out.shape == (2, queries, 4, 8)
    assert out.is_contiguous()
    assert (weights is None) == (not options)
    mask = rg.Causal() if queries > 1 else None
    assert torch.equal(out.transpose(1, 2), rg.attention(query, key, key, mask=mask, q_offset=0))


def test_a_step_of_decoding_enters_few_functions():
    """What a layer's call costs beside the kernel, counted: no clock is as steady."""
    entered = []
    query, key = torch.randn(1, 4, 1, 8), torch.randn(1, 2, 7, 8)
    mask = hf.AttentionMaskInterface()["regard"](batch_size=1, q_length=1, kv_length=7, q_offset=6)
    for _ in range(2):
        entered.clear()
        sys.setprofile(lambda frame, event, arg: entered.append(frame.f_code.co_name) if event == "call" else None)
        try:
            attend(None, query, key, key, mask, scaling=0.5, dropout=0.0)
        finally:
            sys.setprofile(None)
    assert "run" in entered
    assert len(entered) <= 75, entered
