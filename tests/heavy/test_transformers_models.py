"""Whole models of transformers with regard's attention have the numbers of transformers' own eager code."""

import pytest
import torch
import transformers as hf
from transformers.masking_utils import causal_mask_function

import regard.transformers
import tiny_models
from regard import models

regard.transformers.register()
pytestmark = pytest.mark.filterwarnings("default")

# Both sides are float32 and differ by rounding alone, 6e-8 at a time. A logit is a sum of 48 products behind two layers
# of sums of up to 64, each with an error of some roundings of its terms: 1e-5 is 170 roundings of the largest logit.
# The pairs of these tests differ by up to 6e-7, and one key too many or too few moves a logit by more than 1e-3.
TOLERANCE = 1e-5

LENGTH = 17
PADDINGS = {"none": None, "ones": (0, 0, 0), "left": (6, 0, 2), "right": (-6, 0, -2)}


def tokens(*padding):
    """Random tokens, and a mask with so many of them padding: in front, or if negative behind."""
    ids = torch.randint(2, 95, (len(padding), LENGTH), generator=torch.Generator().manual_seed(1))
    place = torch.arange(LENGTH)
    kept = [(place >= n) if n >= 0 else (place < LENGTH + n) for n in padding]
    return ids, torch.stack(kept).long()


def inputs(padding):
    ids, mask = tokens(*(padding or (0, 0, 0)))
    return {"input_ids": ids} if padding is None else {"input_ids": ids, "attention_mask": mask}


def assert_close(got, want, kept=None):
    """Compare where there is no padding: in a padded row transformers gives what nobody reads, and regard 0."""
    assert got.shape == want.shape
    error = (got - want).abs()
    error = error if kept is None else error[kept.bool()]
    assert torch.isfinite(want).all()
    assert error.max() <= TOLERANCE * want.abs().max(), f"{error.max() / want.abs().max():.3g} of the largest"


def assert_generates_the_same(ours, eager, *given, **options):
    """Equal tokens of greedy decoding, and the logits that each was chosen by."""
    options = {
        "max_new_tokens": 12,
        "do_sample": False,
        "return_dict_in_generate": True,
        "output_logits": True,
        **options,
    }
    got, want = (model.generate(*given, **options) for model in (ours, eager))
    assert torch.equal(got.sequences, want.sequences)
    assert_close(torch.stack(got.logits), torch.stack(want.logits))


def every(makes):
    return pytest.mark.parametrize("make", makes, ids=lambda make: make.__name__)


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


@every([*tiny_models.DECODERS, *tiny_models.ENCODERS])
def test_logits(make):
    eager, ours = tiny_models.pair(make)
    for padding in PADDINGS.values():
        given = inputs(padding)
        assert_close(ours(**given).logits, eager(**given).logits, given.get("attention_mask"))
    one = {name: value[:1] for name, value in inputs((6, 0)).items()}
    assert_close(ours(**one).logits, eager(**one).logits, one["attention_mask"])


@every(tiny_models.DECODERS)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generate(make, cache):
    eager, ours = tiny_models.pair(make)
    for padding in (None, (6, 0, 2)):
        assert_generates_the_same(ours, eager, **inputs(padding), cache_implementation=cache)


def in_pieces(model, given, static=False):
    """Logits of a prompt that comes in pieces: where query 0 stands matters, and a sliding cache has dropped keys."""
    cache = hf.StaticCache(model.config, max_cache_len=32) if static else hf.DynamicCache(config=model.config)
    pieces = []
    for start, end in ((0, 9), (9, 10), (10, 14), (14, 17)):
        ids, mask = given["input_ids"][:, start:end], given["attention_mask"][:, :end]
        pieces.append(model(input_ids=ids, attention_mask=mask, cache=cache, use_cache=True).logits)
    return torch.cat(pieces, dim=1)


@every(tiny_models.DECODERS)
@pytest.mark.parametrize("static", [False, True])
def test_several_queries_behind_a_cache(make, static):
    eager, ours = tiny_models.pair(make)
    given = inputs((6, 0, 2))
    assert_close(in_pieces(ours, given, static), in_pieces(eager, given, static), given["attention_mask"])


FAULTS = {
    "padding is ignored": lambda call: {"attention_mask": None},
    "query 0 stands at key 0": lambda call: {"q_offset": call["kv_offset"]},
    "no window": lambda call: {"mask_function": causal_mask_function},
    "a key too many": lambda call: {"q_offset": call["q_offset"] + 1},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_seen(monkeypatch, fault):
    mapping, make_mask = hf.AttentionMaskInterface._global_mapping, hf.AttentionMaskInterface()["regard"]
    monkeypatch.setitem(mapping, "regard", lambda **call: make_mask(**{**call, **FAULTS[fault](call)}))
    eager, ours = tiny_models.pair(tiny_models.mistral)
    given = inputs((6, 0, 2))
    with pytest.raises(AssertionError, match="of the largest"):
        assert_close(in_pieces(ours, given), in_pieces(eager, given), given["attention_mask"])


@every([tiny_models.llama, tiny_models.mistral])
@pytest.mark.parametrize(
    "options",
    [{"num_beams": 3}, {"prompt_lookup_num_tokens": 3}, {"prefill_chunk_size": 5}],
    ids=lambda o: next(iter(o)),
)
def test_other_ways_to_generate(make, options):
    eager, ours = tiny_models.pair(make)
    given = inputs((0,) if "prompt_lookup_num_tokens" in options else (6, 0, 2))
    assert_generates_the_same(ours, eager, **given, **options)


@every([*tiny_models.DECODERS, *tiny_models.ENCODERS])
def test_attentions(make):
    eager, ours = tiny_models.pair(make)
    given = inputs((6, 0, 2))
    assert not ours(**given).get("attentions")
    got, want = (model(**given, output_attentions=True).attentions for model in (ours, eager))
    assert len(got) == len(want) == 2
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == theirs.dtype
        assert_close(mine.transpose(1, 2), theirs.transpose(1, 2), given["attention_mask"])


@every(tiny_models.BOTH)
def test_encoder_and_decoder(make):
    eager, ours = tiny_models.pair(make)
    for padding in PADDINGS.values():
        given = inputs(padding)
        target, kept = tokens(0, -3, -1)
        for extra in ({}, {"decoder_attention_mask": kept}):
            call = {**given, **extra, "decoder_input_ids": target[:, :9]}
            if extra:
                call["decoder_attention_mask"] = kept[:, -9:]
            assert_close(ours(**call).logits, eager(**call).logits, call.get("decoder_attention_mask"))
    given = inputs((6, 0, 2))
    call = {**given, "decoder_input_ids": target, "output_attentions": True}
    got, want = ours(**call), eager(**call)
    for name in ("decoder_attentions", "cross_attentions"):
        for mine, theirs in zip(got[name], want[name], strict=True):
            assert_close(mine, theirs)
    for cache in ("dynamic", "static"):
        assert_generates_the_same(ours, eager, **given, cache_implementation=cache)


def test_whisper():
    eager, ours = tiny_models.pair(tiny_models.whisper)
    sound = torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(2))
    call = {"input_features": sound, "decoder_input_ids": tokens(0, 0)[0][:, :9], "output_attentions": True}
    got, want = ours(**call), eager(**call)
    assert_close(got.logits, want.logits)
    for name in ("encoder_attentions", "decoder_attentions", "cross_attentions"):
        for mine, theirs in zip(got[name], want[name], strict=True):
            assert_close(mine, theirs)
    assert_generates_the_same(ours, eager, sound)


def test_vit():
    eager, ours = tiny_models.pair(tiny_models.vit)
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    assert_close(ours(pixels).logits, eager(pixels).logits)


def test_a_trained_model():
    """MiniLM on three sentences of different length: hidden states, and how similar the sentences are."""
    folder = models.default_model_folder()
    texts = ["The animal didn't cross the street because it was too tired.", "A dog sleeps.", "Street lights are on."]
    given = hf.AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    eager = hf.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    ours = hf.AutoModel.from_pretrained(folder, attn_implementation="regard").eval()
    kept = given["attention_mask"]
    means = []
    for model in (eager, ours):
        hidden = model(**given).last_hidden_state
        mean = (hidden * kept[..., None]).sum(1) / kept.sum(1, keepdim=True)
        means.append((hidden, torch.nn.functional.normalize(mean, dim=1)))
    assert_close(means[1][0], means[0][0], kept)
    assert_close(means[1][1] @ means[1][1].T, means[0][1] @ means[0][1].T)


@every([tiny_models.llama, tiny_models.gemma2, tiny_models.gpt_oss, tiny_models.bert])
def test_bfloat16(make):
    """As near to float32 as transformers' own bfloat16 is: regard carries scores and sums in float32."""
    eager, ours = tiny_models.pair(make)
    given = inputs((6, 0, 2))
    kept = given["attention_mask"].bool()
    exact = eager(**given).logits[kept]
    mine, theirs = (model.bfloat16()(**given, output_attentions=True) for model in (ours, eager))
    assert mine.logits.dtype == mine.attentions[1].dtype == theirs.attentions[1].dtype == torch.bfloat16
    mine, theirs = ((output.logits[kept].float() - exact).square().mean().sqrt() for output in (mine, theirs))
    assert mine <= 1.5 * theirs
