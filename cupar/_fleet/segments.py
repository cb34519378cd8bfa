"""Reductions and scans of segments of arrays in shards; segments may cross shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .._arguments.order import two_phases
from .._functions import operators
from .._functions.axes import INT64, constant
from .._functions.calls import Work
from .._obtain.arguments import in_order
from ..iterators import (
    CountingIterator,
    PermutationIterator,
    TransformIterator,
    TransformOutputIterator,
    ZipIterator,
)
from ..operators import Op
from ..reduce import reduce_into
from ..scan import exclusive_scan, inclusive_scan
from ..segmented import segmented_reduce as local_reduce
from ..segmented_scan import exclusive_segmented_scan as local_exclusive
from ..segmented_scan import inclusive_segmented_scan as local_inclusive
from .carry import Carry, filled, value_in
from .comm import raw, viewed
from .engines import collective
from .shard_items import checksums, items_from
from .sharded import Sharded, made

if TYPE_CHECKING:
    from .._base.annotations import Array, Stream

_CROSSING = np.dtype([("begins", INT64), ("ends", INT64), ("goes_on", INT64)], align=True)
_NONE = np.full(1, -1, INT64).repeat(3).view(_CROSSING)


class _Segmented(Sharded):
    """An algorithm that works on each segment of an array in shards."""

    _takes_init = True
    _uses: ClassVar = {"d_in": "num_items"}
    _carry: Carry

    def run(
        self,
        d_in: Array,
        d_out: Array,
        num_items: int,
        num_segments: int,
        start_offsets_in: Array,
        end_offsets_in: Array,
        h_init: Any = None,
        stream: Stream = None,
    ) -> None:
        """Work on the segments; this rank has `num_items` items. `stream` as in `cupar.Algorithm`."""
        offsets = start_offsets_in, end_offsets_in
        self._run(stream, (d_in, d_out, num_items, num_segments, *offsets, h_init))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    def _sizes(self, work: Work, num_items: int, segments: int, offsets: Any, h_init: Any) -> Any:
        """Return the sizes of all shards, once ranks agree on the segments and the initial value."""
        start, end = offsets
        alike = checksums(work, segments, start_offsets_in=start, end_offsets_in=end)
        return self.group.sizes(num_items, num_segments=segments, **self._carry.alike(h_init), **alike)


# --- Reductions -------------------------------------------------------------------------------------------


def _clipped(s: Any) -> Any:
    offset, base, end = s
    return min(max(offset, base), end) - base


def _of_rank(s: Any) -> Any:
    i, ranks, segments = s
    return (i % ranks) * segments + i // ranks


class SegmentedReduce(_Segmented):
    """A reduction of segments of an array in shards; see `segmented_reduce`."""

    def _build(self, work: Work, *given: Any, commutative: Any) -> None:
        d_in, d_out, start, end, op, _ = given
        in_order(commutative)
        self._carry = carry = Carry(op, self._accumulator())
        start, end = (self._clip(each, 0, 0) for each in (start, end))
        init = carry.absent()
        self._local = local_reduce(
            self._items(d_in), carry.record, start, end, carry.combined, init, commutative=commutative
        )
        ranks, written = self._ranks(carry.record, 1), TransformOutputIterator(d_out, value_in, carry.record)
        self._fold = local_reduce(ranks, written, None, None, carry.combined, init, commutative=False)

    def _items(self, d_in: Any) -> Any:
        carry = self._carry
        return TransformIterator(carry.read(d_in), operators.there(carry.value), carry.record)

    def _clip(self, offsets: Any, base: int, end: int) -> Any:
        return TransformIterator(ZipIterator(offsets, constant(base), constant(end)), _clipped, INT64)

    def _ranks(self, records: Any, segments: int) -> Any:
        """Return the records of all ranks, those of one segment after another."""
        number = CountingIterator(INT64.type(0))
        places = ZipIterator(number, constant(self.group.size), constant(segments))
        return PermutationIterator(records, TransformIterator(places, _of_rank, INT64))

    def _call(self, work: Work, *given: Any) -> None:
        d_in, d_out, num_items, segments, *offsets, h_init = given
        carry, group = self._carry, self.group
        init = carry.begun(h_init, True)
        sizes = self._sizes(work, num_items, segments, offsets, h_init)
        if not segments:
            return
        base = sum(sizes[: group.rank])
        own = work.temporary(segments, carry.record)
        records = work.temporary(segments * group.size, carry.record)
        clipped = (self._clip(each, base, base + num_items) for each in offsets)
        work.run(self._local, self._items(d_in), own, segments, *clipped, carry.absent())
        group.gather(raw(own), raw(records), work.stream)
        written = TransformOutputIterator(d_out, value_in, carry.record)
        ranks = self._ranks(records, segments)
        work.run(self._fold, ranks, written, segments, None, None, init, segment_size=group.size)


@collective
def segmented_reduce(
    d_in: Array,
    d_out: Array,
    start_offsets_in: Array,
    end_offsets_in: Array,
    op: Op,
    h_init: Any,
    *,
    commutative: bool = True,
    group: Any = None,
) -> SegmentedReduce:
    """Build a reduction of segments of an array in shards, which may cross them.

    The results are on every rank. Offsets are those in the whole array, the same on all ranks. Segments may
    be empty, overlap and leave items out. Each rank sends a record for each segment: where there are very
    many, `reduce_by_key` sends less.

    Parameters
    ----------
    d_in : array or iterator, n items
        The shard of this rank, which may be empty. Only its dtype matters here.
    d_out : array or iterator, num_segments items
        Where the results go.
    start_offsets_in, end_offsets_in : arrays or iterators, num_segments items
        Segment i is items ``start_offsets_in[i]`` to ``end_offsets_in[i] - 1`` of the whole array.
    op : callable or OpKind
        Combines two values of the accumulator's dtype, as for `cupar.segmented_reduce`.
    h_init : number, struct or array of one element
        The initial value of each segment, which counts once. Its dtype is the accumulator's, as for
        `cupar.segmented_reduce`.
    commutative : bool, optional
        False: items are combined in their order, the initial value before them.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `group`.

    Returns
    -------
    SegmentedReduce

    Raises
    ------
    TypeError, ValueError
        If an argument has another type or value than described, or ranks differ.
    GroupError
        If another rank raised an error, or did not answer.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import distributed
    >>> shard, sums = np.arange(6), np.zeros(2, np.int64)
    >>> starts, ends = np.array([0, 2]), np.array([2, 6])
    >>> by_offsets = distributed.segmented_reduce(shard, sums, starts, ends, lambda a, b: a + b, 0)
    >>> by_offsets.run(shard, sums, 6, 2, starts, ends, 0)
    >>> print(sums)
    [ 1 14]
    """
    given = d_in, d_out, start_offsets_in, end_offsets_in, op, h_init
    return made(SegmentedReduce, group, local_reduce, *given, commutative=commutative)


# --- Scans ------------------------------------------------------------------------------------------------


def _crossing(s: Any) -> Any:
    """Return begin and end of a segment that enters the shard, and the begin of one that leaves it."""
    start, stop, base, end = s
    crosses = start < base and stop > base
    return (start if crosses else -1, stop if crosses else -1, start if start < end and stop > end else -1)


def _largest(a: Any, b: Any) -> Any:
    return (max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]))


def _begin(s: Any) -> Any:
    start, _, base, end = s
    return start - base if start >= base and start < end else 0


def _end(s: Any) -> Any:
    start, stop, base, end = s
    return min(stop, end) - base if start >= base and start < end else 0


class SegmentedScan(_Segmented):
    """A scan of segments of an array in shards; see `inclusive_segmented_scan`."""

    _uses: ClassVar = {"d_in": "num_items", "d_out": "num_items"}

    def _build(self, work: Work, d_in: Any, d_out: Any, start: Any, end: Any, op: Op, h_init: Any) -> None:
        self._carry = carry = Carry(op, self._accumulator())
        self._has_init, offsets = h_init is not None, (start, end)
        self._own, self._none, self._prefix = (filled(work, carry) for _ in range(3))
        self._records = work.temporary(self.group.size, carry.record)
        self._total = carry.total(d_in)
        self._find = reduce_into(self._segments(offsets, 0, 0), _CROSSING, _largest, _NONE)
        self._local = self._factory(d_in, d_out, *self._whole(offsets, 0, 0), op, h_init)
        scan = inclusive_scan if self._factory is local_inclusive else exclusive_scan
        self._scan = scan(d_in, d_out, op, carry.value_of(self._prefix))

    def _segments(self, offsets: Any, base: int, end: int) -> Any:
        given = ZipIterator(*offsets, constant(base), constant(end))
        return TransformIterator(given, _crossing, _CROSSING)

    def _whole(self, offsets: Any, base: int, end: int) -> Any:
        """Return the offsets of those segments that begin in the shard; the others are empty."""
        given = ZipIterator(*offsets, constant(base), constant(end))
        return TransformIterator(given, _begin, INT64), TransformIterator(given, _end, INT64)

    def _call(self, work: Work, *given: Any) -> None:
        d_in, d_out, num_items, segments, *offsets, h_init = given
        carry, group = self._carry, self.group
        first_value = carry.begun(h_init, self._has_init)
        sizes = self._sizes(work, num_items, segments, offsets, h_init)
        base = sum(sizes[: group.rank])
        last = base + num_items
        crossing = work.empty((3,), INT64)
        found = viewed(crossing.items, _CROSSING)
        work.run(self._find, self._segments(offsets, base, last), found, segments, _NONE)
        begins, ends, goes_on = map(int, work.host(crossing))
        all_ranks = group.told((begins, goes_on))
        record = self._none
        if num_items and goes_on >= 0:
            record, place = self._own, max(goes_on - base, 0)
            part = carry.read(items_from(work, "d_in", d_in, place))
            work.run(self._total, part, carry.written(record), num_items - place)
        group.gather(raw(record), raw(self._records), work.stream)
        if not num_items:
            return
        init = () if h_init is None else (h_init,)
        work.run(self._local, d_in, d_out, segments, *self._whole(offsets, base, last), *init)
        if begins >= 0:
            first = _first_rank(all_ranks, sizes, group.rank, begins)
            number = group.rank - first
            carry.fold(work, self._records[first:], number, self._prefix, first_value)
            length = min(ends, last) - base
            work.run(self._scan, d_in, d_out, length, carry.value_of(self._prefix))


def _first_rank(ranks: list[Any], sizes: list[int], rank: int, begins: int) -> int:
    """Return the rank on which the segment begins that comes over the border of a shard."""
    for before in range(rank - 1, -1, -1):
        if sizes[before] and ranks[before][0] != begins:
            return before
    return 0


@collective
def inclusive_segmented_scan(
    d_in: Array,
    d_out: Array,
    start_offsets_in: Array,
    end_offsets_in: Array,
    op: Op,
    h_init: Any = None,
    *,
    group: Any = None,
) -> SegmentedScan:
    """Build an inclusive scan of segments of an array in shards, which may cross them.

    Item i of a segment combines `h_init` and its items 0 to i. Offsets are those in the whole array, the same
    on all ranks. Segments may be empty, be in any order and leave items out, which are not written; they may
    not overlap.

    Parameters
    ----------
    d_in : array or iterator, n items
        The shard of this rank, which may be empty. Only its dtype matters here.
    d_out : array or iterator, n items
        Where the results of the same items go; it may be `d_in` itself.
    start_offsets_in, end_offsets_in : arrays or iterators, num_segments items
        Segment i is items ``start_offsets_in[i]`` to ``end_offsets_in[i] - 1`` of the whole array.
    op : callable or OpKind
        Combines two values, as for `cupar.inclusive_segmented_scan`: it need not be commutative.
    h_init : number, struct, array of one element or None
        The initial value of each segment, which counts once. Its dtype is the accumulator's, as for
        `cupar.segmented_reduce`.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `group`.

    Returns
    -------
    SegmentedScan

    Raises
    ------
    TypeError, ValueError
        If an argument has another type or value than described, or ranks differ.
    GroupError
        If another rank raised an error, or did not answer.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import distributed
    >>> shard, highest = np.array([3, 1, 4, 1]), np.zeros(4, np.int64)
    >>> starts, ends = np.array([0, 2]), np.array([2, 4])
    >>> running = distributed.inclusive_segmented_scan(shard, highest, starts, ends, max)
    >>> running.run(shard, highest, 4, 2, starts, ends)
    >>> print(highest)
    [3 3 4 4]
    """
    offsets = start_offsets_in, end_offsets_in
    return made(SegmentedScan, group, local_inclusive, d_in, d_out, *offsets, op, h_init)


@collective
def exclusive_segmented_scan(
    d_in: Array,
    d_out: Array,
    start_offsets_in: Array,
    end_offsets_in: Array,
    op: Op,
    h_init: Any,
    *,
    group: Any = None,
) -> SegmentedScan:
    """Build an exclusive scan of segments of an array in shards, which may cross them.

    Item i of a segment combines `h_init` and its items 0 to i - 1.

    Parameters
    ----------
    d_in, d_out, start_offsets_in, end_offsets_in, op, group
        As for `inclusive_segmented_scan`.
    h_init : number, struct or array of one element
        The initial value of each segment, which counts once. Its dtype is the accumulator's, as for
        `cupar.segmented_reduce`.

    Returns
    -------
    SegmentedScan

    Raises
    ------
    TypeError, ValueError
        If an argument has another type or value than described, or ranks differ.
    GroupError
        If another rank raised an error, or did not answer.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import distributed
    >>> lengths, places = np.array([3, 1, 2, 5]), np.zeros(4, np.int64)
    >>> starts, ends = np.array([0, 2]), np.array([2, 4])
    >>> arrays = lengths, places, starts, ends
    >>> scan = distributed.exclusive_segmented_scan(*arrays, lambda a, b: a + b, 0)
    >>> scan.run(lengths, places, 4, 2, starts, ends, 0)
    >>> print(places)
    [0 3 0 2]
    """
    offsets = start_offsets_in, end_offsets_in
    return made(SegmentedScan, group, local_exclusive, d_in, d_out, *offsets, op, h_init)
