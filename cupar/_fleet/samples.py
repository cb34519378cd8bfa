"""The cuts of sorted shards, found by rounds of samples, which every rank sorts: see `splitters`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .._functions.axes import INT64
from .._functions.calls import Work
from ..iterators import CountingIterator, PermutationIterator
from ..operators import Op
from ..sort import merge_sort
from . import splitters
from .group import Group
from .shard_items import items_at


class Samples:
    """The search of ranks for the cuts of their sorted shards, for a dtype of keys and a comparison."""

    def __init__(self, work: Work, group: Group, key: np.dtype[Any], less: Op) -> None:
        self._group, self._key = group, key
        gathered = PermutationIterator(key, INT64)
        self._sort = merge_sort(gathered, CountingIterator(INT64.type(0)), key, INT64, less)
        one = work.temporary(1, key)
        work.copy(PermutationIterator(one, work.put(np.zeros(1, np.int64))), work.temporary(1, key), 1)

    def cuts(self, work: Work, keys: Any, sizes: list[int]) -> splitters.Array:
        """Return the cuts of all sorted shards, which keep their sizes."""
        return splitters.cuts(sizes, np.cumsum(sizes)[:-1].tolist(), partial(self._sampled, work, keys))

    def _sampled(
        self, work: Work, keys: Any, places: list[splitters.Array]
    ) -> tuple[splitters.Array, splitters.Array]:
        """Return the keys of all ranks at some places of each in order, as ranks and places."""
        given, size = items_at(work, self._group, keys, places), sum(map(len, places))
        found, order = work.temporary(size, self._key), work.empty((size,), INT64)
        work.run(self._sort, given, CountingIterator(INT64.type(0)), found, order.items, size)
        ids = work.host(order)
        ranks = np.repeat(np.arange(len(places)), [*map(len, places)])
        return ranks[ids], np.concatenate(places)[ids]
