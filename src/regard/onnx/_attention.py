"""The operator Attention: ONNX's words in, one call of regard's attention, ONNX's layouts out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard._attention.forward import attention as exact_attention
from regard._attention.forward import attention_forward
from regard._types import Array, score_dtype

from ._attributes import as_attributes
from ._inputs import as_inputs
from ._mask import lay
from ._scores import scores_of_mode, widened


class AttentionOutputs(NamedTuple):
    """The four outputs of the operator, by their names there.

    All are arrays of Q's library.

    Attributes
    ----------
    Y : array, ``(B, Hq, L, Dv)``, or ``(B, L, Hq * Dv)`` for 3-D inputs
        In Q's dtype.
    present_key, present_value : array, ``(B, Hkv, S, D)`` and ``(B, Hkv, S, Dv)``
        Past and new keys joined; without a past, views of K and V.
    qk_matmul_output : array, ``(B, Hq, L, S)``, or None
        None unless it was asked for, because its size is quadratic.
    """

    Y: Any
    present_key: Any
    present_value: Any
    qk_matmul_output: Any


def attention(
    Q: Any,
    K: Any,
    V: Any,
    attn_mask: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    nonpad_kv_seqlen: Any = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    left_window_size: int = -1,
    right_window_size: int = -1,
    opset: int = 25,
    want_qk: bool = False,
) -> AttentionOutputs:
    """Compute the ONNX operator Attention of opsets 23, 24 and 25 with `regard.attention`.

    Inputs and attributes have the names, order and meaning of the ONNX specification. Nothing quadratic is made
    unless ``want_qk`` asks for it.

    Parameters
    ----------
    Q : array, shape ``(B, Hq, L, D)``, or ``(B, L, Hq * D)`` with `q_num_heads` and `kv_num_heads`
        NumPy array, torch tensor or JAX array in CPU memory, as in `regard.attention`; K, V and the past are of the
        same library. float64, float32, float16 or bfloat16.
    K : array, shape ``(B, Hkv, new, D)`` or ``(B, new, Hkv * D)``
        Of Q's dtype. Query head h reads kv head ``h // (Hq // Hkv)``.
    V : array, shape ``(B, Hkv, new, Dv)`` or ``(B, new, Hkv * Dv)``
        May have a dtype of its own; Q, K and V are then widened to float32, or float64 where one is.
    attn_mask : bool or float array (of any library) of rank 1 to 4, optional
        True = may attend; floats are added to the scores, −inf masks. Its axes are matched with
        ``(B, Hq, L, S)`` from the right, each 1 or full: rank 3 is ``(Hq, L, S)``, never batch. From opset 24 on
        the last axis may be shorter than S: keys that it does not reach are masked, of one key all but the first.
        At opset 23 a last axis of 1 is for all keys.
    past_key, past_value : array, shapes ``(B, Hkv, past, D)`` and ``(B, Hkv, past, Dv)``, optional
        Keys and values in front of K and V: S = past + new. Query i stands at position past + i.
    nonpad_kv_seqlen : int array (of any library), shape ``(B,)``, optional
        From opset 24 on, without a past: K and V are a whole cache, of which so many keys are filled. Query i
        stands at position nonpad_kv_seqlen − L + i.
    is_causal : 0 or 1
        1: a query sees no key behind its own position. Without past and lengths query 0 stands at key 0.
    q_num_heads, kv_num_heads : int, optional
        For 3-D inputs, where both are needed. With 4-D inputs an error from opset 25 on.
    qk_matmul_output_mode : 0, 1, 2 or 3
        What ``qk_matmul_output`` holds: 0 scaled scores, 1 after the softcap, 2 after bias and mask (−inf where
        masked), 3 attention weights. 0, 1 and 2 are `regard.reference.scores` in float32 (float64 for float64), 3 is
        ``attention_forward(...).weights``; all are rounded to Q's dtype at the end.
    scale : float, optional
        The whole factor of q · k, by default 1/√D.
    softcap : float
        Scores s become ``softcap * tanh(s / softcap)``, before bias and mask; 0 for none.
    softmax_precision : 1, 10, 11 or 16, optional
        FLOAT, FLOAT16, DOUBLE or BFLOAT16. The softmax is always computed in float32 or wider; 11 widens the
        whole call to float64.
    left_window_size, right_window_size : int
        From opset 25 on: a query at position p sees keys p − left to p + right, −1 for no bound.
    opset : int
        Version of the model's operator set: what an older one lacks is refused.
    want_qk : bool
        Whether to make ``qk_matmul_output``.

    Returns
    -------
    AttentionOutputs
        ``Y, present_key, present_value, qk_matmul_output``. A query that sees no key has a row of zeros in Y, and
        in mode 3.

    Raises
    ------
    ShapeError, DTypeError, UnsupportedError
        All are `regard.RegardError`; each message gives the fact, the values and the way out. Shapes that
        `regard.attention` itself refuses are named query, key and value there.

    Examples
    --------
    >>> import numpy as np, regard.onnx
    >>> Q, K, V = np.random.default_rng(0).standard_normal((3, 1, 4, 12), dtype=np.float32)
    >>> out = regard.onnx.attention(Q, K, V, q_num_heads=3, kv_num_heads=3, is_causal=1)
    >>> out.Y.shape, out.present_key.shape, out.qk_matmul_output is None
    ((1, 4, 12), (1, 3, 4, 4), True)
    """
    attributes = as_attributes(
        is_causal, qk_matmul_output_mode, scale, softcap, softmax_precision, left_window_size, right_window_size, opset
    )
    inputs = as_inputs(Q, K, V, past_key, past_value, q_num_heads, kv_num_heads, attributes.opset)
    laid = lay(attn_mask, nonpad_kv_seqlen, inputs, attributes)
    query, key, value = _in_one_dtype((inputs.query, inputs.key, inputs.value), attributes.double)
    out = inputs.empty_output(query.dtype)
    options = {
        "mask": laid.mask, "bias": laid.bias, "q_offset": laid.q_offset, "scale": attributes.scale,
        "softcap": attributes.softcap, "out": out,
    }  # fmt: skip
    seen = query, key[:, :, : laid.keys], value[:, :, : laid.keys]
    qk = None
    if want_qk and attributes.mode == 3:
        weights = attention_forward(*seen, **options).weights[...]
        qk = widened(weights, key.shape[2], 0)
    else:
        exact_attention(*seen, **options)
        if want_qk:
            qk = scores_of_mode(attributes, laid, query, key)
    dtype, give = inputs.query.dtype, inputs.library.give
    return AttentionOutputs(
        give(inputs.in_layout(_rounded(out, dtype))),
        give(inputs.key),
        give(inputs.value),
        None if qk is None else give(_rounded(qk, dtype)),
    )


def _in_one_dtype(arrays: tuple[Array, Array, Array], double: bool) -> tuple[Array, ...]:
    """Return the arrays as they are if they have one dtype that is wide enough, else copies in float32 or float64."""
    names = {array.dtype.name for array in arrays}
    if double:
        names.add("float64")
    if len(names) == 1:
        return arrays
    wide = score_dtype("float64" if "float64" in names else "float32")
    return tuple(array.astype(wide, copy=False) for array in arrays)


def _rounded(array: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):  # inf is what a narrow dtype has for large numbers
        return array.astype(dtype, copy=False)
