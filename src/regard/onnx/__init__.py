"""The ONNX operators Attention and RotaryEmbedding on NumPy arrays, and onnx's reference runtime running them."""

from ._attention import AttentionOutputs as AttentionOutputs
from ._attention import attention as attention
from ._reference import reference_ops as reference_ops
from ._rotary import rotary_embedding as rotary_embedding
