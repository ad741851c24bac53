"""Attention in JAX: one function that is right, and one that is not."""

import jax
import jax.numpy as jnp


def textbook(q, k, v):
    return jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5, axis=-1) @ v


def over_queries(q, k, v):
    return jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5, axis=-2) @ v
