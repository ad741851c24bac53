"""Attention by the native engine: the forward pass, and weights on demand."""
