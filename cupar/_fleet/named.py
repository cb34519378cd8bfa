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
from .functions import entered, ran, reduced, scanned, telling
from .group import Group
from .reduce import reduce_into

_BOOL = np.dtype(bool)


# --- Reductions and scans ---------------------------------------------------------------------------------


def _named(name: str, x: Any, group: Any, dtype: Any = None) -> Any:
    named = NAMED[name]

    def call(work: Work, given: Operand, found: Group) -> Any:
        check_kind(name, given, named.kinds)
        result = named.dtype(given.dtype) if dtype is None else dtype_of("dtype", dtype)
        if result == _BOOL or name == "count_nonzero":
            given = Operand(None, cast(given.items, _BOOL), given.shape)
        return reduced(work, given, found, named.op, None, result, needs_items=name in ("min", "max"))

    return entered(name, x, group, call)


@telling
def sum(x: Any, /, *, dtype: Any = None, group: Any = None) -> Any:
    """Return the sum of all items of an array in shards, on every rank.

    Parameters
    ----------
    x, group
        As for `reduce`.
    dtype : dtype, optional
        Of the result; by default that of `x`, but of 64 bits for bool and small integers.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> int(arrays.sum(np.array([3, -7, 5])))
    1
    """
    return _named("sum", x, group, dtype)


@telling
def prod(x: Any, /, *, dtype: Any = None, group: Any = None) -> Any:
    """Return the product of all items of an array in shards, on every rank.

    Parameters
    ----------
    x, dtype, group
        As for `sum`.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> int(arrays.prod(np.array([3, -7, 5])))
    -105
    """
    return _named("prod", x, group, dtype)


@telling
def min(x: Any, /, *, group: Any = None) -> Any:
    """Return the least item of an array in shards, on every rank; NaN if there is one.

    Parameters
    ----------
    x, group
        As for `reduce`.

    Returns
    -------
    array

    Raises
    ------
    ValueError
        If no shard has items.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> int(arrays.min(np.array([3, -7, 5])))
    -7
    """
    return _named("min", x, group)


@telling
def max(x: Any, /, *, group: Any = None) -> Any:
    """Return the greatest item of an array in shards, on every rank; NaN if there is one.

    Parameters
    ----------
    x, group
        As for `reduce`.

    Returns
    -------
    array

    Raises
    ------
    ValueError
        If no shard has items.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> int(arrays.max(np.array([3, -7, 5])))
    5
    """
    return _named("max", x, group)


@telling
def any(x: Any, /, *, group: Any = None) -> Any:
    """Return whether an item of an array in shards is not 0, on every rank. NaN is not 0.

    Parameters
    ----------
    x, group
        As for `reduce`.

    Returns
    -------
    array of bool

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> bool(arrays.any(np.array([0, 5])))
    True
    """
    return _named("any", x, group)


@telling
def all(x: Any, /, *, group: Any = None) -> Any:
    """Return whether no item of an array in shards is 0, on every rank.

    Parameters
    ----------
    x, group
        As for `reduce`.

    Returns
    -------
    array of bool

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> bool(arrays.all(np.array([0, 5])))
    False
    """
    return _named("all", x, group)


@telling
def count_nonzero(x: Any, /, *, group: Any = None) -> Any:
    """Return how many items of an array in shards are not 0, on every rank.

    Parameters
    ----------
    x, group
        As for `reduce`.

    Returns
    -------
    array of int64

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> int(arrays.count_nonzero(np.array([0, 5, 7])))
    2
    """
    return _named("count_nonzero", x, group)


@telling
def cumulative_sum(x: Any, /, *, dtype: Any = None, group: Any = None) -> Any:
    """Return the sums of all items up to each of an array in shards.

    Parameters
    ----------
    x, dtype, group
        As for `sum`.

    Returns
    -------
    array
        The same part of the result.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> arrays.cumulative_sum(np.array([1, 2, 3], np.int8))
    array([1, 3, 6])
    """
    return _cumulative("cumulative_sum", x, OpKind.PLUS, dtype, group)


@telling
def cumulative_prod(x: Any, /, *, dtype: Any = None, group: Any = None) -> Any:
    """Return the products of all items up to each of an array in shards.

    Parameters
    ----------
    x, dtype, group
        As for `sum`.

    Returns
    -------
    array
        The same part of the result.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> arrays.cumulative_prod(np.array([1, 2, 3, 4]))
    array([ 1,  2,  6, 24])
    """
    return _cumulative("cumulative_prod", x, OpKind.MULTIPLIES, dtype, group)


def _cumulative(name: str, x: Any, op: OpKind, dtype: Any, group: Any) -> Any:
    def call(work: Work, given: Operand, found: Group) -> Any:
        check_kind(name, given, "biufc")
        result = summed(given.dtype) if dtype is None else dtype_of("dtype", dtype)
        return scanned(work, given, found, op, None, result)

    return entered(name, x, group, call)


@telling
def argmin(x: Any, /, *, group: Any = None) -> Any:
    """Return where the first least item of an array in shards is in the whole, on every rank.

    A NaN is less than anything else, as in NumPy.

    Parameters
    ----------
    x, group
        As for `reduce`.

    Returns
    -------
    array of int64

    Raises
    ------
    ValueError
        If no shard has items.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> int(arrays.argmin(np.array([3, 1, 1])))
    1
    """
    return _first("argmin", x, True, group)


@telling
def argmax(x: Any, /, *, group: Any = None) -> Any:
    """Return where the first greatest item of an array in shards is in the whole, on every rank.

    A NaN is greater than anything else, as in NumPy.

    Parameters
    ----------
    x, group
        As for `reduce`.

    Returns
    -------
    array of int64

    Raises
    ------
    ValueError
        If no shard has items.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> int(arrays.argmax(np.array([3, 5, 5])))
    1
    """
    return _first("argmax", x, False, group)


def _first(name: str, x: Any, is_least: bool, group: Any) -> Any:
    def call(work: Work, given: Operand, found: Group) -> Any:
        check_kind(name, given, "biuf")
        sizes = found.sizes(given.size)
        before, every = (builtins.sum(each) for each in (sizes[: found.rank], sizes))
        if not every:
            raise on_all(ValueError("x: no shard has items"))
        pairs = ZipIterator(given.items, CountingIterator(np.int64(before)))
        op, h_init = first_extreme(pairs.dtype, is_least)
        out = work.empty((), pairs.dtype)
        made = reduce_into(pairs, out.items, op, h_init, group=found)
        ran(work, made, pairs, out.items, given.size, h_init)
        return out.parts[1].own

    return entered(name, x, group, call)
