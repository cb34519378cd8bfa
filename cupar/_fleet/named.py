"""Arrays in shards by the names of NumPy and the Array API: functions of `cupar.distributed.arrays`."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from .._functions.calls import Operand, Work
from .._functions.extremes import first_extreme
from .._functions.named import NAMED
from .._functions.rows import check_kind
from .._functions.values import cast, dtype_of, summed
from ..iterators import CountingIterator, ZipIterator
from ..operators import OpKind
from .comm import on_all
from .described import sharded
from .functions import ran, reduced, scanned
from .group import Group
from .reduce import reduce_into

_BOOL = np.dtype(bool)


# --- Reductions and scans ---------------------------------------------------------------------------------


def _named(name: str, work: Work, x: Operand, group: Group, dtype: Any = None) -> Any:
    named = NAMED[name]
    check_kind(name, x, named.kinds)
    result = named.dtype(x.dtype) if dtype is None else dtype_of("dtype", dtype)
    if result == _BOOL or name == "count_nonzero":
        x = Operand(None, cast(x.items, _BOOL), x.shape)
    return reduced(work, x, group, named.op, None, result, needs_items=name in ("min", "max"))


@sharded(dtype="summed")
def sum(work: Work, x: Any, /, *, dtype: Any = None, group: Any = None) -> Any:
    """Return the sum of all items of an array in shards, on every rank.

    >>> int(arrays.sum(np.array([3, -7, 5])))
    1
    """
    return _named("sum", work, x, group, dtype)


@sharded(dtype="summed")
def prod(work: Work, x: Any, /, *, dtype: Any = None, group: Any = None) -> Any:
    """Return the product of all items of an array in shards, on every rank.

    >>> int(arrays.prod(np.array([3, -7, 5])))
    -105
    """
    return _named("prod", work, x, group, dtype)


@sharded()
def min(work: Work, x: Any, /, *, group: Any = None) -> Any:
    """Return the least item of an array in shards, on every rank; NaN if there is one.

    It is an error if no shard has items.

    >>> int(arrays.min(np.array([3, -7, 5])))
    -7
    """
    return _named("min", work, x, group)


@sharded()
def max(work: Work, x: Any, /, *, group: Any = None) -> Any:
    """Return the greatest item of an array in shards, on every rank; NaN if there is one.

    It is an error if no shard has items.

    >>> int(arrays.max(np.array([3, -7, 5])))
    5
    """
    return _named("max", work, x, group)


@sharded()
def any(work: Work, x: Any, /, *, group: Any = None) -> Any:
    """Return whether an item of an array in shards is not 0, on every rank. NaN is not 0.

    >>> bool(arrays.any(np.array([0, 5])))
    True
    """
    return _named("any", work, x, group)


@sharded()
def all(work: Work, x: Any, /, *, group: Any = None) -> Any:
    """Return whether no item of an array in shards is 0, on every rank.

    >>> bool(arrays.all(np.array([0, 5])))
    False
    """
    return _named("all", work, x, group)


@sharded()
def count_nonzero(work: Work, x: Any, /, *, group: Any = None) -> Any:
    """Return how many items of an array in shards are not 0, on every rank.

    >>> int(arrays.count_nonzero(np.array([0, 5, 7])))
    2
    """
    return _named("count_nonzero", work, x, group)


@sharded(dtype="summed")
def cumulative_sum(work: Work, x: Any, /, *, dtype: Any = None, group: Any = None) -> Any:
    """Return the sums of all items up to each of an array in shards.

    >>> arrays.cumulative_sum(np.array([1, 2, 3], np.int8))
    array([1, 3, 6])
    """
    return _cumulative("cumulative_sum", work, x, OpKind.PLUS, dtype, group)


@sharded(dtype="summed")
def cumulative_prod(work: Work, x: Any, /, *, dtype: Any = None, group: Any = None) -> Any:
    """Return the products of all items up to each of an array in shards.

    >>> arrays.cumulative_prod(np.array([1, 2, 3, 4]))
    array([ 1,  2,  6, 24])
    """
    return _cumulative("cumulative_prod", work, x, OpKind.MULTIPLIES, dtype, group)


def _cumulative(name: str, work: Work, x: Operand, op: OpKind, dtype: Any, group: Group) -> Any:
    check_kind(name, x, "biufc")
    result = summed(x.dtype) if dtype is None else dtype_of("dtype", dtype)
    return scanned(work, x, group, op, None, result)


@sharded()
def argmin(work: Work, x: Any, /, *, group: Any = None) -> Any:
    """Return where the first least item of an array in shards is in the whole, on every rank.

    A NaN is less than anything else, as in NumPy. It is an error if no shard has items.

    >>> int(arrays.argmin(np.array([3, 1, 1])))
    1
    """
    return _first("argmin", work, x, True, group)


@sharded()
def argmax(work: Work, x: Any, /, *, group: Any = None) -> Any:
    """Return where the first greatest item of an array in shards is in the whole, on every rank.

    A NaN is greater than anything else, as in NumPy. It is an error if no shard has items.

    >>> int(arrays.argmax(np.array([3, 5, 5])))
    1
    """
    return _first("argmax", work, x, False, group)


def _first(name: str, work: Work, x: Operand, is_least: bool, group: Group) -> Any:
    check_kind(name, x, "biuf")
    sizes = group.sizes(x.size)
    before, every = (builtins.sum(each) for each in (sizes[: group.rank], sizes))
    if not every:
        raise on_all(ValueError("x: no shard has items"))
    pairs = ZipIterator(x.items, CountingIterator(np.int64(before)))
    op, h_init = first_extreme(pairs.dtype, is_least)
    out = work.empty((), pairs.dtype)
    made = reduce_into(pairs, out.items, op, h_init, group=group)
    ran(work, made, pairs, out.items, x.size, h_init)
    return out.parts[1].own
