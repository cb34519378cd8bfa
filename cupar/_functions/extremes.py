"""The least and the greatest items, and where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import structs
from ..find import find_if
from ..iterators import (
    CountingIterator,
    DiscardIterator,
    PermutationIterator,
    TransformIterator,
    ZipIterator,
)
from . import operators
from .axes import INT64, axes_of, axis_of, constant, with_numbers
from .calls import Integers, Operand, Work
from .described import described
from .rows import (
    check_items,
    check_kind,
    least_and_greatest,
    over_axes,
    reduced_rows,
    result_shape,
    twice,
)

if TYPE_CHECKING:
    from .._base.annotations import Axes


def _first_least(a: Any, b: Any) -> Any:
    return a if a[0] < b[0] or (a[0] == b[0] and a[1] < b[1]) else b


def _first_greatest(a: Any, b: Any) -> Any:
    return a if a[0] > b[0] or (a[0] == b[0] and a[1] < b[1]) else b


# Those of floats have no branches: a NaN comes before numbers.
def _first_least_float(a: Any, b: Any) -> Any:
    is_first = a[1] < b[1]
    comes_before = (a[0] != a[0]) & ((b[0] == b[0]) | is_first)
    return a if (a[0] < b[0]) | comes_before | (a[0] == b[0]) & is_first else b


def _first_greatest_float(a: Any, b: Any) -> Any:
    is_first = a[1] < b[1]
    comes_before = (a[0] != a[0]) & ((b[0] == b[0]) | is_first)
    return a if (a[0] > b[0]) | comes_before | (a[0] == b[0]) & is_first else b


def _is_extreme(s: Any) -> Any:
    return (s[0] == s[1]) | (s[0] != s[0])


def first_extreme(pair: np.dtype[Any], is_least: bool) -> tuple[Any, np.ndarray[Any, Any]]:
    """Return what keeps the first extreme one of pairs of items and places, and what any pair replaces."""
    dtype = pair["field_0"]
    plain, of_floats = (
        (_first_least, _first_least_float) if is_least else (_first_greatest, _first_greatest_float)
    )
    h_init = np.zeros(1, pair)
    h_init["field_0"] = (operators.highest if is_least else operators.lowest)(dtype)
    h_init["field_1"] = np.iinfo(np.int64).max
    return of_floats if structs.kind_of(dtype) == "f" else plain, h_init


def _arg(work: Work, x: Operand, name: str, axis: int | None, keepdims: bool, is_least: bool) -> Operand:
    check_kind(name, x, "biuf")
    if axis is not None:
        axis = axis_of(axis, x.ndim)
    check_items(name, x, axes_of(axis, x.ndim))
    items, _, layout, shape = over_axes(work, x, axis)
    out = work.empty(result_shape(shape, keepdims), INT64)
    if not out.size:
        return out
    if layout.rows == 1 and work.library.on_cpu:  # in two passes of many items at once
        best = work.temporary(1, x.dtype)
        reduced_rows(work, items, best, layout, np.minimum if is_least else np.maximum, None)
        with_best = ZipIterator(items, PermutationIterator(best, constant(0)))
        work.run(find_if(with_best, out.items, _is_extreme), with_best, out.items, layout.length)
        return out
    pairs = ZipIterator(items, CountingIterator(np.int64(0)))
    op, h_init = first_extreme(pairs.dtype, is_least)
    reduced_rows(work, pairs, ZipIterator(DiscardIterator(x.dtype), out.items), layout, op, h_init)
    if layout.rows != 1:
        numbers = with_numbers(out.items, layout.inner, layout.length)
        work.copy(TransformIterator(numbers, _in_row, INT64), out.items, out.size)
    return out


def _in_row(s: Any) -> Any:
    return s[0] // s[1] % s[2]


@described()
def argmin(work: Work, x: Operand, /, *, axis: int | None = None, keepdims: bool = False) -> Integers:
    """Return the index of the first least item, of all in C's order or along an axis.

    A NaN is less than anything else, as in NumPy.

    >>> int(arrays.argmin(np.array([3, 1, 1])))
    1
    """
    return _arg(work, x, "argmin", axis, keepdims, True)


@described()
def argmax(work: Work, x: Operand, /, *, axis: int | None = None, keepdims: bool = False) -> Integers:
    """Return the index of the first greatest item, of all in C's order or along an axis.

    A NaN is greater than anything else, as in NumPy.

    >>> arrays.argmax(np.array([[3, 1], [2, 5]]), axis=1)
    array([0, 1])
    """
    return _arg(work, x, "argmax", axis, keepdims, False)


_EXTREMES = np.minimum, np.maximum


class MinMax(NamedTuple):
    """The least and the greatest item."""

    min: Any
    max: Any


@described(axis="axes")
def minmax(work: Work, x: Operand, /, *, axis: Axes = None, keepdims: bool = False) -> MinMax:
    """Return the least and the greatest item, or those along axes, in one pass; NaN if there is one.

    The result is a named tuple of two arrays, `min` and `max`.

    >>> least, greatest = arrays.minmax(np.array([3, 1, 2]))
    >>> int(least), int(greatest)
    (1, 3)
    """
    check_kind("minmax", x, "biuf")
    check_items("minmax", x, axes_of(axis, x.ndim))
    items, _, layout, shape = over_axes(work, x, axis)
    both = np.dtype([("field_0", x.dtype), ("field_1", x.dtype)], align=True)
    out = work.empty(result_shape(shape, keepdims), both)
    if out.size and work.library.on_cpu:  # in two passes of many items at once
        for part, op, start in zip(out.parts, _EXTREMES, (operators.highest, operators.lowest), strict=True):
            reduced_rows(work, items, part.items, layout, op, np.full(1, start(x.dtype), x.dtype))
    elif out.size:
        h_init = np.zeros(1, both)
        h_init["field_0"], h_init["field_1"] = operators.highest(x.dtype), operators.lowest(x.dtype)
        pairs = TransformIterator(items, twice, both)
        reduced_rows(work, pairs, out.items, layout, least_and_greatest, h_init)
    return MinMax(*out.parts)
