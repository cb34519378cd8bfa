"""Arrays in, arrays out: scans, reductions, sorts and sets of arrays of NumPy, CuPy, PyTorch and Numba.

>>> import numpy as np
>>> from cupar import arrays
>>> arrays.scan(np.array([3, 1, 4, 1, 5]), lambda a, b: a if a > b else b)
array([3, 3, 4, 4, 5])

What they return comes from the library of their first array, by its allocator, on its current stream.
Arrays in host memory are worked on by the CPU. Functions are fetched from their modules when first used.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

_NAMES = {
    "extremes": "MinMax argmax argmin minmax",
    "named": "all any count_nonzero max min prod sum",
    "reductions": "reduce",
    "scans": "cumulative_prod cumulative_sum linear_recurrence scan",
    "sorting": "TopK argsort merge searchsorted sort top_k",
    "transforms": "transform",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)  # noqa: PLE0605

if TYPE_CHECKING:  # the same for type checkers; a test compares the two
    from ._functions.extremes import MinMax as MinMax
    from ._functions.extremes import argmax as argmax
    from ._functions.extremes import argmin as argmin
    from ._functions.extremes import minmax as minmax
    from ._functions.named import all as all
    from ._functions.named import any as any
    from ._functions.named import count_nonzero as count_nonzero
    from ._functions.named import max as max
    from ._functions.named import min as min
    from ._functions.named import prod as prod
    from ._functions.named import sum as sum
    from ._functions.reductions import reduce as reduce
    from ._functions.scans import cumulative_prod as cumulative_prod
    from ._functions.scans import cumulative_sum as cumulative_sum
    from ._functions.scans import linear_recurrence as linear_recurrence
    from ._functions.scans import scan as scan
    from ._functions.sorting import TopK as TopK
    from ._functions.sorting import argsort as argsort
    from ._functions.sorting import merge as merge
    from ._functions.sorting import searchsorted as searchsorted
    from ._functions.sorting import sort as sort
    from ._functions.sorting import top_k as top_k
    from ._functions.transforms import transform as transform


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
        )
    value = globals()[name] = getattr(importlib.import_module(f"._functions.{module}", __package__), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
