"""Stable sorts of arrays in shards: sorted locally, cut by exact splitters, exchanged once, and merged.

Each shard keeps its size, so that work and memory are balanced whatever the keys are. It takes two further
shards of memory, beside the input and the output, and all ranks must have it before anything is sent.
"""

from __future__ import annotations

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
        dtypes = [each.dtype for each in outputs]
        room = sum(num_items * each.itemsize + group.size * _ALIGNMENT for each in dtypes)
        arenas: list[Any] = []
        error: Exception | None = None
        try:
            arenas = [work.temporary(room, np.dtype(np.uint8)) for _ in range(2)]
        except (MemoryError, RuntimeError) as failure:
            error = failure
        group.compare(self._name, {}, error)
        numbers = self._exchanged(work, outputs, arenas, cuts)
        self._merged(work, arenas, numbers, outputs)

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

    def _exchanged(self, work: Work, given: list[Any], arenas: list[Any], cuts: Any) -> list[int]:
        """Send the parts of a shard to their ranks, keys and items together; return sizes of what has come.

        Of two arenas, the first gets the pieces, in rank order; the second is used for what is sent.
        """
        rank, size, stream = self.group.rank, self.group.size, self._stream(work)
        dtypes = [each.dtype for each in given]
        numbers = [int(cuts[rank + 1, r] - cuts[rank, r]) for r in range(size)]
        places = [(int(cuts[r, rank]), int(cuts[r + 1, rank])) for r in range(size)]
        come = _laid_out(arenas[0], numbers, dtypes)
        go = _laid_out(arenas[1], [0 if r == rank else e - b for r, (b, e) in enumerate(places)], dtypes)
        for r, (first, last) in enumerate(places):
            for each, part in zip(given, come[r][1] if r == rank else go[r][1], strict=True):
                if last > first:
                    work.copy(each[first:last], part, last - first)
        recv = [arenas[0][:0] if r == rank else message for r, (message, _) in enumerate(come)]
        self.group.exchange([message for message, _ in go], recv, stream)
        return numbers

    def _merged(self, work: Work, arenas: list[Any], numbers: list[int], outputs: list[Any]) -> None:
        """Merge neighbouring pieces, of which earlier ones come from lower ranks, until there is one.

        Of two arenas, the first has the pieces.
        """
        dtypes, (source, target) = [each.dtype for each in outputs], arenas
        while len(numbers) > 1:
            pieces = [parts for _, parts in _laid_out(source, numbers, dtypes)]
            if len(pieces) % 2:
                pieces.append([each[:0] for each in pieces[0]])
            numbers = [sum(numbers[i : i + 2]) for i in range(0, len(numbers), 2)]
            found = [outputs]
            if len(numbers) > 1:
                found = [parts for _, parts in _laid_out(target, numbers, dtypes)]
            for first, second, out in zip(pieces[::2], pieces[1::2], found, strict=True):
                given = [
                    value
                    for keys, *items in (first, second)
                    for value in (keys, *(items or [None]), len(keys))
                ]
                work.run(self._merge, *given, *out, *[None] * (2 - len(out)))
            source, target = target, source


def _laid_out(arena: Any, numbers: list[int], dtypes: list[np.dtype[Any]]) -> list[tuple[Any, list[Any]]]:
    """Return, of each of some pieces, its bytes in an arena and its columns, each of which begins aligned."""
    found, begin = [], 0
    for number in numbers:
        first, columns = begin, []
        for dtype in dtypes:
            columns.append(viewed(arena[begin : begin + number * dtype.itemsize], dtype))
            begin += -(-number * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
        found.append((arena[first:begin], columns))
    return found


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
