"""Sorts along axes, the first k items, merges, and searches in sorted arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import structs
from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._ir.iterator import Iterator
from ..iterators import CountingIterator, PermutationIterator
from ..merges import merge as merge_ranges
from ..operators import Op
from ..search import lower_bound, upper_bound
from ..sort import SortOrder
from ..topk import segmented_top_k
from ..topk import top_k as first_k
from . import operators
from .axes import INT64, AxisLayout, axis_of, columns, indices
from .calls import Integers, Numbers, Operand, Work, output_of, same_memory
from .described import described
from .rows import (
    check_kind,
    compared,
    layout_along,
    ordered,
    places_of,
    positions,
    promoted,
    sorted_rows,
    within_row,
)
from .values import cast, integer

if TYPE_CHECKING:
    from .._base.annotations import Array


def _along(x: Operand, axis: int | None, less: Op | None) -> tuple[AxisLayout, tuple[int, ...]]:
    if x.dtype.names is not None and less is None:
        raise ArgumentTypeError("less", f"expected a comparison of {structs.text(x.dtype)}, got None")
    return layout_along(x, axis)


def _sort(
    work: Work,
    x: Operand,
    axis: int | None,
    descending: bool,
    stable: bool,
    less: Op | None,
    out: Array | None,
) -> Operand:
    layout, shape = _along(x, axis, less)
    target = output_of(work, out, shape, x.dtype, [x])
    may_be = layout.inner == 1 and not x.parts and not isinstance(out, Iterator) and target.dtype == x.dtype
    wanted = target.items if may_be and (out is None or not same_memory(work, target, x)) else None
    keys, _ = sorted_rows(work, columns(x.items, layout), layout, descending, less, None, wanted, stable)
    if keys is not target.items:
        work.copy(keys, columns(target.items, layout), layout.size)
    return target


@described()
def argsort(
    work: Work,
    x: Operand,
    /,
    *,
    axis: int | None = -1,
    descending: bool = False,
    stable: bool = True,
    less: Op | None = None,
) -> Integers:
    """Return the indices that sort an array along an axis.

    Equal items stay in their order, whatever `stable` says.

    >>> arrays.argsort(np.array([30, 10, 20]))
    array([1, 2, 0])
    """
    layout, shape = _along(x, axis, less)
    _, places = sorted_rows(work, columns(x.items, layout), layout, descending, less, positions(work, layout))
    return work.made(places, shape) if layout.inner == 1 else _scattered(work, places, shape, layout)


def _scattered(work: Work, rows: Any, shape: tuple[int, ...], layout: AxisLayout) -> Operand:
    """Return an array whose rows along an axis are given one after another."""
    out = work.empty(shape, rows.dtype)
    work.copy(rows, columns(out.items, layout), layout.size)
    return out


@described()
def sort(
    work: Work,
    x: Operand,
    /,
    *,
    axis: int | None = -1,
    descending: bool = False,
    stable: bool = True,
    less: Op | None = None,
    out: Array | None = None,
) -> Operand:
    """Return the items sorted along an axis. Tuples of arrays need a `less`.

    Parameters
    ----------
    axis : int or None, optional
        None: all items in C's order, and the result has one dimension.
    descending : bool, optional
        Whether the greatest come first. Equal items stay in their order then, too.
    stable : bool, optional
        Whether equal items stay in their order. Of numbers one can tell that of -0.0 and 0.0 alone: without
        it, sorts of rows of floats need not move a byte beside each of them on a GPU.
    less : callable, OpKind or RawOp, optional
        Whether its first item goes before its second: a strict weak order. By default NumPy's, in which NaN
        is the greatest, and complex numbers go by their real part first.
    out : array, optional
        Where the result goes, of its shape: it may be `x` itself.

    >>> arrays.sort(np.array([3, -1, 2]), descending=True)
    array([ 3,  2, -1])
    >>> arrays.sort(np.array([3, -1, 2]), less=lambda a, b: abs(a) < abs(b))
    array([-1,  2,  3])
    """
    return _sort(work, x, axis, descending, stable, less, out)


class TopK(NamedTuple):
    """The greatest items, and where they are."""

    values: Any
    indices: Any


def _top_k(
    work: Work, x: Operand, k: int, axis: int | None, largest: bool, places_in: np.dtype[Any] = INT64
) -> TopK:
    check_kind("top_k", x, "biuf")
    layout, shape = layout_along(x, axis)
    k = integer("k", k, layout.length)
    at = 0 if axis is None else axis_of(axis, x.ndim)
    some = (*shape[:at], k, *shape[at + 1 :])
    values, places = work.empty(some, x.dtype), work.empty(some, places_in)
    if not values.size:
        return TopK(values, places)
    keys = work.kept(ordered(columns(x.items, layout), None), layout.size)
    found = AxisLayout(layout.outer, k, layout.inner)
    direct = layout.inner == 1
    into = values.items if direct else work.temporary(found.size, x.dtype)
    at_ = places.items if direct else work.temporary(found.size, places_in)
    order = SortOrder.DESCENDING if largest else SortOrder.ASCENDING
    if layout.rows == 1:
        given = keys, into, CountingIterator(places_in.type(0)), at_
        work.run(first_k(*given, order), *given, layout.length, found.length)
    else:
        given = keys, into, cast(indices(within_row, layout.length), places_in), at_
        top = segmented_top_k(*given, order=order)
        work.run(top, *given, k=found.length, num_segments=layout.rows, segment_size=layout.length)
    if not direct:
        work.copy(into, columns(values.items, found), found.size)
        work.copy(at_, columns(places.items, found), found.size)
    return TopK(values, places)


@described(x="reals")
def top_k(work: Work, x: Operand, k: int, /, *, axis: int | None = -1, largest: bool = True) -> TopK:
    """Return the k greatest items along an axis, sorted, and their indices. NaN is the greatest.

    The result is a named tuple of two arrays, `values` and `indices`.

    >>> values, indices = arrays.top_k(np.array([3, 9, 1, 7]), 2)
    >>> values, indices
    (array([9, 7]), array([1, 3]))
    """
    return _top_k(work, x, k, axis, largest)


# --- Sorted arrays ----------------------------------------------------------------------------------------


@described(a="sorted", b="sorted")
def merge(work: Work, a: Operand, b: Operand, /, *, less: Op | None = None) -> Numbers:
    """Return the items of two sorted arrays in one, sorted; of equal ones, those of `a` come first.

    >>> arrays.merge(np.array([1, 4, 6]), np.array([2, 4]))
    array([1, 2, 4, 4, 6])
    """
    if a.ndim != 1 or b.ndim != 1:
        raise ArgumentValueError("a", f"expected one dimension, got {a.ndim} and {b.ndim}")
    if a.dtype.names is not None and less is None:
        raise ArgumentTypeError("less", f"expected a comparison of {structs.text(a.dtype)}, got None")
    if a.dtype.names is not None and structs.layout(a.dtype) != structs.layout(b.dtype):
        raise ArgumentTypeError(
            "b", f"expected {structs.text(a.dtype)}, as `a` has it, got {structs.text(b.dtype)}"
        )
    # Items in the order in which they are compared exactly are in order when they are promoted, too.
    dtype = a.dtype if a.dtype.names is not None else promoted(a=a, b=b)
    first, second = (cast(x.items, dtype) for x in (a, b))
    out = work.empty((a.size + b.size,), dtype)
    comp = operators.less_of(dtype) if less is None else less
    merging = merge_ranges(first, None, second, None, out.items, None, comp)
    work.run(merging, first, None, a.size, second, None, b.size, out.items)
    return out


@described(x1="sorted", numbers=True)
def searchsorted(
    work: Work, x1: Operand, x2: Operand, /, *, side: str = "left", sorter: Operand | None = None
) -> Integers:
    """Return where items can be inserted into a sorted array so that it stays sorted.

    Parameters
    ----------
    x1 : array
        Of one dimension, sorted as by `sort`, unless there is a `sorter`.
    x2 : array or number
        The values to search for.
    sorter : array of integers, optional
        Indices that sort `x1`.

    Returns
    -------
    array of int64
        Of the shape of `x2`.

    >>> arrays.searchsorted(np.array([1, 3, 5]), np.array([0, 3, 9]))
    array([0, 1, 3])
    """
    if x1.ndim != 1:
        raise ArgumentValueError("x1", f"expected one dimension, got {x1.ndim}")
    if side not in ("left", "right"):
        raise ArgumentValueError("side", f"expected 'left' or 'right', got {side!r}")
    numbers = compared(x1=x1, x2=x2)
    items = x1.items
    if sorter is not None:
        if sorter.shape != x1.shape:
            raise ArgumentValueError("sorter", f"expected shape {x1.shape}, that of `x1`, got {sorter.shape}")
        items = PermutationIterator(items, places_of(work, "sorter", sorter, x1.size))
    data = work.kept(numbers.read(items), x1.size)
    out = work.empty(x2.shape, INT64)
    if out.size:
        search = lower_bound if side == "left" else upper_bound
        values, comp = numbers.read(x2.items), operators.less_of(numbers.dtype)
        work.run(search(data, values, out.items, comp), data, x1.size, values, x2.size, out.items)
    return out
