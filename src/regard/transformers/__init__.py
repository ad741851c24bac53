"""Attention of Hugging Face transformers computed by regard: one call of `register`, then ``"regard"`` is a choice."""

from ._register import register as register
