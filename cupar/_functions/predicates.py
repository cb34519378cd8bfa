"""Items counted, compared and chosen by operators: what Thrust has by name, made of a few algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._ir.iterator import over
from ..iterators import (
    CountingIterator,
    DiscardIterator,
    TransformIterator,
    TransformOutputIterator,
    ZipIterator,
)
from ..operators import Op, OpKind
from ..partition import three_way_partition
from ..reduce import reduce_into
from . import operators
from .axes import INT64, constant
from .calls import Operand, Work
from .described import described
from .items import Counted, selected, size_of
from .rows import check_numbers, promoted, reduced
from .scans import scan_of
from .values import cast, initial

_BOOL = np.dtype(bool)
_NOWHERE = np.iinfo(np.int64).max


@operators.remembered
def _flag(predicate: Op) -> Any:
    function = operators.within(predicate)
    return lambda item: True if function(item) else False  # noqa: SIM210 - of any type


@operators.remembered
def _no_flag(predicate: Op) -> Any:
    function = operators.within(predicate)
    return lambda item: False if function(item) else True  # noqa: SIM211 - of any type


def _flags(x: Operand, predicate: Op, invert: bool = False) -> Operand:
    flags = TransformIterator(x.items, (_no_flag if invert else _flag)(predicate), _BOOL)
    return Operand(None, flags, x.shape)


def _equal_pair(s: Any) -> Any:
    return s[0] == s[1]


def _unequal_pair(s: Any) -> Any:
    return s[0] != s[1]


# --- Reduced ----------------------------------------------------------------------------------------------


def _count(work: Work, flags: Operand, axis: Any, keepdims: bool) -> Any:
    ones = Operand(None, cast(flags.items, INT64), flags.shape)
    return reduced(work, ones, None, OpKind.PLUS, axis, None, keepdims, None, None, 0)


@described("x", axis="axes")
def count_if(
    work: Work, x: Any, predicate: Op, /, *, axis: Any = None, keepdims: bool = False, stream: Any = None
) -> Any:
    """Return for how many items a predicate holds, as int64.

    >>> int(arrays.count_if(np.array([3, -1, 4]), lambda a: a > 0))
    2
    """
    return _count(work, _flags(x, predicate), axis, keepdims)


@described("x", axis="axes")
def count(
    work: Work, x: Any, value: Any, /, *, axis: Any = None, keepdims: bool = False, stream: Any = None
) -> Any:
    """Return how many items are equal to a value, as int64.

    >>> int(arrays.count(np.array([3, 1, 3]), 3))
    2
    """
    check_numbers("x", x)
    pairs = ZipIterator(x.items, constant(initial("value", value, x.dtype)[0]))
    return _count(work, Operand(None, TransformIterator(pairs, _equal_pair, _BOOL), x.shape), axis, keepdims)


@described("x", axis="axes")
def all_of(
    work: Work, x: Any, predicate: Op, /, *, axis: Any = None, keepdims: bool = False, stream: Any = None
) -> Any:
    """Return whether a predicate holds for all items.

    >>> bool(arrays.all_of(np.array([3, -1, 4]), lambda a: a > 0))
    False
    """
    return reduced(work, _flags(x, predicate), None, OpKind.LOGICAL_AND, axis, None, keepdims, None, None)


@described("x", axis="axes")
def any_of(
    work: Work, x: Any, predicate: Op, /, *, axis: Any = None, keepdims: bool = False, stream: Any = None
) -> Any:
    """Return whether a predicate holds for an item.

    >>> bool(arrays.any_of(np.array([3, -1, 4]), lambda a: a > 0))
    True
    """
    return reduced(work, _flags(x, predicate), None, OpKind.LOGICAL_OR, axis, None, keepdims, None, None)


@described("x", axis="axes")
def none_of(
    work: Work, x: Any, predicate: Op, /, *, axis: Any = None, keepdims: bool = False, stream: Any = None
) -> Any:
    """Return whether a predicate holds for no item.

    >>> bool(arrays.none_of(np.array([3, 1, 4]), lambda a: a < 0))
    True
    """
    flags = _flags(x, predicate, invert=True)
    return reduced(work, flags, None, OpKind.LOGICAL_AND, axis, None, keepdims, None, None)


@described("x", axis="axes")
def transform_reduce(
    work: Work,
    x: Any,
    transform: Op,
    op: Op = OpKind.PLUS,
    /,
    *,
    axis: Any = None,
    init: Any = None,
    keepdims: bool = False,
    dtype: Any = None,
    out: Any = None,
    num_items: int | None = None,
    like: Any = None,
    stream: Any = None,
) -> Any:
    """Return what an operator makes of items, combined by another operator.

    >>> int(arrays.transform_reduce(np.array([3, 1, 4]), lambda a: a * a))
    26
    """
    made = Operand(None, TransformIterator(x.items, transform), x.shape)
    return reduced(work, made, None, op, axis, init, keepdims, dtype, out)


@operators.remembered
def _of_pair(op: Op) -> Any:
    function = operators.within(op)
    return lambda s: function(s[0], s[1])


@described("a", "b", times="op")
def inner_product(
    work: Work,
    a: Any,
    b: Any,
    op: Op = OpKind.PLUS,
    times: Op = OpKind.MULTIPLIES,
    /,
    *,
    init: Any = None,
    stream: Any = None,
) -> Any:
    """Return what one operator combines of what another makes of pairs of items: the sum of products.

    >>> int(arrays.inner_product(np.array([1, 2, 3]), np.array([4, 5, 6])))
    32
    """
    _check_shapes(a, b)
    dtype = promoted(a=a, b=b)
    pairs = ZipIterator(cast(a.items, dtype), cast(b.items, dtype))
    made = TransformIterator(pairs, _of_pair(times), dtype if times is OpKind.MULTIPLIES else None)
    return reduced(work, Operand(None, made, a.shape), None, op, None, init, False, None, None)


@described("x")
def transform_scan(
    work: Work,
    x: Any,
    transform: Op,
    op: Op = OpKind.PLUS,
    /,
    *,
    axis: int | None = None,
    init: Any = None,
    exclusive: bool = False,
    reverse: bool = False,
    dtype: Any = None,
    out: Any = None,
    num_items: int | None = None,
    like: Any = None,
    stream: Any = None,
) -> Any:
    """Return the prefix scan, by an operator, of what another makes of items.

    >>> arrays.transform_scan(np.array([3, 1, 4]), lambda a: a * a)
    array([ 9, 10, 26])
    """
    made = Operand(None, TransformIterator(x.items, transform), x.shape)
    return scan_of(work, made, op, axis, init, exclusive, reverse, dtype, out)


# --- Found and compared -----------------------------------------------------------------------------------


def _place(s: Any) -> Any:
    return s[1] if s[0] else _NOWHERE


def _or_none(place: Any) -> Any:
    return place if place != _NOWHERE else -1


def first_that(work: Work, flags: Any, size: int) -> Operand:
    """Return the index of the first flag that holds, -1 if none does. All are read."""
    out, h_init = work.empty((), INT64), np.full(1, _NOWHERE)
    places = TransformIterator(ZipIterator(flags, CountingIterator(np.int64(0))), _place, INT64)
    written = TransformOutputIterator(out.items, _or_none, INT64)
    work.run(reduce_into(places, written, OpKind.MINIMUM, h_init), places, written, size, h_init)
    return out


@described("x")
def find_first(
    work: Work,
    x: Any,
    predicate: Op,
    /,
    *,
    num_items: int | None = None,
    like: Any = None,
    stream: Any = None,
) -> Any:
    """Return the index of the first item, in C's order, for which a predicate holds; -1 if there is none.

    All items are read.

    >>> int(arrays.find_first(np.array([3, -1, 4, -2]), lambda a: a < 0))
    1
    """
    return first_that(work, _flags(x, predicate).items, x.size)


def _check_shapes(a: Operand, b: Operand) -> None:
    if a.shape != b.shape:
        raise ValueError(f"b: expected the shape of `a`, {a.shape}, got {b.shape}")


def _compared(a: Operand, b: Operand, how: Any) -> Any:
    _check_shapes(a, b)
    dtype = promoted(a=a, b=b)
    return TransformIterator(ZipIterator(cast(a.items, dtype), cast(b.items, dtype)), how, _BOOL)


@described("a", "b")
def mismatch(work: Work, a: Any, b: Any, /, *, stream: Any = None) -> Any:
    """Return the index of the first items, in C's order, that differ; -1 if all are equal.

    >>> int(arrays.mismatch(np.array([3, 1, 4]), np.array([3, 1, 5])))
    2
    """
    return first_that(work, _compared(a, b, _unequal_pair), a.size)


@described("a", "b")
def equal(work: Work, a: Any, b: Any, /, *, stream: Any = None) -> Any:
    """Return whether all items of two arrays are equal. NaN is equal to nothing.

    >>> bool(arrays.equal(np.array([3, 1]), np.array([3, 1])))
    True
    """
    flags = Operand(None, _compared(a, b, _equal_pair), a.shape)
    return reduced(work, flags, None, OpKind.LOGICAL_AND, None, None, False, None, None)


@operators.remembered
def _in_order(less: Op) -> Any:
    function = operators.within(less)
    return lambda s: False if function(s[1], s[0]) else True  # noqa: SIM211 - of any type


@described("x")
def is_sorted(work: Work, x: Any, /, *, less: Op | None = None, stream: Any = None) -> Any:
    """Return whether no item, in C's order, comes before the one in front of it.

    >>> bool(arrays.is_sorted(np.array([1, 2, 2])))
    True
    """
    if less is None:
        check_numbers("x", x)
    op = _in_order(operators.less_of(x.dtype) if less is None else less)
    number = max(x.size - 1, 0)
    pairs = ZipIterator(x.items, over("x", x.items) + 1 if number else x.items)
    flags = Operand(None, TransformIterator(pairs, op, _BOOL), (number,))
    return reduced(work, flags, None, OpKind.LOGICAL_AND, None, None, False, None, None)


# --- Chosen -----------------------------------------------------------------------------------------------


@described("x", size="length")
def remove_if(work: Work, x: Any, predicate: Op, /, *, size: int | None = None, stream: Any = None) -> Any:
    """Return the items for which a predicate does not hold, in C's order.

    >>> arrays.remove_if(np.array([3, -1, 4]), lambda a: a < 0)
    array([3, 4])
    """
    length = size_of(size)
    out, number = selected(work, x.items, x.size, None, x.dtype, _no_flag(predicate), length)
    found = work.cut([out], number, length)
    return found[0] if length is None else Counted(*found)


@described("x", "flags", size="length")
def compress(work: Work, x: Any, flags: Any, /, *, size: int | None = None, stream: Any = None) -> Any:
    """Return the items whose flags hold, in C's order: ``x[flags]``.

    >>> arrays.compress(np.array([3, 1, 4]), np.array([True, False, True]))
    array([3, 4])
    """
    check_numbers("flags", flags)
    if flags.shape != x.shape:
        raise ValueError(f"flags: expected the shape of `x`, {x.shape}, got {flags.shape}")
    length = size_of(size)
    pairs = ZipIterator(x.items, cast(flags.items, _BOOL))
    out, number = selected(work, pairs, x.size, operators.first, x.dtype, operators.second, length)
    found = work.cut([out], number, length)
    return found[0] if length is None else Counted(*found)


@described("x")
def partition_copy(work: Work, x: Any, predicate: Op, /, *, stream: Any = None) -> Any:
    """Return the items for which a predicate holds, and those for which it does not, as two arrays.

    Both are in C's order. Their lengths are read back, which waits for the GPU; `partition_by` does not.

    >>> arrays.partition_copy(np.array([3, -1, 4]), lambda a: a < 0)
    (array([-1]), array([3, 4]))
    """
    first, rest = work.empty((x.size,), x.dtype), work.empty((x.size,), x.dtype)
    numbers = work.empty((2,), INT64)
    given = x.items, first.items, DiscardIterator(x.dtype), rest.items, numbers.items
    work.run(three_way_partition(*given, predicate, operators.never), *given, x.size)
    known = int(work.host(numbers)[0])
    return work.first(first, known), work.first(rest, x.size - known)
