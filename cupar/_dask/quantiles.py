"""Quantiles of dask arrays: blocks are sorted, and the items at some places are looked up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np

from .. import structs
from .._functions import quantiles
from .._functions.calls import Work
from . import steps
from .graphs import Tasks, items_of
from .sorting import sort

if TYPE_CHECKING:
    from .._base.annotations import Floats


def quantile(x: da.Array, q: float | Floats, /, *, method: str = "linear") -> da.Array:
    """Return quantiles of all items; NaN if there is one. They are exact: the array is sorted.

    Parameters
    ----------
    x : dask array
        Of real numbers, with any chunks. Integers become float64.
    q : number or sequence of numbers
        From 0 to 1, on the host.
    method : {"linear", "lower", "higher", "nearest", "midpoint"}, optional
        The value between two items.

    Returns
    -------
    dask array
        With the dimensions of `q`, in one block.

    Raises
    ------
    TypeError, ValueError
        If an argument is not one of these; no items are an error of a task.

    Examples
    --------
    >>> import numpy as np, dask.array as da
    >>> from cupar import dask as cdask
    >>> cdask.quantile(da.from_array(np.array([4.0, 1.0, 2.0]), chunks=2), [0.25, 0.5]).compute()
    array([1.5, 2. ])
    """
    return _quantile("quantile", x, q, method, False)


def median(x: da.Array, /) -> da.Array:
    """Return the median of all items; NaN if there is one.

    Parameters
    ----------
    x : dask array
        As for `quantile`.

    Returns
    -------
    dask array
        Without dimensions.

    Examples
    --------
    >>> import numpy as np, dask.array as da
    >>> from cupar import dask as cdask
    >>> float(cdask.median(da.from_array(np.array([4, 1, 2, 9]), chunks=2)).compute())
    3.0
    """
    return _quantile("median", x, 0.5, "linear", True)


def _quantile(name: str, x: da.Array, q: Any, method: str, mean: bool) -> da.Array:
    wanted, exact = quantiles.quantiles_of(items_of(x), q, method)
    ordered = sort(x, axis=None)
    tasks = Tasks(name, [ordered], wanted, method)
    blocks = [(ordered.name, i) for i in range(ordered.npartitions)]
    sizes = [tasks.add("size", (i,), len, each) for i, each in enumerate(blocks)]
    places = tasks.add("places", (), _places, sizes, wanted, method)
    picked = [tasks.add("picked", (i,), _picked, each, places, i) for i, each in enumerate(blocks)]
    dtype = ordered.dtype
    result = dtype if exact or structs.kind_of(dtype) == "f" else np.dtype(np.float64)
    index = (0,) * wanted.ndim
    given = {index: (_between, picked, places, wanted, exact, mean)}
    return tasks.array("result", given, tuple((each,) for each in wanted.shape), result)


def _places(sizes: Sequence[int], wanted: Any, method: str) -> tuple[Any, Any, Any, Any]:
    """Return in which block each place is and where there, and how far quantiles are from the low item."""
    ends = np.cumsum(sizes)
    if not ends[-1]:
        raise ValueError("x: expected at least one item for quantiles, got none")
    places, parts = quantiles.places_of(wanted, int(ends[-1]), method)
    owners = np.searchsorted(ends, places, side="right")
    return (
        owners,
        places - (ends[owners] - np.asarray(sizes)[owners]),
        np.argsort(owners, kind="stable"),
        parts,
    )


def _picked(block: Any, found: tuple[Any, ...], i: int) -> Any:
    owners, within, _, _ = found
    return block[within[owners == i]]


@steps.on_blocks
def _between(
    work: Work, picked: list[Any], found: tuple[Any, ...], wanted: Any, exact: bool, mean: bool
) -> Any:
    _, _, order, parts = found
    items = steps.joined(picked)[np.argsort(order)]
    return quantiles.between(work, steps.operand(work, items).items, parts, wanted, exact, mean).own
