"""The command and model folders whose files are broken: one clear line and exit code 2, never a traceback."""

import json

import numpy as np
import pytest

from hostile import TEXT, assert_refused, spoil_tokenizer, viewer, write_model
from tiny_bert import CONFIG, random_tensors, write_config, write_safetensors


@pytest.fixture
def folder(tmp_path):
    return write_model(tmp_path / "model")


@pytest.fixture
def view(capfd, monkeypatch, folder):
    return viewer(capfd, monkeypatch, folder)


def test_the_folder_itself_is_fine(view, tmp_path):
    code, out, err = view(TEXT)
    assert (code, err) == (0, "")
    assert "page: " in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "regard-view.html"]


# --- config.json ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "is nested too deeply for a configuration"),
        ("[" * 100_000, "is nested too deeply|is not JSON"),
        ('{"vocab_size": ' + "9" * 5000 + "}", "is not JSON|it must be a positive int|says model_type"),
        ("[]", "holds a list, not a JSON object"),
        ("null", "holds a NoneType"),
        ('"\\ud800"', "holds a str"),
        ("{} {}", "is not JSON"),
        ("\ufeff{}", "is not JSON"),
        ('{"model_type": "\\u001b[2J\\nroberta"}', r"says model_type = '\\x1b\[2J\\nroberta'"),
        (json.dumps({"model_type": "x" * 10_000}), "says model_type = 'xxx.*\u2026; only BERT"),
        (json.dumps({"model_type": [[[]]]}), r"says model_type = \[\[\[\]\]\]"),
    ],
    ids=lambda value: value[:20],
)
def test_config_that_is_none(view, folder, content, message):
    (folder / "config.json").write_text(content, encoding="utf-8")
    assert_refused(view(TEXT), message)


@pytest.mark.parametrize("name", [name for name, value in CONFIG.items() if isinstance(value, int | float)])
@pytest.mark.parametrize(
    "value", ["-1", "0", "1" + "0" * 400, "1e400", "-1e400", "NaN", '"12"', "null", "true", "[12]", "{}"]
)
def test_numbers_that_are_none(view, folder, name, value):
    """Also 10^400, which is an int that no float holds, and 1e400, which is inf."""
    write_config(folder, **{name: "here"})
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"here"', value))
    assert_refused(view(TEXT), f"config.json says {name} = .*; it must be a positive (int|float), at most")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 2**62, "num_attention_heads": 2**40}, r"has shape \(16, 12\), config.json says \(16, 4611"),
        ({"vocab_size": 2**63 - 1}, "has shape"),
        ({"max_position_embeddings": 10**18}, "has shape"),
        ({"intermediate_size": 10**18}, "has shape"),
        ({"num_hidden_layers": 10**18}, "no tensor encoder.layer.2"),
        ({"num_attention_heads": 24}, "24 heads do not divide the width 12"),
        ({"layer_norm_eps": 3e38}, None),
        ({"layer_norm_eps": 1e-300}, None),
        ({"layer_norm_eps": 1}, None),
    ],
    ids=str,
)
def test_sizes_that_do_not_fit(view, folder, changes, message):
    write_config(folder, **changes)
    if message:
        assert_refused(view(TEXT), message)
    else:
        code, _, err = view(TEXT, "--check")
        assert (code, err) == (0, "")


# --- tokenizer.json -------------------------------------------------------------------------------


def _without_unknown(content):
    del content["model"]["vocab"]["[UNK]"]
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] != "[UNK]"]


TOKENIZERS = {
    "no [UNK]": (_without_unknown, "cannot split the text .*Missing \\[UNK\\]"),
    "panics as it is read": (
        lambda content: content.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        "tokenizer.json is not a tokenizer .*; fetch it again",
    ),
    "panics as it is used": (
        lambda content: content["post_processor"].update(special_tokens={}),
        "tokenizer.json cannot split the text .*; fetch it again",
    ),
    "panics again": (
        lambda content: content.update(pre_tokenizer={"type": "FixedLength", "length": 0}),
        "tokenizer.json cannot split the text .*chunk size must be non-zero|is not a tokenizer",
    ),
    "another model": (
        lambda content: content.update(model={"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "zz"}),
        "cannot split the text",
    ),
    "makes no token": (lambda content: content["post_processor"].update(single=[]), "makes no token of the text"),
    "ids beyond the vocabulary": (
        lambda content: content["model"]["vocab"].update(animal=4_000_000_000),
        "token id 4000000000 is not in the vocabulary of 16",
    ),
    "a pattern that is none": (
        lambda content: content.update(
            pre_tokenizer={"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}
        ),
        "is not a tokenizer",
    ),
    "no model": (lambda content: content.pop("model"), "is not a tokenizer"),
}


@pytest.mark.parametrize("kind", TOKENIZERS.values(), ids=TOKENIZERS)
def test_tokenizers_that_are_none(view, folder, kind):
    change, message = kind
    spoil_tokenizer(folder, change)
    assert_refused(view(TEXT + " zzz"), message)


def test_a_tokenizer_without_a_post_processor(view, folder):
    spoil_tokenizer(folder, lambda content: content.update(post_processor=None))
    code, out, err = view(TEXT)
    assert (code, err) == (0, "")
    assert "5 tokens" in out
    assert_refused(view(""), "the model's tokenizer makes no token of the text; give another text")


@pytest.mark.parametrize("content", [b"[" * 200_000, b"\xff\xfe", b"1", b"", b"{}", b'{"version": "1.0"}'])
def test_tokenizers_that_are_no_json(view, folder, content):
    (folder / "tokenizer.json").write_bytes(content)
    assert_refused(view(TEXT), "tokenizer.json is not a tokenizer")


def test_tokens_cannot_command_the_terminal_or_the_page(view, folder, tmp_path):
    hostile = "\x1b[2J</script><b>\u202e[red]:smile:"

    def change(content):
        vocabulary = content["model"]["vocab"]
        content["model"]["vocab"] = {(hostile if word == "animal" else word): n for word, n in vocabulary.items()}
        content["added_tokens"].append({**content["added_tokens"][0], "id": vocabulary["animal"], "content": hostile})

    spoil_tokenizer(folder, change)
    code, out, err = view("the " + hostile + " was")
    assert code == 0
    assert not {"\x1b", "\u202e"} & set(out + err)
    assert "\\x1b[2J</script><b>\\u202e[red]:" in out
    page = (tmp_path / "regard-view.html").read_text(encoding="utf-8")
    assert page.count("</script>") == page.count("<script")
    assert "<b>" not in page
    assert "\x1b" not in page
    assert_refused(view("the was", "--word", ":smile:\x1b[2J\n\u2028"), r":smile:.*x1b\[2J.*n.*u2028")


# --- model.safetensors ----------------------------------------------------------------------------


def _parts(path):
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + size]), raw[8 + size :]


def _whole(header, data, size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + data


FIRST = "embeddings.word_embeddings.weight"
LIES = {
    "end behind the file": {FIRST: {"dtype": "F32", "shape": [16, 12], "data_offsets": [0, 10**15]}},
    "end before begin": {FIRST: {"dtype": "F32", "shape": [16, 12], "data_offsets": [768, 0]}},
    "negative": {FIRST: {"dtype": "F32", "shape": [-16, -12], "data_offsets": [0, 768]}},
    "overflow": {FIRST: {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 768]}},
    "shape and bytes differ": {FIRST: {"dtype": "F32", "shape": [16, 13], "data_offsets": [0, 768]}},
    "no dtype": {FIRST: {"dtype": "F99", "shape": [16, 12], "data_offsets": [0, 768]}},
    "no tensor": {FIRST: 7},
    "a hole": {FIRST: {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_headers_that_lie(view, folder, lie):
    path = folder / "model.safetensors"
    header, data = _parts(path)
    path.write_bytes(_whole({**header, **lie}, data))
    assert_refused(view(TEXT), "model.safetensors is damaged or cut short")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(8),
        (2**63).to_bytes(8, "little"),
        (2**64 - 1).to_bytes(8, "little") + b"{}",
        _whole(b"{}", b"", size=3),
        _whole(b"[" * 100_000, b""),
        _whole(b'{"a":' * 100_000, b""),
        _whole(b"\xff\xff", b""),
        _whole(b"null", b""),
    ],
    ids=lambda value: repr(value[:12]),
)
def test_weights_that_are_none(view, folder, content):
    (folder / "model.safetensors").write_bytes(content)
    assert_refused(view(TEXT), "model.safetensors is damaged or cut short")


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.5, 0.999])
def test_weights_cut_short(view, folder, keep):
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    path.write_bytes(raw[: int(keep * len(raw))])
    assert_refused(view(TEXT), "is damaged or cut short")


def test_names_that_fill_the_screen(view, folder):
    """A hundred thousand names, some of a million letters: the nearest is looked for among few and short ones."""
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    names = {f"\x1b[2J{n}": empty for n in range(100_000)} | {"embeddings" * 100_000: empty}
    (folder / "model.safetensors").write_bytes(_whole(names, b""))
    assert_refused(view(TEXT), f"has no tensor {FIRST}; nearest: ")


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
@pytest.mark.parametrize(
    ("name", "place"),
    [
        (FIRST, "the output of the embeddings is not finite"),
        ("encoder.layer.1.attention.self.query.weight", "the output of (layer 1|layer 0|the embeddings) is not finite"),
    ],
)
def test_numbers_that_are_not_finite(view, folder, name, place, value):
    tensors = random_tensors()
    tensors[name] = np.full_like(tensors[name], value)
    write_safetensors(folder / "model.safetensors", tensors)
    assert_refused(view(TEXT), place)
