"""Selections: the items for which a predicate holds, their places, and where runs of equal keys are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._base.errors import ArgumentValueError
from .._base.sizes import value_of
from ..iterators import (
    CountingIterator,
    DiscardIterator,
    PermutationIterator,
    TransformIterator,
    ZipIterator,
)
from ..operators import Op, OpKind
from ..partition import three_way_partition
from ..runs import reduce_by_key as reduce_runs
from ..runs import run_length_encode as encode_runs
from . import operators
from .axes import INT64, constant, with_numbers
from .calls import Integers, Operand, Work
from .described import described
from .items import Counted, capacity_of, chosen, selected, size_of
from .rows import check_numbers, dtypes_of
from .values import cast, casting, initial, is_nonzero

if TYPE_CHECKING:
    from .._base.annotations import DType


@described("num_items", "like", size="length")
def copy_if(work: Work, x: Operand, predicate: Op, /, *, size: int | None = None) -> Operand | Counted:
    """Return the items for which a predicate holds, in C's order.

    >>> arrays.copy_if(np.array([3, -1, 4, -2]), lambda a: a > 0)
    array([3, 4])
    """
    return chosen(work, x.items, x.size, predicate, size)


@described("num_items", "like")
def partition_by(work: Work, x: Operand, predicate: Op, /) -> Counted:
    """Return the items for which a predicate holds, then the others, and the number of the former.

    Both are in C's order. Nothing is read back.

    >>> items, count = arrays.partition_by(np.array([3, -1, 4, -2]), lambda a: a < 0)
    >>> items, int(count)
    (array([-1, -2,  3,  4]), 2)
    """
    out, numbers = work.empty((x.size,), x.dtype), work.temporary(2, INT64)
    first, rest = work.temporary(x.size, x.dtype), work.temporary(x.size, x.dtype)
    given = x.items, first, DiscardIterator(x.dtype), rest, numbers
    work.run(three_way_partition(*given, predicate, operators.never), *given, x.size)
    count = work.made(numbers, ())
    each = ZipIterator(
        CountingIterator(np.int64(0)), PermutationIterator(count.items, constant(0)), constant(x.size)
    )
    if x.size:
        head = PermutationIterator(first, TransformIterator(each, _in_head, INT64))
        tail = PermutationIterator(rest, TransformIterator(each, _in_tail, INT64))
        both = ZipIterator(TransformIterator(each, _is_head, np.dtype(bool)), head, tail)
        work.copy(TransformIterator(both, operators.chosen, x.dtype), out.items, x.size)
    return Counted(out, count)


def _in_head(s: Any) -> Any:
    return s[0] if s[0] < s[1] else 0


def _in_tail(s: Any) -> Any:
    return s[0] - s[1] if s[0] >= s[1] else 0


def _is_head(s: Any) -> Any:
    return s[0] < s[1]


def _digit(s: Any) -> Any:
    return (s[0] // s[2]) % s[1]


@described(size="length")
def nonzero(work: Work, x: Operand, /, *, size: int | None = None) -> tuple[Integers, ...] | Counted:
    """Return the indices of the items that are not 0, in C's order: an array for each dimension.

    There are no indices of an array without dimensions.

    >>> arrays.nonzero(np.array([[0, 7], [5, 0]]))
    (array([0, 1]), array([1, 0]))
    """
    check_numbers("x", x)
    if not x.ndim:
        raise ArgumentValueError("x", "expected an array with dimensions, got one without")
    length = size_of(size)
    numbers = CountingIterator(np.int64(0))
    flat, count = selected(work, numbers, x.size, is_nonzero, length, x.items)
    flat, *counts = work.cut([flat], count, length)
    if x.ndim == 1:
        return (flat,) if length is None else Counted((flat,), *counts)
    steps = [math.prod(x.shape[i + 1 :]) for i in range(x.ndim)]
    found = tuple(
        work.made(
            TransformIterator(with_numbers(flat.items, max(n, 1), max(step, 1)), _digit, INT64), flat.shape
        )
        for n, step in zip(x.shape, steps, strict=True)
    )
    return found if length is None else Counted(found, *counts)


# --- Runs ------------------------------------------------------------------------------------------------


class Runs(NamedTuple):
    """Runs of equal keys: the key of each, and the reduction of its values, or their number."""

    keys: Any
    values: Any


class CountedRuns(NamedTuple):
    """The same, and the number of runs, in an array without dimensions."""

    keys: Any
    values: Any
    count: Any


def _runs(work: Work, keys: Operand, values: Operand, count: Operand, size: int | None) -> Runs | CountedRuns:
    found = work.cut([keys, values], count, size)
    return Runs(*found) if size is None else CountedRuns(*found)


def _equal(keys: Operand, equal: Any) -> Any:
    if keys.parts and equal is None:
        return operators.equal_fields(len(keys.parts))
    return equal


@described("num_items", size="length")
def reduce_by_key(
    work: Work,
    keys: Operand,
    x: Operand,
    op: Op = OpKind.PLUS,
    /,
    *,
    init: Any = None,
    equal: Op | None = None,
    dtype: DType = None,
    size: int | None = None,
) -> Runs | CountedRuns:
    """Return the keys of runs of equal ones, and the items that belong to each run combined.

    Keys that are equal but not neighbours are in several runs: `segment_reduce` takes ids in any order.

    The result is a named tuple of arrays, `keys` and `values`, and with `size` `count`.

    >>> keys, sums = arrays.reduce_by_key(np.array([7, 7, 5, 7]), np.array([1, 2, 3, 4]))
    >>> keys, sums
    (array([7, 5, 7]), array([3, 3, 4]))
    """
    if keys.size != x.size:
        raise ArgumentValueError("x", f"expected as many items as `keys` has, {keys.size}, got {x.size}")
    length = size_of(size)
    capacity = capacity_of(keys.size, length)
    result, within = dtypes_of(x, dtype, init)
    unique, values, count = (
        work.empty((capacity,), keys.dtype),
        work.empty((capacity,), result),
        work.empty((), INT64),
    )
    h_init = None if init is None else initial("init", init, within)
    written = casting(values.items, within)
    given = keys.items, unique.items, cast(x.items, within), written, count.items
    work.run(reduce_runs(*given, op, _equal(keys, equal), value_of(h_init)), *given, keys.size, h_init)
    return _runs(work, unique, values, count, length)


@described("num_items", size="length")
def run_length_encode(
    work: Work, x: Operand, /, *, equal: Op | None = None, size: int | None = None
) -> Runs | CountedRuns:
    """Return the items of runs of equal ones, one for each run, and how long the runs are.

    The result is a named tuple of arrays, `keys` and `values`, and with `size` `count`.

    >>> items, lengths = arrays.run_length_encode(np.array([7, 7, 5, 7]))
    >>> items, lengths
    (array([7, 5, 7]), array([2, 1, 1]))
    """
    length = size_of(size)
    capacity = capacity_of(x.size, length)
    unique, counts = work.empty((capacity,), x.dtype), work.empty((capacity,), INT64)
    count = work.empty((), INT64)
    given = x.items, unique.items, counts.items, count.items
    work.run(encode_runs(*given, _equal(x, equal)), *given, x.size)
    return _runs(work, unique, counts, count, length)
