"""Types of the functions of `cupar.torch`, for type checkers; tests/test_stubs.py writes this file."""

# fmt: off
from collections.abc import Sequence

import torch
from torch import Tensor

from ._torch.recurrence import linear_recurrence as linear_recurrence
from ._torch.scans import scan as scan
from ._torch.transforms import transform as transform
from .arrays import Counted, Histogram, MinMax, Runs, TopK, UniqueAll, UniqueCounts, UniqueInverse
from .operators import Op, OpKind

def all(x: Tensor, /, dim: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """Return whether no item is 0, or none along axes."""
def all_of(x: Tensor, predicate: Op, /, dim: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """Return whether a predicate holds for all items."""
def any(x: Tensor, /, dim: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """Return whether an item is not 0, or one along axes. NaN is not 0."""
def any_of(x: Tensor, predicate: Op, /, dim: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """Return whether a predicate holds for an item."""
def argmax(x: Tensor, /, dim: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the first greatest item, of all in C's order or along an axis."""
def argmin(x: Tensor, /, dim: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the first least item, of all in C's order or along an axis."""
def argsort(x: Tensor, /, dim: int | None = -1, descending: bool = False, stable: bool = True, *, less: Op | None = None) -> Tensor:
    """Return the indices that sort an array along an axis."""
def bincount(x: Tensor, /, weights: Tensor | None = None, minlength: int = 0, size: int | None = None) -> Tensor:
    """Return how often each number from 0 on is among integers, or the sum of their weights."""
def compress(x: Tensor, flags: Tensor, /) -> Tensor:
    """Return the items whose flags hold, in C's order: ``x[flags]``."""
def copy_if(x: Tensor, predicate: Op, /) -> Tensor:
    """Return the items for which a predicate holds, in C's order."""
def count_if(x: Tensor, predicate: Op, /, dim: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """Count the items for which a predicate holds, as int64."""
def count_nonzero(x: Tensor, /, dim: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """Count the items that are not 0, of all or along axes, as int64."""
def cumulative_prod(x: Tensor, /, dim: int | None = None, include_initial: bool = False, dtype: torch.dtype | None = None) -> Tensor:
    """Return the products of all items up to each, along an axis."""
def cumulative_sum(x: Tensor, /, dim: int | None = None, include_initial: bool = False, dtype: torch.dtype | None = None) -> Tensor:
    """Return the sums of all items up to each, along an axis."""
def diff(x: Tensor, /, dim: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """Return each item minus the one before it along an axis; of bools, whether they differ."""
def find_first(x: Tensor, predicate: Op, /) -> Tensor:
    """Return the index of the first item, in C's order, for which a predicate holds; -1 without one."""
def histogram(x: Tensor, /, bins: int = 10, range: Sequence[float] | None = None, weights: Tensor | None = None, density: bool = False) -> Histogram[Tensor]:
    """Count the items in bins; the last bin includes both of its edges."""
def intersect1d(a: Tensor, b: Tensor, /, assume_unique: bool = False) -> Tensor:
    """Return the different items that two arrays have in common, sorted. A NaN is in no other array."""
def isin(x1: Tensor, x2: Tensor, /, invert: bool = False) -> Tensor:
    """Return whether each item of an array is among those of another. NaN is nowhere."""
def max(x: Tensor, /, dim: int | tuple[int, ...] | None = None, keepdims: bool = False, where: Tensor | None = None) -> Tensor:
    """Return the greatest item, or those along axes; NaN if there is one."""
def median(x: Tensor, /, dim: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """Return the median of all items, or along axes; NaN if there is one. That of integers is float64."""
def merge(a: Tensor, b: Tensor, /, *, less: Op | None = None) -> Tensor:
    """Return the items of two sorted arrays in one, sorted; of equal ones, those of `a` come first."""
def min(x: Tensor, /, dim: int | tuple[int, ...] | None = None, keepdims: bool = False, where: Tensor | None = None) -> Tensor:
    """Return the least item, or those along axes; NaN if there is one."""
def minmax(x: Tensor, /, dim: int | tuple[int, ...] | None = None, keepdims: bool = False) -> MinMax[Tensor]:
    """Return the least and the greatest item, or those along axes, in one pass; NaN if there is one."""
def none_of(x: Tensor, predicate: Op, /, dim: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """Return whether a predicate holds for no item."""
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Return the indices of the items that are not 0, in C's order: an array for each dimension."""
def partition_by(x: Tensor, predicate: Op, /) -> Counted[Tensor, Tensor]:
    """Return the items for which a predicate holds, then the others, and the number of the former."""
def prod(x: Tensor, /, dim: int | tuple[int, ...] | None = None, keepdims: bool = False, dtype: torch.dtype | None = None, where: Tensor | None = None) -> Tensor:
    """Return the product of all items, or along axes; that of no items is 1."""
def quantile(x: Tensor, q: float | Sequence[float], /, dim: int | tuple[int, ...] | None = None, method: str = 'linear', keepdims: bool = False) -> Tensor:
    """Return quantiles of all items, or along axes; NaN if there is one. Integers become float64."""
def reduce(x: Tensor, op: Op = OpKind.PLUS, /, dim: int | tuple[int, ...] | None = None, keepdims: bool = False, init: complex | Tensor | None = None, where: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Return all items combined by an operator, or those along axes."""
def reduce_by_key(keys: Tensor, x: Tensor, op: Op = OpKind.PLUS, /, init: complex | Tensor | None = None, dtype: torch.dtype | None = None, *, equal: Op | None = None) -> Runs[Tensor]:
    """Return the keys of runs of equal ones, and the items that belong to each run combined."""
def remove_if(x: Tensor, predicate: Op, /) -> Tensor:
    """Return the items for which a predicate does not hold, in C's order."""
def repeat(x: Tensor, repeats: Tensor | int, /, dim: int | None = None) -> Tensor:
    """Return each item of an axis several times, one after another."""
def run_length_encode(x: Tensor, /, *, equal: Op | None = None) -> Runs[Tensor]:
    """Return the items of runs of equal ones, one for each run, and how long the runs are."""
def searchsorted(x1: Tensor, x2: Tensor, /, side: str = 'left', sorter: Tensor | None = None) -> Tensor:
    """Return where items can be inserted into a sorted array so that it stays sorted."""
def segment_reduce(x: Tensor, ids: Tensor, op: Op = OpKind.PLUS, /, num_segments: int | None = None, init: complex | Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Return the items of each segment combined, where ids in any order say which segment an item is in."""
def setdiff1d(a: Tensor, b: Tensor, /, assume_unique: bool = False) -> Tensor:
    """Return the different items of the first array that the second has not, sorted. NaN is in no array."""
def setxor1d(a: Tensor, b: Tensor, /, assume_unique: bool = False) -> Tensor:
    """Return the different items that only one of two arrays has, sorted. Each has a NaN of its own."""
def sort(x: Tensor, /, dim: int | None = -1, descending: bool = False, stable: bool = True, *, less: Op | None = None) -> Tensor:
    """Return the items sorted along an axis. Tuples of arrays need a `less`."""
def sum(x: Tensor, /, dim: int | tuple[int, ...] | None = None, keepdims: bool = False, dtype: torch.dtype | None = None, where: Tensor | None = None) -> Tensor:
    """Return the sum of all items, or along axes."""
def take(x: Tensor, indices: Tensor, /, dim: int | None = None) -> Tensor:
    """Return the items at some places of an axis, or of all items."""
def top_k(x: Tensor, k: int, /, dim: int | None = -1, largest: bool = True) -> TopK[Tensor]:
    """Return the k greatest items along an axis, sorted, and their indices. NaN is the greatest."""
def union1d(a: Tensor, b: Tensor, /) -> Tensor:
    """Return the different items of two arrays, sorted. All NaNs are one, as in NumPy."""
def unique_all(x: Tensor, /) -> UniqueAll[Tensor]:
    """Return the different items, sorted, with their first indices, the inverse, and their counts."""
def unique_counts(x: Tensor, /) -> UniqueCounts[Tensor]:
    """Return the different items, sorted, with their counts."""
def unique_inverse(x: Tensor, /) -> UniqueInverse[Tensor]:
    """Return the different items, sorted, and for each item which of them it is."""
def unique_values(x: Tensor, /) -> Tensor:
    """Return the different items, sorted. NaNs are all different."""
