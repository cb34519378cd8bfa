"""Counts of the items that a rank keeps, that the ranks before it keep, and that all keep."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import structs
from .._functions.axes import INT64, constant, with_numbers
from .._functions.calls import Work
from .._ir.iterator import over
from ..iterators import CountingIterator, PermutationIterator, TransformIterator, ZipIterator
from ..reduce import reduce_into
from .carry import THREE
from .group import Group
from .replay import IteratorCache
from .shard_items import first_items

_ZERO = np.zeros(1, THREE)


def _counted(s: Any) -> Any:
    count, rank, own = s
    return (count if rank == own else 0, count if rank < own else 0, count)


def _added(a: Any, b: Any) -> Any:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


def _place(s: Any) -> Any:
    rank, number, part = s
    return rank * number + part


def check_counts(name: str, array: Any, number: int = 1) -> None:
    """Raise TypeError unless an array takes the three counts of each of some parts."""
    dtype = over(name, array).dtype
    if dtype != INT64:
        raise TypeError(f"{name}: expected {3 * number} items of int64, got {structs.text(dtype)}")


def three_of(items: Any, number: int = 1, part: int = 0) -> Any:
    """Return an output over the three counts of one of some parts, which are in rows of parts."""
    return ZipIterator(*(items[place : place + 1] for place in range(part, 3 * number, number)))


class Counts:
    """The sizes of some parts on each rank.

    Attributes
    ----------
    own : array of int64
        Those of this rank, to be written before `write`.
    """

    def __init__(self, work: Work, group: Group, number: int) -> None:
        self._group, self._number = group, number
        self.own = work.temporary(number, INT64)
        every = work.temporary(number * group.size, INT64)
        self._gather = group.gathering(self.own, every)
        self._given = [self._read(every, part) for part in range(number)]
        self._reduce = reduce_into(self._given[0], ZipIterator(INT64, INT64, INT64), _added, _ZERO)

        def outputs(counts: Any) -> list[Any]:
            check_counts("d_num_selected_out", counts, number)
            items = first_items(work, "d_num_selected_out", counts, 3 * number)
            return [three_of(items, number, part) for part in range(number)]

        self._outputs = IteratorCache(outputs)

    def _read(self, counts: Any, part: int) -> Any:
        places = TransformIterator(
            with_numbers(CountingIterator(INT64.type(0)), self._number, part), _place, INT64
        )
        ranks = CountingIterator(INT64.type(0))
        parts = ZipIterator(PermutationIterator(counts, places), ranks, constant(self._group.rank))
        return TransformIterator(parts, _counted, THREE)

    def write(self, work: Work, counts: Any) -> None:
        """Write the numbers of this rank, then of those before it, then of all: a row of parts each."""
        self._gather(work.stream)
        for given, three in zip(self._given, self._outputs(work, counts), strict=True):
            work.run(self._reduce, given, three, self._group.size, _ZERO)
