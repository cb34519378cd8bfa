"""Reductions of arrays in shards: the result is on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import reduce as local
from .._arguments.order import two_phases
from .._functions.axes import INT64
from .._functions.calls import Work
from .._obtain.arguments import in_order
from ..iterators import DiscardIterator, TransformOutputIterator
from ..operators import Op
from ..partition import select
from .carry import Carry, Records, value_in
from .engines import collective
from .replay import IteratorCache
from .sharded import Sharded, made, run_of

if TYPE_CHECKING:
    from .._base.annotations import Array


def _there(record: Any) -> Any:
    return record.there


class Reduce(Sharded):
    """A reduction of an array in shards; see `reduce_into`."""

    _allocates, _takes_init = False, True

    @run_of(local.Reduce.run)
    def run(self) -> None:
        """Reduce the first `num_items` items of each shard into ``d_out[0]`` of every rank.

        `h_init` is the initial value, of the kind the reduction was built with; `stream` as in
        `cupar.Algorithm`.
        """

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    def _build(self, work: Work, d_in: Any, d_out: Any, op: Op, h_init: Any, *, commutative: Any) -> None:
        in_order(commutative)
        self._carry = carry = Carry(op, self._accumulator())
        self._has_init = has_init = h_init is not None
        self._total = carry.total(d_in, commutative)
        self._records = Records(work, self.group, carry)
        self._written = carry.written(self._records.own)
        self._out = IteratorCache(lambda d_out: TransformOutputIterator(d_out, value_in, carry.record))
        if has_init:
            self._fold = carry.folding(self._out(work, d_out))
        else:  # there may be none, which the host does not know
            self._folded = work.temporary(1, carry.record)
            self._write = select(carry.record, self._out(work, d_out), DiscardIterator(INT64), _there)

    def _alike(self, d_in: Any, d_out: Any, num_items: int, h_init: Any) -> dict[str, Any]:
        return self._carry.alike(h_init) if self._has_init else {}

    def _call(self, work: Work, d_in: Any, d_out: Any, num_items: int, h_init: Any) -> None:
        carry, records = self._carry, self._records
        init = carry.begun(h_init, self._has_init)
        records.gather(
            work, num_items, lambda: work.run(self._total, carry.read(d_in), self._written, num_items)
        )
        out, size = self._out(work, d_out), self.group.size
        if self._has_init:
            work.run(self._fold, records.every, out, size, init)
            return
        carry.fold(work, records.every, size, self._folded)
        work.run(self._write, self._folded, out, DiscardIterator(INT64), 1)


@collective
def reduce_into(
    d_in: Array, d_out: Array, op: Op, h_init: Any = None, *, commutative: bool = True, group: Any = None
) -> Reduce:
    """Build a reduction of an array in shards.

    The result is on every rank, the same bits on cards of one kind.

    Parameters
    ----------
    d_in : array or iterator, n items
        The shard of this rank, which may be empty. Only its dtype matters here.
    d_out : array or iterator, 1 item
        Where the result goes.
    op : callable or OpKind
        Combines two values of the accumulator's dtype, as for `cupar.reduce_into`.
    h_init : number, struct, array of one element or None
        The initial value, which counts once. Its dtype is the accumulator's, as for `cupar.reduce_into`. With
        None, an array without items leaves `d_out` as it was.
    commutative : bool, optional
        False: items are combined in the order of ranks, and of items on each, the initial value before them.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `group`.

    Returns
    -------
    Reduce

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
    >>> shard, total = np.arange(1, 5), np.zeros(1, np.int64)
    >>> sum_into = distributed.reduce_into(shard, total, lambda a, b: a + b, 0)
    >>> sum_into.run(shard, total, len(shard), 0)
    >>> print(total)
    [10]
    """
    return made(Reduce, group, local.reduce_into, d_in, d_out, op, h_init, commutative=commutative)
