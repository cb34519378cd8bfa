"""Functions of `cupar.distributed.arrays` by NumPy's names that sort an array in shards first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._functions import quantiles, sets
from .._functions.axes import INT64
from .._functions.calls import Numbers, Operand, Work
from .._functions.sets import UniqueCounts
from ..operators import OpKind
from . import runs
from .comm import on_all
from .described import sharded
from .functions import call, cut
from .group import Group
from .shard_items import items_at
from .sort import in_order

if TYPE_CHECKING:
    from .._base.annotations import Floats


@sharded()
def unique_values(work: Work, group: Group, x: Operand, /) -> Operand:
    """Return this rank's part of the different items of an array in shards, sorted. NaNs are all different.

    >>> arrays.unique_values(np.array([3, 1, 3, 2]))
    array([1, 2, 3])
    """
    own = sets._unique_values(work, x, None)
    keys, _ = in_order(work, own, None, False, None, group)
    out, counts = work.empty(own.shape, own.dtype), work.empty((3,), INT64)
    arrays = keys.items, None, out.items, None, counts.items
    call(work, runs.unique_by_key, arrays, [OpKind.EQUAL_TO], [own.size], group=group)
    return cut(work, counts, out)[0]


@sharded()
def unique_counts(work: Work, group: Group, x: Operand, /) -> UniqueCounts:
    """Return this rank's part of the different items of an array in shards, sorted, and how many are equal.

    The result is a named tuple of two arrays, `values` and `counts`.

    >>> arrays.unique_counts(np.array([3, 1, 3, 2])).counts
    array([1, 1, 2])
    """
    own, numbers = sets._unique(work, x, None, UniqueCounts)
    keys, moved = in_order(work, own, numbers.items, False, None, group)
    out, sums = work.empty(own.shape, own.dtype), work.empty(own.shape, INT64)
    counts = work.empty((3,), INT64)
    arrays = keys.items, out.items, moved.items, sums.items, counts.items
    call(work, runs.reduce_by_key, arrays, [OpKind.PLUS], [own.size], group=group)
    return UniqueCounts(*cut(work, counts, out, sums))


@sharded()
def quantile(
    work: Work, group: Group, x: Operand, q: float | Floats, /, *, method: str = "linear"
) -> Numbers:
    """Return quantiles of all items of an array in shards, on every rank; NaN if an item is.

    They are exact: the array is sorted. The result has the dimensions of `q`; it is an error if no shard has
    items. Integers become float64.

    >>> arrays.quantile(np.array([4.0, 1.0, 2.0]), [0.25, 0.5])
    array([1.5, 2. ])
    """
    return _quantile("quantile", work, x, q, method, group)


@sharded()
def median(work: Work, group: Group, x: Operand, /) -> Numbers:
    """Return the median of all items of an array in shards, on every rank; NaN if an item is.

    It is an error if no shard has items.

    >>> float(arrays.median(np.array([4, 1, 2, 9])))
    3.0
    """
    return _quantile("median", work, x, 0.5, "linear", group, mean=True)


def _quantile(
    name: str, work: Work, x: Operand, q: Any, method: str, group: Group, mean: bool = False
) -> Numbers:
    wanted, exact = quantiles.quantiles_of(x, q, method)
    group.compare(name, {"dtype of x": str(x.dtype), "q": str(wanted.tolist()), "method": method})
    sizes = group.sizes(x.size, name)
    total = int(np.sum(sizes))
    if not total:
        raise on_all(ValueError("x: no shard has items"))
    keys, _ = in_order(work, x, None, False, None, group)
    places, parts = quantiles.places_of(wanted, total, method)
    picked = _at(work, keys, places, sizes, group)
    return quantiles.between(work, picked, parts, wanted, exact, mean)


def _at(work: Work, keys: Operand, places: Any, sizes: list[int], found: Group) -> Any:
    """Return the items at some places of an array in shards, on every rank."""
    ends = np.cumsum(sizes)
    owners = np.searchsorted(ends, places, side="right")
    within = places - (ends[owners] - np.asarray(sizes)[owners])
    of_ranks = [within[owners == rank] for rank in range(found.size)]
    order = np.argsort(np.argsort(owners, kind="stable"))
    return work.kept(items_at(work, found, keys.items, of_ranks, order), len(places))
