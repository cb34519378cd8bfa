"""Shapes and dtypes of what functions return, as fake tensors have them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._functions.axes import axes_of

INT64 = torch.int64
Results = Sequence[tuple[Sequence[Any], Any]]  # shape and dtype of each


def reduced(shape: Sequence[Any], dim: Any, keepdims: bool) -> list[Any]:
    """Return the shape that is left of one by a reduction."""
    axes = axes_of(tuple(dim) if isinstance(dim, (list, tuple)) else dim, len(shape))
    return [1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes]


def reduction(dtype: Any = None) -> Callable[..., Results]:
    """Return what says the result of a reduction, of a dtype or one that depends on the items'."""

    def results(x: Any, dim: Any, keepdims: bool) -> Results:
        return [(reduced(x.shape, dim, keepdims), dtype(x.dtype) if callable(dtype) else dtype or x.dtype)]

    return results


def summed(dtype: Any) -> Any:
    """Return the dtype in which items are summed."""
    if dtype.is_floating_point or dtype.is_complex:
        return dtype
    return torch.uint64 if dtype in _UNSIGNED else INT64


_UNSIGNED = {torch.uint8, torch.uint16, torch.uint32, torch.uint64}


def minmax(x: Any, dim: Any, keepdims: bool) -> Results:
    """Say the results of both extremes."""
    return [(reduced(x.shape, dim, keepdims), x.dtype)] * 2


def along(x: Any, dim: Any) -> list[Any]:
    """Return the shape of work along a dimension, or over all."""
    return [math.prod(x.shape)] if dim is None else [*x.shape]


def cumulative(x: Any, dim: Any, include_initial: bool) -> Results:
    """Say the result of a cumulative sum or product."""
    shape = [*x.shape]
    if include_initial:
        shape[0 if dim is None else dim] += 1
    return [(shape, summed(x.dtype))]


def top_k(x: Any, k: int, dim: Any, largest: bool) -> Results:
    """Say the largest items and their indices."""
    shape = along(x, dim)
    shape[0 if dim is None else dim] = k
    return [(shape, x.dtype), (shape, INT64)]


def length() -> Any:
    """Return a length that depends on data."""
    return torch.library.get_ctx().new_dynamic_size()


def counts(x: Any) -> Results:
    """Declare items and their counts."""
    n = length()
    return [([n], x.dtype), ([n], INT64)]


def segments(x: Any, ids: Any, number: Any) -> Results:
    """Declare what segments reduce to, of items or rows."""
    return [([number, *(x.shape[1:] if ids.ndim < x.ndim else ())], x.dtype)]


def diff(x: Any, dim: int, n: int, prepend: Any, append: Any) -> Results:
    """Say the result of differences."""
    shape = [*x.shape]
    shape[dim] += sum([each.shape[dim] for each in (prepend, append) if each is not None]) - n
    return [(shape, x.dtype)]


def taken(x: Any, indices: Any, dim: Any) -> Results:
    """Say the items of indices."""
    at = (dim or 0) % x.ndim
    return [([*x.shape[:at], *indices.shape, *x.shape[at + 1 :]], x.dtype)]


def selected(x: Any) -> Results:
    """Say some of the items."""
    return [([length()], x.dtype)]


def nonzero(x: Any) -> Results:
    """Say indices, for each dimension."""
    return [([length()], INT64)] * x.ndim


def repeated(x: Any, repeats: Any, dim: Any) -> Results:
    """Say items that are repeated."""
    if dim is None:
        return [([length()], x.dtype)]
    at = dim % x.ndim
    return [([*x.shape[:at], length(), *x.shape[at + 1 :]], x.dtype)]


def real(dtype: Any) -> Any:
    """Return the dtype of means of items."""
    return dtype if dtype.is_floating_point else torch.float64


def quantile(x: Any, q: Any, dim: Any, method: str, keepdims: bool) -> Results:
    """Say quantiles."""
    dtype = x.dtype if method in ("lower", "higher", "nearest") else real(x.dtype)
    return [([len(q), *reduced(x.shape, dim, keepdims)], dtype)]


def bins(x: Any, weights: Any, minlength: Any, size: Any) -> Results:
    """Say how often each number is there."""
    return [([length() if size is None else size], INT64 if weights is None else torch.float64)]


def histogram(x: Any, number: int, interval: Any, weights: Any, density: bool) -> Results:
    """Declare the counts of bins, and their edges."""
    dtype = torch.float64 if density else INT64
    if weights is not None:
        dtype = torch.complex128 if weights.is_complex() else torch.float64
    return [([number], dtype), ([number + 1], real(x.dtype))]


def runs(keys: Any, x: Any) -> Results:
    """Say a key of each run, and what its items reduce to."""
    n = length()
    return [([n], keys.dtype), ([n], x.dtype)]


def inverse(x: Any) -> Results:
    """Say items, and where each item is among these."""
    return [([length()], x.dtype), (x.shape, INT64)]


def unique(x: Any) -> Results:
    """Say the same, with indices and counts."""
    n = length()
    return [([n], x.dtype), ([n], INT64), (x.shape, INT64), ([n], INT64)]


def union(a: Any, b: Any) -> Results:
    """Say the items of two arrays."""
    return [([length()], torch.promote_types(a.dtype, b.dtype))]


def set_of(a: Any, b: Any, assume_unique: bool) -> Results:
    """Say a set made of two."""
    return union(a, b)


def difference(a: Any, b: Any, assume_unique: bool) -> Results:
    """Say items of the first of two."""
    return [([length()], a.dtype)]
