"""Stable sorts of arrays in shards: sorted locally, cut by exact splitters, exchanged once, and merged.

Each shard keeps its size, so that work and memory are balanced whatever the keys are. It takes two further
shards of memory, beside the input and the output, and all ranks must have it before anything is sent.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from .. import structs
from .._functions.axes import INT64
from .._functions.calls import Work
from .._ir.iterator import over
from .._ir.specialisation import Specialisation
from .._launch.arguments import two_phases
from ..iterators import CountingIterator, PermutationIterator
from ..merges import merge
from ..operators import Op, OpKind
from ..sort import SortOrder
from ..sort import merge_sort as local_merge_sort
from ..sort import radix_sort as local_radix_sort
from . import splitters
from .comm import raw, viewed
from .sharded import Sharded, items_of, made

_ALIGNMENT = 16  # bytes: pieces that begin so are exchanged quicker


class _Sort(Sharded):
    """What both sorts have in common: all but the local one."""

    _name: str

    def _build(self, work: Work, arrays: tuple[Any, ...], key: np.dtype[Any], less: Op) -> None:
        """Build all that follows the local sort; keys are compared as `key`, which may be their bits."""
        keys, items = arrays[0], arrays[1]
        self._dtypes = [over("d_in_keys", keys).dtype]
        self._key, self._less = key, less
        if items is not None:
            self._dtypes.append(over("d_in_items", items).dtype)
        item = self._dtypes[1] if items is not None else None
        self._merge = merge(key, item, key, item, key, item, less)
        gathered = PermutationIterator(key, INT64)
        self._sample = local_merge_sort(gathered, CountingIterator(INT64.type(0)), key, INT64, less)
        for each in (key, item):
            if each is not None:
                work.copy(work.temporary(1, each), work.temporary(1, each), 1)
        one = work.temporary(1, key)
        work.copy(PermutationIterator(one, work.put(np.zeros(1, np.int64))), work.temporary(1, key), 1)

    def _sorted(self, work: Work, *arguments: Any) -> None:
        """Sort the shard by itself."""
        raise NotImplementedError

    def _call(self, work: Work, keys: Any, out_keys: Any, items: Any, out_items: Any, num_items: int) -> None:
        group = self.group
        sizes = group.sizes(num_items)
        if num_items:
            self._sorted(work, keys, out_keys, items, out_items, num_items)
        if group.size == 1 or not sum(sizes):
            return
        outputs = [items_of(work, "d_out_keys", out_keys)[:num_items]]
        if out_items is not None:
            outputs.append(items_of(work, "d_out_items", out_items)[:num_items])
        outputs[0] = viewed(outputs[0], self._key)

        def sampler(places: list[Any]) -> tuple[Any, Any]:
            return self._samples(work, outputs[0], places)

        cuts = splitters.cuts(sizes, sampler)
        buffers: list[Any] = []
        error: Exception | None = None
        try:
            for each in outputs:
                room = num_items + group.size * _step(each.dtype)
                buffers.append([work.temporary(room, each.dtype) for _ in range(2)])
        except (MemoryError, RuntimeError) as failure:
            error = failure
        group.compare(self._name, {}, error)
        pieces = [
            self._exchanged(work, each, pair[0], pair[1], cuts)
            for each, pair in zip(outputs, buffers, strict=True)
        ]
        self._merged(work, buffers, pieces, outputs)

    def _samples(self, work: Work, keys: Any, places: list[Any]) -> tuple[Any, Any]:
        """Return the keys of all ranks at some places of each in order, as ranks and places."""
        group, most = self.group, max(map(len, places))
        own, mine = work.temporary(most, self._key), places[self.group.rank]
        records = work.temporary(most * group.size, self._key)
        work.copy(PermutationIterator(keys, work.put(mine)), own, len(mine))
        group.gather(raw(own), raw(records), self._stream(work))
        known = np.concatenate([r * most + np.arange(len(each)) for r, each in enumerate(places)])
        given = PermutationIterator(records, work.put(known))
        found, order = work.temporary(len(known), self._key), work.empty((len(known),), INT64)
        first = CountingIterator(INT64.type(0))
        work.run(self._sample, given, first, found, order.items, len(known))
        ids = work.host(order)
        ranks = np.repeat(np.arange(group.size), [*map(len, places)])
        return ranks[ids], np.concatenate(places)[ids]

    def _exchanged(self, work: Work, given: Any, spare: Any, target: Any, cuts: Any) -> list[tuple[int, int]]:
        """Send the parts of a shard to their ranks; return begins and sizes of those that have come."""
        rank, size = self.group.rank, self.group.size
        step, empty = _step(given.dtype), raw(given[:0])
        pieces, begin = [], 0
        for r in range(size):
            number = int(cuts[rank + 1, r] - cuts[rank, r])
            pieces.append((begin, number))
            begin += -(-number // step) * step
        send, place = [empty] * size, 0
        for r in range(size):
            first, last = int(cuts[r, rank]), int(cuts[r + 1, rank])
            number = last - first
            if r == rank:
                own = pieces[rank][0]
                work.copy(given[first:last], target[own : own + number], number)
            elif number:
                part = spare[place : place + number]
                work.copy(given[first:last], part, number)
                send[r] = raw(part)
                place += -(-number // step) * step
        recv = [
            raw(target[begin : begin + number]) if r != rank else empty
            for r, (begin, number) in enumerate(pieces)
        ]
        self.group.exchange(send, recv, self._stream(work))
        return pieces

    def _merged(self, work: Work, buffers: Any, pieces: Any, outputs: Any) -> None:
        """Merge neighbouring pieces, of which earlier ones come from lower ranks, until there is one.

        Of keys and of items, there is a pair of buffers, of which the second has the pieces.
        """
        while len(pieces[0]) > 1:
            is_last = len(pieces[0]) == 2
            halves, targets, pieces = zip(
                *[
                    _paired(target, source, each, output if is_last else None)
                    for (target, source), each, output in zip(buffers, pieces, outputs, strict=True)
                ],
                strict=True,
            )
            for i, target in enumerate(targets[0]):
                (first, second), items = halves[0][i], halves[1][i] if len(halves) > 1 else (None, None)
                beside = targets[1][i] if len(targets) > 1 else None
                one, other = (first, items[0], len(first)), (second, items[1], len(second))
                work.run(self._merge, *one, *other, target, beside)
            buffers = [pair[::-1] for pair in buffers]


def _paired(target: Any, source: Any, pieces: Any, output: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Return neighbouring pieces in twos, the places where they are merged to, and where these begin."""
    step, begin = _step(source.dtype), 0
    halves, targets, merged = [], [], []
    for i in range(0, len(pieces), 2):
        two = [*pieces[i : i + 2], (0, 0)][:2]
        halves.append([source[first : first + number] for first, number in two])
        total = two[0][1] + two[1][1]
        targets.append(target[begin : begin + total] if output is None else output)
        merged.append((begin, total))
        begin += -(-total // step) * step
    return halves, targets, merged


def _step(dtype: np.dtype[Any]) -> int:
    """Return how many items there are from one aligned place to the next."""
    return _ALIGNMENT // math.gcd(_ALIGNMENT, dtype.itemsize)


class RadixSort(_Sort):
    """A stable sort of numbers in shards by their bits; see `radix_sort`."""

    _name = "radix_sort"

    def run(
        self,
        d_in_keys: Any,
        d_out_keys: Any,
        d_in_values: Any = None,
        d_out_values: Any = None,
        num_items: int = 0,
        stream: Any = None,
    ) -> None:
        """Sort `num_items` keys of each shard, with their values if it has any.

        `stream` as in `cupar.Algorithm`.
        """
        self._run(stream, (d_in_keys, d_out_keys, d_in_values, d_out_values, num_items))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    def _sorted(self, work: Work, *arguments: Any) -> None:
        work.run(self._local, *arguments)


class MergeSort(_Sort):
    """A stable sort of an array in shards by a comparison; see `merge_sort`."""

    _name = "merge_sort"

    def run(
        self,
        d_in_keys: Any,
        d_in_items: Any,
        d_out_keys: Any,
        d_out_items: Any,
        num_items: int,
        stream: Any = None,
    ) -> None:
        """Sort `num_items` keys of each shard, with their items if it has any.

        `stream` as in `cupar.Algorithm`.
        """
        self._run(stream, (d_in_keys, d_out_keys, d_in_items, d_out_items, num_items))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    def _sorted(self, work: Work, *arguments: Any) -> None:
        keys, out_keys, items, out_items, num_items = arguments
        work.run(self._local, keys, items, out_keys, out_items, num_items)


@lru_cache
def _by_bits(size: int, is_descending: bool) -> Any:
    """Return the order of floats of some bytes as `radix_sort` has it, given their bits as integers."""
    magnitude = 2 ** (8 * size - 1) - 1

    def place(bits: Any) -> Any:
        return bits if bits >= 0 else (bits ^ magnitude) + 1

    if is_descending:
        return lambda a, b: place(b) < place(a)
    return lambda a, b: place(a) < place(b)


def radix_sort(
    d_in_keys: Any,
    d_out_keys: Any,
    d_in_values: Any = None,
    d_out_values: Any = None,
    order: Any = SortOrder.ASCENDING,
    *,
    group: Any = None,
) -> RadixSort:
    """Build a stable sort of numbers in shards by their bits.

    Shards keep their sizes, so work and memory are balanced whatever the keys are: equal keys stay in the
    order of ranks, and of items on each.

    Parameters
    ----------
    d_in_keys : array, n items
        The keys of this rank's shard, which may be empty: bool, integers or floats. Only their dtype matters
        here.
    d_out_keys : array, n items
        Where the sorted keys of this rank's part of the whole go, of the same dtype.
    d_in_values, d_out_values : arrays or None, n items
        What goes with the keys, if anything, and where.
    order : SortOrder
        By default the smallest come first.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `group`.

    Returns
    -------
    RadixSort

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it takes, or ranks differ.
    GroupError
        If another rank raised an error, as it has too little memory, or did not answer.

    Notes
    -----
    A call takes memory for two further shards beside the input and the output, less if the local sort's own
    storage is larger.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import distributed
    >>> shard, result = np.array([3, 1, 2]), np.zeros(3, np.int64)
    >>> distributed.radix_sort(shard, result).run(shard, result, None, None, 3)
    >>> print(result)
    [1 2 3]
    """

    def build(found: RadixSort, work: Work, spec: Specialisation) -> None:
        key = over("d_in_keys", d_in_keys).dtype
        is_descending = order == SortOrder.DESCENDING
        less: Any = OpKind.GREATER if is_descending else OpKind.LESS
        if structs.kind_of(key) == "f":
            key, less = np.dtype(f"i{key.itemsize}"), _by_bits(key.itemsize, is_descending)
        found._local = local_radix_sort(d_in_keys, d_out_keys, d_in_values, d_out_values, order)
        found._build(work, (d_in_keys, d_in_values), key, less)

    given = {
        "d_in_keys": d_in_keys,
        "d_out_keys": d_out_keys,
        "d_in_values": d_in_values,
        "d_out_values": d_out_values,
    }
    return made(RadixSort, group, "radix_sort", given, (local_radix_sort, *given.values(), order), build)


def merge_sort(
    d_in_keys: Any, d_in_items: Any, d_out_keys: Any, d_out_items: Any, op: Op, *, group: Any = None
) -> MergeSort:
    """Build a stable sort of an array in shards by a comparison.

    Shards keep their sizes, so work and memory are balanced whatever the keys are: equal keys stay in the
    order of ranks, and of items on each.

    Parameters
    ----------
    d_in_keys : array or iterator, n items
        The keys of this rank's shard, which may be empty. Only their dtype matters here.
    d_in_items : array, iterator or None, n items
        What goes with them, if anything.
    d_out_keys, d_out_items : arrays, n items
        Where the sorted keys of this rank's part of the whole go, and their items; None if there are none.
    op : callable or OpKind
        Whether its first key goes before its second: a strict weak order.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `group`.

    Returns
    -------
    MergeSort

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it takes, or ranks differ.
    GroupError
        If another rank raised an error, as it has too little memory, or did not answer.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import distributed
    >>> shard, result = np.array([-3, 1, 2]), np.zeros(3, np.int64)
    >>> nearer = distributed.merge_sort(shard, None, result, None, lambda a, b: abs(a) < abs(b))
    >>> nearer.run(shard, None, result, None, 3)
    >>> print(result)
    [ 1  2 -3]
    """

    def build(found: MergeSort, work: Work, spec: Specialisation) -> None:
        found._local = local_merge_sort(d_in_keys, d_in_items, d_out_keys, d_out_items, op)
        found._build(work, (d_in_keys, d_in_items), over("d_in_keys", d_in_keys).dtype, op)

    given = {
        "d_in_keys": d_in_keys,
        "d_in_items": d_in_items,
        "d_out_keys": d_out_keys,
        "d_out_items": d_out_items,
    }
    return made(MergeSort, group, "merge_sort", given, (local_merge_sort, *given.values(), op), build)
