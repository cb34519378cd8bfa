"""Segments among the arguments of calls: given by offsets, or all of one length."""

from __future__ import annotations

from typing import Any

from .._base.device import in_cpu_call
from .._device import arrays
from .._ir.iterator import Iterator
from .._kernels.segments import MOST_LISTED, Segments
from .arguments import item_count
from .double_buffer import DoubleBuffer

MOST_SEGMENTS = 2**33 - 1  # a grid's limit, with a warp for each


def reduced(
    called: str, has_offsets: bool, d_in: Any, num_segments: Any, max_segment_size: Any, segment_size: Any
) -> Segments:
    """Return the problem of a reduction or scan, named `called` in errors.

    Raises
    ------
    TypeError, ValueError
        If a number is invalid, or given although the build has no use for it.
    """
    n = item_count("num_segments", num_segments)
    if n > MOST_SEGMENTS:
        raise ValueError(f"num_segments: expected at most {MOST_SEGMENTS}, got {n}")
    if has_offsets:
        if segment_size is not None:
            raise TypeError(f"segment_size: this {called} was built for offsets; expected None")
        largest = 0 if max_segment_size is None else item_count("max_segment_size", max_segment_size)
        return Segments(n, arrays.length(d_in), largest, 0)
    size = _row_length(d_in, segment_size)
    return Segments(n, n * size, size, n * size)


def ordered(
    called: str, has_offsets: bool, d_in_keys: Any, num_items: int, num_segments: Any, segment_size: Any
) -> tuple[int, int, int]:
    """Return items, segments and the length of rows (0 without rows) of a sort or top-k.

    Raises
    ------
    TypeError, ValueError
        As `reduced` does; or if rows are more than all items.
    """
    n = item_count("num_segments", num_segments)
    if n > MOST_SEGMENTS:
        raise ValueError(f"num_segments: expected at most {MOST_SEGMENTS}, got {n}")
    if has_offsets:
        if segment_size is not None:
            raise TypeError(f"segment_size: this {called} was built for offsets; expected None")
        if n > MOST_LISTED:
            raise ValueError(f"num_segments: expected at most {MOST_LISTED} with offsets, got {n}")
        return num_items, n, 0
    size = _row_length(d_in_keys, segment_size)
    if n * size > num_items:
        raise ValueError(
            f"segment_size: {n} segments of {size} items each are more than num_items, {num_items}"
        )
    return n * size, n, size


def counts_of_rows(
    name: str, array: Any, segment_size: Any, num_segments: Any, num_items: Any = None
) -> tuple[Any, Any]:
    """Return the numbers of segments and items where each row is a segment; None: take them from the rows.

    Raises
    ------
    TypeError, ValueError
        If the rows do not determine them.
    """
    if isinstance(array, DoubleBuffer):
        array = array.current()
    size = _row_length(array, segment_size)
    if num_segments is None:
        if num_items is None and isinstance(array, Iterator):
            raise TypeError("num_segments: expected an integer, as an iterator does not tell it, got None")
        if num_items is None:
            items = arrays.read(name, array, in_cpu_call()).size
        else:
            items = item_count("num_items", num_items)
        num_segments, rest = divmod(items, max(size, 1))
        if rest:
            raise ValueError(
                f"num_segments: expected an integer, as {items} items are no whole number of rows of {size}, "
                "got None"
            )
    return num_segments, item_count("num_segments", num_segments) * size if num_items is None else num_items


def _row_length(array: Any, segment_size: Any) -> int:
    """Return the common length of all segments: as given, or the length of the last axis.

    Raises
    ------
    TypeError, ValueError
        If neither is there, or it is less than 1.
    """
    if segment_size is None:
        shape: tuple[int, ...] = getattr(array, "shape", ())
        if len(shape) < 2:
            raise TypeError(
                "segment_size: expected an integer, as there are neither offsets nor rows, got None"
            )
        return int(shape[-1])
    size = item_count("segment_size", segment_size)
    if size == 0:
        raise ValueError("segment_size: expected 1 or more, got 0")
    return size
