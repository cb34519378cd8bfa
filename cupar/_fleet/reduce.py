"""Reductions of arrays in shards: the result is on every rank."""

from __future__ import annotations

from typing import Any

from .._functions.axes import INT64
from .._functions.calls import Work
from .._ir.specialisation import Specialisation
from .._launch.arguments import two_phases
from .._obtain.arguments import in_order
from ..iterators import DiscardIterator, TransformOutputIterator
from ..operators import Op, OpKind
from ..partition import select
from ..reduce import reduce_into as local_reduce
from ..transform import unary_transform
from .carry import Carry
from .comm import raw
from .sharded import Sharded, accumulator_of, filled, made


def _value(record: Any) -> Any:
    return record.value


def _there(record: Any) -> Any:
    return record.there


class Reduce(Sharded):
    """A reduction of an array in shards; see `reduce_into`."""

    def run(self, d_in: Any, d_out: Any, num_items: int, h_init: Any = None, stream: Any = None) -> None:
        """Reduce the first `num_items` items of each shard into ``d_out[0]`` of every rank.

        `h_init` is the initial value, of the kind the reduction was built with; `stream` as in
        `cupar.Algorithm`.
        """
        self._run(stream, (d_in, d_out, num_items, h_init))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    def _build(
        self, work: Work, carry: Carry, d_in: Any, d_out: Any, has_init: bool, commutative: bool
    ) -> None:
        self._carry = carry
        self._total = carry.total(d_in, commutative)
        self._own, self._none, self._folded = (filled(work, carry) for _ in range(3))
        self._written = carry.written(self._own)
        self._records = work.temporary(self.group.size, carry.record)
        self._value, self._has_init = carry.value_of(self._folded), has_init
        if has_init:
            self._write: Any = unary_transform(self._value, d_out, OpKind.IDENTITY)
        else:  # there may be none, which the host does not know
            written = TransformOutputIterator(d_out, _value, carry.record)
            self._write = select(carry.record, written, DiscardIterator(INT64), _there)

    def _call(self, work: Work, d_in: Any, d_out: Any, num_items: int, h_init: Any) -> None:
        carry, record = self._carry, self._none
        if self._has_init and h_init is None:
            raise TypeError("h_init: this reduction was built with an initial value, got None")
        if num_items:
            record = self._own
            work.run(self._total, carry.read(d_in), self._written, num_items)
        self.group.gather(raw(record), raw(self._records), self._stream(work))
        carry.fold(work, self._records, self.group.size, self._folded, carry.initial(h_init))
        if self._has_init:
            work.run(self._write, self._value, d_out, 1)
            return
        written = TransformOutputIterator(d_out, _value, carry.record)
        work.run(self._write, self._folded, written, DiscardIterator(INT64), 1)


def reduce_into(
    d_in: Any, d_out: Any, op: Op, h_init: Any = None, *, commutative: bool = True, group: Any = None
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
    h_init : numpy.ndarray of one element, number or None
        The initial value, which counts once. With None, an array without items leaves `d_out` as it was.
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
        If an argument is not what it takes, or ranks differ.
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

    def build(found: Reduce, work: Work, spec: Specialisation) -> None:
        in_order(commutative)
        found._build(work, Carry(op, accumulator_of(spec)), d_in, d_out, h_init is not None, commutative)

    arrays = {"d_in": d_in, "d_out": d_out}
    specify = local_reduce, d_in, d_out, op, h_init
    return made(Reduce, group, "reduce_into", arrays, specify, build, commutative=bool(commutative))
