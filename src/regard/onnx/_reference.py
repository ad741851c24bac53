"""Operators for onnx's reference runtime: a whole model runs there, its attention here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regard._errors import UnsupportedError
from regard._types import Array

from ._attention import attention
from ._rotary import rotary_embedding

if TYPE_CHECKING:
    from onnx.reference.op_run import OpRun


def reference_ops() -> list[type[OpRun]]:
    """Return the operators to pass as ``new_ops`` to ``onnx.reference.ReferenceEvaluator``.

    They replace Attention and RotaryEmbedding at the opset that the model names; the model's other nodes run as
    before. This function alone imports the package onnx.

    Raises
    ------
    UnsupportedError
        The package onnx is not installed.

    Examples
    --------
    With a model that ``onnx.load`` gave, and its inputs by name::

        evaluator = onnx.reference.ReferenceEvaluator(model, new_ops=regard.onnx.reference_ops())
        outputs = evaluator.run(None, inputs)
    """
    try:
        from onnx.reference.op_run import OpRun
    except ImportError:
        raise UnsupportedError(
            "reference_ops() needs the package onnx, which is not installed: pip install 'regard[onnx]'"
        ) from None

    # The runtime finds an operator by the name of its class.
    class Attention(OpRun):  # type: ignore[misc]
        op_domain = ""

        def _run(self, *inputs: Any, **attributes: Any) -> tuple[Array | None, ...]:
            wanted = len(self.output)
            outputs = attention(
                *inputs, **attributes, opset=self.run_params["opsets"][self.op_domain], want_qk=wanted > 3
            )
            return outputs[:wanted]

    class RotaryEmbedding(OpRun):  # type: ignore[misc]
        op_domain = ""

        def _run(self, *inputs: Any, **attributes: Any) -> tuple[Array]:
            return (rotary_embedding(*inputs, **attributes),)

    return [Attention, RotaryEmbedding]
