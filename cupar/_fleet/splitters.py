"""Exact splitters of sorted shards: where each is cut so that all parts of a rank belong to one range.

An item goes before another if its key does, or, of equal keys, if its rank is lower, or, on one rank, its
place. So no items are equal, and each range has exactly as many as were asked for. Rounds of samples narrow
the windows of each shard in which a cut may be; every rank sorts those of a round, and comes to the same.

The idea is that of P. Sanders' and others' multiway selection: "Efficient Massively Parallel Quicksort and
Selection", and P. Varman et al., "Merging Multiple Lists on Hierarchical-Memory Multiprocessors", JPDC 1991.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .comm import on_all

_Array = np.ndarray[Any, Any]

# Sorts what the ranks have at some places each, and returns these in order: numbers of ranks, and places.
Sampler = Callable[[list[_Array]], tuple[_Array, _Array]]


def cuts(sizes: Sequence[int], sampler: Sampler) -> _Array:
    """Return where each shard is cut so that range r has as many items as shard r.

    Returns
    -------
    numpy.ndarray of int64, shape (ranks + 1, ranks)
        Range r is items ``[r, s]`` to ``[r + 1, s] - 1`` of each shard s.

    Raises
    ------
    ValueError
        If the samples are in no order, as a comparison that is no strict weak order has it.
    """
    number = len(sizes)
    targets = np.cumsum(sizes)[:-1]
    low = np.zeros((number - 1, number), np.int64)
    high = np.tile(np.asarray(sizes, np.int64), (number - 1, 1))
    samples = int(np.clip(2**15 // number**2, 8, 2**11))
    while True:
        done_low, done_high = low.sum(1) == targets, high.sum(1) == targets
        low[done_high & ~done_low] = high[done_high & ~done_low]
        high[done_low] = low[done_low]
        open_ = np.flatnonzero((low != high).any(1))
        if not len(open_):
            break
        width = (high - low).sum()
        ranks, places = sampler([_places(low[open_, r], high[open_, r], samples) for r in range(number)])
        for j in open_:
            _narrow(low[j], high[j], int(targets[j]), ranks, places)
        if (high - low).sum() >= width:
            raise on_all(ValueError(_NO_ORDER))
    found = np.vstack([np.zeros((1, number), np.int64), low, np.asarray(sizes, np.int64)[None]])
    if (np.diff(found, axis=0) < 0).any() or (low.sum(1) != targets).any():
        raise on_all(ValueError(_NO_ORDER))
    return found


_NO_ORDER = "op: expected a strict weak order, by which each shard can be sorted"


def _places(low: _Array, high: _Array, samples: int) -> _Array:
    """Return places spread over the windows of one shard, in order."""
    steps = np.arange(samples)
    found = low[:, None] + (high - low)[:, None] * steps // samples
    return np.unique(found[high > low])


def _narrow(low: _Array, high: _Array, target: int, ranks: _Array, places: _Array) -> None:
    """Narrow the windows in which a range ends, given samples in order."""
    inside = (places >= low[ranks]) & (places < high[ranks])
    ranks, places = ranks[inside], places[inside]
    number = np.arange(len(ranks))
    # How many items of each shard go before a sample, at least and at most.
    least = np.repeat(low[None], len(ranks) + 1, 0)
    least[number + 1, ranks] = places + 1
    least = np.maximum.accumulate(least)[:-1]
    most = np.repeat(high[None], len(ranks) + 1, 0)
    most[number, ranks] = places
    most = np.minimum.accumulate(most[::-1])[::-1][1:]
    least[number, ranks] = most[number, ranks] = places
    before, after = np.flatnonzero(most.sum(1) <= target), np.flatnonzero(least.sum(1) >= target)
    if len(before):
        low[:] = least[before[-1]]
    if len(after):
        high[:] = most[after[0]]
