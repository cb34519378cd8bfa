"""The first item that fits, and what follows from whether there is one: comparisons, orders, partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._ir.iterator import Iterator, over
from ..find import find_if
from ..iterators import (
    ConstantIterator,
    PermutationIterator,
    TransformIterator,
    TransformOutputIterator,
    ZipIterator,
)
from ..operators import Op, OpKind
from ..search import lower_bound
from . import operators
from .axes import INT64, axes_of
from .calls import Flags, Integers, Operand, Work
from .described import described
from .predicates import check_shapes, flags_of, unflagged
from .rows import compared, promoted, reduced, result_shape, whether

if TYPE_CHECKING:
    from .._base.annotations import Axes

_BOOL = np.dtype(bool)


def _index(work: Work, items: Any, predicate: Op, size: int, none: int | None = -1) -> Operand:
    """Return the index of the first match, or else -1 or the number of items."""
    out = work.empty((), INT64)
    work.run(find_if(items, out.items, predicate, none=none), items, out.items, size)
    return out


@described("num_items", "like")
def find_first(work: Work, x: Operand, predicate: Op, /) -> Integers:
    """Return the index of the first item, in C's order, for which a predicate holds; -1 without one.

    It stops early: few items are read behind the match.

    >>> int(arrays.find_first(np.array([3, -1, 4, -2]), lambda a: a < 0))
    1
    """
    return _index(work, x.items, predicate, x.size)


# --- All, any, none ---------------------------------------------------------------------------------------


def _quantified(
    work: Work, x: Operand, predicate: Op, told: Any, kind: OpKind, axis: Axes, keepdims: bool, invert: bool
) -> Flags:
    """Return what follows from the first item that fits; along axes, from all of their items."""
    if len(axes_of(axis, x.ndim)) == x.ndim:
        shape = result_shape(((1,) * x.ndim, tuple(range(x.ndim))), keepdims)
        fits = unflagged(predicate) if kind is OpKind.LOGICAL_AND and not invert else predicate
        return whether(work, x.items, fits, x.size, told, work.empty(shape, _BOOL))
    return reduced(work, flags_of(x, predicate, invert), None, kind, axis, None, keepdims, None, None)


@described(axis="axes")
def all_of(work: Work, x: Operand, predicate: Op, /, *, axis: Axes = None, keepdims: bool = False) -> Flags:
    """Return whether a predicate holds for all items.

    Of all axes, it stops at the first item for which it does not.

    >>> bool(arrays.all_of(np.array([3, -1, 4]), lambda a: a > 0))
    False
    """
    return _quantified(work, x, predicate, operators.is_nowhere, OpKind.LOGICAL_AND, axis, keepdims, False)


@described(axis="axes")
def any_of(work: Work, x: Operand, predicate: Op, /, *, axis: Axes = None, keepdims: bool = False) -> Flags:
    """Return whether a predicate holds for an item.

    Of all axes, it stops at the first of them.

    >>> bool(arrays.any_of(np.array([3, -1, 4]), lambda a: a > 0))
    True
    """
    return _quantified(work, x, predicate, operators.is_somewhere, OpKind.LOGICAL_OR, axis, keepdims, False)


@described(axis="axes")
def none_of(work: Work, x: Operand, predicate: Op, /, *, axis: Axes = None, keepdims: bool = False) -> Flags:
    """Return whether a predicate holds for no item.

    Of all axes, it stops at the first item for which it does.

    >>> bool(arrays.none_of(np.array([3, 1, 4]), lambda a: a < 0))
    True
    """
    return _quantified(work, x, predicate, operators.is_nowhere, OpKind.LOGICAL_AND, axis, keepdims, True)


# --- Two arrays -------------------------------------------------------------------------------------------


def _differ(s: Any) -> Any:
    return s[0] != s[1]


def _pairs(a: Operand, b: Operand) -> Any:
    numbers = compared(a=a, b=b)
    return ZipIterator(numbers.read(a.items), numbers.read(b.items))


@described()
def mismatch(work: Work, a: Operand, b: Operand, /) -> Integers:
    """Return the index of the first items, in C's order, that differ; -1 if all are equal.

    >>> int(arrays.mismatch(np.array([3, 1, 4]), np.array([3, 1, 5])))
    2
    """
    check_shapes(a, b)
    return _index(work, _pairs(a, b), _differ, a.size)


@described()
def equal(work: Work, a: Operand, b: Operand, /) -> Flags:
    """Return whether all items of two arrays are equal. NaN is equal to nothing.

    >>> bool(arrays.equal(np.array([3, 1]), np.array([3, 1])))
    True
    """
    check_shapes(a, b)
    return whether(work, _pairs(a, b), _differ, a.size, operators.is_nowhere)


@operators.remembered
def _ordered_differently(less: Op) -> Any:
    before = operators.within(less)
    return lambda s: np.bool_(before(s[0], s[1])) or np.bool_(before(s[1], s[0]))


@operators.remembered
def _decided(less: Op) -> Any:
    before = operators.within(less)

    def decided(s: Any) -> Any:
        if s[0] < 0:
            return s[3]
        return np.bool_(before(s[1], s[2]))

    return decided


def _not_before(place: Any) -> Any:
    return place if place > 0 else 0


@described(a="items", b="others")
def lexicographical_compare(work: Work, a: Operand, b: Operand, /, *, less: Op | None = None) -> Flags:
    """Return whether one array comes before another: by the first items that differ, else if it is shorter.

    >>> bool(arrays.lexicographical_compare(np.array([3, 1, 4]), np.array([3, 2])))
    True
    """
    numbers = compared(less, a=a, b=b)
    less = operators.less_of(numbers.dtype) if less is None else less
    size, out = min(a.size, b.size), work.empty((), np.dtype(bool))
    shorter = ConstantIterator(np.bool_(a.size < b.size))
    if not size:
        work.copy(shorter, out.items, 1)
        return out
    first, second = numbers.read(a.items), numbers.read(b.items)
    found = _index(work, ZipIterator(first, second), _ordered_differently(less), size)
    place = TransformIterator(found.items, _not_before, INT64)
    both = PermutationIterator(first, place), PermutationIterator(second, place)
    work.copy(ZipIterator(found.items, *both, shorter), out.items, 1, _decided(less))
    return out


# --- Order and partitions ---------------------------------------------------------------------------------


def _neighbours(x: Operand) -> tuple[Any, int]:
    """Return pairs of items that follow each other, and their number."""
    number = max(x.size - 1, 0)
    return ZipIterator(x.items, over("x", x.items) + 1 if number else x.items), number


@operators.remembered
def _out_of_order(less: Op) -> Any:
    function = operators.within(less)
    return lambda s: np.bool_(function(s[1], s[0]))


def _order(x: Operand, less: Op | None) -> Any:
    if less is None:
        promoted(x=x)
    return _out_of_order(operators.less_of(x.dtype) if less is None else less)


@described()
def is_sorted(work: Work, x: Operand, /, *, less: Op | None = None) -> Flags:
    """Return whether no item, in C's order, comes before the one in front of it.

    >>> bool(arrays.is_sorted(np.array([1, 2, 2])))
    True
    """
    pairs, number = _neighbours(x)
    return whether(work, pairs, _order(x, less), number, operators.is_nowhere)


def _behind(place: Any) -> Any:
    return place + 1


@described()
def is_sorted_until(work: Work, x: Operand, /, *, less: Op | None = None) -> Integers:
    """Return the number of leading items, in C's order, that are sorted.

    >>> int(arrays.is_sorted_until(np.array([1, 2, 0, 3])))
    2
    """
    pairs, number = _neighbours(x)
    out = work.empty((), INT64)
    if not x.size:
        work.copy(ConstantIterator(np.int64(0)), out.items, 1)
        return out
    written = TransformOutputIterator(out.items, _behind, INT64)
    work.run(find_if(pairs, written, _order(x, less)), pairs, written, number)
    return out


@operators.remembered
def _begins_again(predicate: Op) -> Any:
    function = operators.within(predicate)

    def begins(s: Any) -> Any:
        if np.bool_(function(s[0])):
            return False
        return np.bool_(function(s[1]))

    return begins


@described()
def is_partitioned(work: Work, x: Operand, predicate: Op, /) -> Flags:
    """Return whether all items for which a predicate holds, in C's order, are before the others.

    >>> bool(arrays.is_partitioned(np.array([-3, -1, 4]), lambda a: a < 0))
    True
    """
    pairs, number = _neighbours(x)
    return whether(work, pairs, _begins_again(predicate), number, operators.is_nowhere)


@operators.remembered
def _within_first(predicate: Op) -> Any:
    function = operators.within(predicate)
    return lambda item, value: np.bool_(function(item))


@described()
def partition_point(work: Work, x: Operand, predicate: Op, /) -> Integers:
    """Return the number of items for which a predicate holds, if these come first.

    A binary search finds it in an array; in tuples of arrays and iterators, the first item of the others is
    looked for.

    >>> int(arrays.partition_point(np.array([-3, -1, 4]), lambda a: a < 0))
    2
    """
    if isinstance(x.items, Iterator) or not x.size:
        return _index(work, x.items, unflagged(predicate), x.size, None)
    out = work.empty((), INT64)
    search = lower_bound(x.items, x.items, out.items, _within_first(predicate))
    work.run(search, x.items, x.size, x.items, 1, out.items)  # for one value, which does not matter
    return out
