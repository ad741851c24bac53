"""Attention with its projections, as models have it: splitting into heads, and the multi-head layer."""

from ._result import JoinedWeights as JoinedWeights
from ._result import MultiHeadResult as MultiHeadResult
from .heads import merge_heads as merge_heads
from .heads import split_heads as split_heads
from .multihead import MultiHeadAttention as MultiHeadAttention
