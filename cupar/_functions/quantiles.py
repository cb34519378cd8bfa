"""Quantiles of sorted items: the neighbours of each quantile, and the interpolation between them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import structs
from ..iterators import PermutationIterator, TransformIterator, ZipIterator
from . import counting
from .calls import Operand, Work
from .values import accumulated, cast, casting

_FLOAT = np.dtype(np.float64)


class QuantileIndices(NamedTuple):
    """Where the items are that quantiles are between, in sorted ones: low, high and last ones in a row."""

    places: np.ndarray[Any, Any]
    parts: np.ndarray[Any, Any]  # how far each quantile is from the low item to the high one


def places_of(wanted: np.ndarray[Any, Any], total: int, method: str) -> QuantileIndices:
    """Return the indices of the neighbours of quantiles among `total` sorted items."""
    found = [counting._place(each, total, method) for each in wanted.ravel().tolist()]
    low, parts = np.array([place for place, _ in found], np.int64), np.array([part for _, part in found])
    return QuantileIndices(np.concatenate([low, low + (parts > 0), [total - 1]]), parts)


def between(
    work: Work, picked: Any, parts: Any, wanted: np.ndarray[Any, Any], exact: bool, mean: bool = False
) -> Operand:
    """Return quantiles, given the items at `places_of` them."""
    dtype = picked.dtype if exact or structs.kind_of(picked.dtype) == "f" else _FLOAT
    within, number = accumulated(dtype), len(parts)
    real = within if structs.kind_of(within) == "f" else _FLOAT
    values = cast(picked, within)
    three = np.arange(number), np.arange(number, 2 * number), np.full(number, 2 * number)
    given = [PermutationIterator(values, work.put(each)) for each in three]
    out = work.empty(wanted.shape, dtype)
    op = counting._mean if mean else counting._first_or_nan if exact else counting._between
    made = TransformIterator(ZipIterator(*given, work.put(parts.astype(real))), op, within)
    work.copy(made, casting(out.items, within), number)
    return out
