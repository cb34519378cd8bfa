"""Arrays in shards by the names of NumPy and the Array API: functions of `cupar.distributed.arrays`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import structs
from .._functions import counting, operators, sets
from .._functions.axes import INT64
from .._functions.calls import Operand, Work
from .._functions.named import NAMED
from .._functions.rows import check_kind
from .._functions.sets import UniqueCounts
from .._functions.values import accumulated, cast, casting, dtype_of, summed
from ..iterators import PermutationIterator, TransformIterator, ZipIterator
from ..operators import OpKind
from . import runs
from .comm import on_all, raw
from .functions import cut, entered, in_order, ran, reduced, scanned
from .group import Group

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

    def call(work: Work, given: Operand, found: Group) -> Any:
        check_kind("cumulative_sum", given, "biufc")
        result = summed(given.dtype) if dtype is None else dtype_of("dtype", dtype)
        return scanned(work, given, found, OpKind.PLUS, None, result)

    return entered("cumulative_sum", x, group, call)


# --- What is sorted first ---------------------------------------------------------------------------------


def _bits_in_order(work: Work, given: Operand) -> Operand:
    """Return items which their bits put in NumPy's order: all NaNs are one, the last."""
    if structs.kind_of(given.dtype) != "f":
        return given
    return work.made(
        TransformIterator(given.items, operators.with_one_nan(given.dtype), given.dtype), given.shape
    )


def unique_values(x: Any, /, *, group: Any = None) -> Any:
    """Return this rank's part of the different items of an array in shards, sorted. NaNs are all different.

    Parameters
    ----------
    x, group
        As for `reduce`; of numbers.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> arrays.unique_values(np.array([3, 1, 3, 2]))
    array([1, 2, 3])
    """

    def call(work: Work, given: Operand, found: Group) -> Any:
        own = _bits_in_order(work, sets._unique_values(work, given, None))
        keys, _ = in_order(work, own, None, False, None, found)
        out, counts = work.empty(own.shape, own.dtype), work.empty((3,), INT64)
        arrays = keys.items, None, out.items, None, counts.items
        ran(work, runs.unique_by_key(*arrays, OpKind.EQUAL_TO, group=found), *arrays, own.size)
        return cut(work, counts, out)[0]

    return entered("unique_values", x, group, call)


def unique_counts(x: Any, /, *, group: Any = None) -> UniqueCounts:
    """Return this rank's part of the different items of an array in shards, sorted, and how many are equal.

    Parameters
    ----------
    x, group
        As for `unique_values`.

    Returns
    -------
    UniqueCounts
        A named tuple of two arrays, `values` and `counts`.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> arrays.unique_counts(np.array([3, 1, 3, 2])).counts
    array([1, 1, 2])
    """

    def call(work: Work, given: Operand, found: Group) -> UniqueCounts:
        values, numbers = sets._unique(work, given, None, UniqueCounts)
        own = _bits_in_order(work, values)
        keys, moved = in_order(work, own, numbers.items, False, None, found)
        out, sums, counts = (
            work.empty(own.shape, own.dtype),
            work.empty(own.shape, INT64),
            work.empty((3,), INT64),
        )
        arrays = keys.items, out.items, moved.items, sums.items, counts.items
        ran(work, runs.reduce_by_key(*arrays, OpKind.PLUS, group=found), *arrays, own.size)
        return UniqueCounts(*cut(work, counts, out, sums))

    return entered("unique_counts", x, group, call)  # type: ignore[no-any-return]


def quantile(x: Any, q: Any, /, *, method: str = "linear", group: Any = None) -> Any:
    """Return quantiles of all items of an array in shards, on every rank; NaN if an item is.

    They are exact: the array is sorted.

    Parameters
    ----------
    x, group
        As for `reduce`; of real numbers. Integers become float64.
    q : number or sequence of numbers
        From 0 to 1, on the host: the same on every rank.
    method : {"linear", "lower", "higher", "nearest", "midpoint"}, optional
        What is between two items.

    Returns
    -------
    array
        With the dimensions of `q`.

    Raises
    ------
    ValueError
        If no shard has items.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> arrays.quantile(np.array([4.0, 1.0, 2.0]), [0.25, 0.5])
    array([1.5, 2. ])
    """

    def call(work: Work, given: Operand, found: Group) -> Any:
        wanted, exact = counting.quantiles_of(given, q, method)
        found.compare(
            "quantile", {"dtype of x": str(given.dtype), "q": str(wanted.tolist()), "method": method}
        )
        sizes = found.sizes(given.size)
        total = int(np.sum(sizes))
        if not total:
            raise on_all(ValueError("x: no shard has items"))
        keys, _ = in_order(work, _bits_in_order(work, given), None, False, None, found)
        places = [counting._place(each, total, method) for each in wanted.ravel().tolist()]
        low = np.array([place for place, _ in places], np.int64)
        parts = np.array([part for _, part in places])
        picked = _at(work, keys, np.concatenate([low, low + (parts > 0), [total - 1]]), sizes, found)
        dtype = given.dtype if exact or structs.kind_of(given.dtype) == "f" else np.dtype(np.float64)
        within, number = accumulated(dtype), np.arange(len(low))
        real = within if structs.kind_of(within) == "f" else np.dtype(np.float64)
        values = cast(picked, within)
        three = (number, number + len(low), np.full(len(low), 2 * len(low)))
        given_parts = ZipIterator(
            *(PermutationIterator(values, work.put(each)) for each in three), work.put(parts.astype(real))
        )
        out = work.empty(wanted.shape, dtype)
        op = counting._first_or_nan if exact else counting._between
        work.copy(TransformIterator(given_parts, op, within), casting(out.items, within), len(low))
        return out.own

    return entered("quantile", x, group, call)


def _at(work: Work, keys: Operand, places: Any, sizes: list[int], found: Group) -> Any:
    """Return the items at some places of an array in shards, on every rank."""
    ends = np.cumsum(sizes)
    owners = np.searchsorted(ends, places, side="right")
    within = places - (ends[owners] - np.asarray(sizes)[owners])
    own = work.temporary(len(places), keys.dtype)
    records = work.temporary(len(places) * found.size, keys.dtype)
    if keys.size:
        mine = work.put(np.where(owners == found.rank, within, 0))
        work.copy(PermutationIterator(keys.items, mine), own, len(places))
    found.gather(raw(own), raw(records), None if work.library.on_cpu else work.stream or 0)
    picked = work.temporary(len(places), keys.dtype)
    known = work.put(owners * len(places) + np.arange(len(places)))
    work.copy(PermutationIterator(records, known), picked, len(places))
    return picked
