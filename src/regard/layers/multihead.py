"""The multi-head layer: projections, heads, attention, and the projection that mixes the heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from regard._arrays import as_input
from regard._attention.forward import ForwardResult, attention_forward
from regard._attention.weights import Weights
from regard._plan.options import as_scale, as_softcap, refuse_unknown
from regard._types import Array
from regard.biases import as_bias
from regard.state import join, share_out

from ._checks import as_weights, check_heads, check_weights, take_inputs, with_known_arguments
from ._result import JoinedWeights, MultiHeadResult
from ._rotary import Rotary, check_rotary, name_of, rotate
from ._tensors import bert_weights, llama_weights, torch_weights
from .heads import merge_heads, split_heads

if TYPE_CHECKING:
    from typing_extensions import Never

_WEIGHTS = ("query_weight", "key_weight", "value_weight", "output_weight")
_OPTIONAL = ("query_bias", "key_bias", "value_bias", "output_bias", "extra_key", "extra_value", "sinks")
_OF_THE_LAYER = ("scale", "softcap", "sinks")


@with_known_arguments
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MultiHeadAttention:
    r"""Multi-head attention with its projections; frozen, for inference.

    .. math::
        o_h &= \operatorname{attention}(W_Q^h x_q + b_Q^h,\; W_K^h x_k + b_K^h,\; W_V^h x_v + b_V^h) \\
        \text{out} &= W_O\,[o_1; \dots; o_H] + b_O

    Weights are ``(outputs, inputs)``, as torch's Linear and most files store them; for ``(inputs, outputs)`` (Keras,
    GPT-2) pass ``.T``. Head h is rows ``h * D ... (h + 1) * D - 1`` of a weight. Each head divides by its own √D.
    D is free: ``num_heads * D`` may differ from every width, and Dv from D.

    Parameters
    ----------
    query_weight : array, shape ``(num_heads * D, query width)``
        Weights are float64, or any mixture of float32, float16 and bfloat16, which is computed in float32. float64
        and float32 arrays are referred to, not copied: changing them changes the layer.
    key_weight : array, shape ``(num_kv_heads * D, key width)``
    value_weight : array, shape ``(num_kv_heads * Dv, value width)``
    output_weight : array, shape ``(outputs, num_heads * Dv)``
    num_heads : int
        Query heads.
    num_kv_heads : int, optional
        Heads of key and value, by default as many; query head h reads kv head ``h // (num_heads // num_kv_heads)``.
    query_bias, key_bias, value_bias, output_bias : arrays, optional
        One number per row of the weight.
    extra_key, extra_value : arrays, shapes ``(n, num_kv_heads * D)`` and ``(n, num_kv_heads * Dv)``, optional
        Keys of the layer's own, and their values. Every query sees them after the others, whatever its mask; they have
        no position: nothing is turned for their scores, and no bias is added. torch's ``bias_k`` is one, and
        ``add_zero_attn`` a row of 0.
    scale, softcap : float, optional
        As in `regard.attention`.
    sinks : array, shape ``(num_heads,)``, optional
        As in `regard.attention`.
    rotary : callable, optional
        ``rotary(x, positions)`` gets the heads' queries, then keys, ``(..., heads, S, D)``, and integer positions
        ``(S,)`` or ``(..., S)``; it gives x turned, in x's dtype. `regard.rotary_embedding` is one, and so is
        ``functools.partial(rg.rotary_embedding, base=500_000.0)``.

    Raises
    ------
    ShapeError, DTypeError, UnsupportedError
        Shapes do not fit each other or the heads, dtypes are mixed, or an option is no number.
    TypeError
        For an argument of another name.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> rng = np.random.default_rng(0)
    >>> weight = lambda outputs, inputs: rng.standard_normal((outputs, inputs), dtype=np.float32)
    >>> layer = rg.MultiHeadAttention(
    ...     num_heads=4, query_weight=weight(32, 24), key_weight=weight(16, 24), num_kv_heads=2,
    ...     value_weight=weight(16, 24), output_weight=weight(24, 32))
    >>> layer
    MultiHeadAttention(4 heads of 8, 2 kv heads; query 24, key 24, value 24 -> 24; float32)
    >>> x = rng.standard_normal((2, 10, 24), dtype=np.float32)          # (batch, tokens, width)
    >>> layer(x, mask=rg.Causal()).shape
    (2, 10, 24)
    >>> layer.forward(x, mask=rg.Causal()).weights[0, 3, 0, :3].tolist()
    [1.0, 0.0, 0.0]
    """

    query_weight: Array
    key_weight: Array
    value_weight: Array
    output_weight: Array
    num_heads: int
    num_kv_heads: int | None = None
    query_bias: Array | None = None
    key_bias: Array | None = None
    value_bias: Array | None = None
    output_bias: Array | None = None
    extra_key: Array | None = None
    extra_value: Array | None = None
    scale: float | None = None
    softcap: float | None = None
    sinks: Array | None = None
    rotary: Rotary | None = None

    def __post_init__(self) -> None:
        heads, kv_heads = check_heads(self.num_heads, self.num_kv_heads)
        given = {name: getattr(self, name) for name in _WEIGHTS + _OPTIONAL}
        arrays = as_weights({name: value for name, value in given.items() if value is not None or name in _WEIGHTS})
        check_weights(arrays, heads, kv_heads)
        as_scale(self.scale), as_softcap(self.softcap)
        check_rotary(self.rotary)
        for name, value in {**arrays, "num_heads": heads, "num_kv_heads": kv_heads}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_torch(
        cls, module: Any, *, num_heads: int | None = None, add_zero_attn: bool = False, prefix: str = ""
    ) -> MultiHeadAttention:
        """Make the layer that computes what a ``torch.nn.MultiheadAttention`` computes in evaluation mode.

        The layer always takes ``(..., S, width)``. For a module with ``batch_first=False``, which takes
        ``(S, B, width)``, pass ``x.swapaxes(0, 1)``. torch's masks are True where a key is *hidden*: pass
        ``rg.Dense(~attn_mask) & rg.KeyPadding.from_torch(key_padding_mask)``, a mask ``(B * heads, L, S)`` reshaped to
        ``(B, heads, L, S)``; a float one is ``bias=``. A row whose keys are all hidden is NaN in torch and attends to
        nothing here: its heads give 0. torch is not imported.

        Parameters
        ----------
        module : torch.nn.MultiheadAttention, or mapping of names to tensors
            The module or its state dict; tensors of torch, or arrays. On the CPU, float32 and float64 memory is shared.
        num_heads : int
            Needed for a state dict, and for a module around the attention, which do not hold it.
        add_zero_attn : bool
            As the module was made; for a state dict, which does not hold it.
        prefix : str
            What stands before the names, such as ``"self_attn"`` in a ``torch.nn.TransformerEncoderLayer``.

        Returns
        -------
        MultiHeadAttention

        Raises
        ------
        UnsupportedError
            A tensor is missing, or one is there that the layer does not know; the message lists what was found.
        ShapeError, DTypeError
            As for the constructor.
        """
        return cls(**torch_weights(module, num_heads, add_zero_attn, prefix))

    @classmethod
    def from_bert(cls, tensors: Mapping[str, Any], prefix: str, *, num_heads: int) -> MultiHeadAttention:
        """Make the self-attention of a BERT layer, its output projection included, without residual and norm.

        Parameters
        ----------
        tensors : mapping of names to arrays or tensors
            ``{prefix}.self.query.weight``, ``.self.key``, ``.self.value``, ``.output.dense``, and their biases.
        prefix : str
            Such as ``"encoder.layer.0.attention"``.
        num_heads : int
            ``num_attention_heads`` in the model's configuration.

        Returns
        -------
        MultiHeadAttention

        Raises
        ------
        UnsupportedError, ShapeError, DTypeError
            As for `from_torch`.

        Examples
        --------
        >>> import numpy as np, regard as rg
        >>> names = ("self.query", "self.key", "self.value", "output.dense")
        >>> tensors = {f"attention.{name}.weight": np.eye(6) for name in names}
        >>> tensors |= {f"attention.{name}.bias": np.zeros(6) for name in names}
        >>> rg.MultiHeadAttention.from_bert(tensors, "attention", num_heads=2)
        MultiHeadAttention(2 heads of 3; query 6, key 6, value 6 -> 6; float64)
        """
        return cls(**bert_weights(tensors, prefix), num_heads=num_heads)

    @classmethod
    def from_llama(
        cls,
        tensors: Mapping[str, Any],
        prefix: str,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        rotary: Rotary | None,
    ) -> MultiHeadAttention:
        """Make the self-attention of a Llama layer (and Mistral, Qwen2, gpt-oss: biases and sinks are read if there).

        Parameters
        ----------
        tensors : mapping of names to arrays or tensors
            ``{prefix}.q_proj.weight``, ``.k_proj``, ``.v_proj``, ``.o_proj``.
        prefix : str
            Such as ``"model.layers.0.self_attn"``.
        num_heads : int
            ``num_attention_heads`` in the model's configuration.
        num_kv_heads : int, optional
            ``num_key_value_heads`` there, by default as many.
        rotary : callable or None
            The tensors do not hold the positions' rule: it must be said, None for none.

        Returns
        -------
        MultiHeadAttention

        Raises
        ------
        UnsupportedError, ShapeError, DTypeError
            As for `from_torch`; tensors of a norm of q and k (Qwen3, Gemma 3) are refused.

        Examples
        --------
        >>> import numpy as np, regard as rg
        >>> shapes = {"q_proj": (8, 6), "k_proj": (4, 6), "v_proj": (4, 6), "o_proj": (6, 8)}
        >>> tensors = {f"self_attn.{name}.weight": np.ones(shape) for name, shape in shapes.items()}
        >>> rg.MultiHeadAttention.from_llama(
        ...     tensors, "self_attn", num_heads=4, num_kv_heads=2, rotary=rg.rotary_embedding)
        MultiHeadAttention(4 heads of 2, 2 kv heads; query 6, key 6, value 6 -> 6; float64; rotary rotary_embedding)
        """
        return cls(**llama_weights(tensors, prefix), num_heads=num_heads, num_kv_heads=num_kv_heads, rotary=rotary)

    def __call__(
        self,
        query: Any,
        key: Any = None,
        value: Any = None,
        *,
        mask: Any = None,
        bias: Any = None,
        q_offset: Any = None,
        **unknown: Never,
    ) -> Any:
        """Attend with every head and mix them.

        Parameters
        ----------
        query : array_like, shape ``(..., Sq, query width)``
            NumPy array, torch tensor or JAX array, as in `regard.attention`. float64 for a float64 layer; for a
            float32 layer float32, float16 or bfloat16, which is computed in float32 and rounded once.
        key, value : array_like, shapes ``(..., Skv, key width)`` and ``(..., Skv, value width)``, optional
            Another sequence, for cross-attention, of the same dtype. By default key is the query, and value the key.
        mask, bias, q_offset
            As in `regard.attention`; the scores are ``(..., num_heads, Sq, Skv)``, extra keys not counted.

        Returns
        -------
        array, shape ``(..., Sq, outputs)``
            Of the query's library and dtype. A query that may attend nowhere gets ``output_bias``, or 0. The
            projections are NumPy's matrix products, whose last bits may depend on the batch around a row; attention's
            do not.

        Raises
        ------
        ShapeError, DTypeError, MaskError, AlignmentError
            As in `regard.attention`; and a width that a weight does not read.
        """
        return self.forward(query, key, value, mask=mask, bias=bias, q_offset=q_offset, **unknown).out

    def forward(
        self,
        query: Any,
        key: Any = None,
        value: Any = None,
        *,
        mask: Any = None,
        bias: Any = None,
        q_offset: Any = None,
        **unknown: Never,
    ) -> MultiHeadResult:
        """Attend as a call of the layer does, and keep each head's part: weights on demand, logsumexp, q, k and v.

        Parameters and shapes are those of the call.

        Returns
        -------
        regard.layers.MultiHeadResult
            ``.out`` has the bits of the call; ``.weights`` are computed when indexed.

        Raises
        ------
        RegardError, TypeError
            As the call.
        """
        _refuse(unknown)
        key = query if key is None and value is None else key
        value = key if value is None else value
        given = {
            "query": (query, self.query_weight),
            "key": (key, self.key_weight),
            "value": (value, self.value_weight),
        }
        (x_q, x_k, x_v), dtype, library = take_inputs(given, self.query_weight.dtype)
        q = split_heads(_project(x_q, self.query_weight, self.query_bias), self.num_heads)
        k = self._split_kv(_project(x_k, self.key_weight, self.key_bias))
        v = self._split_kv(_project(x_v, self.value_weight, self.value_bias))
        still = q
        if self.rotary is not None:
            q, k = rotate(self.rotary, q, k, mask, q_offset)
        added = None if bias is None else as_bias(bias).with_arrays(partial(as_input, "bias"))
        options = {"mask": mask, "bias": added, "q_offset": q_offset}
        heads, lse, weights, attention = self._attend(q, k, v, still, options)
        with np.errstate(over="ignore"):  # what is too large for float16 is inf
            out = _project(merge_heads(heads), self.output_weight, self.output_bias).astype(dtype, copy=False)
        return MultiHeadResult(library.give(out), q, k, v, heads, lse, weights, attention)

    def _attend(
        self, q: Array, k: Array, v: Array, still: Array, options: dict[str, Any]
    ) -> tuple[Array, Array, Weights | JoinedWeights, ForwardResult]:
        """Attend over the sequence's keys, and over the layer's own, which ``still``, the queries not turned, see."""
        if self.extra_key is None or self.extra_value is None:
            found = attention_forward(q, k, v, sinks=self.sinks, **self._score, **options)
            return found.out, found.lse, found.weights, found
        # No mask has a column for the extra keys: they are a part of their own, and the parts are joined.
        found = attention_forward(q, k, v, **self._score, **options)
        extra_k, extra_v = self._split_kv(self.extra_key), self._split_kv(self.extra_value)
        still = np.broadcast_to(still, (*found.out.shape[:-3], *still.shape[-3:]))
        parts = found, attention_forward(still, extra_k, extra_v, **self._score)
        shares, lse = share_out(*_row_stats(parts))
        if self.sinks is not None:
            shares = shares * _share_of_keys(lse, self.sinks[:, None])
        shares, lse = (x.astype(found.out.dtype, copy=False) for x in (shares, lse))
        out = join([part.out for part in parts], shares, np.empty_like(found.out))
        return out, lse, JoinedWeights([part.weights for part in parts], shares), found

    @property
    def _score(self) -> dict[str, Any]:
        return {"scale": self.scale, "softcap": self.softcap}

    def _split_kv(self, x: Array) -> Array:
        heads: Array = split_heads(x, self.num_kv_heads or self.num_heads)
        return heads

    def __repr__(self) -> str:
        kv_heads, heads = self.num_kv_heads or self.num_heads, self.num_heads
        size, value_size = len(self.query_weight) // heads, len(self.value_weight) // kv_heads
        parts = [f"{heads} heads of {size}"]
        parts += [f"{kv_heads} kv heads"] if kv_heads != heads else []
        parts += [f"values of {value_size}"] if value_size != size else []
        query, key, value = (getattr(self, name).shape[1] for name in _WEIGHTS[:3])
        text = f"{', '.join(parts)}; query {query}, key {key}, value {value} -> {len(self.output_weight)}"
        text += f"; {self.query_weight.dtype}"
        text += "" if self.extra_key is None else f"; extra keys: {len(self.extra_key)}"
        for name in ("scale", "softcap"):
            text += "" if getattr(self, name) is None else f"; {name} {getattr(self, name)!r}"
        text += "" if self.rotary is None else f"; rotary {name_of(self.rotary)}"
        return f"MultiHeadAttention({text}{'' if self.sinks is None else '; sinks'})"


def _row_stats(parts: Sequence[ForwardResult]) -> tuple[Array, Array]:
    """Peak and sum of each row's scores in each part, in float64, whose logsumexp a sink can be measured from."""
    stats = zip(*(part.weights.row_stats for part in parts), strict=True)
    peaks, sums = (np.stack(stat).astype(np.float64) for stat in stats)
    # A row whose kept scores are all -inf, in every part, has sum 0, as an empty one has, but no logsumexp.
    return peaks, np.where((sums == 0).all(axis=0) & np.isnan([part.lse for part in parts]), np.nan, sums)


def _share_of_keys(lse: Array, sinks: Array) -> Array:
    """Give what sinks leave to the keys, sigmoid(lse − sink); a row without keys has nothing to leave."""
    with np.errstate(all="ignore"):
        share: Array = np.where(lse == -np.inf, 1, 1 / (1 + np.exp(sinks - lse)))
        return share


def _project(x: Array, weight: Array, bias: Array | None) -> Array:
    with np.errstate(all="ignore"):  # NaN and inf of the user's are answers
        y: Array = x @ weight.T
        if bias is not None:
            y += bias
    return y


def _refuse(unknown: dict[str, Any]) -> None:
    for name in _OF_THE_LAYER:
        if name in unknown:
            raise TypeError(f"{name} belongs to the layer: write dataclasses.replace(layer, {name}=...)")
    refuse_unknown(unknown)
