"""Types of the functions of `cupar.dask`, for type checkers; tests/test_stubs.py writes this file."""

# fmt: off
from typing import Any

import dask.array as da

from .arrays import Histogram, Runs, TopK, UniqueCounts
from ._base.annotations import Axes, DType, Floats
from .operators import Op, OpKind

def all(x: da.Array, /, *, axis: Axes = None, keepdims: bool = False) -> da.Array:
    """Return whether no item is 0, of all or along axes."""
def any(x: da.Array, /, *, axis: Axes = None, keepdims: bool = False) -> da.Array:
    """Return whether an item is not 0, of all or along axes."""
def argmax(x: da.Array, /, *, axis: int | None = None, keepdims: bool = False) -> da.Array:
    """Return the index of the first greatest item, of all in C's order or along an axis."""
def argmin(x: da.Array, /, *, axis: int | None = None, keepdims: bool = False) -> da.Array:
    """Return the index of the first least item, of all in C's order or along an axis."""
def count_nonzero(x: da.Array, /, *, axis: Axes = None, keepdims: bool = False) -> da.Array:
    """Return how many items are not 0, of all or along axes."""
def cumulative_prod(x: da.Array, /, *, axis: int | None = None, dtype: DType = None) -> da.Array:
    """Return the products of all items up to each, along an axis."""
def cumulative_sum(x: da.Array, /, *, axis: int | None = None, dtype: DType = None) -> da.Array:
    """Return the sums of all items up to each, along an axis."""
def histogram(x: da.Array, /, *, bins: int | Floats = 10, range: Floats | None = None) -> Histogram[da.Array]: ...
def max(x: da.Array, /, *, axis: Axes = None, keepdims: bool = False) -> da.Array:
    """Return the greatest item, of all or along axes."""
def median(x: da.Array, /) -> da.Array: ...
def min(x: da.Array, /, *, axis: Axes = None, keepdims: bool = False) -> da.Array:
    """Return the least item, of all or along axes."""
def prod(x: da.Array, /, *, axis: Axes = None, keepdims: bool = False, dtype: DType = None) -> da.Array:
    """Return the product of the items, of all or along axes."""
def quantile(x: da.Array, q: float | Floats, /, *, method: str = 'linear') -> da.Array: ...
def reduce(x: da.Array, op: Op = OpKind.PLUS, /, *, axis: Axes = None, init: Any = None, keepdims: bool = False, dtype: DType = None, commutative: bool = True) -> da.Array: ...
def reduce_by_key(keys: da.Array, x: da.Array, op: Op = OpKind.PLUS, /, *, equal: Op | None = None, dtype: DType = None) -> Runs[da.Array]: ...
def scan(x: da.Array, op: Op = OpKind.PLUS, /, *, axis: int | None = None, init: Any = None, exclusive: bool = False, dtype: DType = None, method: str = 'parallel') -> da.Array: ...
def sort(x: da.Array, /, *, axis: int | None = -1, descending: bool = False, less: Op | None = None, npartitions: int | None = None, method: str | None = None, timeout: float = 300) -> da.Array: ...
def sum(x: da.Array, /, *, axis: Axes = None, keepdims: bool = False, dtype: DType = None) -> da.Array:
    """Return the sum of the items, of all or along axes."""
def top_k(x: da.Array, k: int, /, *, axis: int | None = -1, largest: bool = True) -> TopK[da.Array]: ...
def unique(x: da.Array, /) -> da.Array: ...
def unique_counts(x: da.Array, /) -> UniqueCounts[da.Array]: ...
