"""Runs of equal keys that may cross shards: reduced, counted, and their first items kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import runs as local
from .. import unique
from .._arguments.order import signature, two_phases
from .._functions.axes import INT64
from .._functions.calls import Work
from .._ir.iterator import over
from ..iterators import ConstantIterator, DiscardIterator, ZipIterator
from ..operators import Op, OpKind
from .carry import KeyedCarry, Records
from .counts import check_counts, three_of
from .engines import collective
from .replay import IteratorCache
from .shard_items import first_items, items_from
from .sharded import Sharded, made, run_of

if TYPE_CHECKING:
    from .._base.annotations import Array, Stream


class _Runs(Sharded):
    """The common part of algorithms on runs: runs of the shard are reduced, and borders are joined."""

    _allocates = False
    _aggregates: str  # the parameter of the output that is read back at borders
    _op: Any = None  # combines values, unless users give that

    def _operands(self, *arrays: Any) -> tuple[Any, ...]:
        """Return the keys of a call, the output for those of runs, values, and the output for results."""
        return arrays

    def _build(self, work: Work, *given: Any) -> None:
        *names, d_num_name, _ = signature(type(self).run).parameters
        arrays, operators = given[: len(names)], given[len(names) + 1 :]
        read_back = arrays[names.index(self._aggregates)]
        if not over(self._aggregates, read_back).node.readable:
            what = "expected an array, since values at borders are read back"
            raise TypeError(f"{self._aggregates}: {what}, got {read_back!r}")
        check_counts(d_num_name, given[len(names)])
        op, equality = operators if self._op is None else (self._op, *operators)
        keys, unique, values, aggregates = self._operands(*arrays)
        value, key = over("d_out_aggregates", aggregates).dtype, over("d_in_keys", keys).dtype
        self._carry = carry = KeyedCarry(op, value, key, equality)
        self._local = local.reduce_by_key(keys, unique, carry.read(values), aggregates, INT64, op, equality)
        self._records = records = Records(work, self.group, carry)
        self._before, self._after = (work.temporary(1, carry.record) for _ in range(2))
        self._count = count = work.temporary(1, INT64)

        def border(keys: Any, aggregates: Any, num_items: int) -> Any:
            return carry.read_border(
                keys, items_from(work, "d_in_keys", keys, num_items - 1), aggregates, count
            )

        def counting(counts: Any) -> Any:
            check_counts(d_num_name, counts)
            return three_of(first_items(work, d_num_name, counts, 3))

        def mending(aggregates: Any, counts: Any) -> Any:
            given = carry.read_mended(self._before, records.own, self._after, aggregates)
            return given, ZipIterator(aggregates, counting(counts))

        self._border, self._mending = IteratorCache(border), IteratorCache(mending)
        self._counting = IteratorCache(counting)
        self._counted = carry.read_counts(self._before, self._after)
        self._make_border, self._mend, self._write = carry.prepared(keys, aggregates)

    def _call(self, work: Work, *given: Any) -> None:
        *arrays, d_num, num_items = given
        keys, unique, values, aggregates = self._operands(*arrays)
        carry, records, rank, behind = self._carry, self._records, self.group.rank, self.group.rank + 1

        def reduce() -> None:
            work.run(self._local, keys, unique, carry.read(values), aggregates, self._count, num_items)
            work.run(self._make_border, self._border(work, keys, aggregates, num_items), records.own, 1)

        records.gather(work, num_items, reduce)
        carry.fold(work, records.every, rank, self._before)
        carry.fold(work, records.every[behind:], self.group.size - behind, self._after)
        if num_items:
            work.run(self._mend, *self._mending(work, aggregates, d_num), 1)
        else:
            work.run(self._write, self._counted, self._counting(work, d_num), 1)


class ReduceByKey(_Runs):
    """A reduction of runs of equal keys, which may cross shards; see `reduce_by_key`."""

    _aggregates = "d_out_aggregates"

    def run(
        self,
        d_in_keys: Array,
        d_out_unique: Array,
        d_in_values: Array | None,
        d_out_aggregates: Array,
        d_out_num_runs: Array,
        num_items: int,
        stream: Stream = None,
    ) -> None:
        """Reduce the first `num_items` values of each shard; `stream` as in `cupar.Algorithm`."""
        arrays = d_in_keys, d_out_unique, d_in_values, d_out_aggregates, d_out_num_runs
        self._run(stream, (*arrays, num_items))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""


class RunLengthEncode(_Runs):
    """A run-length encoding of an array in shards; see `run_length_encode`."""

    _aggregates, _op = "d_out_counts", OpKind.PLUS

    @run_of(local.RunLengthEncode.run)
    def run(self) -> None:
        """Encode the first `num_items` items of each shard; `stream` as in `cupar.Algorithm`."""

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    def _build(self, work: Work, *given: Any) -> None:
        self._ones = ConstantIterator(np.ones((), over("d_out_counts", given[2]).dtype)[()])
        super()._build(work, *given)

    def _operands(self, *arrays: Any) -> tuple[Any, ...]:
        d_in, unique, counts = arrays
        return d_in, unique, self._ones, counts


class UniqueByKey(_Runs):
    """A selection of the first item of each run of equal keys; see `unique_by_key`."""

    _aggregates = "d_out_keys"

    @run_of(unique.UniqueByKey.run)
    def run(self) -> None:
        """Select from the first `num_items` keys of each shard; `stream` as in `cupar.Algorithm`."""

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    @staticmethod
    def _op(a: Any, b: Any) -> Any:
        """Keep the first item of a run."""
        return a

    def _operands(self, *arrays: Any) -> tuple[Any, ...]:
        keys, items, out_keys, out_items = arrays
        return keys, DiscardIterator(keys), _beside(keys, items), _beside(out_keys, out_items)


def _beside(keys: Any, items: Any) -> Any:
    return keys if items is None else ZipIterator(keys, items)


@collective
def reduce_by_key(
    d_in_keys: Array,
    d_out_unique: Array,
    d_in_values: Array | None,
    d_out_aggregates: Array,
    d_out_num_runs: Array,
    op: Op,
    equality_op: Op | None = None,
    *,
    group: Any = None,
) -> ReduceByKey:
    """Build a reduction of runs of equal keys, which may cross shards.

    A run that does is written by the last rank that has some of it.

    Parameters
    ----------
    d_in_keys : array or iterator, n items
        The keys of this rank's shard, which may be empty. Only their dtype matters here.
    d_out_unique : array or iterator
        As many items as this shard has runs. Where the last key of each run goes.
    d_in_values : array or iterator, n items
        The values to reduce.
    d_out_aggregates : array
        As many items as this shard has runs. Where the results go. Values are combined in its dtype.
    d_out_num_runs : array, 3 items of int64
        Where it goes how many runs this rank has written, how many those before it have, and how many there
        are.
    op : callable or OpKind
        Combines two values, the first of which is that of earlier items. It need not be commutative.
    equality_op : callable, OpKind or None
        Whether a key is equal to the one before it. By default ``==``.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `group`.

    Returns
    -------
    ReduceByKey

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
    >>> keys, values = np.array([1, 1, 2]), np.array([10, 11, 20])
    >>> unique, sums, counts = np.zeros((3, 3), np.int64)
    >>> arrays = keys, unique, values, sums, counts
    >>> distributed.reduce_by_key(*arrays, lambda a, b: a + b).run(*arrays, 3)
    >>> print(unique[: counts[0]], sums[: counts[0]])
    [1 2] [21 20]
    """
    arrays = d_in_keys, d_out_unique, d_in_values, d_out_aggregates, d_out_num_runs
    return made(ReduceByKey, group, local.reduce_by_key, *arrays, op, equality_op)


@collective
def run_length_encode(
    d_in: Array,
    d_out_unique: Array,
    d_out_counts: Array,
    d_out_num_runs: Array,
    equality_op: Op | None = None,
    *,
    group: Any = None,
) -> RunLengthEncode:
    """Build a run-length encoding of an array in shards; runs may cross them.

    A run that does is written by the last rank that has some of it.

    Parameters
    ----------
    d_in : array or iterator, n items
        The shard of this rank, which may be empty. Only its dtype matters here.
    d_out_unique : array or iterator
        As many items as this shard has runs. Where the last item of each run goes.
    d_out_counts : array of integers
        As many items as this shard has runs. Where the lengths of runs go.
    d_out_num_runs, equality_op, group
        As for `reduce_by_key`.

    Returns
    -------
    RunLengthEncode

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
    >>> shard = np.array([7, 7, 9, 7])
    >>> unique, lengths, counts = np.zeros((3, 4), np.int64)
    >>> arrays = shard, unique, lengths, counts[:3]
    >>> distributed.run_length_encode(*arrays).run(*arrays, 4)
    >>> print(unique[: counts[0]], lengths[: counts[0]])
    [7 9 7] [2 1 1]
    """
    arrays = d_in, d_out_unique, d_out_counts, d_out_num_runs
    return made(RunLengthEncode, group, local.run_length_encode, *arrays, equality_op)


@collective
def unique_by_key(
    d_in_keys: Array,
    d_in_items: Array | None,
    d_out_keys: Array,
    d_out_items: Array | None,
    d_out_num_selected: Array,
    op: Op,
    *,
    group: Any = None,
) -> UniqueByKey:
    """Build a selection of the first item of each run of equal keys, which may cross shards.

    That of a run which does is written by the last rank that has some of the run.

    Parameters
    ----------
    d_in_keys, d_in_items : arrays or iterators, n items
        The keys of this rank's shard, which may be empty, and what goes with them, if anything.
    d_out_keys, d_out_items : arrays
        As many items as this shard has runs, of the same dtypes. `d_out_items` is None if `d_in_items` is.
    d_out_num_selected : array, 3 items of int64
        As `d_out_num_runs` of `reduce_by_key`.
    op : callable or OpKind
        Whether a key is equal to the one before it.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `group`.

    Returns
    -------
    UniqueByKey

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
    >>> keys, kept, counts = np.array([3, 3, 5]), np.zeros(3, np.int64), np.zeros(3, np.int64)
    >>> arrays = keys, None, kept, None, counts
    >>> distributed.unique_by_key(*arrays, lambda a, b: a == b).run(*arrays, 3)
    >>> print(kept[: counts[0]])
    [3 5]
    """
    arrays = d_in_keys, d_in_items, d_out_keys, d_out_items, d_out_num_selected
    return made(UniqueByKey, group, unique.unique_by_key, *arrays, op)
