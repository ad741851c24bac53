"""A BERT encoder in plain NumPy, float32: embeddings, then layers of attention and feed-forward.

The attention inside each layer is regard's, and its results are kept, so that the weights of any head can be
read afterwards. Everything else is written as the model defines it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regard._errors import ShapeError, UnsupportedError
from regard._types import IntArray
from regard.layers import MultiHeadAttention, MultiHeadResult

from ._folder import ModelError, model_file, read_json, shown
from .tokens import Encoded, Tokenizer, Word
from .weights import FloatArray, Weights


@dataclass(frozen=True)
class Config:
    """What the forward pass needs of ``config.json``."""

    vocabulary: int
    positions: int
    types: int
    width: int
    heads: int
    layers: int
    inner: int
    eps: float


@dataclass(frozen=True)
class Trace:
    """All that happened in one forward pass.

    Attributes
    ----------
    hidden
        The embeddings' output and each layer's, ``(S, width)`` each.
    attention
        What `regard.MultiHeadAttention.forward` gave in each layer; ``attention[layer].weights[head]`` computes one
        head's weights.
    """

    hidden: tuple[FloatArray, ...]
    attention: tuple[MultiHeadResult, ...]

    def weights(self) -> FloatArray:
        """Attention weights of every head, ``(layers, heads, S, S)``, from query (row) to key (column)."""
        return np.stack([layer.weights[...] for layer in self.attention])


@dataclass(frozen=True)
class _Dense:
    weight: FloatArray  # (outputs, inputs), as stored
    bias: FloatArray

    def __call__(self, x: FloatArray) -> FloatArray:
        return x @ self.weight.T + self.bias


@dataclass(frozen=True)
class _Norm:
    weight: FloatArray
    bias: FloatArray
    eps: float

    def __call__(self, x: FloatArray) -> FloatArray:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        normal: FloatArray = centred / np.sqrt(variance + self.eps)
        return normal * self.weight + self.bias


@dataclass(frozen=True)
class _Layer:
    attention: MultiHeadAttention
    mix_norm: _Norm
    widen: _Dense
    narrow: _Dense
    norm: _Norm

    def __call__(self, x: FloatArray) -> tuple[FloatArray, MultiHeadResult]:
        mixed = self.attention.forward(x)
        x = self.mix_norm(x + mixed.out)
        x = self.norm(x + self.narrow(gelu(self.widen(x))))
        return x, mixed


class BertEncoder:
    """A BERT-shaped encoder and its tokenizer; `load` makes one from a folder."""

    def __init__(self, config: Config, weights: Weights, tokenizer: Tokenizer) -> None:
        read = _Reader(weights, config)
        self.config = config
        self._tokenizer = tokenizer
        self._word = weights.take("embeddings.word_embeddings.weight", config.vocabulary, config.width)
        self._position = weights.take("embeddings.position_embeddings.weight", config.positions, config.width)
        self._type = weights.take("embeddings.token_type_embeddings.weight", config.types, config.width)[0]
        self._norm = read.norm("embeddings")
        self._layers = [read.layer(f"encoder.layer.{index}") for index in range(config.layers)]

    def encode(self, text: str) -> Encoded:
        """Split a text into tokens, special ones added; nothing is cut off."""
        return self._tokenizer.encode(text)

    def find(self, encoded: Encoded, name: str) -> Word:
        """Find a word of the text; see `Tokenizer.find`."""
        return self._tokenizer.find(encoded, name)

    def last_word(self, encoded: Encoded) -> Word | None:
        """Find the last written word of the text, None if it has none."""
        return self._tokenizer.last_word(encoded)

    def forward(self, ids: npt.ArrayLike) -> Trace:
        """Run the encoder on one sequence of token ids.

        Parameters
        ----------
        ids
            The ids, special tokens included, of shape (S,). Every token has type 0.

        Raises
        ------
        ShapeError
            If there are more ids than the model has positions.
        ModelError
            If an id is not in the model's vocabulary, or if the model's values overflow float32 or are NaN.
        """
        checked = self.check(ids)
        with np.errstate(all="ignore"):  # what it would warn of is refused below
            x = self._norm(self._word[checked] + self._position[: checked.size] + self._type)
            hidden, attention = [x], []
            for layer in self._layers:
                x, mixed = layer(x)
                hidden.append(x)
                attention.append(mixed)
        wrong = [index for index, x in enumerate(hidden) if not np.isfinite(x).all()]
        if wrong:
            place = f"layer {wrong[0] - 1}" if wrong[0] else "the embeddings"
            raise ModelError(
                f"the output of {place} is not finite: the model's numbers overflow float32 or are NaN; "
                "fetch model.safetensors and config.json again"
            )
        return Trace(tuple(hidden), tuple(attention))

    def check(self, ids: npt.ArrayLike) -> IntArray:
        """Return token ids as int64 if the encoder reads them, else raise as `forward` does."""
        checked: IntArray = np.asarray(ids, dtype=np.int64)
        if checked.ndim != 1:
            raise ShapeError(f"ids have shape {checked.shape}; give one sequence, shape (S,)")
        if checked.size > self.config.positions:
            raise ShapeError(
                f"the text has {checked.size} tokens, special tokens counted; this model reads at most "
                f"{self.config.positions} (max_position_embeddings in config.json): give a shorter text"
            )
        strangers = checked[(checked < 0) | (checked >= self.config.vocabulary)]
        if strangers.size:
            raise ModelError(
                f"token id {strangers[0]} is not in the vocabulary of {self.config.vocabulary}; "
                "take tokenizer.json and model.safetensors from the same model"
            )
        return checked


@dataclass(frozen=True)
class _Reader:
    """Takes the parts of a layer from the weights, by their names in the file."""

    weights: Weights
    config: Config

    def dense(self, name: str, outputs: int, inputs: int) -> _Dense:
        take = self.weights.take
        return _Dense(take(f"{name}.weight", outputs, inputs), take(f"{name}.bias", outputs))

    def norm(self, name: str) -> _Norm:
        weight, bias = (self.weights.take(f"{name}.LayerNorm.{part}", self.config.width) for part in ("weight", "bias"))
        return _Norm(weight, bias, self.config.eps)

    def attention(self, name: str) -> MultiHeadAttention:
        width, take = self.config.width, self.weights.take
        tensors: dict[str, FloatArray] = {}
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            tensors[f"{part}.weight"] = take(f"{name}.{part}.weight", width, width)
            tensors[f"{part}.bias"] = take(f"{name}.{part}.bias", width)
        return MultiHeadAttention.from_bert(tensors, "", num_heads=self.config.heads)

    def layer(self, name: str) -> _Layer:
        width, inner = self.config.width, self.config.inner
        return _Layer(
            attention=self.attention(f"{name}.attention"),
            mix_norm=self.norm(f"{name}.attention.output"),
            widen=self.dense(f"{name}.intermediate.dense", inner, width),
            narrow=self.dense(f"{name}.output.dense", width, inner),
            norm=self.norm(f"{name}.output"),
        )


def load(folder: str | PathLike[str]) -> BertEncoder:
    """Read an encoder from a folder of ``config.json``, ``model.safetensors`` and ``tokenizer.json``.

    Weights in float32, float16 or bfloat16 are accepted and computed with in float32.

    Raises
    ------
    ModelError
        If a file or a tensor is missing or damaged.
    UnsupportedError
        If the model is not a BERT encoder with erf-GELU and absolute positions, or if the extra ``models``
        (safetensors, tokenizers) is not installed.
    ShapeError
        If shapes contradict the configuration.
    """
    config, weights, tokenizer = (
        model_file(Path(folder), name) for name in ("config.json", "model.safetensors", "tokenizer.json")
    )
    return BertEncoder(_read_config(config), Weights(weights), Tokenizer(tokenizer))


def _read_config(path: Path) -> Config:
    found = read_json(path)
    _require_bert(path, found)
    number = partial(_number, path, found)
    config = Config(
        vocabulary=number("vocab_size"),
        positions=number("max_position_embeddings"),
        types=number("type_vocab_size"),
        width=number("hidden_size"),
        heads=number("num_attention_heads"),
        layers=number("num_hidden_layers"),
        inner=number("intermediate_size"),
        eps=float(number("layer_norm_eps", float)),
    )
    if config.width % config.heads:
        raise ShapeError(
            f"{path}: {config.heads} heads do not divide the width {config.width}; "
            "num_attention_heads must divide hidden_size"
        )
    return config


def _require_bert(path: Path, found: dict[str, Any]) -> None:
    """Raise UnsupportedError for a model that computes something else than this module."""
    expected = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
        "is_decoder": False,
    }
    defaults = {"position_embedding_type": "absolute", "is_decoder": False}
    for name, value in expected.items():
        has = found.get(name, defaults.get(name))
        if has != value:
            raise UnsupportedError(
                f"{path} says {name} = {shown(has)}; only BERT encoders with {name} = {value!r} are supported"
            )


def _number(path: Path, found: dict[str, Any], name: str, kind: type = int) -> Any:
    """Take a positive number of a kind that is not too large for what it is."""
    value: Any = found.get(name)
    if type(value) not in (int, kind) or not 0 < value <= _LARGEST[kind]:  # no NaN is between them
        raise ModelError(
            f"{path} says {name} = {shown(value)}; it must be a positive {kind.__name__}, at most {_LARGEST[kind]:.4g}"
        )
    return value


# Sizes are int64 in NumPy, and what is added to a variance is a float32.
_LARGEST = {int: 2**63 - 1, float: float(np.finfo(np.float32).max)}
_EDGE, _STEP = 6.0, 2.0**-12


@functools.cache
def _normal_cdf() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Φ on the grid -6, -6 + 2^-12, …, 6, with 0 for Φ(-6), and its increase from each point to the next."""
    grid = np.arange(-_EDGE, _EDGE + 2 * _STEP, _STEP)
    phi = np.array([math.erfc(-x / math.sqrt(2)) / 2 for x in grid])
    phi[0] = 0
    return phi[:-1], np.diff(phi)


def gelu(x: FloatArray) -> FloatArray:
    """x·Φ(x) with the exact Φ(x) = (1 + erf(x/√2)) / 2, to the precision of float32.

    NumPy has no erf, so Φ is read from a table of `math.erfc` by linear interpolation. Its error is at most
    step² / 8 · max|Φ''| = 2^-24 / 8 · 0.242 = 1.8e-9, and Φ(-6) = 1e-9 at the ends: far below half an ulp of
    a float32 near 1 (3e-8).
    """
    phi, rise = _normal_cdf()
    inside = np.fmax(np.fmin(x, _EDGE), -_EDGE)  # unlike np.clip, never NaN: the index must exist
    at = (inside.astype(np.float64) + _EDGE) / _STEP
    index = at.astype(np.intp)
    return (x * (phi[index] + (at - index) * rise[index])).astype(np.float32)
