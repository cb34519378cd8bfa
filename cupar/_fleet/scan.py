"""Scans of arrays in shards: each shard is scanned after the prefix of those before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._arguments.order import two_phases
from .._base import device
from .._functions import operators
from .._functions.axes import INT64
from .._functions.calls import Work
from .._ir.iterator import over
from ..iterators import ConstantIterator, PermutationIterator, TransformIterator, ZipIterator
from ..operators import Op, OpKind
from ..scan import exclusive_scan as local_exclusive
from ..scan import inclusive_scan as local_inclusive
from ..transform import binary_transform, unary_transform
from .carry import Carry, Records
from .comm import copied, raw
from .engines import collective
from .shard_items import items_from
from .sharded import Sharded, made

if TYPE_CHECKING:
    from .._base.annotations import Array, Stream


class Prefix:
    """The prefix of a shard, for results to which it is not applied yet.

    Attributes
    ----------
    value : array, 1 item
        It is there unless the scan has no initial value and nothing comes before.
    record : array, 1 item
        The value, and whether there is one.
    """

    __module__ = "cupar.distributed"

    def __init__(self, carry: Any, record: Any, op: Op) -> None:
        self.record: Any = record
        self.value: Any = carry.value_of(record)
        self._op, self._dtype = op, carry.value

    def applied(self, items: Any) -> Any:
        """Return an iterator over scanned items of the shard, each combined with the prefix as it is read."""

        def made() -> TransformIterator:
            first = PermutationIterator(self.record, ConstantIterator(INT64.type(0)))
            return TransformIterator(ZipIterator(first, items), _applied(self._op, self._dtype), self._dtype)

        return device.using(isinstance(self.record, np.ndarray), made)


@operators.remembered
def _applied(op: Op, dtype: Any) -> Any:
    function, plain = operators.within(op), operators.plain(dtype)

    def applied(s: Any) -> Any:
        before, item = s
        if before[1]:
            return plain(function(before[0], item))
        return plain(item)

    return applied


class Scan(Sharded):
    """A scan of an array in shards; see `inclusive_scan` and `exclusive_scan`."""

    _allocates, _takes_init = False, True

    def run(
        self, d_in: Array, d_out: Array, num_items: int, h_init: Any = None, stream: Stream = None
    ) -> Prefix | None:
        """Scan the first `num_items` items of each shard into its `d_out`.

        `h_init` is the initial value, of the kind the scan was built with; `stream` as in `cupar.Algorithm`.

        Returns
        -------
        Prefix or None
            With ``carry="returned"``, this shard's prefix.
        """
        found: Prefix | None = self._run(stream, (d_in, d_out, num_items, h_init))
        return found

    @two_phases(run)  # type: ignore[arg-type]
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    def _build(self, work: Work, d_in: Any, d_out: Any, op: Op, h_init: Any, *, carry: str) -> None:
        if carry not in ("applied", "returned"):
            raise ValueError(f"carry: expected 'applied' or 'returned', got {carry!r}")
        records = Carry(op, self._accumulator())
        scan, inclusive = self._factory, self._factory is local_inclusive
        self._carry, self._op, self._applied = records, op, carry == "applied"
        self._has_init, self._result = h_init is not None, None if self._applied else self._returned
        self._records = Records(work, self.group, records)
        self._prefix, self._written = work.temporary(1, records.record), records.written(self._records.own)
        self._plain: Any = None  # nothing comes before this shard
        self._before_it = value = records.value_of(self._prefix)
        if self._applied:
            self._total = records.total(d_in)
            self._scan = scan(d_in, d_out, op, value)
            if not self._has_init:
                self._plain = scan(d_in, d_out, op, None) if self.group.rank == 0 else None
                self._first = records.first(d_in)
                self._write = unary_transform(value, d_out, OpKind.IDENTITY)
            return
        if over("d_out", d_out).dtype != records.value or not over("d_out", d_out).node.readable:
            raise TypeError('d_out: expected an array of the accumulator\'s dtype with carry="returned"')
        self._scan = scan(d_in, d_out, op, None if inclusive else h_init)
        self._first = records.first(d_out if inclusive else d_in)
        self._last = None if inclusive else binary_transform(d_out, records.value, self._written, op)

    def _alike(self, d_in: Any, d_out: Any, num_items: int, h_init: Any) -> dict[str, Any]:
        return self._carry.alike(h_init) if self._has_init else {}

    def _call(self, work: Work, d_in: Any, d_out: Any, num_items: int, h_init: Any) -> None:
        init = self._carry.begun(h_init, self._has_init)
        if self._applied:
            self._after(work, d_in, d_out, num_items, init)
        else:
            self._before(work, d_in, d_out, num_items, h_init, init)

    def _after(self, work: Work, d_in: Any, d_out: Any, num_items: int, init: Any) -> None:
        """Scan the shard, beginning with its prefix."""
        carry, records, rank, prefix = self._carry, self._records, self.group.rank, self._prefix

        def total() -> None:
            if rank < self.group.size - 1:  # nothing comes after the last one
                work.run(self._total, carry.read(d_in), self._written, num_items)

        records.gather(work, num_items, total)
        if not num_items:
            return
        if self._plain is not None:
            work.run(self._plain, d_in, d_out, num_items)
            return
        carry.fold(work, records.every, rank, prefix, init)
        value = self._before_it
        if self._has_init:
            work.run(self._scan, d_in, d_out, num_items, value)
            return
        # There may be nothing before it, which the host does not know. So its first item is combined with
        # what there is, as the next record, and the others come after that.
        mine = records.every[rank : rank + 1]
        work.run(self._first, carry.read(d_in), carry.written(mine), 1)
        carry.fold(work, records.every, rank + 1, prefix)
        work.run(self._write, value, d_out, 1)
        if num_items > 1:
            rest = items_from(work, "d_in", d_in, 1), items_from(work, "d_out", d_out, 1)
            work.run(self._scan, *rest, num_items - 1, value)

    def _before(self, work: Work, d_in: Any, d_out: Any, num_items: int, h_init: Any, init: Any) -> None:
        """Scan the shard alone, and find its prefix."""
        carry, records = self._carry, self._records

        def scan() -> None:
            last = items_from(work, "d_out", d_out, num_items - 1)
            if self._last is None:
                work.run(self._scan, d_in, d_out, num_items)
                work.run(self._first, last, self._written, 1)
            else:  # the last item is kept first, as `d_in` and `d_out` may be in the same memory
                read = carry.read(items_from(work, "d_in", d_in, num_items - 1))
                work.run(self._first, read, self._written, 1)
                work.run(self._scan, d_in, d_out, num_items, h_init)
                work.run(self._last, last, carry.value_of(records.own), self._written, 1)

        records.gather(work, num_items, scan)
        carry.fold(work, records.every, self.group.rank, self._prefix, init)

    def _returned(self, work: Work) -> Prefix:
        """Return the prefix of the last call, in memory of its own."""
        record = work.temporary(1, self._carry.record)
        copied(raw(self._prefix), raw(record), work.stream)
        return Prefix(self._carry, record, self._op)


@collective
def inclusive_scan(
    d_in: Array, d_out: Array, op: Op, h_init: Any = None, *, carry: str = "applied", group: Any = None
) -> Scan:
    """Build an inclusive scan of an array in shards.

    Item i of the whole combines `h_init` and items 0 to i, in the order of ranks, and of items on each.

    Parameters
    ----------
    d_in : array or iterator, n items
        The shard of this rank, which may be empty. Only its dtype matters here.
    d_out : array or iterator, n items
        Where the result of the same items goes; it may be `d_in` itself.
    op : callable or OpKind
        Combines two values, as for `cupar.inclusive_scan`: it need not be commutative.
    h_init : number, struct, array of one element or None
        The initial value, which counts once. Its dtype is the accumulator's, as for `cupar.inclusive_scan`.
    carry : {"applied", "returned"}
        ``"returned"``: each shard is scanned by itself, and `run` returns its `Prefix`, for iterators to
        apply as they read; `h_init` counts in the prefix. By default all of the input is read before any rank
        but the first may write, which is one pass more.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `group`.

    Returns
    -------
    Scan

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
    >>> running = distributed.inclusive_scan(shard, highest, max)
    >>> running.run(shard, highest, 4)
    >>> print(highest)
    [3 3 4 4]
    """
    return made(Scan, group, local_inclusive, d_in, d_out, op, h_init, carry=carry)


@collective
def exclusive_scan(
    d_in: Array, d_out: Array, op: Op, h_init: Any, *, carry: str = "applied", group: Any = None
) -> Scan:
    """Build an exclusive scan of an array in shards.

    Item i of the whole combines `h_init` and items 0 to i - 1, in the order of ranks, and of items on each.

    Parameters
    ----------
    d_in, d_out, op, group
        As for `inclusive_scan`.
    h_init : number, struct or array of one element
        The initial value, which counts once. Its dtype is the accumulator's, as for `cupar.inclusive_scan`.
    carry : {"applied", "returned"}
        As for `inclusive_scan`; with ``"returned"``, `h_init` must be a value that `op` leaves others as they
        are with, as 0 for sums, since each shard begins with it.

    Returns
    -------
    Scan

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
    >>> lengths, starts = np.array([3, 1, 2]), np.zeros(3, np.int64)
    >>> places = distributed.exclusive_scan(lengths, starts, lambda a, b: a + b, 0)
    >>> places.run(lengths, starts, 3, 0)
    >>> print(starts)
    [0 3 4]
    """
    return made(Scan, group, local_exclusive, d_in, d_out, op, h_init, carry=carry)
