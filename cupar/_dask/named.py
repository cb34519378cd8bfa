"""Functions on dask arrays by the names of NumPy and the Array API: reductions, scans, and counts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import dask.array as da
import numpy as np

from .. import structs
from .._functions.axes import INT64
from .._functions.described import Surface, help_of
from .._functions.named import NAMED
from .._functions.sets import UniqueCounts
from .._functions.values import summed
from ..operators import OpKind
from .graphs import taken
from .reductions import extreme, reduced, scan
from .sorting import runs_of, sort

_BOOL = np.dtype(bool)
F = TypeVar("F", bound=Callable[..., Any])
_DASK = Surface(
    "import numpy as np, dask.array as da\n>>> from cupar import dask as cdask",
    {
        "x": ("dask array", "Of NumPy's or CuPy's blocks, with any chunks, also unknown ones."),
        "dtype": (
            "dtype, optional",
            "Of the result; by default that of `x`, but of 64 bits for bool and small integers.",
        ),
    },
)


def helped(**named: str) -> Callable[[F], F]:
    """Decorate a function with help for its parameters; `named` is as for `described`."""

    def decorate(function: F) -> F:
        parameters = inspect.signature(function).parameters.values()
        function.__doc__ = help_of(function.__doc__, parameters, named, _DASK)
        return function

    return decorate


def _named(name: str, x: da.Array, axis: Any, keepdims: bool, dtype: Any = None) -> da.Array:
    named, own = NAMED[name], taken("x", x)
    if structs.kind_of(own) not in named.kinds:
        real = "real " if named.kinds == "biuf" else ""
        raise TypeError(f"x: {name} takes {real}numbers, got {structs.text(own)}")
    result = named.dtype(own) if dtype is None else dtype
    if result == _BOOL or name == "count_nonzero":
        x = x.astype(bool)
    return reduced(name, x, named.op, axis, None, keepdims, result, needs_items=name in ("min", "max"))


@helped(axis="axes")
def sum(x: da.Array, /, *, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> da.Array:
    """Return the sum of all items, or along axes.

    >>> int(cdask.sum(da.from_array(np.array([100, 100], np.int8), chunks=1)).compute())
    200
    """
    return _named("sum", x, axis, keepdims, dtype)


@helped(axis="axes")
def prod(x: da.Array, /, *, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> da.Array:
    """Return the product of all items, or along axes.

    >>> int(cdask.prod(da.from_array(np.array([3, -7, 5]), chunks=2)).compute())
    -105
    """
    return _named("prod", x, axis, keepdims, dtype)


@helped(axis="axes")
def min(x: da.Array, /, *, axis: Any = None, keepdims: bool = False) -> da.Array:
    """Return the least item, or those along axes; NaN if there is one. No items are an error of the task.

    >>> int(cdask.min(da.from_array(np.array([3, -7, 5]), chunks=2)).compute())
    -7
    """
    return _named("min", x, axis, keepdims)


@helped(axis="axes")
def max(x: da.Array, /, *, axis: Any = None, keepdims: bool = False) -> da.Array:
    """Return the greatest item, or those along axes; NaN if there is one. No items are an error of the task.

    >>> int(cdask.max(da.from_array(np.array([3, -7, 5]), chunks=2)).compute())
    5
    """
    return _named("max", x, axis, keepdims)


@helped(axis="axes")
def any(x: da.Array, /, *, axis: Any = None, keepdims: bool = False) -> da.Array:
    """Return whether an item is not 0, or one along axes. NaN is not 0.

    >>> bool(cdask.any(da.from_array(np.array([0, 5]), chunks=1)).compute())
    True
    """
    return _named("any", x, axis, keepdims)


@helped(axis="axes")
def all(x: da.Array, /, *, axis: Any = None, keepdims: bool = False) -> da.Array:
    """Return whether no item is 0, or none along axes.

    >>> bool(cdask.all(da.from_array(np.array([0, 5]), chunks=1)).compute())
    False
    """
    return _named("all", x, axis, keepdims)


@helped(axis="axes")
def count_nonzero(x: da.Array, /, *, axis: Any = None, keepdims: bool = False) -> da.Array:
    """Count the items that are not 0, of all or along axes.

    >>> int(cdask.count_nonzero(da.from_array(np.array([0, 5, 7]), chunks=2)).compute())
    2
    """
    return _named("count_nonzero", x, axis, keepdims)


@helped()
def cumulative_sum(x: da.Array, /, *, axis: int | None = None, dtype: Any = None) -> da.Array:
    """Return the sums of all items up to each, along an axis.

    >>> cdask.cumulative_sum(da.from_array(np.array([1, 2, 3]), chunks=2)).compute()
    array([1, 3, 6])
    """
    return scan(x, OpKind.PLUS, axis=axis, dtype=summed(taken("x", x)) if dtype is None else dtype)


@helped()
def cumulative_prod(x: da.Array, /, *, axis: int | None = None, dtype: Any = None) -> da.Array:
    """Return the products of all items up to each, along an axis.

    >>> cdask.cumulative_prod(da.from_array(np.array([1, 2, 3, 4]), chunks=2)).compute()
    array([ 1,  2,  6, 24])
    """
    return scan(x, OpKind.MULTIPLIES, axis=axis, dtype=summed(taken("x", x)) if dtype is None else dtype)


@helped(axis="axis")
def argmin(x: da.Array, /, *, axis: int | None = None, keepdims: bool = False) -> da.Array:
    """Return the index of the first least item, of all in C's order or along an axis.

    A NaN is less than anything else, as in NumPy. No items are an error of the task.

    >>> int(cdask.argmin(da.from_array(np.array([3, 1, 1]), chunks=2)).compute())
    1
    """
    return _extreme("argmin", x, axis, keepdims, False)


@helped(axis="axis")
def argmax(x: da.Array, /, *, axis: int | None = None, keepdims: bool = False) -> da.Array:
    """Return the index of the first greatest item, of all in C's order or along an axis.

    A NaN is greater than anything else, as in NumPy. No items are an error of the task.

    >>> int(cdask.argmax(da.from_array(np.array([3, 5, 5]), chunks=2)).compute())
    1
    """
    return _extreme("argmax", x, axis, keepdims, True)


def _extreme(name: str, x: da.Array, axis: int | None, keepdims: bool, largest: bool) -> da.Array:
    dtype = taken("x", x)
    if structs.kind_of(dtype) not in "biuf":
        raise TypeError(f"x: {name} takes real numbers, got {structs.text(dtype)}")
    return extreme(name, x, axis, keepdims, largest)


def _ones(block: Any) -> Any:
    return np.ones_like(block, INT64)


@helped()
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
