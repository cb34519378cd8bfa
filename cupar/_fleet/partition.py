"""Selections and partitions of arrays in shards: items stay on their rank, which learns where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import partition as local
from .._arguments.order import two_phases
from .._functions.axes import INT64, constant
from .._functions.calls import Work
from ..iterators import TransformIterator, ZipIterator
from ..operators import Op, OpKind
from ..transform import unary_transform
from .counts import Counts, check_counts
from .engines import collective
from .sharded import Sharded, made, run_of

if TYPE_CHECKING:
    from .._base.annotations import Array, Stream


class _Kept(Sharded):
    """The common part of both: the number of items in each part is counted, and that of all ranks."""

    _allocates = False
    _parts: int

    def _build(self, work: Work, *given: Any) -> None:
        arrays, operators = given[: self._parts + 1], given[self._parts + 2 :]
        check_counts("d_num_selected_out", given[self._parts + 1], self._parts)
        self._counts = Counts(work, self.group, self._parts)
        self._local = self._factory(*arrays, INT64, *operators)

    def _call(self, work: Work, *given: Any) -> None:
        *arrays, d_num, num_items = given
        work.run(self._local, *arrays, self._counts.own, num_items)
        self._count_rest(work, num_items)
        self._counts.write(work, d_num)

    def _count_rest(self, work: Work, num_items: int) -> None:
        """Count a part that the algorithm does not count."""


class Select(_Kept):
    """A selection of the items of an array in shards for which a predicate holds; see `select`."""

    _parts = 1

    def run(
        self, d_in: Array, d_out: Array, d_num_selected_out: Array, num_items: int, stream: Stream = None
    ) -> None:
        """Select from the first `num_items` items of each shard; `stream` as in `cupar.Algorithm`."""
        self._run(stream, (d_in, d_out, d_num_selected_out, num_items))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""


class ThreeWayPartition(_Kept):
    """A partition of an array in shards into three; see `three_way_partition`."""

    _parts = 3

    @run_of(local.ThreeWayPartition.run)
    def run(self) -> None:
        """Partition the first `num_items` items of each shard; `stream` as in `cupar.Algorithm`."""

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    def _build(self, work: Work, *given: Any) -> None:
        super()._build(work, *given)
        unary_transform(_unselected(INT64, INT64, 0), INT64, OpKind.IDENTITY)

    def _count_rest(self, work: Work, num_items: int) -> None:
        own = self._counts.own
        work.copy(_unselected(own, own[1:], num_items), own[2:], 1)


def _unselected(first: Any, second: Any, num_items: int) -> Any:
    return TransformIterator(ZipIterator(constant(num_items), first, second), _left, INT64)


def _left(s: Any) -> Any:
    return s[0] - s[1] - s[2]


@collective
def select(d_in: Array, d_out: Array, d_num_selected_out: Array, cond: Op, *, group: Any = None) -> Select:
    """Build a selection from an array in shards by a predicate: selected items stay on their rank.

    Parameters
    ----------
    d_in : array or iterator, n items
        The shard of this rank, which may be empty. Only its dtype matters here.
    d_out : array or iterator, as many items as are selected from this shard
        Where they go, in order.
    d_num_selected_out : array, 3 items of int64
        Where it goes how many items of this shard are selected, how many of those before it, and of all.
    cond : callable, OpKind or RawOp
        A predicate of one item.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `group`.

    Returns
    -------
    Select

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
    >>> shard, kept, counts = np.array([3, -1, 2]), np.zeros(3, np.int64), np.zeros(3, np.int64)
    >>> positive = distributed.select(shard, kept, counts, lambda a: a > 0)
    >>> positive.run(shard, kept, counts, 3)
    >>> print(kept[: counts[0]], counts)
    [3 2] [2 0 2]
    """
    return made(Select, group, local.select, d_in, d_out, d_num_selected_out, cond)


@collective
def three_way_partition(
    d_in: Array,
    d_first_part_out: Array,
    d_second_part_out: Array,
    d_unselected_out: Array,
    d_num_selected_out: Array,
    select_first_part_op: Op,
    select_second_part_op: Op,
    *,
    group: Any = None,
) -> ThreeWayPartition:
    """Build a partition of an array in shards into three; items stay on their rank.

    Parameters
    ----------
    d_in : array or iterator, n items
        The shard of this rank, which may be empty. Only its dtype matters here.
    d_first_part_out, d_second_part_out, d_unselected_out : arrays or iterators
        Where the items go, in order, as of `cupar.three_way_partition`.
    d_num_selected_out : array, 9 items of int64
        Where it goes how many items of this shard are in each of the three parts, how many of those before
        it, and of all.
    select_first_part_op, select_second_part_op : callable, OpKind or RawOp
        Predicates of one item.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `group`.

    Returns
    -------
    ThreeWayPartition

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
    >>> shard, counts = np.array([5, -1, 500, 7, -2]), np.zeros((3, 3), np.int64)
    >>> first, second, rest = np.zeros((3, 5), np.int64)
    >>> arrays = shard, first, second, rest, counts
    >>> parts = distributed.three_way_partition(*arrays, lambda a: a < 0, lambda a: a > 100)
    >>> parts.run(*arrays, 5)
    >>> print(counts[0])
    [2 1 2]
    """
    outputs = d_first_part_out, d_second_part_out, d_unselected_out, d_num_selected_out
    predicates = select_first_part_op, select_second_part_op
    return made(ThreeWayPartition, group, local.three_way_partition, d_in, *outputs, *predicates)
