"""Records of shards: what each reduces to, how they combine in order, and the prefix of each shard.

A shard reduces to one small record: a value, whether there is one, and, for runs of keys, the keys at its
borders. Records combine by the user's operator, lifted: a record without a value leaves the other as it is,
and no operator needs an identity. The prefix of a shard is what the records before it reduce to. How records
travel is not said here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from .. import structs
from .._functions import operators
from .._functions.axes import INT64
from .._functions.calls import Work
from .._functions.values import cast
from ..host import View
from ..iterators import PermutationIterator, TransformIterator, TransformOutputIterator, ZipIterator
from ..operators import Op, OpKind
from ..reduce import reduce_into
from ..transform import unary_transform


class Carry:
    """Records of values: what shards reduce to by an operator.

    Attributes
    ----------
    value : numpy.dtype
        Of what is combined.
    record : numpy.dtype
        A value, and whether there is one.
    combined : callable
        The operator on records.
    """

    def __init__(self, op: Op, value: np.dtype[Any]) -> None:
        self.value: np.dtype[Any] = value
        self._op, self._plain = op, operators.plain(value)
        self.record: np.dtype[Any]
        self.combined: Any
        self.record, self.combined = self._lifted()
        self._fold = reduce_into(self.record, self.record, self.combined, self.absent(), commutative=False)

    def _lifted(self) -> tuple[np.dtype[Any], Any]:
        record = np.dtype([("value", self.value), ("there", "?")], align=True)
        return record, operators.flagged(self._op, self.value)

    def absent(self) -> np.ndarray[Any, Any]:
        """Return the record of a shard without items."""
        return np.zeros(1, self.record)

    def initial(self, h_init: Any) -> np.ndarray[Any, Any]:
        """Return the record of an initial value; None: of none."""
        found = self.absent()
        if h_init is not None:
            found["value"], found["there"] = _scalar(h_init, self.value), True
        return found

    def written(self, records: Any) -> Any:
        """Return an output that takes a value and writes its record."""
        return TransformOutputIterator(records, operators.there(self.value), self.value)

    def read(self, d_in: Any) -> Any:
        """Return items in the dtype in which they are combined."""
        return d_in if _dtype(d_in) == self.value else cast(d_in, self.value)

    def total(self, d_in: Any, commutative: bool = False) -> Any:
        """Build what reduces the items of a shard: its `run` takes them as `read` returns them."""
        return reduce_into(
            self.read(d_in), self.written(self.record), self._op, None, commutative=commutative
        )

    def first(self, d_in: Any) -> Any:
        """Build what makes the record of one item."""
        return unary_transform(self.read(d_in), self.written(self.record), OpKind.IDENTITY)

    def fold(self, work: Work, records: Any, number: int, out: Any, init: Any = None) -> None:
        """Combine some records, after that of an initial value, in order."""
        work.run(self._fold, records, out, number, self.absent() if init is None else init)

    def value_of(self, record: Any) -> Any:
        """Return the value of one record as an array of one item, in the same memory."""
        if isinstance(record, View):
            return View(record.address, self.value, (1,), (self.value.itemsize,), True, record)
        return record["value"][:1]


class KeyedCarry(Carry):
    """Records of runs of equal keys: what the last run of a shard reduces to, and the keys at its borders.

    Attributes
    ----------
    key : numpy.dtype
    record : numpy.dtype
        The value of the last run, the first and the last key, and how many runs there are: 0, 1, or 2 for
        several.
    """

    def __init__(self, op: Op, value: np.dtype[Any], key: np.dtype[Any], equality: Op | None = None) -> None:
        self.key, self._same = key, OpKind.EQUAL_TO if equality is None else equality
        super().__init__(op, value)

    def _lifted(self) -> tuple[np.dtype[Any], Any]:
        fields = [("value", self.value), ("first", self.key), ("last", self.key), ("runs", INT64)]
        return np.dtype(fields, align=True), _joined(self._op, self._same, self.value, self.key)

    def _read_border(self, first: Any, last: Any, d_aggregates: Any, d_num_runs: Any) -> Any:
        place = TransformIterator(d_num_runs, _before, INT64)
        parts = ZipIterator(PermutationIterator(d_aggregates, place), first, last, d_num_runs)
        return TransformIterator(parts, _border(self.value, self.key), self.record)

    def border(self, work: Work, first: Any, last: Any, d_aggregates: Any, d_num_runs: Any, out: Any) -> None:
        """Make the record of a shard that has items.

        It is made of the first and the last key, what the runs reduce to, and their number, an int64.
        """
        work.copy(self._read_border(first, last, d_aggregates, d_num_runs), out, 1)

    def _read_mended(self, before: Any, own: Any, after: Any, d_aggregates: Any, d_num_runs: Any) -> Any:
        given = ZipIterator(before, own, after, d_aggregates, d_num_runs)
        mended = np.dtype([("value", self.value), ("runs", INT64)], align=True)
        return TransformIterator(given, _mended(self._op, self._same, self.value), mended)

    def mend(self, work: Work, before: Any, own: Any, after: Any, d_aggregates: Any, d_num_runs: Any) -> None:
        """Combine the first aggregate of a shard with what comes before it; drop a last run that goes on.

        `own` is the record of the shard; `before` and `after` are what the records of those before and after
        it reduce to.
        """
        given = self._read_mended(before, own, after, d_aggregates, d_num_runs)
        work.copy(given, ZipIterator(d_aggregates, d_num_runs), 1)

    def prepare(self, keys: Any, d_aggregates: Any) -> None:
        """Build what `border` and `mend` run, for such keys and aggregates."""
        record = self.record
        unary_transform(self._read_border(keys, keys, d_aggregates, INT64), record, OpKind.IDENTITY)
        given = self._read_mended(record, record, record, d_aggregates, INT64)
        unary_transform(given, ZipIterator(d_aggregates, INT64), OpKind.IDENTITY)


def _dtype(given: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = given if isinstance(given, np.dtype) else given.dtype
    return found


def _scalar(h_init: Any, dtype: np.dtype[Any]) -> Any:
    """Return an initial value as NumPy assigns it to a field."""
    found = structs.dtype_of_value(h_init)
    if found is not None:
        return tuple(h_init)
    return np.asarray(h_init, dtype).reshape(-1)[0]


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
            return (plain(b.value), plain_key(a.first), plain_key(b.last), 2)
        if b.runs == 1:
            return (plain(function(a.value, b.value)), plain_key(a.first), plain_key(b.last), a.runs)
        return (plain(b.value), plain_key(a.first), plain_key(b.last), 2)

    return combined


@lru_cache(64)
def _border(value: np.dtype[Any], key: np.dtype[Any]) -> Any:
    plain, plain_key = operators.plain(value), operators.plain(key)

    def border(s: Any) -> Any:
        aggregate, first, last, count = s
        return (plain(aggregate), plain_key(first), plain_key(last), min(count, 2))

    return border


@operators.remembered
def _mended(op: Op, same: Op, value: np.dtype[Any]) -> Any:
    function, equal = operators.within(op), operators.within(same)
    plain = operators.plain(value)

    def mended(s: Any) -> Any:
        before, own, after, aggregate, count = s
        left = count
        if after.runs > 0 and equal(own.last, after.first):
            left = count - 1
        if before.runs > 0 and equal(before.last, own.first):
            return (plain(function(before.value, aggregate)), left)
        return (plain(aggregate), left)

    return mended
