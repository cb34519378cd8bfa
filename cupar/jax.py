"""In JAX's programs: scans with operators of yours and their gradients, sorts, sums of segments.

>>> import jax, jax.numpy as jnp
>>> from cupar.jax import linear_recurrence
>>> jax.jit(linear_recurrence)(jnp.full(3, 0.5), jnp.ones(3))
Array([1.  , 1.5 , 1.75], dtype=float32)

All of it works under ``jit``, ``vmap``, ``grad`` and ``shard_map``, on GPUs and the CPU.
"""

from __future__ import annotations

from ._jax import runtime as _runtime
from ._jax.called import call
from ._jax.functions import histogram, segment_sum, sort, top_k
from ._jax.recurrence import linear_recurrence
from ._jax.scans import associative_scan

__all__ = ["associative_scan", "call", "histogram", "linear_recurrence", "segment_sum", "sort", "top_k"]

_runtime.begin()  # programs that were compiled elsewhere ask for the handler, too
