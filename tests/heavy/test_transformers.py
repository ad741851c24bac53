"""The encoder of `regard view` against transformers, live, on more texts than those of the stored values."""

import numpy as np
import pytest
import torch
import transformers

from regard import models

TEXTS = [
    "The animal didn't cross the street because it was too tired.",
    "Naïve café déjà vu — 漢字, emoji 🙂 and numbers 3.14159!",
    "",
    "tokenization of unbelievably long words " * 40,
]


@pytest.fixture(scope="module")
def encoders():
    folder = models.default_model_folder()
    theirs = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    return models.load(folder), theirs, transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("text", TEXTS, ids=lambda t: t[:12])
def test_hidden_states_and_attention(encoders, text):
    ours, theirs, tokenizer = encoders
    encoded = ours.encode(text)
    ids = tokenizer(text)["input_ids"]
    assert list(encoded.ids) == ids
    with torch.no_grad():
        want = theirs(torch.tensor([ids]), output_hidden_states=True, output_attentions=True)
    trace = ours.forward(encoded.ids)
    for mine, layer in zip(trace.hidden, want.hidden_states, strict=True):
        np.testing.assert_allclose(mine, layer[0].numpy(), atol=2e-5)
    for mine, layer in zip(trace.attention, want.attentions, strict=True):
        np.testing.assert_allclose(mine.weights[...], layer[0].numpy(), atol=1e-5)
