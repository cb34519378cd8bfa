"""CCCL's device-wide parallel algorithms from Python, each specialisation built once.

>>> import cupar
>>> sum_into = cupar.reduce_into(d_in, d_out, lambda a, b: a + b, h_init)   # doctest: +SKIP
>>> sum_into.run(d_in, d_out, num_items, h_init)                            # doctest: +SKIP

Importing cupar imports nothing but this file: each name is fetched from its module when it is first used.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import cache, graph
    from ._ahead.preload import preload
    from ._ahead.record import Recording, record
    from ._cache import CacheWarning, use_bundle, use_shared
    from ._call.algorithm import Algorithm, Build
    from ._call.bound import Bound
    from ._compile.cccl import VersionError
    from ._compile.toolchain import BuildError
    from ._device.driver import DriverError, NoDeviceError
    from ._device.storage import release_memory
    from .histogram import Histogram, histogram_even
    from .iterators import (
        CacheModifiedInputIterator,
        ConstantIterator,
        CountingIterator,
        DiscardIterator,
        PermutationIterator,
        ReverseInputIterator,
        ReverseIterator,
        ReverseOutputIterator,
        ShuffleIterator,
        TransformIterator,
        TransformOutputIterator,
        ZipIterator,
    )
    from .operators import OpKind, RawOp
    from .partition import Select, ThreeWayPartition, select, three_way_partition
    from .reduce import Determinism, Reduce, reduce_into
    from .scan import Scan, exclusive_scan, inclusive_scan
    from .search import BinarySearch, lower_bound, upper_bound
    from .segmented import SegmentedReduce, SegmentedSort, segmented_reduce, segmented_sort
    from .sort import (
        DoubleBuffer,
        MergeSort,
        RadixSort,
        SortOrder,
        merge_sort,
        radix_sort,
    )
    from .structs import gpu_struct
    from .transform import BinaryTransform, UnaryTransform, binary_transform, unary_transform
    from .unique import UniqueByKey, unique_by_key

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "BinarySearch",
    "BinaryTransform",
    "Bound",
    "Build",
    "BuildError",
    "CacheModifiedInputIterator",
    "CacheWarning",
    "ConstantIterator",
    "CountingIterator",
    "Determinism",
    "DiscardIterator",
    "DoubleBuffer",
    "DriverError",
    "Histogram",
    "MergeSort",
    "NoDeviceError",
    "OpKind",
    "PermutationIterator",
    "RadixSort",
    "RawOp",
    "Recording",
    "Reduce",
    "ReverseInputIterator",
    "ReverseIterator",
    "ReverseOutputIterator",
    "Scan",
    "SegmentedReduce",
    "SegmentedSort",
    "Select",
    "ShuffleIterator",
    "SortOrder",
    "ThreeWayPartition",
    "TransformIterator",
    "TransformOutputIterator",
    "UnaryTransform",
    "UniqueByKey",
    "VersionError",
    "ZipIterator",
    "binary_transform",
    "cache",
    "exclusive_scan",
    "gpu_struct",
    "graph",
    "histogram_even",
    "inclusive_scan",
    "lower_bound",
    "merge_sort",
    "preload",
    "radix_sort",
    "record",
    "reduce_into",
    "release_memory",
    "segmented_reduce",
    "segmented_sort",
    "select",
    "three_way_partition",
    "unary_transform",
    "unique_by_key",
    "upper_bound",
    "use_bundle",
    "use_shared",
]

_MODULES = {
    "Algorithm": "_call.algorithm",
    "BinarySearch": "search",
    "BinaryTransform": "transform",
    "Bound": "_call.bound",
    "Build": "_call.algorithm",
    "BuildError": "_compile.toolchain",
    "CacheModifiedInputIterator": "iterators",
    "CacheWarning": "_cache",
    "ConstantIterator": "iterators",
    "CountingIterator": "iterators",
    "Determinism": "reduce",
    "DiscardIterator": "iterators",
    "DoubleBuffer": "_call.double_buffer",
    "DriverError": "_device.driver",
    "Histogram": "histogram",
    "MergeSort": "sort",
    "NoDeviceError": "_device.driver",
    "OpKind": "operators",
    "PermutationIterator": "iterators",
    "RadixSort": "sort",
    "RawOp": "operators",
    "Recording": "_ahead.record",
    "Reduce": "reduce",
    "ReverseInputIterator": "iterators",
    "ReverseIterator": "iterators",
    "ReverseOutputIterator": "iterators",
    "Scan": "scan",
    "SegmentedReduce": "segmented",
    "SegmentedSort": "segmented",
    "Select": "partition",
    "ShuffleIterator": "iterators",
    "SortOrder": "sort",
    "ThreeWayPartition": "partition",
    "TransformIterator": "iterators",
    "TransformOutputIterator": "iterators",
    "UnaryTransform": "transform",
    "UniqueByKey": "unique",
    "VersionError": "_compile.cccl",
    "ZipIterator": "iterators",
    "binary_transform": "transform",
    "exclusive_scan": "scan",
    "gpu_struct": "structs",
    "histogram_even": "histogram",
    "inclusive_scan": "scan",
    "lower_bound": "search",
    "merge_sort": "sort",
    "preload": "_ahead.preload",
    "radix_sort": "sort",
    "record": "_ahead.record",
    "reduce_into": "reduce",
    "release_memory": "_device.storage",
    "segmented_reduce": "segmented",
    "segmented_sort": "segmented",
    "select": "partition",
    "three_way_partition": "partition",
    "unary_transform": "transform",
    "unique_by_key": "unique",
    "upper_bound": "search",
    "use_bundle": "_cache",
    "use_shared": "_cache",
}


def _observer() -> Any:
    """Return what observes the questions to factories, as the environment says when the first is asked."""
    if not os.environ.get("CUPAR_RECORD"):
        return None
    from ._ahead import record

    return record.from_environment()


def __getattr__(name: str) -> Any:
    if name in ("cache", "graph"):
        return importlib.import_module(f".{name}", __name__)
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # No module may have the name of something public: importing it would put the module in its place here.
    value = globals()[name] = getattr(importlib.import_module(f".{module}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
