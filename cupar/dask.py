"""Functions on dask arrays, lazy: blocks are NumPy's or CuPy's, and each task calls cupar where its block is.

>>> import numpy as np, dask.array as da
>>> from cupar import dask as cdask
>>> x = da.from_array(np.arange(1, 7), chunks=2)
>>> cdask.scan(x, lambda a, b: a * b).compute()
array([  1,   2,   6,  24, 120, 720])

Nothing is compiled while a graph is made. Tasks are named after what they do, operators included: the same
call has the same names in every process, and another operator has others. Functions are fetched from their
modules when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._base.lazy import fetched

_NAMES = {
    "named": "all any argmax argmin count_nonzero cumulative_prod cumulative_sum "
    "max min prod sum unique_counts",
    "quantiles": "median quantile",
    "reductions": "histogram reduce scan top_k",
    "sorting": "reduce_by_key sort unique",
}
_MODULES = fetched(__name__, "cupar._dask", _NAMES)

__all__ = sorted(_MODULES)  # noqa: PLE0605

if TYPE_CHECKING:  # where editors find them; type checkers see the stub, and a test compares all
    from ._dask.named import all as all
    from ._dask.named import any as any
    from ._dask.named import argmax as argmax
    from ._dask.named import argmin as argmin
    from ._dask.named import count_nonzero as count_nonzero
    from ._dask.named import cumulative_prod as cumulative_prod
    from ._dask.named import cumulative_sum as cumulative_sum
    from ._dask.named import max as max
    from ._dask.named import min as min
    from ._dask.named import prod as prod
    from ._dask.named import sum as sum
    from ._dask.named import unique_counts as unique_counts
    from ._dask.quantiles import median as median
    from ._dask.quantiles import quantile as quantile
    from ._dask.reductions import histogram as histogram
    from ._dask.reductions import reduce as reduce
    from ._dask.reductions import scan as scan
    from ._dask.reductions import top_k as top_k
    from ._dask.sorting import reduce_by_key as reduce_by_key
    from ._dask.sorting import sort as sort
    from ._dask.sorting import unique as unique
