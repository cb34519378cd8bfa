"""Sets of sorted items in which items may occur several times, as Thrust and C++ have them.

An item that occurs m times in one and n times in the other is max(m, n) times in the union, min(m, n) times
in the intersection, max(m - n, 0) times in the difference, and abs(m - n) times in the symmetric difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import sets, structs
from .._base.errors import ArgumentTypeError, ArgumentValueError
from ..find import find_if
from ..iterators import (
    ConstantIterator,
    CountingIterator,
    PermutationIterator,
    TransformIterator,
    TransformOutputIterator,
    ZipIterator,
)
from ..operators import Op
from ..search import lower_bound
from . import operators
from .axes import INT64, constant
from .calls import Flags, Numbers, Operand, Work
from .described import described
from .items import Counted, size_of
from .rows import compared
from .values import cast, casting

_BOOL, _INT32 = np.dtype(bool), np.dtype(np.int32)


def _operands(a: Operand, b: Operand, less: Op | None) -> tuple[list[Any], Any, np.dtype[Any]]:
    """Return the items of both in one dtype, the comparison, and the dtype of results."""
    for name, each in (("a", a), ("b", b)):
        if each.ndim != 1:
            raise ArgumentValueError(name, f"expected one dimension, got {each.ndim}")
    if a.dtype.names is not None:
        if less is None:
            raise ArgumentTypeError("less", f"expected a comparison of {structs.text(a.dtype)}, got None")
        if structs.layout(a.dtype) != structs.layout(b.dtype):
            raise ArgumentTypeError(
                "b", f"expected {structs.text(a.dtype)}, as `a` has it, got {structs.text(b.dtype)}"
            )
        return [a.items, b.items], less, a.dtype
    numbers = compared(less, a=a, b=b)
    less = operators.less_of(numbers.dtype) if less is None else less
    return [numbers.read(each.items) for each in (a, b)], less, numbers.result


def _place(s: Any) -> Any:
    i, own, other = s
    return other - own + i


@operators.remembered
def _is_beyond(less: Op) -> Any:
    before = operators.within(less)

    def beyond(s: Any) -> Any:
        item, place, there, number = s
        if place >= number:
            return True
        return np.bool_(before(item, there))

    return beyond


def _beyond(work: Work, items: Any, size: int, others: Any, number: int, less: Op | None) -> Any:
    """Return an iterator over whether as many as the other has are equal to an item and in front of it."""
    if not number or not size:
        return ConstantIterator(np.bool_(True))
    dtype = _INT32 if size + number < 2**31 else INT64
    ranks = []
    for data, length in ((items, size), (others, number)):
        ranks.append(found := work.temporary(size, dtype))
        search = lower_bound(data, items, found, less, values_sorted=True)
        work.run(search, data, length, items, size, found)
    numbers = (cast(each, INT64) for each in ranks)
    place = TransformIterator(ZipIterator(CountingIterator(np.int64(0)), *numbers), _place, INT64)
    at = TransformIterator(ZipIterator(place, constant(number)), operators.clipped, INT64)
    each = ZipIterator(items, place, PermutationIterator(others, at), constant(number))
    return TransformIterator(each, _is_beyond(less), _BOOL)


def _set(
    work: Work, a: Operand, b: Operand, less: Op | None, size: int | None, make: Any, capacity: int
) -> Operand | Counted:
    """Return a set that a factory's algorithm finds, which has no more items than there is room for."""
    (first, second), less, dtype = _operands(a, b, less)
    wanted = size_of(size)
    out = work.empty((capacity if wanted is None else max(capacity, wanted),), dtype)
    written, count = casting(out.items, first.dtype), work.empty((), INT64)
    algorithm = make(first, None, second, None, written, None, count.items, less)
    work.run(algorithm, first, None, a.size, second, None, b.size, written, None, count.items)
    found = work.cut([out], count, wanted)
    return found[0] if wanted is None else Counted(*found)


@described(a="multiset", b="multiset", size="length")
def set_union(
    work: Work, a: Operand, b: Operand, /, *, less: Op | None = None, size: int | None = None
) -> Numbers | Counted:
    """Return the union of two sorted arrays, sorted: an item occurs as often as where it is most frequent.

    Of equal items, those of `a` come first, and as many of the last of `b` as it has more.

    >>> arrays.set_union(np.array([1, 2, 2]), np.array([2, 3, 3]))
    array([1, 2, 2, 3, 3])
    """
    return _set(work, a, b, less, size, sets.set_union, a.size + b.size)


@described(a="multiset", b="multiset", size="length")
def set_intersection(
    work: Work, a: Operand, b: Operand, /, *, less: Op | None = None, size: int | None = None
) -> Numbers | Counted:
    """Return the intersection of two sorted arrays, sorted: an item occurs as often as where it is rarest.

    Of equal items, these are the first of `a`.

    >>> arrays.set_intersection(np.array([1, 2, 2]), np.array([2, 2, 2, 3]))
    array([2, 2])
    """
    return _set(work, a, b, less, size, sets.set_intersection, min(a.size, b.size))


@described(a="multiset", b="multiset", size="length")
def set_difference(
    work: Work, a: Operand, b: Operand, /, *, less: Op | None = None, size: int | None = None
) -> Numbers | Counted:
    """Return the difference of two sorted arrays, sorted: counts in the second are subtracted.

    Of equal items, these are the last of `a`, as many as it has more.

    >>> arrays.set_difference(np.array([1, 2, 2]), np.array([2, 3]))
    array([1, 2])
    """
    return _set(work, a, b, less, size, sets.set_difference, a.size)


@described(a="multiset", b="multiset", size="length")
def set_symmetric_difference(
    work: Work, a: Operand, b: Operand, /, *, less: Op | None = None, size: int | None = None
) -> Numbers | Counted:
    """Return the symmetric difference of two sorted arrays, sorted: an item as often as counts differ.

    Of equal items, these are the last of the array that has more, as many as it has more.

    >>> arrays.set_symmetric_difference(np.array([1, 2, 2]), np.array([2, 3]))
    array([1, 2, 3])
    """
    return _set(work, a, b, less, size, sets.set_symmetric_difference, a.size + b.size)


def _itself(flag: Any) -> Any:
    return flag


@described(a="multiset", b="multiset")
def includes(work: Work, a: Operand, b: Operand, /, *, less: Op | None = None) -> Flags:
    """Return whether each item of a sorted array is in another at least as often.

    >>> bool(arrays.includes(np.array([1, 2, 2, 3]), np.array([2, 2])))
    True
    """
    items, less, _ = _operands(a, b, less)
    first, second = (work.kept(*each) for each in zip(items, (a.size, b.size), strict=True))
    flags = _beyond(work, second, b.size, first, a.size, less)
    out = work.empty((), _BOOL)
    written = TransformOutputIterator(out.items, operators.is_nowhere, INT64)
    work.run(find_if(flags, written, _itself, none=-1), flags, written, b.size)
    return out
