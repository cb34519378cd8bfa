"""Arrays in, arrays out, of arrays in shards: each rank gives its shard, and gets its part of the result.

>>> import numpy as np
>>> from cupar.distributed import arrays
>>> arrays.scan(np.array([3, 1, 4, 1, 5]), lambda a, b: a if a > b else b)
array([3, 3, 4, 4, 5])

What they return comes from the library of the shard, on its current stream. Each call has ranks agree on what
it means: an object of `cupar.distributed`, made once, does without that.
"""

from .._fleet.functions import (
    argsort,
    copy_if,
    histogram,
    reduce,
    reduce_by_key,
    run_length_encode,
    scan,
    searchsorted,
    sort,
    top_k,
)
from .._fleet.named import (
    all,
    any,
    argmax,
    argmin,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    max,
    min,
    prod,
    sum,
)
from .._fleet.ordered import median, quantile, unique_counts, unique_values

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "copy_if",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "histogram",
    "max",
    "median",
    "min",
    "prod",
    "quantile",
    "reduce",
    "reduce_by_key",
    "run_length_encode",
    "scan",
    "searchsorted",
    "sort",
    "sum",
    "top_k",
    "unique_counts",
    "unique_values",
]


def __dir__() -> list[str]:
    return list(__all__)
