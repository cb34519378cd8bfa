"""Segments among the arguments of calls: given by offsets, or all of one length.

The functions that make problems are compiled by numba, too: see `Algorithm._problem_maker`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._base.device import in_cpu_call
from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._device import arrays
from .._device.arrays import length
from .._ir.iterator import Iterator
from .._ir.specialisation import Specialisation
from .._kernels.family import helper
from .._kernels.segments import MOST_LISTED, SegmentsProblem
from .double_buffer import DoubleBuffer
from .numbers import item_count, refuse

MOST_SEGMENTS = 2**33 - 1  # a grid's limit, with a warp for each


def reduced(spec: Specialisation) -> Callable[..., SegmentsProblem]:
    """Return the function that makes the problem of a reduction or scan of segments."""
    if len(spec.arguments) == 2:

        def of_rows(num_segments: int, segment_size: int) -> SegmentsProblem:
            check_segments(num_segments)
            used = num_segments * segment_size
            return SegmentsProblem(num_segments, used, segment_size, used)

        return of_rows

    def listed(d_in: Any, num_segments: int, max_segment_size: int | None) -> SegmentsProblem:
        check_segments(num_segments)
        largest = 0 if max_segment_size is None else item_count("max_segment_size", max_segment_size)
        return SegmentsProblem(num_segments, length(d_in), largest, 0)

    return listed


@helper
def check_segments(num_segments: int) -> None:
    """Raise ValueError if there are more segments than a grid can have warps."""
    if num_segments > MOST_SEGMENTS:
        refuse("num_segments", _BEYOND_A_GRID, ", got {}", num_segments)


@helper
def check_listed(num_segments: int) -> None:
    """Raise ValueError if there are more segments than their lists have numbers for."""
    if num_segments > MOST_LISTED:
        refuse("num_segments", _BEYOND_LISTS, ", got {}", num_segments)


@helper
def items_of_rows(num_items: int, num_segments: int, segment_size: int) -> int:
    """Return the number of items of all rows; raise ValueError if it exceeds `num_items`."""
    check_segments(num_segments)
    if num_segments * segment_size > num_items:
        refuse(
            "segment_size",
            _BEYOND_ITEMS,
            ", {}: {} segments of {} items",
            num_items,
            num_segments,
            segment_size,
        )
    return num_segments * segment_size


_BEYOND_A_GRID = f"expected at most {MOST_SEGMENTS}"
_BEYOND_LISTS = f"expected at most {MOST_LISTED} with offsets"
_BEYOND_ITEMS = "all segments together have more items than num_items"


def counts_of_rows(
    name: str, array: Any, segment_size: int, num_segments: Any, num_items: Any = None
) -> tuple[Any, Any]:
    """Return the numbers of segments and items where each row is a segment; None: take them from the rows.

    Raises
    ------
    TypeError, ValueError
        If the rows do not determine them.
    """
    if isinstance(array, DoubleBuffer):
        array = array.current()
    if num_segments is None:
        if num_items is None and isinstance(array, Iterator):
            raise ArgumentTypeError(
                "num_segments", "expected an integer, as an iterator does not tell it, got None"
            )
        if num_items is None:
            items = arrays.read(name, array, in_cpu_call()).size
        else:
            items = item_count("num_items", num_items)
        num_segments, rest = divmod(items, max(segment_size, 1))
        if rest:
            raise ArgumentValueError(
                "num_segments",
                f"expected an integer, as {items} items are no whole number of rows of "
                f"{segment_size}, got None",
            )
    if num_items is None:
        num_items = item_count("num_segments", num_segments) * segment_size
    return num_segments, num_items


def row_length(array: Any, segment_size: Any) -> int:
    """Return the common length of all segments: as given, or the length of the last axis.

    Raises
    ------
    TypeError, ValueError
        If neither is there, or it is less than 1.
    """
    if segment_size is None:
        if isinstance(array, DoubleBuffer):
            array = array.current()
        shape: tuple[int, ...] = getattr(array, "shape", ())
        if len(shape) < 2:
            raise ArgumentTypeError(
                "segment_size", "expected an integer, as there are neither offsets nor rows, got None"
            )
        return int(shape[-1])
    size = item_count("segment_size", segment_size)
    if size == 0:
        raise ArgumentValueError("segment_size", "expected 1 or more, got 0")
    return size
