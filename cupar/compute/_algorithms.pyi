"""The functions of the algorithms, as they are written from `_table`."""

from typing import Any

from .._arguments.double_buffer import DoubleBuffer as DoubleBuffer
from ..sort import SortOrder as SortOrder
from ._made import Made

__all__ = [
    "DoubleBuffer",
    "SortOrder",
    "binary_transform",
    "exclusive_scan",
    "histogram_even",
    "inclusive_scan",
    "lower_bound",
    "merge_sort",
    "radix_sort",
    "reduce_into",
    "segmented_reduce",
    "segmented_sort",
    "select",
    "three_way_partition",
    "unary_transform",
    "unique_by_key",
    "upper_bound",
    "make_binary_transform",
    "make_exclusive_scan",
    "make_histogram_even",
    "make_inclusive_scan",
    "make_lower_bound",
    "make_merge_sort",
    "make_radix_sort",
    "make_reduce_into",
    "make_segmented_reduce",
    "make_segmented_sort",
    "make_select",
    "make_three_way_partition",
    "make_unary_transform",
    "make_unique_by_key",
    "make_upper_bound",
]

class _BinaryTransform(Made):
    """A transform of two arrays; see `make_binary_transform`."""

    def __call__(
        self, *, d_in1: Any, d_in2: Any, d_out: Any, op: Any, num_items: int, stream: Any = None
    ) -> None:
        """Apply `op` to each of `num_items` pairs."""

def make_binary_transform(
    *, d_in1: Any, d_in2: Any, d_out: Any, op: Any, compute_capability: Any = None
) -> _BinaryTransform:
    """Return a transform of two arrays; see `cupar.binary_transform`."""

def binary_transform(
    *, d_in1: Any, d_in2: Any, d_out: Any, op: Any, num_items: int, stream: Any = None
) -> None:
    """Apply `op` to each of `num_items` pairs; see `cupar.binary_transform`."""

class _ExclusiveScan(Made):
    """An exclusive scan; see `make_exclusive_scan`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in: Any,
        d_out: Any,
        op: Any,
        init_value: Any,
        num_items: int,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""

def make_exclusive_scan(
    *, d_in: Any, d_out: Any, op: Any, init_value: Any, compute_capability: Any = None
) -> _ExclusiveScan:
    """Return an exclusive scan; see `cupar.exclusive_scan`."""

def exclusive_scan(
    *, d_in: Any, d_out: Any, op: Any, init_value: Any, num_items: int, stream: Any = None
) -> None:
    """Scan `num_items` items, item i of the result from those before it; see `cupar.exclusive_scan`."""

class _HistogramEven(Made):
    """A histogram with bins of equal width; see `make_histogram_even`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_samples: Any,
        d_histogram: Any,
        h_num_output_levels: Any,
        h_lower_level: Any,
        h_upper_level: Any,
        num_samples: int,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""

def make_histogram_even(
    *,
    d_samples: Any,
    d_histogram: Any,
    h_num_output_levels: Any,
    h_lower_level: Any,
    h_upper_level: Any,
    num_samples: int,
    compute_capability: Any = None,
) -> _HistogramEven:
    """Return a histogram with bins of equal width; see `cupar.histogram_even`."""

def histogram_even(
    *,
    d_samples: Any,
    d_histogram: Any,
    num_output_levels: int,
    lower_level: Any,
    upper_level: Any,
    num_samples: int,
    stream: Any = None,
) -> None:
    """Count `num_samples` samples in ``num_output_levels - 1`` bins; see `cupar.histogram_even`."""

class _InclusiveScan(Made):
    """An inclusive scan; see `make_inclusive_scan`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in: Any,
        d_out: Any,
        op: Any,
        init_value: Any,
        num_items: int,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""

def make_inclusive_scan(
    *, d_in: Any, d_out: Any, op: Any, init_value: Any = None, compute_capability: Any = None
) -> _InclusiveScan:
    """Return an inclusive scan; see `cupar.inclusive_scan`."""

def inclusive_scan(
    *, d_in: Any, d_out: Any, op: Any, init_value: Any = None, num_items: int, stream: Any = None
) -> None:
    """Scan `num_items` items, item i of the result from it and those before; see `cupar.inclusive_scan`."""

class _LowerBound(Made):
    """A search for the first place where each value can be inserted; see `make_lower_bound`."""

    def __call__(
        self,
        *,
        d_data: Any,
        num_items: int,
        d_values: Any,
        num_values: int,
        d_out: Any,
        comp: Any,
        stream: Any = None,
    ) -> None:
        """Find the first place where each value can be inserted."""

def make_lower_bound(
    *, d_data: Any, d_values: Any, d_out: Any, comp: Any = None, compute_capability: Any = None
) -> _LowerBound:
    """Return a search for the first place where each value can be inserted; see `cupar.lower_bound`."""

def lower_bound(
    *,
    d_data: Any,
    num_items: int,
    d_values: Any,
    num_values: int,
    d_out: Any,
    comp: Any = None,
    stream: Any = None,
) -> None:
    """Find the first place where each value can be inserted; see `cupar.lower_bound`."""

class _MergeSort(Made):
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

class _RadixSort(Made):
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

class _ReduceInto(Made):
    """A reduction; see `make_reduce_into`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in: Any,
        d_out: Any,
        num_items: int,
        op: Any,
        h_init: Any,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""

def make_reduce_into(*, d_in: Any, d_out: Any, op: Any, h_init: Any = None, **kwargs: Any) -> _ReduceInto:
    """Return a reduction; see `cupar.reduce_into`.

    Beside those that are named it takes ``compute_capability=`` and ``determinism=``. Where there is nothing
    quicker for `Determinism.NOT_GUARANTEED`, results are the same in every run.
    """

def reduce_into(
    *, d_in: Any, d_out: Any, num_items: int, op: Any, h_init: Any = None, stream: Any = None, **kwargs: Any
) -> None:
    """Reduce `num_items` items into ``d_out[0]``; see `make_reduce_into` and `cupar.reduce_into`."""

class _SegmentedReduce(Made):
    """A segmented reduction; see `make_segmented_reduce`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in: Any,
        d_out: Any,
        num_segments: int,
        start_offsets_in: Any,
        end_offsets_in: Any,
        op: Any,
        h_init: Any,
        max_segment_size: int | None = None,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""

def make_segmented_reduce(
    *,
    d_in: Any,
    d_out: Any,
    start_offsets_in: Any,
    end_offsets_in: Any,
    op: Any,
    h_init: Any,
    compute_capability: Any = None,
) -> _SegmentedReduce:
    """Return a segmented reduction; see `cupar.segmented_reduce`."""

def segmented_reduce(
    *,
    d_in: Any,
    d_out: Any,
    num_segments: int,
    start_offsets_in: Any,
    end_offsets_in: Any,
    op: Any,
    h_init: Any,
    max_segment_size: int | None = None,
    stream: Any = None,
) -> None:
    """Reduce each of `num_segments` segments; see `cupar.segmented_reduce`."""

class _SegmentedSort(Made):
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

class _Select(Made):
    """A selection; see `make_select`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in: Any,
        d_out: Any,
        d_num_selected_out: Any,
        cond: Any,
        num_items: int,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""

def make_select(
    *, d_in: Any, d_out: Any, d_num_selected_out: Any, cond: Any, compute_capability: Any = None
) -> _Select:
    """Return a selection; see `cupar.select`."""

def select(
    *, d_in: Any, d_out: Any, d_num_selected_out: Any, cond: Any, num_items: int, stream: Any = None
) -> None:
    """Select from `num_items` items those for which `cond` holds; see `cupar.select`."""

class _ThreeWayPartition(Made):
    """A partition into three arrays; see `make_three_way_partition`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in: Any,
        d_first_part_out: Any,
        d_second_part_out: Any,
        d_unselected_out: Any,
        d_num_selected_out: Any,
        select_first_part_op: Any,
        select_second_part_op: Any,
        num_items: int,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""

def make_three_way_partition(
    *,
    d_in: Any,
    d_first_part_out: Any,
    d_second_part_out: Any,
    d_unselected_out: Any,
    d_num_selected_out: Any,
    select_first_part_op: Any,
    select_second_part_op: Any,
    compute_capability: Any = None,
) -> _ThreeWayPartition:
    """Return a partition into three arrays; see `cupar.three_way_partition`."""

def three_way_partition(
    *,
    d_in: Any,
    d_first_part_out: Any,
    d_second_part_out: Any,
    d_unselected_out: Any,
    d_num_selected_out: Any,
    select_first_part_op: Any,
    select_second_part_op: Any,
    num_items: int,
    stream: Any = None,
) -> None:
    """Partition `num_items` items into three arrays; see `cupar.three_way_partition`."""

class _UnaryTransform(Made):
    """A transform of one array; see `make_unary_transform`."""

    def __call__(self, *, d_in: Any, d_out: Any, op: Any, num_items: int, stream: Any = None) -> None:
        """Apply `op` to each of `num_items` items."""

def make_unary_transform(
    *, d_in: Any, d_out: Any, op: Any, compute_capability: Any = None
) -> _UnaryTransform:
    """Return a transform of one array; see `cupar.unary_transform`."""

def unary_transform(*, d_in: Any, d_out: Any, op: Any, num_items: int, stream: Any = None) -> None:
    """Apply `op` to each of `num_items` items; see `cupar.unary_transform`."""

class _UniqueByKey(Made):
    """A selection of the first of each run of equal keys; see `make_unique_by_key`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in_keys: Any,
        d_in_items: Any,
        d_out_keys: Any,
        d_out_items: Any,
        d_out_num_selected: Any,
        op: Any,
        num_items: int,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""

def make_unique_by_key(
    *,
    d_in_keys: Any,
    d_in_items: Any,
    d_out_keys: Any,
    d_out_items: Any,
    d_out_num_selected: Any,
    op: Any,
    compute_capability: Any = None,
) -> _UniqueByKey:
    """Return a selection of the first of each run of equal keys; see `cupar.unique_by_key`."""

def unique_by_key(
    *,
    d_in_keys: Any,
    d_in_items: Any,
    d_out_keys: Any,
    d_out_items: Any,
    d_out_num_selected: Any,
    op: Any,
    num_items: int,
    stream: Any = None,
) -> None:
    """Select the first of each run among `num_items` keys, with its item; see `cupar.unique_by_key`."""

class _UpperBound(Made):
    """A search for the last place where each value can be inserted; see `make_upper_bound`."""

    def __call__(
        self,
        *,
        d_data: Any,
        num_items: int,
        d_values: Any,
        num_values: int,
        d_out: Any,
        comp: Any,
        stream: Any = None,
    ) -> None:
        """Find the last place where each value can be inserted."""

def make_upper_bound(
    *, d_data: Any, d_values: Any, d_out: Any, comp: Any = None, compute_capability: Any = None
) -> _UpperBound:
    """Return a search for the last place where each value can be inserted; see `cupar.upper_bound`."""

def upper_bound(
    *,
    d_data: Any,
    num_items: int,
    d_values: Any,
    num_values: int,
    d_out: Any,
    comp: Any = None,
    stream: Any = None,
) -> None:
    """Find the last place where each value can be inserted; see `cupar.upper_bound`."""
