"""A BERT-shaped folder small enough to make for each test, and the same encoder written out plainly."""

import json
import math

import numpy as np
import tokenizers

WORDS = ["the", "animal", "was", "too", "tired", "token", "##ization", "didn", "'", "t", ".", "cafe"]
VOCABULARY = {word: index for index, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
CONFIG = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "vocab_size": len(VOCABULARY),
    "max_position_embeddings": 12,
    "type_vocab_size": 2,
    "hidden_size": 12,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "intermediate_size": 20,
    "layer_norm_eps": 1e-3,
}


def shapes():
    width, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    yield "embeddings.word_embeddings.weight", (CONFIG["vocab_size"], width)
    yield "embeddings.position_embeddings.weight", (CONFIG["max_position_embeddings"], width)
    yield "embeddings.token_type_embeddings.weight", (CONFIG["type_vocab_size"], width)
    norms = ["embeddings"]
    for layer in (f"encoder.layer.{n}" for n in range(CONFIG["num_hidden_layers"])):
        dense = {f"attention.self.{part}": (width, width) for part in ("query", "key", "value")}
        dense["attention.output.dense"] = (width, width)
        dense["intermediate.dense"], dense["output.dense"] = (inner, width), (width, inner)
        for name, shape in dense.items():
            yield f"{layer}.{name}.weight", shape
            yield f"{layer}.{name}.bias", shape[:1]
        norms += [f"{layer}.attention.output", f"{layer}.output"]
    for name in norms:
        yield f"{name}.LayerNorm.weight", (width,)
        yield f"{name}.LayerNorm.bias", (width,)


def random_tensors():
    random = np.random.default_rng(5)
    return {name: random.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes()}


def write_safetensors(path, tensors, dtype="F32"):
    """Write header size in 8 bytes, header, data: by hand, because safetensors.numpy knows no bfloat16."""
    header, data = {}, b""
    for name, array in tensors.items():
        raw = {
            "F32": lambda a: a.tobytes(),
            "F16": lambda a: a.astype(np.float16).tobytes(),
            "BF16": lambda a: (a.view(np.uint32) >> 16).astype(np.uint16).tobytes(),
            "I32": lambda a: a.astype(np.int32).tobytes(),
        }[dtype](array)
        span = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": span}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_tokenizer(path):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(VOCABULARY, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    special = [(name, VOCABULARY[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.enable_truncation(6)  # as real folders have it; the encoder must not cut
    tokenizer.enable_padding(length=10)
    tokenizer.save(str(path))


def write_config(folder, **changes):
    config = {**CONFIG, **changes}
    config = {name: value for name, value in config.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def plain_encoder(tensors, ids):
    """Hidden states and weights in float64, one head, one query at a time."""
    w = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    width, heads = CONFIG["hidden_size"], CONFIG["num_attention_heads"]
    size = width // heads

    def norm(x, name):
        mean, var = x.mean(1, keepdims=True), x.var(1, keepdims=True)
        x = (x - mean) / np.sqrt(var + CONFIG["layer_norm_eps"])
        return x * w[f"{name}.LayerNorm.weight"] + w[f"{name}.LayerNorm.bias"]

    def dense(x, name):
        return np.einsum("si,oi->so", x, w[f"{name}.weight"]) + w[f"{name}.bias"]

    rows = [w["embeddings.word_embeddings.weight"][i] for i in ids]
    x = np.array(rows) + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings")
    hidden, weights = [x], []
    for n in range(CONFIG["num_hidden_layers"]):
        layer = f"encoder.layer.{n}"
        q, k, v = (dense(x, f"{layer}.attention.self.{part}") for part in ("query", "key", "value"))
        mixed, shares = np.zeros_like(x), np.zeros((heads, len(x), len(x)))
        for h in range(heads):
            part = slice(h * size, (h + 1) * size)
            for i in range(len(x)):
                e = np.exp([q[i, part] @ k[j, part] / math.sqrt(size) for j in range(len(x))])
                shares[h, i] = e / e.sum()
                mixed[i, part] = shares[h, i] @ v[:, part]
        x = norm(x + dense(mixed, f"{layer}.attention.output.dense"), f"{layer}.attention.output")
        inner = dense(x, f"{layer}.intermediate.dense")
        inner = np.vectorize(lambda a: a * (1 + math.erf(a / math.sqrt(2))) / 2)(inner)
        x = norm(x + dense(inner, f"{layer}.output.dense"), f"{layer}.output")
        hidden.append(x)
        weights.append(shares)
    return np.array(hidden), np.array(weights)
