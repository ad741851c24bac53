"""What transformers composes as functions comes out as masks: the same pairs, and none of them spelled out."""

import operator
import subprocess
import sys
from functools import reduce

import numpy as np
import pytest
import torch
import transformers as hf
from transformers import masking_utils as rules

import regard as rg
import regard.transformers
import tiny_models
from processes import linux
from regard.masks import KeyPadding
from regard.masks._function import Function
from regard.transformers._hand_over import hand_over
from regard.transformers._laid import mask_tensor

regard.transformers.register()
pytestmark = pytest.mark.filterwarnings("default")

# Batch, queries, keys, position of query 0, position of key 0: a prompt; a step and a piece behind a cache; static
# caches longer than what they hold; sliding caches that dropped their first keys.
PLACES = [(2, 9, 9, 0, 0), (2, 1, 9, 8, 0), (3, 4, 9, 5, 0), (2, 4, 12, 0, 0), (2, 3, 12, 5, 0), (2, 4, 7, 9, 6),
          (1, 1, 5, 11, 7)]  # fmt: skip
every_place = pytest.mark.parametrize("place", PLACES, ids=str)


def even_rows(b, h, q, k):
    """A user's rule, which transformers does not know."""
    return (q % 2 == 0) | (k == b)


def of_single_pairs(b, h, q, k):
    """A rule that works under torch.vmap alone: it takes numbers, not arrays that broadcast."""
    return torch.stack([q, k]).amax() % 3 != 1


def blocks(batch):
    return torch.tensor([-1, 0, 0, 0, -1, -1, 1, 1, 1, 1, -1, 2, 2, -1, -1, -1]).repeat(batch, 1)


KNOWN = {
    "causal": lambda batch: rules.causal_mask_function,
    "full": lambda batch: rules.bidirectional_mask_function,
    "window": lambda batch: rules.sliding_window_causal_mask_function(3),
    "window of one": lambda batch: rules.sliding_window_causal_mask_function(1),
    "two-sided window": lambda batch: rules.sliding_window_bidirectional_mask_function(2),
    "chunks": lambda batch: rules.chunked_causal_mask_function(4, torch.arange(batch)),
    "images": lambda batch: rules.or_masks(rules.causal_mask_function, rules.blockwise_overlay(blocks(batch))),
}
UNKNOWN = {
    "rule": lambda batch: even_rows,
    "causal and rule": lambda batch: rules.and_masks(rules.causal_mask_function, even_rows),
    "causal or rule": lambda batch: rules.or_masks(rules.causal_mask_function, even_rows),
    "no window": lambda batch: rules.sliding_window_causal_mask_function(0),
    "packed, past its table": lambda batch: rules.and_masks(
        rules.causal_mask_function,
        rules.remap_positions_for_packed_sequence(even_rows, torch.arange(16).repeat(batch, 1)),
    ),
}


def padding(batch, length, kind):
    """A 2-D mask as users give it; transformers makes it bool, and it may be shorter than a static cache."""
    if kind == "none":
        return None
    place = torch.arange(length)
    rows = {"ones": place >= 0, "left": place >= 2, "right": place < length - 2, "holes": place % 3 != 1}
    mask = rows[kind].repeat(batch, 1)
    mask[0] = True
    return mask


def both(place, rule, mask, **options):
    batch, queries, keys, q_offset, kv_offset = place
    call = {
        "batch_size": batch, "q_length": queries, "kv_length": keys, "q_offset": q_offset, "kv_offset": kv_offset,
        "mask_function": rule, "attention_mask": mask, **options,
    }  # fmt: skip
    return hand_over(**call), rules.sdpa_mask(**call, allow_is_causal_skip=False)


def leaves(mask):
    return [leaf for part in mask.parts for leaf in leaves(part)] if mask.parts else [mask]


def is_known(mask):
    return not any(isinstance(leaf, Function) for leaf in leaves(mask))


def kept(tensor):
    laid = tensor.laid
    return laid.mask.materialize(laid.queries, laid.keys, q_offset=laid.q_offset, lead=(laid.batch,), heads=1)


@every_place
@pytest.mark.parametrize("rule", KNOWN)
@pytest.mark.parametrize("pad", ["none", "ones", "left", "right", "holes"])
def test_known_rules_are_masks(place, rule, pad):
    batch, queries, _, q_offset, _ = place
    ours, theirs = both(place, KNOWN[rule](batch), padding(batch, q_offset + queries, pad))
    assert is_known(ours.laid.mask), ours
    assert np.array_equal(kept(ours), theirs.expand(ours.shape).numpy())


@every_place
@pytest.mark.parametrize("rule", UNKNOWN)
def test_unknown_rules_are_functions(place, rule):
    batch, queries, _, q_offset, _ = place
    ours, theirs = both(place, UNKNOWN[rule](batch), padding(batch, q_offset + queries, "left"))
    assert not is_known(ours.laid.mask)
    assert np.array_equal(kept(ours), theirs.expand(ours.shape).numpy())


@every_place
def test_rules_of_single_pairs(place):
    rule = rules.and_masks(rules.causal_mask_function, of_single_pairs)
    ours, theirs = both(place, rule, None, use_vmap=True)
    assert [type(leaf) for leaf in leaves(ours.laid.mask)] == [rg.Causal, Function]
    assert np.array_equal(kept(ours), theirs.numpy())


def test_a_padding_of_ones_is_no_mask():
    ours, _ = both((2, 5, 5, 0, 0), rules.causal_mask_function, torch.ones(2, 5, dtype=torch.bool))
    assert ours.laid.mask == rg.Causal()
    ours, _ = both((2, 5, 5, 0, 0), rules.bidirectional_mask_function, torch.ones(2, 5, dtype=torch.bool))
    assert ours.laid.mask == rg.Full()
    ours, _ = both((1, 2, 3, 4, 3), rules.sliding_window_causal_mask_function(3), None)
    assert (ours.laid.mask, ours.laid.q_offset) == (rg.Window(left=2) & rg.Causal(), 1)


PACKED = torch.tensor([[0, 1, 2, 3, 0, 1, 0, 1, 2], [0, 1, 2, 3, 4, 5, 6, 7, 8], [3, 4, 5, 0, 1, 2, 3, 0, 0]])


IN_PIECES = [0, 1, 2, 0, 1, 2, 3, 4, 5]  # positions of a sequence that another one interrupts


def packed_rule(inner, positions, ids):
    return rules.and_masks(
        rules.remap_positions_for_packed_sequence(inner, positions), rules.packed_sequence_mask_function(ids)
    )


@pytest.mark.parametrize("rule", KNOWN)
def test_packed_sequences(rule):
    ids = rules.find_packed_sequence_indices(PACKED)
    packed = packed_rule(KNOWN[rule](3), PACKED, ids)
    for composed in (packed, rules.and_masks(packed, rules.bidirectional_mask_function)):
        ours, theirs = both((3, 9, 9, 0, 0), composed, None)
        assert is_known(ours.laid.mask)
        assert np.array_equal(kept(ours), theirs.expand(ours.shape).numpy())


@pytest.mark.parametrize(
    ("inner", "positions", "ids"),
    [
        (even_rows, PACKED, rules.find_packed_sequence_indices(PACKED)),
        (rules.bidirectional_mask_function, PACKED - 2, rules.find_packed_sequence_indices(PACKED)),
        (rules.causal_mask_function, PACKED.flip(1), rules.find_packed_sequence_indices(PACKED)),
        (rules.causal_mask_function, PACKED, torch.zeros_like(PACKED)),
        (
            rules.sliding_window_causal_mask_function(3),
            *torch.tensor([[IN_PIECES] * 3, [[0, 0, 0, 1, 1, 1, 0, 0, 0]] * 3]),
        ),
    ],
    ids=["unknown rule", "positions below 0", "positions that fall", "positions that jump", "documents in pieces"],
)
def test_packed_sequences_that_are_not_as_they_should_be(inner, positions, ids):
    ours, theirs = both((3, 9, 9, 0, 0), packed_rule(inner, positions, ids), None)
    assert not is_known(ours.laid.mask)
    assert np.array_equal(kept(ours), theirs.expand(ours.shape).numpy())


def test_packed_models_keep_sequences_apart():
    positions = torch.tensor([[*range(7), *range(4), *range(6)]])
    ids = torch.randint(2, 95, positions.shape, generator=torch.Generator().manual_seed(1))
    for make in (tiny_models.llama, tiny_models.mistral, tiny_models.gemma3):
        eager, ours = tiny_models.pair(make)
        with torch.no_grad():
            want = torch.cat([eager(part, use_cache=False).logits for part in ids.split([7, 4, 6], dim=1)], dim=1)
            got = ours(ids, position_ids=positions, use_cache=False).logits
        assert (got - want).abs().max() <= 1e-5 * want.abs().max()


# --- on its way through model code ----------------------------------------------------------------


@pytest.fixture
def carried():
    return both((2, 4, 6, 2, 0), rules.causal_mask_function, padding(2, 6, "left"))


def test_a_mask_looks_like_the_tensor_that_is_expected(carried):
    ours, theirs = carried
    assert isinstance(ours, torch.Tensor)
    assert (ours.shape, ours.dtype, ours.device, ours.ndim) == (theirs.shape, theirs.dtype, theirs.device, 4)
    moved = ours.contiguous().to("cpu").to(torch.bool)
    assert isinstance(moved, mask_tensor())
    assert repr(moved) == repr(ours).replace("\n", "")
    assert repr(ours).startswith("MaskTensor(Causal() & KeyPadding([[")
    assert ours.dense is None


@pytest.mark.parametrize(
    "read",
    [
        lambda mask: mask[:, :, :, :3],
        lambda mask: mask[:, 0],
        lambda mask: mask & ~torch.eye(4, 6, dtype=torch.bool),
        lambda mask: torch.where(mask, 0.0, -1.0),
        lambda mask: mask.float().masked_fill(mask, 2.0),
        lambda mask: torch.cat([mask, mask], dim=-1),
        lambda mask: mask.all(),
        lambda mask: mask.detach().clone(),
    ],
)
def test_operators_see_its_elements(carried, read):
    ours, theirs = carried
    got, want = read(ours), read(theirs)
    assert type(got) is torch.Tensor
    assert got.dtype == want.dtype
    assert torch.equal(got, want)


def test_what_is_written_to_it_holds(carried):
    ours, theirs = carried
    for mask in (ours, theirs):
        mask[:, 0, 1] &= torch.arange(6) < 2
        mask[..., 0].fill_(True)
    query, key = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 6, 8)
    attend = hf.AttentionInterface()["regard"]
    assert torch.equal(attend(None, query, key, key, ours)[0], attend(None, query, key, key, theirs)[0])
    assert torch.equal(ours.dense, theirs)


def test_a_prepared_mask_is_taken_as_it_is():
    """What generate() does with a static cache: the mask is made before the model sees it."""
    _, ours = tiny_models.pair(tiny_models.mistral)
    ids = torch.randint(2, 95, (2, 9), generator=torch.Generator().manual_seed(1))
    given = torch.ones_like(ids)
    given[0, :4] = 0
    with torch.no_grad():
        made = rules.create_masks_for_generate(ours.config, ours.get_input_embeddings()(ids), given, None)
        assert isinstance(made, mask_tensor())
        want = ours(ids, attention_mask=given).logits
        assert torch.equal(ours(ids, attention_mask=made).logits, want)
        # Another attention that is given it reads the elements.
        ours.set_attn_implementation("sdpa")
        kept = given.bool()
        assert (ours(ids, attention_mask=made).logits - want)[kept].abs().max() <= 1e-5 * want.abs().max()


def test_masks_reach_the_attention_without_pairs(monkeypatch):
    seen = []
    interface = hf.AttentionInterface()
    attend = interface["regard"]
    monkeypatch.setitem(
        hf.AttentionInterface._global_mapping,
        "spy",
        lambda *args, **more: seen.append(args[4]) or attend(*args, **more),
    )
    monkeypatch.setitem(hf.AttentionMaskInterface._global_mapping, "spy", hf.AttentionMaskInterface()["regard"])
    _, ours = tiny_models.pair(tiny_models.gemma2)
    ours.set_attn_implementation("spy")
    given = torch.ones(2, 17, dtype=torch.long)
    given[0, :5] = 0
    for cache in ("dynamic", "static"):
        ours.generate(torch.full((2, 17), 5), attention_mask=given, max_new_tokens=4, cache_implementation=cache)
    assert len(seen) == 2 * 2 * 4
    assert all(isinstance(mask, mask_tensor()) and mask.dense is None and is_known(mask.laid.mask) for mask in seen)
    local = reduce(operator.or_, (isinstance(leaf, rg.Window) for mask in seen for leaf in leaves(mask.laid.mask)))
    assert local
    assert any(isinstance(leaf, KeyPadding) for mask in seen for leaf in leaves(mask.laid.mask))


MEMORY = """
import resource, sys, torch, transformers as hf, regard.transformers
regard.transformers.register()
torch.set_grad_enabled(False)
n = 8192
config = hf.MistralConfig(
    vocab_size=96, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=n, sliding_window=4096, attn_implementation="regard",
)
model = hf.MistralForCausalLM(config).eval()
def run(n):
    mask = torch.ones(2, n, dtype=torch.long)
    mask[0, :7] = 0
    model(torch.full((2, n), 5), attention_mask=mask, logits_to_keep=1)
run(64)
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) >> 10
before = peak()
run(n)
print(peak() - before)
"""


@linux
def test_a_long_prompt_takes_no_quadratic_memory():
    """Two prompts of 8192 tokens: a bool mask of their pairs takes 128 MB, scores of 4 heads 2 GB."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, timeout=300)
    assert int(done.stdout) < 64, f"{done.stdout} MB"


def test_padding_that_hides_nothing_is_none():
    """As generate() has it for one prompt: then a step is a plain or causal one, whatever its length."""
    step = {"batch_size": 2, "q_length": 1, "kv_length": 6, "q_offset": 5}
    for given in (torch.ones(2, 6, dtype=torch.long), torch.ones(2, 6, dtype=torch.bool), torch.ones(1, 9)):
        assert hand_over(**step, attention_mask=given).laid.mask == rg.Causal()
    for given in (torch.tensor([[1] * 6, [0] + [1] * 5]), torch.ones(2, 5)):  # what is missing is padding
        leaves = hand_over(**step, attention_mask=given).laid.mask.leaves
        assert [type(leaf) for leaf in leaves] == [rg.Causal, KeyPadding]
