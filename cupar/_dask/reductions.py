"""Reductions, scans, counts and top k, from the records of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np

from .._functions import counting, operators
from .._functions.axes import axes_of
from .._functions.counting import Histogram
from .._functions.rows import dtypes_of
from .._functions.sorting import TopK
from .._functions.values import flag, initial, integer
from ..operators import Op, OpKind
from . import steps
from .graphs import Tasks, along_axis, flat, items_of, on_cpu, rows_of, taken, without
from .shipped import ShippedCarry, shipped

if TYPE_CHECKING:
    from .._base.annotations import Axes, DType, Floats


def _combining(x: da.Array, op: Op, init: Any, dtype: Any) -> tuple[ShippedCarry, np.dtype[Any], Any, Any]:
    """Return the reduction to records, the dtype of the result, the initial value, the identity.

    The last two are None if `init` is, or if the operator has no known identity.
    """
    result, value = dtypes_of(x, dtype, init)
    first = None if init is None else initial("init", init, value)
    moved = ShippedCarry(shipped("op", op, (value, value), value, on_cpu(x)), value)
    return moved, result, first, operators.identity_of(op, value)


def reduce(
    x: da.Array,
    op: Op = OpKind.PLUS,
    /,
    *,
    axis: Axes = None,
    init: Any = None,
    keepdims: bool = False,
    dtype: DType = None,
    commutative: bool = True,
) -> da.Array:
    """Return all items combined by an operator, or those along axes.

    Parameters
    ----------
    x : dask array
        Of NumPy's or CuPy's blocks, with any chunks, also unknown ones.
    op : callable or OpKind, optional
        Combines two values. It must be associative and, unless `commutative` is False, commutative.
    axis : int, tuple of int or None, optional
        By default all.
    init : number, array of one element or tuple, optional
        Combined with the items of each result once, before them, and the result of no items. Without it, no
        items are an error of the task, unless the operator has a known identity. The dtype of an array or of
        a NumPy scalar is that of the result, unless `dtype` is given; Python's numbers have none.
    keepdims : bool, optional
        Whether reduced axes stay, with length 1.
    dtype : dtype, optional
        Of the result, in which items are combined; by default that of `init` or `x`. float16 is combined in
        float32.
    commutative : bool, optional
        False: items are combined in their order. All items of several dimensions are so in C's order, for
        which dask merges blocks; `axis` is one axis otherwise.

    Returns
    -------
    dask array

    Raises
    ------
    TypeError, ValueError
        If an argument is not one of these.

    Examples
    --------
    >>> import numpy as np, dask.array as da
    >>> from cupar import dask as cdask
    >>> x = da.from_array(np.array([3, -7, 5, 1]), chunks=2)
    >>> int(cdask.reduce(x, lambda a, b: a if abs(a) > abs(b) else b).compute())
    -7
    """
    return reduced("reduce", x, op, axis, init, keepdims, dtype, commutative)


def reduced(
    called: str,
    x: da.Array,
    op: Op,
    axis: Axes,
    init: Any,
    keepdims: bool,
    dtype: DType,
    commutative: bool = True,
    needs_items: bool = False,
) -> da.Array:
    """Return all items combined, or those along axes. No items are an error of tasks if some are needed."""
    taken("x", x)
    commutative, keepdims = flag("commutative", commutative), flag("keepdims", keepdims)
    if not commutative and isinstance(axis, tuple):
        raise TypeError("axis: expected an integer or None with commutative=False, got a tuple")
    ndim = x.ndim
    if not commutative and axis is None:
        x = flat("x", x)
    axes = axes_of(axis, x.ndim)
    moved, result, first, identity = _combining(x, op, init, dtype)
    # 0 makes 0.0 of -0.0, which is the identity of sums, and not the sum of nothing.
    empty = None if needs_items or identity is None else initial("init", identity + 0, moved.value)
    tasks = Tasks(called, [x], moved, first, empty, axes, keepdims, ndim, result, commutative)
    ones = _ones(x, axes, keepdims, ndim)
    results = {}
    for outer, indices in rows_of(x, axes):
        keys = [
            tasks.add("total", index, steps.totals, (x.name, *index), moved, axes, commutative)
            for index in indices
        ]
        keys = tasks.tree("folded", outer, keys, steps.folded, moved, None)
        last = tasks.add("last", outer, steps.folded, keys, moved, first)
        results[without(outer, axes, ones, 0)] = steps.finished, last, moved.value, result, empty, ones
    return tasks.array("result", results, without(x.chunks, axes, ones, (1,)), result)


def _ones(x: da.Array, axes: Sequence[int], keepdims: bool, ndim: int) -> tuple[int, ...]:
    """Return the axes of the result that have length 1: all `ndim`, or these."""
    if not keepdims:
        return ()
    return tuple(range(ndim)) if len(axes) == x.ndim else (*axes,)


def scan(
    x: da.Array,
    op: Op = OpKind.PLUS,
    /,
    *,
    axis: int | None = None,
    init: Any = None,
    exclusive: bool = False,
    dtype: DType = None,
    method: str = "parallel",
) -> da.Array:
    """Return the prefix scan by an operator: each item combines all up to it.

    Parameters
    ----------
    x : dask array
        As for `reduce`.
    op : callable or OpKind, optional
        Combines two values, the first of which is that of earlier items. It must be associative; it need not
        be commutative.
    axis : int or None, optional
        By default all items in C's order, and the result has one dimension.
    init : number, array of one element or tuple, optional
        Comes before all items of each row. It decides the dtype as for `reduce`.
    exclusive : bool, optional
        Whether each item combines those before it alone, the first one being `init`, or by default the
        operator's identity.
    dtype : dtype, optional
        As for `reduce`.
    method : {"parallel", "sequential"}, optional
        Each block is reduced, and then scanned with its prefix. In parallel, all blocks are
        reduced first, and one task makes all prefixes. Sequentially, each block hands its prefix to the next,
        so that it can be done with before later blocks are there: for arrays larger than memory.

    Returns
    -------
    dask array
        With the chunks of `x`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not one of these.

    Examples
    --------
    >>> import numpy as np, dask.array as da
    >>> from cupar import dask as cdask
    >>> x = da.from_array(np.array([3, 1, 4, 1, 5]), chunks=2)
    >>> cdask.scan(x, lambda a, b: a if a > b else b).compute()
    array([3, 3, 4, 4, 5])
    """
    taken("x", x)
    if method not in ("parallel", "sequential"):
        raise ValueError(f"method: expected 'parallel' or 'sequential', got {method!r}")
    exclusive = flag("exclusive", exclusive)
    x, along = along_axis(x, axis)
    moved, result, first, identity = _combining(x, op, init, dtype)
    if first is None and identity is not None:  # an exclusive sum begins with 0, not with -0.0
        first = initial("init", identity + 0 if exclusive else identity, moved.value)
    if exclusive and first is None:
        raise TypeError("init: an exclusive scan begins with it, and the operator has no known identity")
    tasks = Tasks("scan", [x], moved, first, along, exclusive, result, method)
    results = {}
    for outer, indices in rows_of(x, (along,)):
        blocks = [(x.name, *index) for index in indices]
        keys = [
            tasks.add("total", index, steps.totals, block, moved, (along,), False, index == indices[-1])
            for index, block in zip(indices, blocks, strict=True)
        ]
        if method == "parallel":
            found = tasks.add("prefixes", outer, steps.prefixes, keys, moved, first)
            before = [tasks.add("before", index, steps.pick, found, i) for i, index in enumerate(indices)]
        else:
            none = tasks.add("none", outer, steps.totals, blocks[0], moved, (along,), False, True)
            before = [tasks.add("before", indices[0], steps.folded, [none], moved, first)]
            for index, total in zip(indices[1:], keys, strict=False):
                before.append(tasks.add("before", index, steps.folded, [before[-1], total], moved, None))
        for index, block, prefix in zip(indices, blocks, before, strict=True):
            results[index] = steps.scanned, block, prefix, moved, result, along, exclusive
    return tasks.array("result", results, x.chunks, result, direct=True)


def histogram(x: da.Array, /, *, bins: int | Floats = 10, range: Floats | None = None) -> Histogram:
    """Count the items in bins; the last bin includes both of its edges.

    Parameters
    ----------
    x : dask array
        Of real numbers, with any number of dimensions and any chunks.
    bins : int or sequence of numbers, optional
        Number of bins of equal width, or the edges of all.
    range : pair of numbers, optional
        The first and the last edge, if `bins` is a number. Items that are outside, and NaNs, are not counted.

    Returns
    -------
    Histogram
        A named tuple: `hist`, a dask array of one block, and `edges`, an array of NumPy's.

    Raises
    ------
    TypeError, ValueError
        If an argument is not one of these.

    Examples
    --------
    >>> import numpy as np, dask.array as da
    >>> from cupar import dask as cdask
    >>> x = da.from_array(np.array([1, 2, 2, 4]), chunks=2)
    >>> cdask.histogram(x, bins=3, range=(1, 4)).hist.compute()
    array([1, 2, 1])
    """
    if range is None and isinstance(bins, (int, np.integer)):
        raise TypeError("range: expected two numbers, as `bins` is a number, got None")
    edges = counting.edges_of(items_of(x), bins, range)
    tasks = Tasks("histogram", [x], edges, bins, range)
    keys = [
        tasks.add("count", index, steps.counted, (x.name, *index), bins, range)
        for index in np.ndindex(*x.numblocks)
    ]
    results = {(0,): (steps.added, tasks.tree("added", (), keys, steps.added))}
    hist = tasks.array("result", results, ((len(edges) - 1,),), np.dtype(np.int64))
    return Histogram(hist, edges)


def top_k(x: da.Array, k: int, /, *, axis: int | None = -1, largest: bool = True) -> TopK:
    """Return the k greatest items along an axis, sorted, and their indices.

    Parameters
    ----------
    x : dask array
        Of real numbers, with any chunks. NaN is the greatest, as in `sort`; of equal items, the first ones
        are taken.
    k : int
        At most the length of the axis, which tasks check.
    axis : int or None, optional
        None: all items in C's order.
    largest : bool, optional
        False: the least.

    Returns
    -------
    TopK
        A named tuple of two dask arrays, `values` and `indices`, with one block along the axis.

    Raises
    ------
    TypeError, ValueError
        If an argument is not one of these.

    Examples
    --------
    >>> import numpy as np, dask.array as da
    >>> from cupar import dask as cdask
    >>> found = cdask.top_k(da.from_array(np.array([3, 9, 1, 7]), chunks=2), 2)
    >>> found.values.compute(), found.indices.compute()
    (array([9, 7]), array([1, 3]))
    """
    dtype, k, largest = taken("x", x), integer("k", k), flag("largest", largest)
    x, along = along_axis(x, axis)
    tasks, found = _firsts("top_k", x, k, along, largest)

    def part(i: int, name: str, of: np.dtype[Any]) -> da.Array:
        results = {index: (steps.top_result, each, i, k) for index, each in found.items()}
        return tasks.array(name, results, without(x.chunks, (along,), (along,), (k,)), of)

    return TopK(part(0, "values", dtype), part(1, "indices", np.dtype(np.int64)))


def _firsts(
    kind: str, x: da.Array, k: int | None, along: int, largest: bool, *options: Any
) -> tuple[Tasks, dict[tuple[int, ...], Any]]:
    """Return tasks, and by the indices of blocks the last ones: what `steps.top_of` returns."""
    given = k, along, largest
    tasks, found = Tasks(kind, [x], *given, *options), {}
    for outer, indices in rows_of(x, (along,)):
        keys = [tasks.add("top", index, steps.top, (x.name, *index), *given) for index in indices]
        keys = tasks.tree("tops", outer, keys, steps.top_of, *given)
        found[outer] = tasks.add("last", outer, steps.top_of, keys, *given)
    return tasks, found


def extreme(name: str, x: da.Array, axis: int | None, keepdims: bool, largest: bool) -> da.Array:
    """Return the indices of the first extreme items, of all in C's order or along an axis."""
    keepdims, ndim = flag("keepdims", keepdims), x.ndim
    x, along = along_axis(x, axis)
    ones = _ones(x, (along,), keepdims, ndim)
    tasks, found = _firsts(name, x, None, along, largest, ones)
    results = {
        without(index, (along,), ones, 0): (steps.extreme_result, last, name, along, ones)
        for index, last in found.items()
    }
    return tasks.array("result", results, without(x.chunks, (along,), ones, (1,)), np.dtype(np.int64))
