"""Records of shards: the reduction of each shard, their combination in order, and each shard's prefix.

A shard reduces to one small record: a value, whether there is one, and, for runs of keys, the keys at its
borders. Records combine by the user's operator, lifted: a record without a value leaves the other as it is,
and no operator needs an identity. The prefix of a shard is the reduction of the records before it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from .. import structs
from .._arguments import initial
from .._functions import operators
from .._functions.axes import INT64
from .._functions.calls import Work
from .._functions.values import cast
from .._ir.iterator import over
from ..host import View
from ..iterators import PermutationIterator, TransformIterator, TransformOutputIterator, ZipIterator
from ..operators import Op, OpKind
from ..reduce import reduce_into
from ..transform import unary_transform
from .comm import cleared
from .group import Group

THREE = np.dtype([("own", INT64), ("before", INT64), ("all", INT64)], align=True)  # counts


def record_of(value: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of a value, and whether there is one."""
    return np.dtype([("value", value), ("there", "?")], align=True)


class Carry:
    """Records of values: what shards reduce to by an operator.

    Attributes
    ----------
    op : callable or OpKind
    value : numpy.dtype
        Of the combined values.
    record : numpy.dtype
        A value, and whether there is one.
    combined : callable
        The operator on records.
    """

    def __init__(self, op: Op, value: np.dtype[Any]) -> None:
        self.value: np.dtype[Any] = value
        self.op: Op = op
        self._taken: Any = None  # the dtype of items, once it is known
        self.record: np.dtype[Any]
        self.combined: Any
        self.record, self.combined = self._lifted()
        self._absent, self._initial = self.absent(), self.absent()
        self._initial_value: Any = self._initial["value"]
        if "there" in (self.record.names or ()):
            self._initial["there"] = True
        self._fold = self.folding(self.record)

    def _lifted(self) -> tuple[np.dtype[Any], Any]:
        return record_of(self.value), operators.flagged(self.op, self.value)

    def absent(self) -> np.ndarray[Any, Any]:
        """Return the record of a shard without items."""
        return np.zeros(1, self.record)

    def initial(self, h_init: Any) -> np.ndarray[Any, Any]:
        """Return the record of an initial value, until the next one is asked for; None: of none."""
        if h_init is None:
            return self._absent
        self._initial_value[0] = initial.converted(h_init, self.value)
        return self._initial

    def begun(self, h_init: Any, has_init: bool) -> np.ndarray[Any, Any]:
        """Return the record of a call's initial value; TypeError unless there is one as in the factory."""
        if (h_init is not None) == has_init:
            return self.initial(h_init)
        how = "with an initial value, got None" if has_init else "without an initial value (h_init=None)"
        raise TypeError(f"h_init: this algorithm was built {how}")

    def alike(self, h_init: Any) -> dict[str, Any]:
        """Return an initial value as ranks compare it, by the name of its parameter."""
        return {"h_init": self.initial(h_init)["value"].tolist()[0]}

    def written(self, records: Any) -> Any:
        """Return an output that takes a value and writes its record."""
        return TransformOutputIterator(records, operators.there(self.value), self.value)

    def read(self, d_in: Any) -> Any:
        """Return items in the dtype in which they are combined."""
        if isinstance(d_in, np.dtype) or d_in.dtype == self.value:
            return d_in
        items = over("d_in", d_in)  # whose dtype is NumPy's, as PyTorch's tensors have others
        if items.dtype == self.value:
            return d_in
        if self._taken not in (None, items.dtype):
            built, given = structs.text(self._taken), structs.text(items.dtype)
            raise TypeError(f"d_in: this algorithm was built for {built}, got {given}")
        return cast(items, self.value)

    def total(self, d_in: Any, commutative: bool = False) -> Any:
        """Build what reduces the items of a shard: its `run` takes them as `read` returns them."""
        items = self.read(d_in)
        self._taken = over("d_in", d_in).dtype
        return reduce_into(items, self.written(self.record), self.op, None, commutative=commutative)

    def first(self, d_in: Any) -> Any:
        """Build the transform that makes the record of one item."""
        return unary_transform(self.read(d_in), self.written(self.record), OpKind.IDENTITY)

    def fold(self, work: Work, records: Any, number: int, out: Any, init: Any = None) -> None:
        """Combine some records, after that of an initial value, in order."""
        work.run(self._fold, records, out, number, self._absent if init is None else init)

    def folding(self, out: Any) -> Any:
        """Build what combines records as `fold` does, for another output."""
        return reduce_into(self.record, out, self.combined, self._absent, commutative=False)

    def value_of(self, record: Any) -> Any:
        """Return the value of one record as an array of one item, in the same memory."""
        if isinstance(record, View):
            return View(record.address, self.value, (1,), (self.value.itemsize,), True, record)
        return record["value"][:1]


class KeyedCarry(Carry):
    """Records of runs of equal keys: the reduction of a shard's last run, and the keys at its borders.

    Attributes
    ----------
    key : numpy.dtype
    equality : callable, OpKind or None
        Compares keys; None: ``==``.
    record : numpy.dtype
        The value of the last run, the first and the last key, and how many runs there are.
    """

    def __init__(self, op: Op, value: np.dtype[Any], key: np.dtype[Any], equality: Op | None = None) -> None:
        self.key, self.equality = key, equality
        self._same = OpKind.EQUAL_TO if equality is None else equality
        super().__init__(op, value)

    def _lifted(self) -> tuple[np.dtype[Any], Any]:
        fields = [("value", self.value), ("first", self.key), ("last", self.key), ("runs", INT64)]
        return np.dtype(fields, align=True), _joined(self.op, self._same, self.value, self.key)

    def read_border(self, first: Any, last: Any, d_aggregates: Any, d_num_runs: Any) -> Any:
        """Return an iterator over the record of a shard that has items.

        It consists of the first and the last key, the runs' reductions, and their number, an int64.
        """
        place = TransformIterator(d_num_runs, _before, INT64)
        parts = ZipIterator(PermutationIterator(d_aggregates, place), first, last, d_num_runs)
        return TransformIterator(parts, _border(self.value, self.key), self.record)

    def border(self, work: Work, first: Any, last: Any, d_aggregates: Any, d_num_runs: Any, out: Any) -> None:
        """Make the record of a shard that has items; see `read_border`."""
        work.copy(self.read_border(first, last, d_aggregates, d_num_runs), out, 1)

    def read_mended(self, before: Any, own: Any, after: Any, d_aggregates: Any) -> Any:
        """Return an iterator over a shard's first aggregate, combined with its prefix, and counts.

        These are of runs: how many the shard has, without a last one that goes on, how many those before it
        have, and all. `own` is the record of the shard; `before` and `after` are what the records of those
        before and after it reduce to.
        """
        given = ZipIterator(before, own, after, d_aggregates)
        mended = np.dtype([("value", self.value), ("counts", THREE)], align=True)
        return TransformIterator(given, _mended(self.op, self._same, self.value), mended)

    def read_counts(self, before: Any, after: Any) -> Any:
        """Return an iterator over the counts of a shard without items."""
        return TransformIterator(ZipIterator(before, after), _counted(self._same), THREE)

    def mend(self, work: Work, before: Any, own: Any, after: Any, d_aggregates: Any, counts: Any) -> None:
        """Write what `read_mended` returns: the aggregate in its place, and the counts as one item."""
        given = self.read_mended(before, own, after, d_aggregates)
        work.copy(given, ZipIterator(d_aggregates, counts), 1)

    def prepared(self, keys: Any, d_aggregates: Any) -> tuple[Any, Any, Any]:
        """Build what copies what `read_border`, `read_mended` and `read_counts` return, of such arrays."""
        record, three = self.record, ZipIterator(INT64, INT64, INT64)
        border = self.read_border(keys, keys, d_aggregates, INT64)
        mended = self.read_mended(record, record, record, d_aggregates), ZipIterator(d_aggregates, three)
        return (
            unary_transform(border, record, OpKind.IDENTITY),
            unary_transform(*mended, OpKind.IDENTITY),
            unary_transform(self.read_counts(record, record), three, OpKind.IDENTITY),
        )


class Records:
    """The records of all ranks, which they gather.

    Attributes
    ----------
    own, every : arrays
        The one of this rank, and those of all.
    """

    def __init__(self, work: Work, group: Group, carry: Carry) -> None:
        self.own, self.every = filled(work, carry), work.temporary(group.size, carry.record)
        self._gather = group.gathering(self.own, self.every)

    def gather(self, work: Work, has_items: Any, make: Callable[[], None]) -> None:
        """Gather what `make` writes to `own`; a shard without items has a record without a value."""
        if has_items:
            make()
        else:
            cleared(self.own, work.stream)
        self._gather(work.stream)


def filled(work: Work, carry: Carry) -> Any:
    """Return memory for one record, which has no value yet."""
    record = work.temporary(1, carry.record)
    carry.fold(work, record, 0, record)
    return record


def value_in(record: Any) -> Any:
    """Return the value of a record."""
    return record.value


def _before(count: Any) -> Any:
    return count - 1


@operators.remembered
def _joined(op: Op, same: Op, value: np.dtype[Any], key: np.dtype[Any]) -> Any:
    """Return an operator on records of runs."""
    function, equal = operators.within(op), operators.within(same)
    plain, plain_key = operators.plain(value), operators.plain(key)

    def combined(a: Any, b: Any) -> Any:
        if b.runs == 0:
            return (plain(a.value), plain_key(a.first), plain_key(a.last), a.runs)
        if a.runs == 0:
            return (plain(b.value), plain_key(b.first), plain_key(b.last), b.runs)
        if not equal(a.last, b.first):
            return (plain(b.value), plain_key(a.first), plain_key(b.last), a.runs + b.runs)
        if b.runs == 1:
            return (plain(function(a.value, b.value)), plain_key(a.first), plain_key(b.last), a.runs)
        return (plain(b.value), plain_key(a.first), plain_key(b.last), a.runs + b.runs - 1)

    return combined


@lru_cache(64)
def _border(value: np.dtype[Any], key: np.dtype[Any]) -> Any:
    plain, plain_key = operators.plain(value), operators.plain(key)

    def border(s: Any) -> Any:
        aggregate, first, last, count = s
        return (plain(aggregate), plain_key(first), plain_key(last), count)

    return border


@operators.remembered
def _mended(op: Op, same: Op, value: np.dtype[Any]) -> Any:
    function, equal = operators.within(op), operators.within(same)
    plain = operators.plain(value)

    def mended(s: Any) -> Any:
        before, own, after, aggregate = s
        enters = before.runs > 0 and equal(before.last, own.first)
        leaves = after.runs > 0 and equal(own.last, after.first)
        earlier, left = before.runs - (1 if enters else 0), own.runs - (1 if leaves else 0)
        every = earlier + left + after.runs
        if enters:
            return (plain(function(before.value, aggregate)), (left, earlier, every))
        return (plain(aggregate), (left, earlier, every))

    return mended


@operators.remembered
def _counted(same: Op) -> Any:
    equal = operators.within(same)

    def counted(s: Any) -> Any:
        before, after = s
        goes_on = before.runs > 0 and after.runs > 0 and equal(before.last, after.first)
        earlier = before.runs - (1 if goes_on else 0)
        return (after.runs - after.runs, earlier, earlier + after.runs)

    return counted
