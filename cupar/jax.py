"""In JAX's programs: scans with operators of yours and their gradients, sorts, sums of segments.

>>> import jax, jax.numpy as jnp
>>> from cupar.jax import linear_recurrence
>>> jax.jit(linear_recurrence)(jnp.full(3, 0.5), jnp.ones(3))
Array([1.  , 1.5 , 1.75], dtype=float32)

All of it works under ``jit``, ``vmap``, ``grad`` and ``shard_map``, on GPUs and the CPU.
"""

from __future__ import annotations

from ._jax.called import call
from ._jax.recurrence import linear_recurrence

__all__ = ["call", "linear_recurrence"]
