"""Histograms of several dimensions: bins of each, and cells of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._ir.iterator import over
from ..iterators import ConstantIterator, TransformIterator, ZipIterator
from ..operators import OpKind
from .axes import INT64, constant, strided
from .calls import Operand, Work
from .counting import bins_of, check_weights, counted, edges_of, segments
from .described import described
from .rows import check_numbers
from .values import cast

if TYPE_CHECKING:
    from .._base.annotations import Floats

_FLOAT = np.dtype(np.float64)
_MOST = 2**31 - 2  # cells


class HistogramDD(NamedTuple):
    """The number of items in each cell, and the edges of the bins along each dimension."""

    hist: Any
    edges: tuple[Any, ...]


def _cell(s: Any) -> Any:
    cell, place, number = s
    return cell * number + place if cell >= 0 and place >= 0 else -1


def _of_each(name: str, given: Any, number: int) -> list[Any]:
    """Return an argument for each dimension, given one for each or one for all."""
    if given is None or isinstance(given, (int, np.integer)):
        return [given] * number
    if not isinstance(given, (Sequence, np.ndarray)):
        raise ArgumentTypeError(name, f"expected a sequence, one for each dimension, got {given!r}")
    if len(given) != number:
        raise ArgumentValueError(name, f"expected one for each of {number} dimensions, got {len(given)}")
    return list(given)


def _coordinates(x: Operand) -> tuple[Operand, ...]:
    """Return the coordinates along each dimension: arrays of a tuple, columns of an array of points."""
    if x.parts or x.ndim == 1:
        return x.parts or (x,)
    if x.ndim != 2 or not x.shape[1]:
        raise ArgumentValueError(
            "x", f"expected a tuple of arrays, or an array with a row for each point, got shape {x.shape}"
        )
    number, dimensions = x.shape
    if not number:
        return (Operand(None, x.items, (0,)),) * dimensions
    columns = [strided(over("x", x.items) + i, (number,), (dimensions,)) for i in range(dimensions)]
    return tuple(Operand(None, each, (number,)) for each in columns)


@described()
def histogramdd(
    work: Work,
    x: Operand,
    /,
    *,
    bins: int | Sequence[Any] | Floats = 10,
    range: Sequence[Floats | None] | None = None,
    weights: Operand | None = None,
) -> HistogramDD:
    """Count the points in each cell of a grid, as ``numpy.histogramdd``.

    The result is a named tuple of `hist`, with a dimension for each array, and `edges`, an array for each.

    Parameters
    ----------
    x : tuple of arrays, or array
        The coordinates of points: an array of real numbers for each dimension, of one shape; or one array
        with a row for each point, as in NumPy, or with one number for each.
    bins : int or sequence, optional
        As for `histogram`, of all dimensions; or a sequence of these, one for each.
    range : sequence of pairs, optional
        As for `histogram`, one for each dimension; None among them: from the least to the greatest item.
        Points that are outside in one dimension, and NaNs, are not counted.
    weights : array, optional
        One for each point; summed in float64.

    >>> arrays.histogramdd((np.array([0, 1, 1]), np.array([5, 5, 9])), bins=2).hist
    array([[1, 0],
           [1, 1]])
    """
    parts = _coordinates(x)
    for i, each in enumerate(parts):
        check_numbers(f"x[{i}]" if x.parts else "x", each, "biuf")
    check_weights(weights, parts[0], "biuf")
    every = zip(_of_each("bins", bins, len(parts)), _of_each("range", range, len(parts)), strict=True)
    known = [edges_of(each, *own, work, of_items=False) for each, own in zip(parts, every, strict=True)]
    shape = tuple(len(each) - 1 for each in known)
    total = int(np.prod(shape, dtype=object))
    if total > _MOST:
        raise ArgumentValueError("bins", f"expected {_MOST} cells at most, got {total}")
    cells: Any = ConstantIterator(np.int64(0))
    edges = []
    for each, own in zip(parts, known, strict=True):
        its, places = bins_of(work, each, own)
        edges.append(its)
        of_all = TransformIterator(ZipIterator(cells, places, constant(len(own) - 1)), _cell, INT64)
        cells = work.kept(of_all, each.size)
    if weights is None:
        hist = work.empty(shape, INT64)
        counted(work, cells, parts[0].size, hist.items, total)
    else:
        hist = work.empty(shape, _FLOAT)
        values = cast(weights.items, _FLOAT)
        segments(work, values, cells, parts[0].size, hist.items, total, OpKind.PLUS, np.zeros(1))
    return HistogramDD(hist, tuple(edges))
