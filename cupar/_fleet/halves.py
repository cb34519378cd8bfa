"""The cuts of two sorted shards, found on the devices: the host waits once.

Of the n items that rank 0 keeps, i come from its own shard and n - i from the other: i is how many of its
items go before the one of the other shard that is as far from the end of these n. So candidates for i are
compared in pairs, of which each rank sends its own; as many as are right tell where the next ones are.

The idea is that of merge paths: O. Green, R. McColl and D. Bader, "GPU Merge Path", ICS 2012.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._functions import operators
from .._functions.axes import INT64, constant
from .._functions.calls import Work
from ..iterators import (
    ConstantIterator,
    CountingIterator,
    PermutationIterator,
    TransformIterator,
    ZipIterator,
)
from ..operators import Op, OpKind
from ..reduce import reduce_into
from ..transform import unary_transform
from .comm import on_all, raw, viewed
from .group import Group
from .splitters import NO_ORDER

_SAMPLES = 2**14  # of each rank in a round
_WINDOW = np.dtype([("low", INT64), ("high", INT64)], align=True)
_NOTHING = np.array([(0, np.iinfo(np.int64).max)], _WINDOW)


def _place(s: Any) -> Any:
    """Return the index of the item that a rank sends."""
    window, number, rank, end, last = s
    found = window[0] + (window[1] - window[0]) * number // _SAMPLES
    if rank == 1:
        found = end - 1 - found
    return min(max(found, 0), last)


@operators.remembered
def _compared(less: Op) -> Any:
    function = operators.within(less)

    def compared(s: Any) -> Any:
        """Return the window that one pair leaves: equal items of rank 0 come first."""
        window, number, own, other = s
        found = window[0] + (window[1] - window[0]) * number // _SAMPLES
        if window[0] >= window[1]:
            return (window[0], window[1])
        if function(other, own):
            return (window[0], found)
        return (found + 1, window[1])

    return compared


def _narrower(a: Any, b: Any) -> Any:
    return (max(a[0], b[0]), min(a[1], b[1]))


class Halves:
    """The search of two ranks for the cuts of their sorted shards, for a dtype of keys and a comparison."""

    def __init__(self, work: Work, group: Group, key: np.dtype[Any], less: Op) -> None:
        self._group, self._less = group, less
        self._windows = [work.empty((2,), INT64) for _ in range(2)]
        self._own, self._records = work.temporary(_SAMPLES, key), work.temporary(2 * _SAMPLES, key)
        self._begin = unary_transform(ZipIterator(constant(0), constant(0)), _WINDOW, OpKind.IDENTITY)
        self._sample = unary_transform(self._sampled(_WINDOW, key, 0, 0), key, OpKind.IDENTITY)
        self._narrow = reduce_into(self._narrowed(_WINDOW, key, key), _WINDOW, _narrower, _NOTHING)

    def _sampled(self, window: Any, keys: Any, end: int, last: int) -> Any:
        number = CountingIterator(INT64.type(0))
        given = ZipIterator(_one(window), number, constant(self._group.rank), constant(end), constant(last))
        return PermutationIterator(keys, TransformIterator(given, _place, INT64))

    def _narrowed(self, window: Any, own: Any, other: Any) -> Any:
        given = ZipIterator(_one(window), CountingIterator(INT64.type(0)), own, other)
        return TransformIterator(given, _compared(self._less), _WINDOW)

    def cuts(self, work: Work, keys: Any, sizes: list[int]) -> np.ndarray[Any, Any]:
        """Return the cuts of all sorted shards, as `splitters.cuts` does.

        Raises
        ------
        ValueError
            If the comparison is no strict weak order.
        """
        first, second = sizes
        low, high = max(first - second, 0), first
        if low < high:
            low, high = self._searched(work, keys, sizes, low, high)
        if low != high:
            raise on_all(ValueError(NO_ORDER))
        return np.array([[0, 0], [low, first - low], sizes])

    def _searched(self, work: Work, keys: Any, sizes: list[int], low: int, high: int) -> tuple[int, int]:
        now, then = self._windows
        width, stream = high - low, work.stream
        own, other = self._records[:_SAMPLES], self._records[_SAMPLES:]
        work.run(self._begin, ZipIterator(constant(low), constant(high)), _window(now), 1)
        while width > 0:
            sampled = self._sampled(_window(now), keys, sizes[0], sizes[self._group.rank] - 1)
            work.run(self._sample, sampled, self._own, _SAMPLES)
            self._group.gather(raw(self._own), raw(self._records), stream)
            given = self._narrowed(_window(now), own, other)
            work.run(self._narrow, given, _window(then), _SAMPLES, _NOTHING)
            now, then = then, now
            width = -(-width // _SAMPLES) if width > _SAMPLES else 0
        found = work.host(now)
        return int(found[0]), int(found[1])


def _one(window: Any) -> Any:
    return PermutationIterator(window, ConstantIterator(INT64.type(0)))


def _window(ends: Any) -> Any:
    return viewed(ends.items, _WINDOW)
