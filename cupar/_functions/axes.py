"""Axes: any array and axis as (outer, length, inner), and the order in which kernels go through that."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .._base import sizes
from .._base.bounded import of_builds
from .._base.device import is_cpu
from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._base.fork import in_child
from ..iterators import (
    ConstantIterator,
    CountingIterator,
    PermutationIterator,
    TransformIterator,
    ZipIterator,
)

Shape = tuple[int, ...]
INT64 = np.dtype(np.int64)


class AxisError(ArgumentValueError, np.exceptions.AxisError):
    """Raised for an axis that an array does not have; it is NumPy's AxisError, too."""

    __module__ = "cupar"


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Return the shape that shapes are broadcast to, as in NumPy; raise ValueError if there is none."""
    found: list[Any] = []
    for axis in range(max(map(len, shapes), default=0), 0, -1):
        extent: Any = 1
        for shape in shapes:
            own = shape[-axis] if axis <= len(shape) else 1
            if own not in (1, extent):
                if extent != 1:
                    raise ValueError(f"extents {extent} and {own} of one axis")
                extent = own
        found.append(extent)
    return tuple(found)


class AxisLayout(NamedTuple):
    """An array of C's order, seen from an axis: item t of row (o, i) is at ``(o * length + t) * inner + i``.

    With `inner` 1 rows lie in memory one after another; otherwise they are columns.
    """

    outer: int
    length: int
    inner: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.outer * self.inner

    @property
    def size(self) -> int:
        """The number of items."""
        return self.rows * self.length


def axis_of(axis: Any, ndim: int) -> int:
    """Return an axis from 0 on; raise TypeError, or NumPy's AxisError, a ValueError, if it is invalid."""
    if isinstance(axis, bool):
        raise ArgumentTypeError("axis", f"expected an integer, got {axis}")
    try:
        found = operator.index(axis)
    except TypeError:
        raise ArgumentTypeError("axis", f"expected an integer, got {type(axis).__name__}") from None
    if not ndim:
        raise AxisError("axis", f"{found} is out of bounds for an array without dimensions")
    if not -ndim <= found < ndim:
        raise AxisError(
            "axis", f"expected from {-ndim} to {ndim - 1} for a {ndim}-dimensional array, got {found}"
        )
    return found % ndim


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return several axes, sorted; None stands for all of them."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    found = sorted(axis_of(each, ndim) for each in given)
    if len(set(found)) != len(found):
        raise ArgumentValueError("axis", f"expected different axes, got {axis}")
    return tuple(found)


def layout_of(shape: tuple[int, ...], first: int, last: int) -> AxisLayout:
    """Return the layout of the axes from `first` to `last`, which are one."""
    return AxisLayout(
        math.prod(shape[:first]), math.prod(shape[first : last + 1]), math.prod(shape[last + 1 :])
    )


# --- Indices that are computed: their structure and numbers are kept, as they hold no arrays ----------------


def _column_item(s: Any) -> Any:
    i, length, inner = s
    row = i // length
    return ((row // inner) * length + i - row * length) * inner + row % inner


def _strided_item(s: Any) -> Any:
    i, n1, n2, n3, s0, s1, s2, s3 = s
    at = (i % n3) * s3
    i = i // n3
    at += (i % n2) * s2
    i = i // n2
    return at + (i % n1) * s1 + (i // n1) * s0


def _line_item(s: Any) -> Any:
    i, stride = s
    return i * stride


def indices(function: Any, *numbers: int) -> Any:
    """Return an iterator over ``function((i, *numbers))`` for i from 0 on.

    The numbers are no constants of the code: all share a build.
    """
    if True in map(sizes.is_size, numbers):  # which have no hash
        return _indices.__wrapped__(is_cpu(), function, numbers)
    return _indices(is_cpu(), function, numbers)


@of_builds
@lru_cache(256)
def _indices(on_cpu: bool, function: Any, numbers: tuple[int, ...]) -> Any:
    return TransformIterator(with_numbers(CountingIterator(np.int64(0)), *numbers), function, INT64)


def with_numbers(items: Any, *numbers: Any) -> Any:
    """Return an iterator over tuples of an item and numbers; an int is an int64, others have their dtype."""
    return ZipIterator(items, *[constant(each) for each in numbers])


def constant(number: Any) -> Any:
    """Return an iterator over one number, or the iterator itself that stands in its place."""
    if hasattr(number, "node"):
        return number
    return ConstantIterator(np.int64(number) if isinstance(number, int) else number)


def columns(items: Any, layout: AxisLayout) -> Any:
    """Return the items row by row, to read or to write, where rows are columns of memory.

    For sorts: reductions and scans have kernels of columns.
    """
    if layout.inner == 1 or layout.length == 1:
        return items
    return PermutationIterator(items, indices(_column_item, layout.length, layout.inner))


def strided(items: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """Return the items of an array of up to 4 dimensions in C's order; strides are in items."""
    if len(shape) == 1:
        return PermutationIterator(items, indices(_line_item, *strides))
    n, s = (1,) * (4 - len(shape)) + shape, (0,) * (4 - len(shape)) + strides
    return PermutationIterator(items, indices(_strided_item, *n[1:], *s))


def collapsed(shape: Shape, strides: Shape) -> tuple[Shape, Shape]:
    """Return shape and strides of the same items in the same order with as few dimensions as possible."""
    found: list[tuple[int, int]] = []
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if found and found[-1][1] == extent * stride:
            found[-1] = found[-1][0] * extent, stride
        else:
            found.append((extent, stride))
    return tuple(n for n, _ in found), tuple(s for _, s in found)


@in_child
def _forget() -> None:
    _indices.cache_clear()
