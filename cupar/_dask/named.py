"""Functions on dask arrays by the names of NumPy and the Array API: reductions, scans, and counts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import dask.array as da
import numpy as np

from .. import structs
from .._functions.axes import INT64
from .._functions.described import Surface, help_of, written
from .._functions.named import NAMED
from .._functions.rows import check_kind
from .._functions.sets import UniqueCounts
from .._functions.values import summed
from ..operators import OpKind
from .graphs import items_of, taken
from .reductions import extreme, reduced, scan
from .sorting import runs_of, sort

if TYPE_CHECKING:
    from .._base.annotations import Axes, DType

P = ParamSpec("P")
_DASK = Surface(
    "import numpy as np, dask.array as da\n>>> from cupar import dask as cdask",
    {
        "x": ("dask array", "Of NumPy's or CuPy's blocks, with any chunks, also unknown ones."),
    },
    example="cdask.{name}(da.from_array({items}, chunks=2)).compute()",
    empty="No items are an error of the task.",
)
_CALL = """
def {name}({parameters}):
    return make({arguments})
"""


def _summed(
    name: str, x: da.Array, /, *, axis: Axes = None, keepdims: bool = False, dtype: DType = None
) -> da.Array:
    named, items = NAMED[name], items_of(x)
    check_kind(name, items, named.kinds)
    result = named.dtype(items.dtype) if dtype is None else dtype
    x = x.astype(bool) if named.of_bools else x
    return reduced(name, x, named.op, axis, None, keepdims, result, needs_items=named.needs_items)


def _reduced(name: str, x: da.Array, /, *, axis: Axes = None, keepdims: bool = False) -> da.Array:
    return _summed(name, x, axis=axis, keepdims=keepdims)


def _cumulative(name: str, x: da.Array, /, *, axis: int | None = None, dtype: DType = None) -> da.Array:
    op = OpKind.PLUS if name == "cumulative_sum" else OpKind.MULTIPLIES
    return scan(x, op, axis=axis, dtype=summed(taken("x", x)) if dtype is None else dtype)


def _extreme(name: str, x: da.Array, /, *, axis: int | None = None, keepdims: bool = False) -> da.Array:
    check_kind(name, items_of(x), "biuf")
    return extreme(name, x, axis, keepdims, name == "argmax")


def _ones(block: Any) -> Any:
    return np.ones_like(block, INT64)


def unique_counts(x: da.Array, /) -> UniqueCounts:
    """Return the different items of an array, sorted, with their counts.

    The result is a named tuple of two dask arrays, `values` and `counts`, of unknown chunks.

    >>> cdask.unique_counts(da.from_array(np.array([3, 1, 3, 2]), chunks=2)).counts.compute()
    array([1, 1, 2])
    """
    dtype = taken("x", x)
    if structs.kind_of(dtype) not in "biufc":
        raise TypeError(f"x: expected an array of numbers, got {structs.text(dtype)}")
    found = sort(x, axis=None)
    ones = found.map_blocks(_ones, dtype=INT64)
    return UniqueCounts(*runs_of("unique_counts", found, ones, OpKind.PLUS, dtype, INT64))


unique_counts.__doc__ = help_of(
    unique_counts.__doc__, inspect.signature(unique_counts).parameters.values(), {}, _DASK
)


def _made(
    of: str, find: Callable[Concatenate[str, P], da.Array], *names: str, **named: str
) -> list[Callable[P, da.Array]]:
    made = [_DASK.named(name, of, find) for name in names]
    return [written(each, _CALL, {}, {"dtype": "summed", **named}, _DASK, own=0) for each in made]


_ALL = "of all or along axes"
sum, prod = _made(_ALL, _summed, "sum", "prod", axis="axes")
min, max, any, all, count_nonzero = _made(
    _ALL, _reduced, "min", "max", "any", "all", "count_nonzero", axis="axes"
)
argmin, argmax = _made("of all in C's order or along an axis", _extreme, "argmin", "argmax")
cumulative_sum, cumulative_prod = _made("along an axis", _cumulative, "cumulative_sum", "cumulative_prod")
