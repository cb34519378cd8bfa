"""Selections: the items for which a predicate holds, their places, and where runs of equal keys are."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..iterators import (
    CountingIterator,
    DiscardIterator,
    PermutationIterator,
    TransformIterator,
    ZipIterator,
)
from ..operators import Op, OpKind
from ..partition import three_way_partition
from ..runs import reduce_by_key as reduce_runs
from ..runs import run_length_encode as encode_runs
from . import operators
from .axes import INT64, constant, with_numbers
from .calls import Operand, Work, enter
from .items import Counted, selected, size_of
from .rows import check_numbers, dtypes_of
from .values import cast, casting, initial


def _copy_if(work: Work, x: Operand, predicate: Any, size: Any) -> Any:
    length = size_of(size)
    out, count = selected(work, x.items, x.size, None, x.dtype, predicate, length)
    found = work.cut([out], count, length)
    return found[0] if length is None else Counted(*found)


def copy_if(
    x: Any,
    predicate: Op,
    /,
    *,
    size: int | None = None,
    num_items: int | None = None,
    like: Any = None,
    stream: Any = None,
) -> Any:
    """Return the items for which a predicate holds, in C's order.

    Parameters
    ----------
    x : array, iterator or tuple of arrays
        As for `reduce`.
    predicate : callable, OpKind or RawOp
        Takes an item.
    size : int, optional
        How many items the result has. By default their number is read back, which waits for the GPU. With it
        nothing is read, and the count comes beside them; items beyond the count are unspecified, and if the
        count is larger than `size`, items are missing.
    num_items, like, stream
        As for `reduce`.

    Returns
    -------
    array or Counted
        With `size`, a named tuple of two arrays, `items` and `count`.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import arrays
    >>> arrays.copy_if(np.array([3, -1, 4, -2]), lambda a: a > 0)
    array([3, 4])
    """
    return enter(_copy_if, {"x": x}, predicate, size, stream=stream, like=like, num_items=num_items)


def _partition_by(work: Work, x: Operand, predicate: Any) -> Counted:
    out, numbers = work.empty((x.size,), x.dtype), work.temporary(2, INT64)
    first, rest = work.temporary(x.size, x.dtype), work.temporary(x.size, x.dtype)
    given = x.items, first, DiscardIterator(x.dtype), rest, numbers
    work.run(three_way_partition(*given, predicate, operators.never), *given, x.size)
    count = work.made(numbers, ())
    each = ZipIterator(
        CountingIterator(np.int64(0)), PermutationIterator(count.items, constant(0)), constant(x.size)
    )
    if x.size:
        head = PermutationIterator(first, TransformIterator(each, _in_head, INT64))
        tail = PermutationIterator(rest, TransformIterator(each, _in_tail, INT64))
        both = ZipIterator(TransformIterator(each, _is_head, np.dtype(bool)), head, tail)
        work.copy(TransformIterator(both, operators.chosen, x.dtype), out.items, x.size)
    return Counted(out, count)


def _in_head(s: Any) -> Any:
    return s[0] if s[0] < s[1] else 0


def _in_tail(s: Any) -> Any:
    return s[0] - s[1] if s[0] >= s[1] else 0


def _is_head(s: Any) -> Any:
    return s[0] < s[1]


def partition_by(
    x: Any, predicate: Op, /, *, num_items: int | None = None, like: Any = None, stream: Any = None
) -> Counted:
    """Return the items for which a predicate holds, behind them the others, and how many the former are.

    Both are in C's order. Nothing is read back.

    Parameters
    ----------
    x, predicate, num_items, like, stream
        As for `copy_if`.

    Returns
    -------
    Counted
        A named tuple of two arrays, `items`, with as many as `x`, and `count`.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import arrays
    >>> items, count = arrays.partition_by(np.array([3, -1, 4, -2]), lambda a: a < 0)
    >>> items, int(count)
    (array([-1, -2,  3,  4]), 2)
    """
    found: Counted = enter(_partition_by, {"x": x}, predicate, stream=stream, like=like, num_items=num_items)
    return found


def _is_nonzero_second(s: Any) -> Any:
    return s[1] != 0


def _digit(s: Any) -> Any:
    return (s[0] // s[2]) % s[1]


def _nonzero(work: Work, x: Operand, size: Any) -> Any:
    check_numbers("x", x)
    if not x.ndim:
        raise ValueError("x: expected an array with dimensions, got one without")
    length = size_of(size)
    pairs = ZipIterator(CountingIterator(np.int64(0)), x.items)
    flat, count = selected(work, pairs, x.size, operators.first, INT64, _is_nonzero_second, length)
    (flat, *counts) = work.cut([flat], count, length)
    if x.ndim == 1:
        return (flat,) if length is None else Counted((flat,), *counts)
    steps = [math.prod(x.shape[i + 1 :]) for i in range(x.ndim)]
    found = tuple(
        work.made(
            TransformIterator(with_numbers(flat.items, max(n, 1), max(step, 1)), _digit, INT64), flat.shape
        )
        for n, step in zip(x.shape, steps, strict=True)
    )
    return found if length is None else Counted(found, *counts)


def nonzero(x: Any, /, *, size: int | None = None, stream: Any = None) -> Any:
    """Return the indices of the items that are not 0, in C's order: an array for each dimension.

    Parameters
    ----------
    x : array
        Of numbers, with at least one dimension.
    size : int, optional
        As for `copy_if`.
    stream
        As for `reduce`.

    Returns
    -------
    tuple of arrays of int64, or Counted
        With `size`, a named tuple of such a tuple, `items`, and `count`.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import arrays
    >>> arrays.nonzero(np.array([[0, 7], [5, 0]]))
    (array([0, 1]), array([1, 0]))
    """
    return enter(_nonzero, {"x": x}, size, stream=stream)


# --- Runs ------------------------------------------------------------------------------------------------


class Runs(NamedTuple):
    """Runs of equal keys: the key of each, and what its values are reduced to, or how many they are."""

    keys: Any
    values: Any


class CountedRuns(NamedTuple):
    """The same, and how many there are, in an array without dimensions."""

    keys: Any
    values: Any
    count: Any


def _runs(work: Work, keys: Operand, values: Operand, count: Operand, size: Any) -> Any:
    found = work.cut([keys, values], count, size)
    return Runs(*found) if size is None else CountedRuns(*found)


def _equal(keys: Operand, equal: Any) -> Any:
    if keys.parts and equal is None:
        return operators.equal_fields(len(keys.parts))
    return equal


def _reduce_by_key(
    work: Work, keys: Operand, x: Operand, op: Any, init: Any, equal: Any, dtype: Any, size: Any
) -> Any:
    if keys.size != x.size:
        raise ValueError(f"x: expected as many items as `keys` has, {keys.size}, got {x.size}")
    length = size_of(size)
    room = keys.size if length is None else max(keys.size, length)
    result, within = dtypes_of(x, dtype)
    unique, values, count = (
        work.empty((room,), keys.dtype),
        work.empty((room,), result),
        work.empty((), INT64),
    )
    h_init = None if init is None else initial("init", init, within)
    written = casting(values.items, within)
    given = keys.items, unique.items, cast(x.items, within), written, count.items
    work.run(reduce_runs(*given, op, _equal(keys, equal), h_init), *given, keys.size, h_init)
    return _runs(work, unique, values, count, length)


def reduce_by_key(
    keys: Any,
    x: Any,
    op: Op = OpKind.PLUS,
    /,
    *,
    init: Any = None,
    equal: Op | None = None,
    dtype: Any = None,
    size: int | None = None,
    num_items: int | None = None,
    stream: Any = None,
) -> Any:
    """Return the keys of runs of equal ones, and the items that belong to each run combined.

    Keys that are equal but not neighbours are in several runs: `segment_reduce` takes ids in any order.

    Parameters
    ----------
    keys : array or tuple of arrays
    x : array, iterator or tuple of arrays
        As many items as there are keys.
    op : callable, OpKind or RawOp, optional
        As for `scan`.
    init : number or tuple, optional
        Comes before the items of each run.
    equal : callable, OpKind or RawOp, optional
        Whether two keys are equal; by default ``==``.
    dtype : dtype, optional
        As for `scan`.
    size, num_items, stream
        As for `copy_if`.

    Returns
    -------
    Runs or CountedRuns
        A named tuple of arrays, `keys` and `values`, and with `size` `count`.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import arrays
    >>> keys, sums = arrays.reduce_by_key(np.array([7, 7, 5, 7]), np.array([1, 2, 3, 4]))
    >>> keys, sums
    (array([7, 5, 7]), array([3, 3, 4]))
    """
    inputs = {"keys": keys, "x": x}
    return enter(_reduce_by_key, inputs, op, init, equal, dtype, size, stream=stream, num_items=num_items)


def _run_length_encode(work: Work, x: Operand, equal: Any, size: Any) -> Any:
    length = size_of(size)
    room = x.size if length is None else max(x.size, length)
    unique, counts, count = work.empty((room,), x.dtype), work.empty((room,), INT64), work.empty((), INT64)
    given = x.items, unique.items, counts.items, count.items
    work.run(encode_runs(*given, _equal(x, equal)), *given, x.size)
    return _runs(work, unique, counts, count, length)


def run_length_encode(
    x: Any,
    /,
    *,
    equal: Op | None = None,
    size: int | None = None,
    num_items: int | None = None,
    stream: Any = None,
) -> Any:
    """Return the items of runs of equal ones, one for each run, and how long the runs are.

    Parameters
    ----------
    x : array, iterator or tuple of arrays
    equal, size, num_items, stream
        As for `reduce_by_key`.

    Returns
    -------
    Runs or CountedRuns
        A named tuple of arrays, `keys` and `values`, and with `size` `count`.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import arrays
    >>> items, lengths = arrays.run_length_encode(np.array([7, 7, 5, 7]))
    >>> items, lengths
    (array([7, 5, 7]), array([2, 1, 1]))
    """
    return enter(_run_length_encode, {"x": x}, equal, size, stream=stream, num_items=num_items)
