"""How many items each rank keeps, how many the ranks before it do, and all together."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._functions.axes import INT64, constant, with_numbers
from .._functions.calls import Work
from ..iterators import CountingIterator, PermutationIterator, TransformIterator, ZipIterator
from ..reduce import reduce_into
from .comm import raw
from .group import Group

_THREE = np.dtype([("own", INT64), ("before", INT64), ("all", INT64)], align=True)
_ZERO = np.zeros(1, _THREE)


def _counted(s: Any) -> Any:
    count, rank, own = s
    return (count if rank == own else 0, count if rank < own else 0, count)


def _added(a: Any, b: Any) -> Any:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


def _place(s: Any) -> Any:
    rank, number, part = s
    return rank * number + part


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
        self._all = work.temporary(number * group.size, INT64)
        self.clear(work)  # which builds it
        three = ZipIterator(INT64, INT64, INT64)
        self._reduce = reduce_into(self._read(INT64, 0), three, _added, _ZERO)

    def _read(self, counts: Any, part: int) -> Any:
        places = TransformIterator(
            with_numbers(CountingIterator(INT64.type(0)), self._number, part), _place, INT64
        )
        ranks = CountingIterator(INT64.type(0))
        parts = ZipIterator(PermutationIterator(counts, places), ranks, constant(self._group.rank))
        return TransformIterator(parts, _counted, _THREE)

    def clear(self, work: Work) -> None:
        """Set the sizes of this rank to zero."""
        work.copy(constant(0), self.own, self._number)

    def write(self, work: Work, items: Any, stream: Any) -> None:
        """Write the numbers of this rank, then of those before it, then of all: a row of parts each."""
        self._group.gather(raw(self.own), raw(self._all), stream)
        for part in range(self._number):
            places = range(part, 3 * self._number, self._number)
            three = ZipIterator(*[items[place : place + 1] for place in places])
            work.run(self._reduce, self._read(self._all, part), three, self._group.size, _ZERO)
