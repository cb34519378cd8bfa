"""Arrays in shards, over many GPUs and machines: each rank has a part, the array is the parts in rank order.

>>> import numpy as np
>>> from cupar import distributed
>>> shard, total = np.arange(10), np.zeros(1, np.int64)
>>> distributed.reduce_into(shard, total, lambda a, b: a + b, 0).run(shard, total, 10, 0)
>>> print(total)
[45]

Started by torchrun or mpirun, the same program sums the shards of all ranks. Names are fetched from their
modules when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._base.lazy import fetched

_NAMES = {
    "c10d": "StoreMapping",
    "comm": "Comm GroupError",
    "engines": "group threads",
    "group": "Group",
    "histogram": "Histogram histogram_even",
    "mpi": "MPIComm",
    "partition": "Select ThreeWayPartition select three_way_partition",
    "reduce": "Reduce reduce_into",
    "runs": "ReduceByKey RunLengthEncode UniqueByKey reduce_by_key run_length_encode unique_by_key",
    "scan": "Prefix Scan exclusive_scan inclusive_scan",
    "search": "BinarySearch lower_bound upper_bound",
    "segments": (
        "SegmentedReduce SegmentedScan exclusive_segmented_scan inclusive_segmented_scan segmented_reduce"
    ),
    "sharded": "Sharded",
    "sort": "MergeSort RadixSort merge_sort radix_sort",
    "topk": "TopK top_k",
}
_MODULES = fetched(__name__, "cupar._fleet", _NAMES, ["arrays"])

__all__ = sorted([*_MODULES, "arrays"])  # noqa: PLE0605

if TYPE_CHECKING:  # the same for type checkers; a test compares the two
    from .._fleet.c10d import StoreMapping as StoreMapping
    from .._fleet.comm import Comm as Comm
    from .._fleet.comm import GroupError as GroupError
    from .._fleet.engines import group as group
    from .._fleet.engines import threads as threads
    from .._fleet.group import Group as Group
    from .._fleet.histogram import Histogram as Histogram
    from .._fleet.histogram import histogram_even as histogram_even
    from .._fleet.mpi import MPIComm as MPIComm
    from .._fleet.partition import Select as Select
    from .._fleet.partition import ThreeWayPartition as ThreeWayPartition
    from .._fleet.partition import select as select
    from .._fleet.partition import three_way_partition as three_way_partition
    from .._fleet.reduce import Reduce as Reduce
    from .._fleet.reduce import reduce_into as reduce_into
    from .._fleet.runs import ReduceByKey as ReduceByKey
    from .._fleet.runs import RunLengthEncode as RunLengthEncode
    from .._fleet.runs import UniqueByKey as UniqueByKey
    from .._fleet.runs import reduce_by_key as reduce_by_key
    from .._fleet.runs import run_length_encode as run_length_encode
    from .._fleet.runs import unique_by_key as unique_by_key
    from .._fleet.scan import Prefix as Prefix
    from .._fleet.scan import Scan as Scan
    from .._fleet.scan import exclusive_scan as exclusive_scan
    from .._fleet.scan import inclusive_scan as inclusive_scan
    from .._fleet.search import BinarySearch as BinarySearch
    from .._fleet.search import lower_bound as lower_bound
    from .._fleet.search import upper_bound as upper_bound
    from .._fleet.segments import SegmentedReduce as SegmentedReduce
    from .._fleet.segments import SegmentedScan as SegmentedScan
    from .._fleet.segments import exclusive_segmented_scan as exclusive_segmented_scan
    from .._fleet.segments import inclusive_segmented_scan as inclusive_segmented_scan
    from .._fleet.segments import segmented_reduce as segmented_reduce
    from .._fleet.sharded import Sharded as Sharded
    from .._fleet.sort import MergeSort as MergeSort
    from .._fleet.sort import RadixSort as RadixSort
    from .._fleet.sort import merge_sort as merge_sort
    from .._fleet.sort import radix_sort as radix_sort
    from .._fleet.topk import TopK as TopK
    from .._fleet.topk import top_k as top_k
    from . import arrays as arrays
