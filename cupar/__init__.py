"""CCCL's device-wide parallel algorithms from Python, each specialisation built once.

>>> import cupar
>>> sum_into = cupar.reduce_into(d_in, d_out, lambda a, b: a + b, h_init)   # doctest: +SKIP
>>> sum_into.run(d_in, d_out, num_items, h_init)                            # doctest: +SKIP

Importing cupar imports nothing but this file: each name is fetched from its module when it is first used.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

# The one list of public names, by the file that has them.
_NAMES = {
    "_ahead.preload": "preload",
    "_ahead.record": "RecordError Recording record",
    "_base.device": "device",
    "_base.errors": "ArgumentTypeError ArgumentValueError BuildError RefusedError VersionError",
    "_base.warnings": "CacheWarning",
    "_cache": "use_bundle use_shared",
    "_call.algorithm": "Algorithm",
    "_call.bound": "Bound",
    "_call.built": "Build Policy",
    "_arguments.double_buffer": "DoubleBuffer",
    "_device.driver": "DriverError NoDeviceError",
    "_device.storage": "release_memory",
    "_fingerprint.refusals": "Unfingerprintable",
    "_functions.axes": "AxisError",
    "_host.errors": "LaunchError",
    "columns": "ColumnReduce ColumnScan column_reduce exclusive_column_scan inclusive_column_scan",
    "copies": "SegmentedCopy segmented_copy",
    "external": "CppFunction cpp",
    "find": "FindIf find_if",
    "histogram": "Histogram HistogramRange histogram_even histogram_range",
    "indexed": "ReduceByIndex reduce_by_index",
    "host": "View view",
    "iterators": (
        "CacheModifiedInputIterator ConstantIterator CountingIterator DiscardIterator "
        "PermutationIterator ReverseInputIterator ReverseIterator ReverseOutputIterator "
        "ShuffleIterator TransformIterator TransformOutputIterator ZipIterator"
    ),
    "kernel": "Kernel jit",
    "merges": "Merge merge",
    "nth_element": "SegmentedNthElement segmented_nth_element",
    "operators": "OpKind RawOp",
    "partition": "Select ThreeWayPartition select three_way_partition",
    "reduce": "Determinism Reduce reduce_into",
    "runs": (
        "ReduceByKey RunLengthEncode ScanByKey "
        "exclusive_scan_by_key inclusive_scan_by_key reduce_by_key run_length_encode"
    ),
    "scan": "Scan exclusive_scan inclusive_scan",
    "search": "BinarySearch lower_bound upper_bound",
    "segmented": "SegmentedReduce SegmentedSort segmented_reduce segmented_sort",
    "segmented_scan": "SegmentedScan exclusive_segmented_scan inclusive_segmented_scan",
    "sets": "SetOperation set_difference set_intersection set_symmetric_difference set_union",
    "sort": "MergeSort RadixSort SortOrder merge_sort radix_sort",
    "structs": "gpu_struct",
    "topk": "SegmentedTopK TopK segmented_top_k top_k",
    "transform": "BinaryTransform UnaryTransform binary_transform unary_transform",
    "unique": "UniqueByKey unique_by_key",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

_PUBLIC_MODULES = ("arrays", "cache", "compute", "cuda", "distributed", "graph")

__version__ = "0.1.0"

__all__ = sorted([*_MODULES, *_PUBLIC_MODULES])  # noqa: PLE0605

if TYPE_CHECKING:  # the same for type checkers; a test compares the two
    from . import arrays as arrays
    from . import cache as cache
    from . import compute as compute
    from . import cuda as cuda
    from . import distributed as distributed
    from . import graph as graph
    from ._ahead.preload import preload as preload
    from ._ahead.record import RecordError as RecordError
    from ._ahead.record import Recording as Recording
    from ._ahead.record import record as record
    from ._arguments.double_buffer import DoubleBuffer as DoubleBuffer
    from ._base.device import device as device
    from ._base.errors import ArgumentTypeError as ArgumentTypeError
    from ._base.errors import ArgumentValueError as ArgumentValueError
    from ._base.errors import BuildError as BuildError
    from ._base.errors import RefusedError as RefusedError
    from ._base.errors import VersionError as VersionError
    from ._base.warnings import CacheWarning as CacheWarning
    from ._cache import use_bundle as use_bundle
    from ._cache import use_shared as use_shared
    from ._call.algorithm import Algorithm as Algorithm
    from ._call.bound import Bound as Bound
    from ._call.built import Build as Build
    from ._call.built import Policy as Policy
    from ._device.driver import DriverError as DriverError
    from ._device.driver import NoDeviceError as NoDeviceError
    from ._device.storage import release_memory as release_memory
    from ._fingerprint.refusals import Unfingerprintable as Unfingerprintable
    from ._functions.axes import AxisError as AxisError
    from ._host.errors import LaunchError as LaunchError
    from .columns import ColumnReduce as ColumnReduce
    from .columns import ColumnScan as ColumnScan
    from .columns import column_reduce as column_reduce
    from .columns import exclusive_column_scan as exclusive_column_scan
    from .columns import inclusive_column_scan as inclusive_column_scan
    from .copies import SegmentedCopy as SegmentedCopy
    from .copies import segmented_copy as segmented_copy
    from .external import CppFunction as CppFunction
    from .external import cpp as cpp
    from .find import FindIf as FindIf
    from .find import find_if as find_if
    from .histogram import Histogram as Histogram
    from .histogram import HistogramRange as HistogramRange
    from .histogram import histogram_even as histogram_even
    from .histogram import histogram_range as histogram_range
    from .host import View as View
    from .host import view as view
    from .indexed import ReduceByIndex as ReduceByIndex
    from .indexed import reduce_by_index as reduce_by_index
    from .iterators import CacheModifiedInputIterator as CacheModifiedInputIterator
    from .iterators import ConstantIterator as ConstantIterator
    from .iterators import CountingIterator as CountingIterator
    from .iterators import DiscardIterator as DiscardIterator
    from .iterators import PermutationIterator as PermutationIterator
    from .iterators import ReverseInputIterator as ReverseInputIterator
    from .iterators import ReverseIterator as ReverseIterator
    from .iterators import ReverseOutputIterator as ReverseOutputIterator
    from .iterators import ShuffleIterator as ShuffleIterator
    from .iterators import TransformIterator as TransformIterator
    from .iterators import TransformOutputIterator as TransformOutputIterator
    from .iterators import ZipIterator as ZipIterator
    from .kernel import Kernel as Kernel
    from .kernel import jit as jit
    from .merges import Merge as Merge
    from .merges import merge as merge
    from .nth_element import SegmentedNthElement as SegmentedNthElement
    from .nth_element import segmented_nth_element as segmented_nth_element
    from .operators import OpKind as OpKind
    from .operators import RawOp as RawOp
    from .partition import Select as Select
    from .partition import ThreeWayPartition as ThreeWayPartition
    from .partition import select as select
    from .partition import three_way_partition as three_way_partition
    from .reduce import Determinism as Determinism
    from .reduce import Reduce as Reduce
    from .reduce import reduce_into as reduce_into
    from .runs import ReduceByKey as ReduceByKey
    from .runs import RunLengthEncode as RunLengthEncode
    from .runs import ScanByKey as ScanByKey
    from .runs import exclusive_scan_by_key as exclusive_scan_by_key
    from .runs import inclusive_scan_by_key as inclusive_scan_by_key
    from .runs import reduce_by_key as reduce_by_key
    from .runs import run_length_encode as run_length_encode
    from .scan import Scan as Scan
    from .scan import exclusive_scan as exclusive_scan
    from .scan import inclusive_scan as inclusive_scan
    from .search import BinarySearch as BinarySearch
    from .search import lower_bound as lower_bound
    from .search import upper_bound as upper_bound
    from .segmented import SegmentedReduce as SegmentedReduce
    from .segmented import SegmentedSort as SegmentedSort
    from .segmented import segmented_reduce as segmented_reduce
    from .segmented import segmented_sort as segmented_sort
    from .segmented_scan import SegmentedScan as SegmentedScan
    from .segmented_scan import exclusive_segmented_scan as exclusive_segmented_scan
    from .segmented_scan import inclusive_segmented_scan as inclusive_segmented_scan
    from .sets import SetOperation as SetOperation
    from .sets import set_difference as set_difference
    from .sets import set_intersection as set_intersection
    from .sets import set_symmetric_difference as set_symmetric_difference
    from .sets import set_union as set_union
    from .sort import MergeSort as MergeSort
    from .sort import RadixSort as RadixSort
    from .sort import SortOrder as SortOrder
    from .sort import merge_sort as merge_sort
    from .sort import radix_sort as radix_sort
    from .structs import gpu_struct as gpu_struct
    from .topk import SegmentedTopK as SegmentedTopK
    from .topk import TopK as TopK
    from .topk import segmented_top_k as segmented_top_k
    from .topk import top_k as top_k
    from .transform import BinaryTransform as BinaryTransform
    from .transform import UnaryTransform as UnaryTransform
    from .transform import binary_transform as binary_transform
    from .transform import unary_transform as unary_transform
    from .unique import UniqueByKey as UniqueByKey
    from .unique import unique_by_key as unique_by_key


_observing: Any = None  # makes the observer; set by the command that started this program


def _observer() -> Any:
    """Return the observer of requests to factories; called at the first request."""
    if _observing is not None:
        return _observing()
    if not os.environ.get("CUPAR_RECORD"):
        return None
    from ._ahead import record

    return record.from_environment()


def _numba_type(given: Any) -> Any:
    """Return the numba type of an algorithm or an iterator."""
    from ._host import algorithms, iterators
    from ._ir.iterator import Iterator

    return iterators.type_of(given) if isinstance(given, Iterator) else algorithms.type_of(given)


def _result_on_cpu(op: Any) -> Any:
    """Return the dtype of an operator's result, which numba infers for the CPU."""
    from ._cpu import operators

    return operators.result_dtype(op)


def _which_are_arguments(op: Any) -> Any:
    """Return the numbers of an operator that are arguments of its code."""
    from ._compile import numbers

    return numbers.which_are_arguments(op)


def _typed_on_cpu(op: Any, read: Any) -> Any:
    """Compile an operator for the CPU, and return what `read` makes of that."""
    from ._cpu import operators

    return operators.typed_code(op, read)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC_MODULES:
        return importlib.import_module(f".{name}", __name__)
    module = _MODULES.get(name)
    if module is None:
        instead = f"; {_meant(name)}" if name in _FAMILIES else ""
        message = f"module {__name__!r} has no attribute {name!r}{instead}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    # No module may have the name of something public: importing it would put the module in its place here.
    value = globals()[name] = getattr(importlib.import_module(f".{module}", __name__), name)
    for each in _FAMILIES:  # which are attributes here once they are imported
        imported = sys.modules.get(f"{__name__}.{each}")
        if imported is not None:
            imported.__class__ = _Family
    return value


# Modules that each hold a family's algorithms, such as `reduce`: not public, though users may import them.
_FAMILIES = [name for name in _NAMES if name.isidentifier() and name[0] != "_" and name != "structs"]


def _meant(family: str) -> str:
    names = [f"cupar.{name}" for name in _NAMES[family].split() if name[0].islower()]
    return f"what there is: {', '.join(names or [f'cupar.{name}' for name in _NAMES[family].split()])}"


class _Family(ModuleType):
    """A file with the name of its function, so that calling the module names the function."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        raise TypeError(f"{self.__name__} is a module; {_meant(self.__name__.rpartition('.')[2])}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
