"""Shapes and dtypes of results, and the checks of arguments, for calls that have no kernel to ask.

Each rule takes a function's arguments, tensors as operands of `cupar.arrays`, and raises what the function
raises. Sizes may be symbols, which are not compared. A length that depends on data is None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from .. import structs
from .._functions.axes import INT64, axes_of, axis_of
from .._functions.calls import Operand
from .._functions.counting import segment_count
from .._functions.indexing import check_ends
from .._functions.items import along
from .._functions.named import NAMED
from .._functions.quantiles import check_ranks, quantiles_of
from .._functions.rows import check_items, check_kind, check_mask, dtypes_of, layout_along, promoted
from .._functions.scans import cumulative_shape
from .._functions.values import accumulated, initial, integer, summed
from .registration import numpy_dtype

BOOL, FLOAT = np.dtype(bool), np.dtype(np.float64)
Result = tuple[Sequence[Any], np.dtype[Any]]  # shape and dtype


class _Items:
    """The items of a tensor, of which only the dtype is known."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype


def operand(name: str, x: Any) -> Operand:
    """Return a tensor as an operand without items."""
    return Operand(x, _Items(numpy_dtype(name, x.dtype)), tuple(x.shape))


def is_known(*sizes: Any) -> bool:
    """Whether sizes are numbers, and no symbols."""
    return all(type(each) is int for each in sizes)


def checked(
    x: Operand, results: list[Result], dtype: Any = None, where: Operand | None = None, init: Any = None
) -> list[Result]:
    """Return the results of a reduction that is given these, too."""
    if where is not None:
        check_mask(x, where)
    shape, found = results[-1]
    if dtype is not None:
        found, _ = dtypes_of(x, numpy_dtype("dtype", dtype))
    if init is not None:
        initial("init", init, accumulated(found))
    return [*results[:-1], (shape, found)]


# --- Reductions -------------------------------------------------------------------------------------------


def _axes(dim: Any, ndim: int) -> tuple[int, ...]:
    return axes_of(tuple(dim) if isinstance(dim, list) else dim, ndim)


def reduced(shape: Sequence[Any], dim: Any, keepdims: bool) -> list[Any]:
    """Return the shape that a reduction leaves."""
    axes = _axes(dim, len(shape))
    return [1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes]


def _check_some(name: str, x: Operand, dim: Any) -> None:
    if is_known(*x.shape):
        check_items(name, x, _axes(dim, x.ndim))


def reduction(dtype: np.dtype[Any] | None = None) -> Callable[..., list[Result]]:
    """Return the rule of a reduction, whose result is of a dtype, or that of the items."""
    return lambda x, dim, keepdims: [(reduced(x.shape, dim, keepdims), dtype or x.dtype)]


def named(name: str) -> Callable[..., list[Result]]:
    """Return the rule of a reduction with a name of NumPy's."""

    def results(x: Operand, dim: Any, keepdims: bool) -> list[Result]:
        check_kind(name, x, NAMED[name].kinds)
        if name in ("min", "max"):
            _check_some(name, x, dim)
        return [(reduced(x.shape, dim, keepdims), NAMED[name].dtype(x.dtype))]

    return results


def extreme(name: str, number: int = 1, dtype: np.dtype[Any] | None = None) -> Callable[..., list[Result]]:
    """Return the rule of the extremes of some items: of a number of results."""

    def results(x: Operand, dim: Any, keepdims: bool) -> list[Result]:
        check_kind(name, x, "biuf")
        _check_some(name, x, dim)
        return [(reduced(x.shape, dim, keepdims), dtype or x.dtype)] * number

    return results


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if structs.kind_of(dtype) == "f" else FLOAT


def quantile(x: Operand, q: Any, dim: Any, method: str, keepdims: bool) -> list[Result]:
    exact = method in ("lower", "higher", "nearest")
    if all(isinstance(each, (int, float)) for each in q):
        _, exact = quantiles_of(x, q, method)
    if is_known(*x.shape):
        check_ranks(x, _axes(dim, x.ndim))
    return [([len(q), *reduced(x.shape, dim, keepdims)], x.dtype if exact else _real(x.dtype))]


def median(x: Operand, dim: Any, keepdims: bool) -> list[Result]:
    (((_, *shape), dtype),) = quantile(x, [0.5], dim, "linear", keepdims)
    return [(shape, dtype)]


# --- Along a dimension ------------------------------------------------------------------------------------


def cumulative(x: Operand, dim: Any, include_initial: bool) -> list[Result]:
    return [(cumulative_shape(x, dim, include_initial), summed(x.dtype))]


def sorted_(x: Operand, dim: Any, descending: bool, stable: bool) -> list[Result]:
    return [(layout_along(x, dim)[1], x.dtype)]


def argsort(x: Operand, dim: Any, descending: bool, stable: bool) -> list[Result]:
    return [(layout_along(x, dim)[1], INT64)]


def top_k(x: Operand, k: int, dim: Any, largest: bool) -> list[Result]:
    check_kind("top_k", x, "biuf")
    layout, shape = layout_along(x, dim)
    integer("k", k, layout.length if is_known(layout.length) else None)
    at = 0 if dim is None else axis_of(dim, x.ndim)
    some = (*shape[:at], k, *shape[at + 1 :])
    return [(some, x.dtype), (some, INT64)]


def taken(x: Operand, indices: Operand, dim: Any) -> list[Result]:
    _, before, behind = along(x, dim, "take")
    return [((*before, *indices.shape, *behind), x.dtype)]


def repeated(x: Operand, repeats: Operand, dim: Any) -> list[Result]:
    _, before, behind = along(x, dim, "repeat")
    return [((*before, None, *behind), x.dtype)]


def diff(x: Operand, dim: int, n: int, prepend: Any, append: Any) -> list[Result]:
    at, lengths, dtype = check_ends(x, dim, n, prepend, append)
    left = torch.sym_max(sum(lengths) - n, 0)
    return [((*x.shape[:at], left, *x.shape[at + 1 :]), dtype)]


# --- Of data ----------------------------------------------------------------------------------------------


def segments(x: Operand, ids: Operand, number: Any) -> list[Result]:
    if type(number) is int:
        segment_count(number)
    return [([number, *(x.shape[1:] if ids.ndim < x.ndim else ())], x.dtype)]


def selected(x: Operand, *flags: Any) -> list[Result]:
    return [([None], x.dtype)]


def partitioned(x: Operand) -> list[Result]:
    return [([x.size], x.dtype), ([], INT64)]


def nonzero(x: Operand) -> list[Result]:
    return [([None], INT64)] * x.ndim


def bins(x: Operand, weights: Any, minlength: Any, size: Any) -> list[Result]:
    return [([size], INT64 if weights is None else FLOAT)]


def histogram(x: Operand, number: int, interval: Any, weights: Any, density: bool) -> list[Result]:
    dtype: np.dtype[Any] = FLOAT if density else INT64
    if weights is not None:
        dtype = np.dtype(np.complex128) if structs.kind_of(weights.dtype) == "c" else FLOAT
    edges = FLOAT if structs.has_bfloat16(x.dtype) else _real(x.dtype)
    return [([number], dtype), ([number + 1], edges)]


def counts(x: Operand) -> list[Result]:
    return [([None], x.dtype), ([None], INT64)]


def runs(keys: Operand, x: Operand) -> list[Result]:
    return [([None], keys.dtype), ([None], x.dtype)]


def inverse(x: Operand) -> list[Result]:
    return [([None], x.dtype), (x.shape, INT64)]


def unique(x: Operand) -> list[Result]:
    return [([None], x.dtype), ([None], INT64), (x.shape, INT64), ([None], INT64)]


def members(x1: Operand, x2: Operand, invert: bool) -> list[Result]:
    promoted(x1=x1, x2=x2)
    return [(x1.shape, BOOL)]


def ranks(x1: Operand, x2: Operand, side: str, sorter: Any) -> list[Result]:
    promoted(x1=x1, x2=x2)
    return [(x2.shape, INT64)]


def merged(a: Operand, b: Operand) -> list[Result]:
    return [([a.size + b.size], promoted(a=a, b=b))]


def set_of(a: Operand, b: Operand, *assume_unique: bool) -> list[Result]:
    return [([None], promoted(a=a, b=b))]


def difference(a: Operand, b: Operand, assume_unique: bool) -> list[Result]:
    promoted(a=a, b=b)
    return [([None], a.dtype)]
