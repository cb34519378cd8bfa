"""Exact splitters of sorted shards: where each is cut so that all parts of a rank belong to one range.

An item goes before another if its key does, or, of equal keys, if its rank is lower, or, on one rank, its
place. So no items are equal, and each range has exactly as many as were asked for. Rounds of samples narrow
the windows of each shard in which a cut may be; every rank sorts those of a round, with the same result.

The idea is that of P. Sanders' and others' multiway selection: "Efficient Massively Parallel Quicksort and
Selection", and P. Varman et al., "Merging Multiple Lists on Hierarchical-Memory Multiprocessors", JPDC 1991.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .comm import on_all

Array = np.ndarray[Any, Any]

# Sorts items that ranks have at some places each, and returns these in order: ranks, and places.
Sampler = Callable[[list[Array]], tuple[Array, Array]]


def cuts(sizes: Sequence[int], targets: Sequence[int], sampler: Sampler) -> Array:
    """Return the cuts of each shard that make ranges end at given numbers of items.

    Parameters
    ----------
    sizes : sequence of int
        Those of the shards.
    targets : sequence of int
        How many items all ranges up to one have, for each but the last.
    sampler : callable

    Returns
    -------
    numpy.ndarray of int64, shape (ranges + 1, ranks)
        Range r is items ``[r, s]`` to ``[r + 1, s] - 1`` of each shard s.

    Raises
    ------
    ValueError
        If the samples are in no order, as a comparison that is no strict weak order has it.
    """
    number, ends = len(sizes), np.asarray(targets, np.int64)
    low = np.zeros((len(ends), number), np.int64)
    high = np.tile(np.asarray(sizes, np.int64), (len(ends), 1))
    while True:
        done_low, done_high = low.sum(1) == ends, high.sum(1) == ends
        low[done_high & ~done_low] = high[done_high & ~done_low]
        high[done_low] = low[done_low]
        open_ = np.flatnonzero((low != high).any(1))
        if not len(open_):
            break
        width = (high - low).sum()
        windows = np.hstack([low[open_], high[open_]])
        if len(open_) > 1:
            windows = np.unique(windows, axis=0)
        samples = int(np.clip(2**15 // (len(windows) * number), 8, 2**11))
        begins, stops = windows[:, :number], windows[:, number:]
        ranks, places = sampler([_places(begins[:, r], stops[:, r], samples) for r in range(number)])
        for begin, stop in zip(begins, stops, strict=True):
            mine = open_[(low[open_] == begin).all(1) & (high[open_] == stop).all(1)]
            low[mine], high[mine] = _narrowed(begin, stop, ends[mine], ranks, places)
        if (high - low).sum() >= width or (high < low).any():
            raise on_all(ValueError(NO_ORDER))
    found = np.vstack([np.zeros((1, number), np.int64), low, np.asarray(sizes, np.int64)[None]])
    if (np.diff(found, axis=0) < 0).any() or (low.sum(1) != ends).any():
        raise on_all(ValueError(NO_ORDER))
    return found


NO_ORDER = "op: expected a strict weak order, by which each shard can be sorted"


def _places(low: Array, high: Array, samples: int) -> Array:
    """Return places spread over the windows of one shard, in order."""
    steps = np.arange(samples)
    found = low[:, None] + (high - low)[:, None] * steps // samples
    found = np.sort(found[high > low], axis=None)
    unique: Array = found[np.diff(found, prepend=-1) != 0]
    return unique


def _narrowed(low: Array, high: Array, ends: Array, ranks: Array, places: Array) -> tuple[Array, Array]:
    """Return narrower windows in which some ranges end, given one window of them all and samples in order."""
    inside = (places >= low[ranks]) & (places < high[ranks])
    ranks, places = ranks[inside], places[inside]
    number = len(ranks)
    lows, highs = np.tile(low, (len(ends), 1)), np.tile(high, (len(ends), 1))
    if not number:
        return lows, highs
    # Of each sample, the one before it on its rank, and the one after it.
    by_rank = np.argsort(ranks.astype(np.uint16), kind="stable")
    is_first = np.diff(ranks[by_rank], prepend=-1) != 0
    is_last = np.append(is_first[1:], True)
    before, behind = np.empty((2, number), np.int64)
    before[by_rank] = np.where(is_first, low[ranks[by_rank]], np.roll(places[by_rank], 1) + 1)
    behind[by_rank] = np.where(is_last, high[ranks[by_rank]], np.roll(places[by_rank], -1))
    # How many items go before a sample, at least and at most.
    least = low.sum() + np.cumsum(places + 1 - before) - 1
    most = high.sum() - np.cumsum((behind - places)[::-1])[::-1]
    under = np.searchsorted(np.maximum.accumulate(most), ends, "right") - 1
    over = np.searchsorted(np.maximum.accumulate(least), ends, "left")
    for j in range(len(ends)):
        if under[j] >= 0:
            i = under[j]
            lows[j][ranks[:i]] = places[:i] + 1  # of several on a rank, the last one stays
            lows[j][ranks[i]] = places[i]
        if over[j] < number:
            i = over[j]
            highs[j][ranks[:i:-1]] = places[:i:-1]
            highs[j][ranks[i]] = places[i]
    return lows, highs
