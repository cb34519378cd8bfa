"""Arrays in, arrays out: scans, reductions, sorts and sets of arrays of NumPy, CuPy, PyTorch and Numba.

>>> import numpy as np
>>> from cupar import arrays
>>> arrays.scan(np.array([3, 1, 4, 1, 5]), lambda a, b: a if a > b else b)
array([3, 3, 4, 4, 5])

What they return comes from the library of their first array, by its allocator, on its current stream.
Arrays in host memory are worked on by the CPU. Functions are fetched from their modules when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._base.lazy import fetched

_NAMES = {
    "counting": "Histogram bincount histogram segment_reduce",
    "elements": (
        "adjacent_difference fill for_each gather gather_if replace replace_if reverse roll sample scatter "
        "scatter_if sequence shift shuffle tabulate"
    ),
    "extremes": "MinMax argmax argmin minmax",
    "finding": (
        "all_of any_of equal find_first is_partitioned is_sorted is_sorted_until lexicographical_compare "
        "mismatch none_of partition_point"
    ),
    "grids": "HistogramDD histogramdd",
    "indexing": "concatenate diff repeat take take_ranges",
    "items": "Counted",
    "multisets": "includes set_difference set_intersection set_symmetric_difference set_union",
    "named": "all any count_nonzero max min prod sum",
    "predicates": (
        "compress count count_if inner_product partition_copy remove_if transform_reduce transform_scan"
    ),
    "quantiles": "median nth_element quantile segment_quantile",
    "reductions": "reduce",
    "scans": "cumulative_prod cumulative_sum linear_recurrence scan",
    "selection": "CountedRuns Runs copy_if nonzero partition_by reduce_by_key run_length_encode",
    "sets": (
        "UniqueAll UniqueCounts UniqueInverse intersect1d isin setdiff1d setxor1d "
        "union1d unique_all unique_counts unique_inverse unique_values"
    ),
    "sorting": "TopK argsort merge searchsorted sort top_k",
    "transforms": "transform",
}
_MODULES = fetched(__name__, "cupar._functions", _NAMES)

__all__ = sorted(_MODULES)  # noqa: PLE0605

if TYPE_CHECKING:  # where editors find them; type checkers see the stub, and a test compares all
    from ._functions.counting import Histogram as Histogram
    from ._functions.counting import bincount as bincount
    from ._functions.counting import histogram as histogram
    from ._functions.counting import segment_reduce as segment_reduce
    from ._functions.elements import adjacent_difference as adjacent_difference
    from ._functions.elements import fill as fill
    from ._functions.elements import for_each as for_each
    from ._functions.elements import gather as gather
    from ._functions.elements import gather_if as gather_if
    from ._functions.elements import replace as replace
    from ._functions.elements import replace_if as replace_if
    from ._functions.elements import reverse as reverse
    from ._functions.elements import roll as roll
    from ._functions.elements import sample as sample
    from ._functions.elements import scatter as scatter
    from ._functions.elements import scatter_if as scatter_if
    from ._functions.elements import sequence as sequence
    from ._functions.elements import shift as shift
    from ._functions.elements import shuffle as shuffle
    from ._functions.elements import tabulate as tabulate
    from ._functions.extremes import MinMax as MinMax
    from ._functions.extremes import argmax as argmax
    from ._functions.extremes import argmin as argmin
    from ._functions.extremes import minmax as minmax
    from ._functions.finding import all_of as all_of
    from ._functions.finding import any_of as any_of
    from ._functions.finding import equal as equal
    from ._functions.finding import find_first as find_first
    from ._functions.finding import is_partitioned as is_partitioned
    from ._functions.finding import is_sorted as is_sorted
    from ._functions.finding import is_sorted_until as is_sorted_until
    from ._functions.finding import lexicographical_compare as lexicographical_compare
    from ._functions.finding import mismatch as mismatch
    from ._functions.finding import none_of as none_of
    from ._functions.finding import partition_point as partition_point
    from ._functions.grids import HistogramDD as HistogramDD
    from ._functions.grids import histogramdd as histogramdd
    from ._functions.indexing import concatenate as concatenate
    from ._functions.indexing import diff as diff
    from ._functions.indexing import repeat as repeat
    from ._functions.indexing import take as take
    from ._functions.indexing import take_ranges as take_ranges
    from ._functions.items import Counted as Counted
    from ._functions.multisets import includes as includes
    from ._functions.multisets import set_difference as set_difference
    from ._functions.multisets import set_intersection as set_intersection
    from ._functions.multisets import set_symmetric_difference as set_symmetric_difference
    from ._functions.multisets import set_union as set_union
    from ._functions.named import all as all
    from ._functions.named import any as any
    from ._functions.named import count_nonzero as count_nonzero
    from ._functions.named import max as max
    from ._functions.named import min as min
    from ._functions.named import prod as prod
    from ._functions.named import sum as sum
    from ._functions.predicates import compress as compress
    from ._functions.predicates import count as count
    from ._functions.predicates import count_if as count_if
    from ._functions.predicates import inner_product as inner_product
    from ._functions.predicates import partition_copy as partition_copy
    from ._functions.predicates import remove_if as remove_if
    from ._functions.predicates import transform_reduce as transform_reduce
    from ._functions.predicates import transform_scan as transform_scan
    from ._functions.quantiles import median as median
    from ._functions.quantiles import nth_element as nth_element
    from ._functions.quantiles import quantile as quantile
    from ._functions.quantiles import segment_quantile as segment_quantile
    from ._functions.reductions import reduce as reduce
    from ._functions.scans import cumulative_prod as cumulative_prod
    from ._functions.scans import cumulative_sum as cumulative_sum
    from ._functions.scans import linear_recurrence as linear_recurrence
    from ._functions.scans import scan as scan
    from ._functions.selection import CountedRuns as CountedRuns
    from ._functions.selection import Runs as Runs
    from ._functions.selection import copy_if as copy_if
    from ._functions.selection import nonzero as nonzero
    from ._functions.selection import partition_by as partition_by
    from ._functions.selection import reduce_by_key as reduce_by_key
    from ._functions.selection import run_length_encode as run_length_encode
    from ._functions.sets import UniqueAll as UniqueAll
    from ._functions.sets import UniqueCounts as UniqueCounts
    from ._functions.sets import UniqueInverse as UniqueInverse
    from ._functions.sets import intersect1d as intersect1d
    from ._functions.sets import isin as isin
    from ._functions.sets import setdiff1d as setdiff1d
    from ._functions.sets import setxor1d as setxor1d
    from ._functions.sets import union1d as union1d
    from ._functions.sets import unique_all as unique_all
    from ._functions.sets import unique_counts as unique_counts
    from ._functions.sets import unique_inverse as unique_inverse
    from ._functions.sets import unique_values as unique_values
    from ._functions.sorting import TopK as TopK
    from ._functions.sorting import argsort as argsort
    from ._functions.sorting import merge as merge
    from ._functions.sorting import searchsorted as searchsorted
    from ._functions.sorting import sort as sort
    from ._functions.sorting import top_k as top_k
    from ._functions.transforms import transform as transform
