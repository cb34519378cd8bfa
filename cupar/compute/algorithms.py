"""The algorithms, by the module in which ``cuda.compute`` has them."""

from __future__ import annotations

from typing import Any

from .. import compute

__all__ = [  # noqa: F822 - fetched when they are first used
    "DoubleBuffer",
    "SortOrder",
    "binary_transform",
    "deserialize",
    "exclusive_scan",
    "histogram_even",
    "inclusive_scan",
    "lower_bound",
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
    "merge_sort",
    "radix_sort",
    "reduce_into",
    "segmented_reduce",
    "segmented_sort",
    "select",
    "serialize",
    "three_way_partition",
    "unary_transform",
    "unique_by_key",
    "upper_bound",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(compute, name)
