"""Arrays in, arrays out, of arrays in shards: each rank gives its shard, and gets its part of the result.

>>> import numpy as np
>>> from cupar.distributed import arrays
>>> arrays.scan(np.array([3, 1, 4, 1, 5]), lambda a, b: a if a > b else b)
array([3, 3, 4, 4, 5])

What they return comes from the library of the shard, on its current stream. Each call has ranks agree on what
it means: an object of `cupar.distributed`, made once, does without that. Functions are fetched from their
modules when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._base.lazy import fetched

_NAMES = {
    "functions": (
        "argsort copy_if histogram reduce reduce_by_key run_length_encode scan searchsorted sort top_k"
    ),
    "named": "all any argmax argmin count_nonzero cumulative_prod cumulative_sum max min prod sum",
    "ordered": "median quantile unique_counts unique_values",
}
_MODULES = fetched(__name__, "cupar._fleet", _NAMES)

__all__ = sorted(_MODULES)  # noqa: PLE0605

if TYPE_CHECKING:  # where editors find them; type checkers see the stub, and a test compares all
    from .._fleet.functions import argsort as argsort
    from .._fleet.functions import copy_if as copy_if
    from .._fleet.functions import histogram as histogram
    from .._fleet.functions import reduce as reduce
    from .._fleet.functions import reduce_by_key as reduce_by_key
    from .._fleet.functions import run_length_encode as run_length_encode
    from .._fleet.functions import scan as scan
    from .._fleet.functions import searchsorted as searchsorted
    from .._fleet.functions import sort as sort
    from .._fleet.functions import top_k as top_k
    from .._fleet.named import all as all
    from .._fleet.named import any as any
    from .._fleet.named import argmax as argmax
    from .._fleet.named import argmin as argmin
    from .._fleet.named import count_nonzero as count_nonzero
    from .._fleet.named import cumulative_prod as cumulative_prod
    from .._fleet.named import cumulative_sum as cumulative_sum
    from .._fleet.named import max as max
    from .._fleet.named import min as min
    from .._fleet.named import prod as prod
    from .._fleet.named import sum as sum
    from .._fleet.ordered import median as median
    from .._fleet.ordered import quantile as quantile
    from .._fleet.ordered import unique_counts as unique_counts
    from .._fleet.ordered import unique_values as unique_values
