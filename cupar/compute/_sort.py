"""Sorts as ``cuda.compute`` has them: what `cupar` calls items of a merge sort are values."""

from __future__ import annotations

from typing import Any

from .._call.double_buffer import DoubleBuffer
from ..segmented import segmented_sort as _segmented_sort
from ..sort import SortOrder
from ..sort import merge_sort as _merge_sort
from ..sort import radix_sort as _radix_sort
from ._made import Made, rename

__all__ = [
    "DoubleBuffer",
    "SortOrder",
    "make_merge_sort",
    "make_radix_sort",
    "make_segmented_sort",
    "merge_sort",
    "radix_sort",
    "segmented_sort",
]

_NAMES = {"d_in_items": "d_in_values", "d_out_items": "d_out_values"}

Arrays = tuple[Any, Any, Any, Any]


def _arrays(d_in_keys: Any, d_out_keys: Any, d_in_values: Any, d_out_values: Any) -> Arrays:
    """Return the arrays of a sort: outputs do not count where the inputs are double buffers."""
    if isinstance(d_in_keys, DoubleBuffer):
        return d_in_keys, None, d_in_values, None
    return d_in_keys, d_out_keys, d_in_values, d_out_values


class _MergeSort(Made, factory=_merge_sort, names=_NAMES):
    """A stable sort by a comparison; see `make_merge_sort`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in_keys: Any,
        d_in_values: Any,
        d_out_keys: Any,
        d_out_values: Any,
        num_items: int,
        op: Any,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""
        arrays = d_in_keys, d_in_values, d_out_keys, d_out_values
        algorithm = self._for((*arrays, op), op)
        try:
            return algorithm(temp_storage, *arrays, num_items, stream)  # type: ignore[no-any-return]
        except (TypeError, ValueError) as error:
            rename(error, _NAMES)
            raise


def make_merge_sort(
    *,
    d_in_keys: Any,
    d_in_values: Any = None,
    d_out_keys: Any,
    d_out_values: Any = None,
    op: Any,
    compute_capability: Any = None,
) -> _MergeSort:
    """Return a stable sort by a comparison; see `cupar.merge_sort`."""
    question = d_in_keys, d_in_values, d_out_keys, d_out_values, op
    return _MergeSort.make(question, op, compute_capability=compute_capability)  # type: ignore[no-any-return]


def merge_sort(
    *,
    d_in_keys: Any,
    d_in_values: Any = None,
    d_out_keys: Any,
    d_out_values: Any = None,
    num_items: int,
    op: Any,
    stream: Any = None,
) -> None:
    """Sort `num_items` keys by a comparison, with their values if there are any; see `cupar.merge_sort`."""
    arrays = d_in_keys, d_in_values, d_out_keys, d_out_values
    try:
        _merge_sort(*arrays, op).run(*arrays, num_items, stream)
    except (TypeError, ValueError) as error:
        rename(error, _NAMES)
        raise


class _RadixSort(Made, factory=_radix_sort):
    """A stable sort of numbers by their bits; see `make_radix_sort`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in_keys: Any,
        d_out_keys: Any,
        d_in_values: Any,
        d_out_values: Any,
        num_items: int,
        begin_bit: int | None = None,
        end_bit: int | None = None,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""
        arrays = _arrays(d_in_keys, d_out_keys, d_in_values, d_out_values)
        return self._for(())(temp_storage, *arrays, num_items, begin_bit, end_bit, stream)  # type: ignore[no-any-return]


def make_radix_sort(
    *,
    d_in_keys: Any,
    d_out_keys: Any,
    d_in_values: Any,
    d_out_values: Any,
    order: SortOrder,
    compute_capability: Any = None,
) -> _RadixSort:
    """Return a stable sort of numbers by their bits; see `cupar.radix_sort`."""
    question = *_arrays(d_in_keys, d_out_keys, d_in_values, d_out_values), order
    return _RadixSort.make(question, compute_capability=compute_capability)  # type: ignore[no-any-return]


def radix_sort(
    *,
    d_in_keys: Any,
    d_out_keys: Any,
    d_in_values: Any = None,
    d_out_values: Any = None,
    num_items: int,
    order: SortOrder,
    begin_bit: int | None = None,
    end_bit: int | None = None,
    stream: Any = None,
) -> None:
    """Sort `num_items` keys by their bits, with their values if there are any; see `cupar.radix_sort`."""
    arrays = _arrays(d_in_keys, d_out_keys, d_in_values, d_out_values)
    _radix_sort(*arrays, order).run(*arrays, num_items, begin_bit, end_bit, stream)


class _SegmentedSort(Made, factory=_segmented_sort):
    """A sort of segments, each by itself; see `make_segmented_sort`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in_keys: Any,
        d_out_keys: Any,
        d_in_values: Any,
        d_out_values: Any,
        num_items: int,
        num_segments: int,
        start_offsets_in: Any,
        end_offsets_in: Any,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""
        arrays = _arrays(d_in_keys, d_out_keys, d_in_values, d_out_values)
        segments = num_segments, start_offsets_in, end_offsets_in
        return self._for(())(temp_storage, *arrays, num_items, *segments, stream)  # type: ignore[no-any-return]


def make_segmented_sort(
    *,
    d_in_keys: Any,
    d_out_keys: Any = None,
    d_in_values: Any = None,
    d_out_values: Any = None,
    start_offsets_in: Any,
    end_offsets_in: Any,
    order: SortOrder,
    compute_capability: Any = None,
) -> _SegmentedSort:
    """Return a sort of segments, each by itself; see `cupar.segmented_sort`."""
    arrays = _arrays(d_in_keys, d_out_keys, d_in_values, d_out_values)
    question = *arrays, start_offsets_in, end_offsets_in, order
    return _SegmentedSort.make(question, compute_capability=compute_capability)  # type: ignore[no-any-return]


def segmented_sort(
    *,
    d_in_keys: Any,
    d_out_keys: Any = None,
    d_in_values: Any = None,
    d_out_values: Any = None,
    num_items: int,
    num_segments: int,
    start_offsets_in: Any,
    end_offsets_in: Any,
    order: SortOrder,
    stream: Any = None,
) -> None:
    """Sort the keys of each segment, with their values if there are any; see `cupar.segmented_sort`."""
    arrays = _arrays(d_in_keys, d_out_keys, d_in_values, d_out_values)
    algorithm = _segmented_sort(*arrays, start_offsets_in, end_offsets_in, order)
    algorithm.run(*arrays, num_items, num_segments, start_offsets_in, end_offsets_in, stream)
