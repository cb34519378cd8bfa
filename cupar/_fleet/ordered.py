"""Functions of `cupar.distributed.arrays` by NumPy's names that sort an array in shards first."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import structs
from .._functions import counting, operators, quantiles, sets
from .._functions.axes import INT64
from .._functions.calls import Operand, Work
from .._functions.sets import UniqueCounts
from ..iterators import PermutationIterator, TransformIterator
from ..operators import OpKind
from . import runs
from .comm import on_all, raw
from .functions import cut, entered, in_order, ran, telling
from .group import Group


def _bits_in_order(work: Work, given: Operand) -> Operand:
    """Return items which their bits put in NumPy's order: all NaNs are one, the last."""
    if structs.kind_of(given.dtype) != "f":
        return given
    return work.made(
        TransformIterator(given.items, operators.with_one_nan(given.dtype), given.dtype), given.shape
    )


@telling
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


@telling
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


@telling
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
    return _quantile("quantile", x, q, method, group)


@telling
def median(x: Any, /, *, group: Any = None) -> Any:
    """Return the median of all items of an array in shards, on every rank; NaN if an item is.

    Parameters
    ----------
    x, group
        As for `quantile`.

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
    >>> float(arrays.median(np.array([4, 1, 2, 9])))
    3.0
    """
    return _quantile("median", x, 0.5, "linear", group, mean=True)


def _quantile(name: str, x: Any, q: Any, method: str, group: Any, mean: bool = False) -> Any:
    def call(work: Work, given: Operand, found: Group) -> Any:
        wanted, exact = counting.quantiles_of(given, q, method)
        found.compare(name, {"dtype of x": str(given.dtype), "q": str(wanted.tolist()), "method": method})
        sizes = found.sizes(given.size)
        total = int(np.sum(sizes))
        if not total:
            raise on_all(ValueError("x: no shard has items"))
        keys, _ = in_order(work, _bits_in_order(work, given), None, False, None, found)
        places, parts = quantiles.places_of(wanted, total, method)
        picked = _at(work, keys, places, sizes, found)
        return quantiles.between(work, picked, parts, wanted, exact, mean).own

    return entered(name, x, group, call)


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
