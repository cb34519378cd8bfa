"""Sets: the different items of arrays, and what two arrays have in common."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np

from .. import structs
from ..iterators import CountingIterator, PermutationIterator, TransformIterator, ZipIterator
from ..operators import OpKind
from ..search import lower_bound
from ..sets import set_difference, set_intersection, set_symmetric_difference
from ..unique import unique_by_key
from . import operators
from .axes import INT64, AxisLayout, constant, indices
from .calls import Flags, Numbers, Operand, Work
from .described import described
from .items import Counted, capacity_of, chosen, joined, size_of
from .rows import check_numbers, compared, positions, scanned_rows, sorted_rows
from .values import Compared, cast, casting, is_nonzero

_BOOL = np.dtype(bool)


def _before(s: Any) -> Any:
    return s[0] - 1 if s[0] > 0 else 0


def _differs(s: Any) -> Any:
    return s[2] == 0 or s[0] != s[1]


def _differs_or_one_nan(s: Any) -> Any:
    return s[2] == 0 or (s[0] != s[1] and (s[0] == s[0] or s[1] == s[1]))


def _as_one(s: Any) -> Any:
    return 1 if s else 0


def heads(items: Any, equal_nan: bool = False) -> Any:
    """Return whether each of sorted items is the first of its equals."""
    before = PermutationIterator(items, indices(_before))
    neighbours = ZipIterator(items, before, CountingIterator(np.int64(0)))
    return TransformIterator(neighbours, _differs_or_one_nan if equal_nan else _differs, _BOOL)


def _sorted(work: Work, x: Operand, values: bool = False) -> tuple[Any, Any]:
    """Return all items sorted, and where they were if that is wanted."""
    layout = AxisLayout(1, x.size, 1)
    return sorted_rows(work, x.items, layout, False, None, positions(work, layout) if values else None)


def _kept(work: Work, items: Any, keep: Any, number: int, size: int | None) -> Operand | Counted:
    """Return those of a number of items for which a flag holds, as many as there are, or as `size` says."""
    return chosen(work, items, number, is_nonzero, size, keep)


def _are_equal(a: Any, b: Any) -> Any:
    return a == b


def _are_equal_or_nan(a: Any, b: Any) -> Any:
    return a == b or (a != a and b != b)  # noqa: PLR0124


def _firsts(
    work: Work,
    items: Any,
    number: int,
    length: int | None,
    result: np.dtype[Any],
    equal_nan: bool,
    *with_items: Any,
) -> tuple[Operand, Operand]:
    """Return the first of equals of sorted items in a dtype, and their number.

    `with_items` are an input and an output, for what goes with these.
    """
    values = work.empty((capacity_of(number, length),), result)
    count = work.empty((), INT64)
    d_in, d_out = with_items or (None, None)
    given: tuple[Any, Any, Any, Any, Any] = (
        items,
        d_in,
        casting(values.items, items.dtype),
        d_out,
        count.items,
    )
    op = _are_equal_or_nan if equal_nan else _are_equal
    work.run(unique_by_key(*given, op), *given, number)
    return values, count


def _unique_values(work: Work, x: Operand, size: int | None) -> Any:
    check_numbers("x", x)
    return _different_ones(work, _sorted(work, x)[0], x.size, size, x.dtype, False)


def _different_ones(
    work: Work, items: Any, number: int, size: Any, result: np.dtype[Any], equal_nan: bool = True
) -> Operand | Counted:
    """Return the different ones of sorted items in a dtype, as many as there are, or as `size` says."""
    length = size_of(size)
    values, count = _firsts(work, items, number, length, result, equal_nan)
    found = work.cut([values], count, length)
    return found[0] if length is None else Counted(*found)


@described(size="length")
def unique_values(work: Work, x: Operand, /, *, size: int | None = None) -> Operand | Counted:
    """Return the different items, sorted. NaNs are all different.

    >>> arrays.unique_values(np.array([3, 1, 3, 2]))
    array([1, 2, 3])
    """
    found: Operand | Counted = _unique_values(work, x, size)
    return found


class UniqueAll(NamedTuple):
    """The different items, the first index of each, the inverse indices, and counts."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """The different items, and their counts."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """The different items, and which one each item is."""

    values: Any
    inverse_indices: Any


U = TypeVar("U", UniqueAll, UniqueCounts, UniqueInverse)


def _length_of_run(s: Any) -> Any:
    begin, after, i, last, size = s
    return (after if i < last else size) - begin


def _next(s: Any) -> Any:
    i, last = s[0], s[1]
    return i + 1 if i < last else i


def _unique(work: Work, x: Operand, size: int | None, wants: type[U]) -> U | Counted:
    """Return those results that are the fields of `wants`."""
    check_numbers("x", x)
    length = size_of(size)
    has_indices, has_inverse, has_counts = (
        name in wants._fields for name in ("indices", "inverse_indices", "counts")
    )
    items, places = _sorted(work, x, has_indices or has_inverse)
    starts = work.empty((capacity_of(x.size, length),), INT64)
    numbered = CountingIterator(np.int64(0)), starts.items
    values, count = _firsts(work, items, x.size, length, x.dtype, False, *numbered)
    found: dict[str, Operand] = {}
    if has_inverse:
        found["inverse_indices"] = inverse = work.empty(x.shape, INT64)
        if x.size:
            written = PermutationIterator(inverse.items, places)
            ones = TransformIterator(heads(items), _as_one, INT64)
            scanned_rows(work, ones, written, AxisLayout(1, x.size, 1), OpKind.PLUS, np.full(1, -1))
    if length is None:
        values, starts = work.cut([values, starts], count, None)
        known: Any = constant(starts.size - 1)
    else:  # places beyond the count are not known: they are made the first one
        limit = PermutationIterator(count.items, constant(0))
        known = TransformIterator(limit, _less_one, INT64)
        safe = ZipIterator(starts.items, CountingIterator(np.int64(0)), known)
        starts = work.made(TransformIterator(safe, _or_first, INT64), starts.shape)
        values = work.made(PermutationIterator(items, starts.items), starts.shape)
    shape = starts.shape
    found["values"] = values
    if has_indices:
        found["indices"] = work.made(PermutationIterator(places, starts.items), shape)
    if has_counts:
        number = CountingIterator(np.int64(0))
        after = TransformIterator(ZipIterator(number, known), _next, INT64)
        following = PermutationIterator(starts.items, after)
        runs = ZipIterator(starts.items, following, number, known, constant(x.size))
        found["counts"] = work.made(TransformIterator(runs, _length_of_run, INT64), shape)
    if length is None:
        return wants(**found)
    cut = {
        name: each if name == "inverse_indices" else work.first(each, length) for name, each in found.items()
    }
    return Counted(wants(**cut), count)


def _less_one(value: Any) -> Any:
    return value - 1


def _or_first(s: Any) -> Any:
    return s[0] if s[1] <= s[2] else 0


@described(size="length")
def unique_counts(work: Work, x: Operand, /, *, size: int | None = None) -> UniqueCounts | Counted:
    """Return the different items, sorted, with their counts.

    The result is a named tuple of arrays; with `size`, one of that and the count.

    >>> values, counts = arrays.unique_counts(np.array([3, 1, 3, 2]))
    >>> counts
    array([1, 1, 2])
    """
    return _unique(work, x, size, UniqueCounts)


@described(size="length")
def unique_inverse(work: Work, x: Operand, /, *, size: int | None = None) -> UniqueInverse | Counted:
    """Return the different items, sorted, and for each item which of them it is.

    The result is a named tuple of arrays; with `size`, one of that and the count.

    >>> values, inverse = arrays.unique_inverse(np.array([3, 1, 3, 2]))
    >>> inverse
    array([2, 0, 2, 1])
    """
    return _unique(work, x, size, UniqueInverse)


@described(size="length")
def unique_all(work: Work, x: Operand, /, *, size: int | None = None) -> UniqueAll | Counted:
    """Return the different items, sorted, with their first indices, the inverse, and their counts.

    The result is a named tuple of arrays; with `size`, one of that and the count.

    >>> arrays.unique_all(np.array([3, 1, 3, 2])).indices
    array([1, 3, 0])
    """
    return _unique(work, x, size, UniqueAll)


# --- Two arrays ------------------------------------------------------------------------------------------


def _found(s: Any) -> Any:
    item, place, other, size = s
    return place < size and item == other


def _not_found(s: Any) -> Any:
    item, place, other, size = s
    return place >= size or item != other


def _members(work: Work, items: Any, size: int, others: Any, number: int, invert: bool) -> Any:
    """Return an iterator over whether each item is among others, which are sorted; there is one at least."""
    ranks = work.temporary(size, INT64)
    comp = operators.less_of(others.dtype)
    if size:
        work.run(lower_bound(others, items, ranks, comp), others, number, items, size, ranks)
    at = TransformIterator(ZipIterator(ranks, constant(number)), operators.clipped, INT64)
    each = ZipIterator(items, ranks, PermutationIterator(others, at), constant(number))
    return TransformIterator(each, _not_found if invert else _found, _BOOL)


def _sorted_as(work: Work, x: Operand, numbers: Compared) -> Any:
    """Return all items sorted, as they are compared with others: no conversion changes their order."""
    items, _ = _sorted(work, x)
    return work.kept(numbers.read(items), x.size)


@described(numbers=True)
def isin(work: Work, x1: Operand, x2: Operand, /, *, invert: bool = False) -> Flags:
    """Return whether each item of an array is among those of another. NaN is nowhere.

    The result has the shape of `x1`.

    >>> arrays.isin(np.array([1, 2, 3]), np.array([3, 1, 7]))
    array([ True, False,  True])
    """
    numbers = compared(x1=x1, x2=x2)
    if not x2.size:
        return work.made(constant(np.bool_(invert)), x1.shape)
    others = _sorted_as(work, x2, numbers)
    return work.made(_members(work, numbers.read(x1.items), x1.size, others, x2.size, invert), x1.shape)


def _both(s: Any) -> Any:
    return s[0] and s[1]


@described(size="length")
def union1d(work: Work, a: Operand, b: Operand, /, *, size: int | None = None) -> Numbers | Counted:
    """Return the different items of two arrays, sorted. All NaNs are one, as in NumPy.

    >>> arrays.union1d(np.array([3, 1]), np.array([2, 3]))
    array([1, 2, 3])
    """
    numbers = compared(a=a, b=b)
    flat = [Operand(None, numbers.read(each.items), (each.size,)) for each in (a, b)]
    whole = joined(work, flat, 0, numbers.dtype)
    return _different_ones(work, _sorted(work, whole)[0], whole.size, size, numbers.result)


# The first of equal items of a sorted array is in a set of two arrays only if the set has that item at all:
# of m and n equal ones, a difference has the last m - n. So no duplicates are removed before: a flag for the
# first of equals goes through the set with each item.


def _is_kept(s: Any) -> Any:
    i, count, flag, item, capacity = s
    if i < count:
        return flag and item == item  # noqa: PLR0124
    return i >= capacity and item != item  # noqa: PLR0124


def _by_number(s: Any) -> Any:
    return s[1] if s[0] == 0 else s[2]


def _first_nan(work: Work, items: Any, size: int) -> Any:
    """Return an iterator over the first NaN of sorted items; if there is none, over another item."""
    if structs.kind_of(items.dtype) == "f":  # there is one NaN, and it is the last
        return PermutationIterator(items, constant(size - 1))
    place, least = work.temporary(1, INT64), constant(items.dtype.type(complex(-np.inf, np.nan)))
    search = lower_bound(items, least, place, operators.less_of(items.dtype))
    work.run(search, items, size, least, 1, place)
    at = TransformIterator(ZipIterator(place, constant(size)), operators.clipped, INT64)
    return PermutationIterator(items, PermutationIterator(at, constant(0)))


def _different(
    work: Work, a: Operand, b: Operand, numbers: Compared, size: int | None, make: Any, has_nans: int
) -> Operand | Counted:
    """Return the different items of a set of two arrays, both with items, that `make` makes of sorted ones.

    A NaN equals no item. The first NaN of `has_nans` of the arrays is behind all other items of the result.
    """
    one, other = (_sorted_as(work, each, numbers) for each in (a, b))
    dtype, is_symmetric = numbers.dtype, make is set_symmetric_difference
    capacity = min(a.size, b.size) if make is set_intersection else a.size + is_symmetric * b.size
    last = has_nans if structs.kind_of(dtype) in "fc" else 0
    items, count = work.temporary(capacity + last, dtype), work.temporary(1, INT64)
    if make is set_intersection:  # of which each that is there begins with the first of equals
        given: tuple[Any, ...] = None, None, None
        flags = heads(items)
    else:
        flags = work.temporary(capacity + last, _BOOL)
        given = heads(one), heads(other) if is_symmetric else None, flags
    algorithm = make(one, given[0], other, given[1], items, given[2], count, operators.less_of(dtype))
    work.run(algorithm, one, given[0], a.size, other, given[1], b.size, items, given[2], count)
    if last:
        nans = [_first_nan(work, one, a.size), _first_nan(work, other, b.size)]
        each = TransformIterator(ZipIterator(CountingIterator(np.int64(0)), *nans), _by_number, dtype)
        work.copy(each, items[capacity:], last)
    known = CountingIterator(np.int64(0)), PermutationIterator(count, constant(0)), flags, items
    keep = TransformIterator(ZipIterator(*known, constant(capacity)), _is_kept, _BOOL)
    return _kept(work, cast(items, numbers.result), keep, capacity + last, size)


@described(size="length")
def intersect1d(
    work: Work, a: Operand, b: Operand, /, *, assume_unique: bool = False, size: int | None = None
) -> Numbers | Counted:
    """Return the different items that two arrays have in common, sorted. A NaN is in no other array.

    >>> arrays.intersect1d(np.array([3, 1, 3]), np.array([2, 3]))
    array([3])
    """
    numbers = compared(a=a, b=b)
    if not a.size or not b.size:
        return _kept(work, cast(a.items, numbers.result), constant(np.bool_(False)), 0, size)
    return _different(work, a, b, numbers, size, set_intersection, 0)


@described(size="length")
def setdiff1d(
    work: Work, a: Operand, b: Operand, /, *, assume_unique: bool = False, size: int | None = None
) -> Numbers | Counted:
    """Return the different items of the first array that the second has not, sorted. NaN is in no array.

    With `assume_unique`, items stay in their order.

    >>> arrays.setdiff1d(np.array([3, 1, 3]), np.array([2, 3]))
    array([1])
    """
    numbers = compared(a=a, b=b)
    if a.dtype == numbers.dtype and b.size and a.size and not assume_unique:
        return _different(work, a, b, numbers, size, set_difference, 1)
    items = a.items if assume_unique else _sorted(work, a)[0]  # of the array's dtype, as results are
    flags = constant(np.bool_(True)) if assume_unique else heads(items, equal_nan=True)
    if b.size:
        others = _sorted_as(work, b, numbers)
        member = _members(work, numbers.read(items), a.size, others, b.size, True)
        flags = TransformIterator(ZipIterator(flags, member), _both, _BOOL)
    return _kept(work, items, flags, a.size, size)


@described(size="length")
def setxor1d(
    work: Work, a: Operand, b: Operand, /, *, assume_unique: bool = False, size: int | None = None
) -> Numbers | Counted:
    """Return the different items that only one of two arrays has, sorted. Each has a NaN of its own.

    >>> arrays.setxor1d(np.array([3, 1, 3]), np.array([2, 3]))
    array([1, 2])
    """
    numbers = compared(a=a, b=b)
    if a.size and b.size:
        return _different(work, a, b, numbers, size, set_symmetric_difference, 2)
    items, _ = _sorted(work, a if a.size else b)
    return _different_ones(work, items, a.size + b.size, size, numbers.result)
