"""Scans and reductions along an axis that is not the last one: of the columns of an array, where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._arguments.numbers import item_count, refuse
from ._arguments.order import two_phases
from ._arguments.segments import MOST_SEGMENTS as MOST_COLUMNS
from ._call.algorithm import Algorithm
from ._kernels.columns import COLUMN_REDUCE, COLUMN_SCAN, ColumnsProblem
from ._obtain.arguments import accumulation, check_start
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from .operators import Op

if TYPE_CHECKING:
    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream


def _columns(outer: int, length: int, inner: int) -> ColumnsProblem:
    length, inner = item_count("length", length), item_count("inner", inner)
    columns = item_count("outer", outer) * inner
    if columns > MOST_COLUMNS:
        refuse("outer, inner", _BEYOND, ", got {}", columns)
    return ColumnsProblem(length, inner, columns, columns * length)


_BEYOND = f"expected at most {MOST_COLUMNS} columns"


class ColumnReduce(Algorithm, family=COLUMN_REDUCE, uses={"d_in": "items", "d_out": "columns"}):
    """A reduction along columns for given types; see `column_reduce`."""

    def run(
        self,
        d_in: Array,
        d_out: Array,
        outer: int,
        length: int,
        inner: int,
        h_init: Any = None,
        stream: Stream = None,
    ) -> None:
        """Reduce each column.

        Parameters
        ----------
        d_in : device array or iterator, outer * length * inner items
        d_out : device array or iterator, outer * inner items
        outer, length, inner : int
            The shape of `d_in`, of which the middle axis is reduced. There are
            at most 2**33 - 1 columns.
        h_init : number, struct or array of one element
            The initial value, of the kind that the reduction was built with.
        stream : optional
            As in `Algorithm`.
        """
        self._run(stream, (d_in, d_out, outer, length, inner, h_init))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    _problem_maker = staticmethod(lambda spec: _columns)


class ColumnScan(Algorithm, family=COLUMN_SCAN, uses={"d_in": "items", "d_out": "items"}):
    """A scan along columns for given types; see `inclusive_column_scan` and `exclusive_column_scan`."""

    def run(
        self,
        d_in: Array,
        d_out: Array,
        outer: int,
        length: int,
        inner: int,
        h_init: Any = None,
        stream: Stream = None,
    ) -> None:
        """Scan each column.

        Parameters
        ----------
        d_in, d_out : device arrays or iterators, outer * length * inner items
        outer, length, inner : int
            The shape of both, of which the middle axis is scanned. There are at
            most 2**33 - 1 columns.
        h_init : number, struct or array of one element
            The initial value, of the kind that the scan was built with.
        stream : optional
            As in `Algorithm`.
        """
        self._run(stream, (d_in, d_out, outer, length, inner, h_init))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    _problem_maker = staticmethod(lambda spec: _columns)


@memoised
def column_reduce(
    d_in: ArrayOrType,
    d_out: ArrayOrType,
    op: Op,
    h_init: Any = None,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> ColumnReduce:
    """Build a reduction along columns, or fetch it from the cache.

    The input has the shape (outer, length, inner), which calls are given, in
    C's order. Its middle axis is reduced, without transposing: the items
    ``[i, :, j]`` are combined, and go to item ``[i, j]`` of the output.

    Parameters
    ----------
    d_in : device array, iterator or dtype
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype
        Where the results go. Its dtype may differ from the accumulator's.
    op : callable, OpKind or RawOp
        Combines two values of the accumulator's dtype, the first of which is
        that of earlier items (`h_init` comes before a column's). It must be
        associative; it need not be commutative. How items are grouped is
        unspecified, but the same in every run on the same kind of GPU.
    h_init : number, struct, array of one element or None
        The initial value. Its dtype is the accumulator's. A number of Python's
        has none, and takes `d_in`'s, in which sums may wrap: ``np.int64(0)``
        has integers added in int64. With None there is no initial value, the
        accumulator has `d_in`'s dtype, and columns of 0 items leave `d_out` as
        it was.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    ColumnReduce

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items = np.array([[3, 1], [4, 1], [2, 6]])
    >>> highest = np.zeros(2, np.int64)
    >>> of_columns = cupar.column_reduce(items, highest, max, cc="cpu")
    >>> of_columns.run(items, highest, 1, 3, 2)
    >>> print(highest)
    [4 6]
    """
    types = accumulation(d_in, d_out, op, h_init)
    arguments, operators = (types.d_in, types.d_out), {"op": types.operator}
    return obtain(ColumnReduce, "column_reduce", arguments, operators, cc, wait, link, init=types.init)


@memoised
def inclusive_column_scan(
    d_in: ArrayOrType,
    d_out: ArrayOrType,
    op: Op,
    h_init: Any = None,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> ColumnScan:
    """Build an inclusive scan along columns, or fetch it from the cache.

    Input and output have the shape (outer, length, inner), which calls are
    given, in C's order. The middle axis is scanned, without transposing: item
    ``[i, t, j]`` of the output combines `h_init` and the items ``[i, 0, j]`` to
    ``[i, t, j]``.

    Parameters
    ----------
    d_in : device array, iterator or dtype
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype
        Where the results go; it may be `d_in` itself. Its dtype may differ from
        the accumulator's.
    op : callable, OpKind or RawOp
        Combines two values of the accumulator's dtype, the first of which is
        that of earlier items (`h_init` comes before a column's). It must be
        associative; it need not be commutative. How items are grouped is
        unspecified, but the same in every run on the same kind of GPU.
    h_init : number, struct, array of one element or None
        The initial value of each column; that in a device array is read when
        the scan runs. Its dtype is the accumulator's. A number of Python's has
        none, and takes `d_in`'s, in which sums may wrap: ``np.int64(0)`` has
        integers added in int64. Without one, the accumulator has `d_in`'s
        dtype.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    ColumnScan

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items = np.array([[3, 1], [4, 1], [2, 6]])
    >>> sums = np.zeros_like(items)
    >>> along_columns = cupar.inclusive_column_scan(
    ...     items, sums, cupar.OpKind.PLUS, cc="cpu"
    ... )
    >>> along_columns.run(items, sums, 1, 3, 2)
    >>> print(sums)
    [[3 1]
     [7 2]
     [9 8]]
    """
    return _scan("inclusive_column_scan", d_in, d_out, op, h_init, cc, wait, link)


@memoised
def exclusive_column_scan(
    d_in: ArrayOrType,
    d_out: ArrayOrType,
    op: Op,
    h_init: Any,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> ColumnScan:
    """Build an exclusive scan along columns, or fetch it from the cache.

    Input and output have the shape (outer, length, inner), which calls are
    given, in C's order. The middle axis is scanned, without transposing: item
    ``[i, t, j]`` of the output combines `h_init` and the items ``[i, 0, j]`` to
    ``[i, t - 1, j]``.

    Parameters
    ----------
    d_in : device array, iterator or dtype
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype
        Where the results go; it may be `d_in` itself. Its dtype may differ from
        the accumulator's.
    op : callable, OpKind or RawOp
        Combines two values of the accumulator's dtype, the first of which is
        that of earlier items (`h_init` comes before a column's). It must be
        associative; it need not be commutative. How items are grouped is
        unspecified, but the same in every run on the same kind of GPU.
    h_init : number, struct or array of one element
        The initial value of each column; that in a device array is read when
        the scan runs. Its dtype is the accumulator's. A number of Python's has
        none, and takes `d_in`'s, in which sums may wrap: ``np.int64(0)`` has
        integers added in int64.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    ColumnScan

    Examples
    --------
    >>> import numpy as np, cupar
    >>> lengths = np.array([[3, 1], [4, 1], [2, 6]])
    >>> places = np.zeros_like(lengths)
    >>> of_columns = cupar.exclusive_column_scan(
    ...     lengths, places, cupar.OpKind.PLUS, 0, cc="cpu"
    ... )
    >>> of_columns.run(lengths, places, 1, 3, 2, 0)
    >>> print(places)
    [[0 0]
     [3 1]
     [7 2]]
    """
    return _scan("exclusive_column_scan", d_in, d_out, op, h_init, cc, wait, link)


def _scan(
    algorithm: str, d_in: Any, d_out: Any, op: Any, h_init: Any, cc: Any, wait: bool, link: Any
) -> ColumnScan:
    check_start(algorithm, h_init, "the first item of each column")
    types = accumulation(d_in, d_out, op, h_init, is_scan=True)
    arguments, operators = (types.d_in, types.d_out), {"op": types.operator}
    return obtain(ColumnScan, algorithm, arguments, operators, cc, wait, link, init=types.init)
