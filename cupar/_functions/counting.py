"""Items counted or combined by value: segments by ids, and bins."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import structs
from .._base import sizes
from .._base.bounded import of_builds
from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._ir.iterator import Iterator, over
from .._ir.kinds import kind_of
from .._kernels.reduce_by_index import is_atomic
from ..histogram import histogram_even, histogram_range
from ..host import View
from ..indexed import reduce_by_index
from ..iterators import CountingIterator, PermutationIterator, TransformIterator, ZipIterator
from ..operators import Op, OpKind
from ..reduce import Determinism, known_determinism
from ..search import lower_bound, upper_bound
from ..segmented import segmented_reduce
from ..sort import SortOrder, radix_sort
from . import operators
from .axes import INT64, AxisLayout, constant, indices
from .calls import Numbers, Operand, Work
from .described import described
from .items import size_of
from .rows import (
    bounds,
    check_kind,
    check_numbers,
    dtypes_of,
    positions,
    reduced_rows,
    within_row,
)
from .values import accumulated, cast, casting, initial, integer

if TYPE_CHECKING:
    from .._base.annotations import DType, Floats

_FLOAT = np.dtype(np.float64)
_MOST = 2**31 - 2  # bins


def _id(s: Any) -> Any:
    """Return an id; invalid ones become the number of ids, which is sorted last."""
    return s[0] if 0 <= s[0] < s[1] else s[1]


def by_id(work: Work, ids: Any, size: int, number: int, values: Any) -> tuple[Any, Any, Any]:
    """Return values in the order of their ids, and where each id from 0 to ``number - 1`` begins and ends.

    Others are behind them. Sorted are only the bits that ids from 0 to `number` have.
    """
    narrow = number < 2**31 - 1
    dtype, bits = np.dtype(np.int32 if narrow else np.int64), number.bit_length()
    known = TransformIterator(ZipIterator(cast(ids, INT64), constant(number)), _id, INT64)
    keys, ordered = work.kept(known, size, dtype), work.temporary(size, dtype)
    moved = work.temporary(size, values.dtype)
    if size:
        arrays = keys, ordered, values, moved
        work.run(radix_sort(*arrays, SortOrder.ASCENDING), *arrays, size, 0, bits)
    wanted, offsets = CountingIterator(dtype.type(0)), work.temporary(number + 1, INT64)
    search = lower_bound(ordered, wanted, offsets, values_sorted=True)
    work.run(search, ordered, size, wanted, number + 1, offsets)
    return moved, offsets[:number], offsets[1:]


_IN_TABLES = 1 << 16  # bytes of results that tables have, however often items are read for that
_MOVED = 8  # bytes of an item that is sorted itself; of others, their places are


def _is_by_index(
    on_cpu: bool,
    dtype: np.dtype[Any],
    target: np.dtype[Any] | None,
    number: int,
    op: Any,
    determinism: Determinism,
) -> bool:
    """Whether tables have room for all ids, or atomic operations can combine items in the output.

    `target` is its dtype; None: it is an iterator.
    """
    if on_cpu or number * dtype.itemsize <= _IN_TABLES:
        return True
    is_free = determinism is Determinism.NOT_GUARANTEED
    return is_atomic(kind_of(op, (dtype,), False), dtype, target, is_free)


def segments(
    work: Work,
    items: Any,
    ids: Any,
    size: int,
    out: Any,
    number: int,
    op: Op,
    h_init: Any,
    determinism: Determinism = Determinism.RUN_TO_RUN,
) -> None:
    """Combine the items of each id from 0 to ``number - 1``; others are left out."""
    target = None if isinstance(out, Iterator) else out.dtype
    if _is_by_index(work.library.on_cpu, items.dtype, target, number, op, determinism):
        if ids.dtype.kind == "b":
            ids = cast(ids, np.dtype(np.uint8))
        arrays = items, ids, out
        by_index = reduce_by_index(*arrays, op, sizes.value_of(h_init), determinism=determinism)
        work.run(by_index, *arrays, size, number, h_init)
        return
    if items.dtype.itemsize <= _MOVED and items.dtype.names is None:
        taken, start, end = by_id(work, ids, size, number, work.kept(items, size))
    else:
        places, start, end = by_id(work, ids, size, number, positions(work, AxisLayout(1, size, 1)))
        taken = PermutationIterator(items, places)
    reduction = segmented_reduce(taken, out, start, end, op, sizes.value_of(h_init))
    work.run(reduction, taken, out, number, start, end, h_init)


def _key(s: Any) -> Any:
    segment, i, length, number = s
    return i // length * number + segment if 0 <= segment < number else -1


def _offset(s: Any) -> Any:
    start, q, total, size = s
    return q // total * size + start


def _item(s: Any) -> Any:
    place, i, size, inner = s
    return place * inner + i // size


def _result(s: Any) -> Any:
    q, total, inner = s
    return q % total * inner + q // total


def segment_rows(
    work: Work,
    x: Operand,
    ids: Operand,
    op: Op,
    number: int,
    dtype: np.dtype[Any],
    h_init: Any,
    batch: int = 0,
    determinism: Determinism = Determinism.RUN_TO_RUN,
) -> Operand:
    """Combine the items, or rows, of each id, in each of a batch, whose dimensions come first."""
    size, total = ids.size, math.prod(ids.shape[:batch]) * number
    rest = x.shape[batch + 1 :] if x.ndim > ids.ndim else ()
    inner, within = math.prod(rest), accumulated(dtype)
    out = work.empty((*x.shape[:batch], number, *rest), dtype)
    if not out.size:
        return out
    place = CountingIterator(np.int64(0))
    keys: Any = ids.items
    if batch:
        lengths = constant(max(ids.shape[batch], 1)), constant(number)
        keys = TransformIterator(ZipIterator(cast(ids.items, INT64), place, *lengths), _key, INT64)
    items, written = cast(x.items, within), casting(out.items, within)
    if inner == 1:
        segments(work, items, keys, size, written, total, op, h_init, determinism)
        return out
    places, *offsets = by_id(work, keys, size, total, positions(work, AxisLayout(1, size, 1)))
    # Column by column: the items of one have the order of the ids.
    row = cast(PermutationIterator(places, indices(within_row, size)), INT64)
    of = TransformIterator(ZipIterator(row, place, constant(size), constant(inner)), _item, INT64)
    taken = PermutationIterator(items, of)
    written = PermutationIterator(written, indices(_result, total, inner))
    lengths = constant(total), constant(size)
    ends = [
        TransformIterator(
            ZipIterator(PermutationIterator(each, indices(within_row, total)), place, *lengths),
            _offset,
            INT64,
        )
        for each in offsets
    ]
    reduction = segmented_reduce(taken, written, ends[0], ends[1], op, sizes.value_of(h_init))
    work.run(reduction, taken, written, total * inner, *ends, h_init)
    return out


def segment_count(number: Any) -> int:
    """Return the number of segments as an int; raise TypeError or ValueError if it is invalid."""
    if number is None:
        raise ArgumentTypeError("num_segments", "expected how many segments there are, got None")
    return integer("num_segments", number, _MOST)


@described()
def segment_reduce(
    work: Work,
    x: Operand,
    ids: Operand,
    op: Op = OpKind.PLUS,
    /,
    num_segments: int | None = None,
    *,
    init: Any = None,
    dtype: DType = None,
    determinism: Determinism = Determinism.RUN_TO_RUN,
    mode: str = "drop",
) -> Numbers:
    """Return the items of each segment combined, where ids in any order say which segment an item is in.

    Parameters
    ----------
    ids : array of integers
        Of the shape of `x`, or one for each row: each item of ``x[i]``, of several dimensions, has the id
        ``ids[i]``. Items whose id is below 0, or `num_segments` or more, are left out
        (see `mode`).
    op : callable, OpKind or RawOp, optional
        As for `reduce`.
    num_segments : int
        Must be given, behind an operator or by name.
    init : number, array of one element or tuple, optional
        Combined with the items of each segment, and the result of one without items; by default the
        operator's identity, if it is known. It decides the dtype as for `reduce`.
    dtype : dtype, optional
        As for `reduce`.
    determinism : Determinism, optional
        By default sums of floats are the same in every run. `Determinism.NOT_GUARANTEED` is quicker for
        thousands of segments, and rounds them differently each time.
    mode : str, optional
        What is done with items that are in no segment: "drop" leaves them out; "raise" makes them an
        IndexError, for which the least and the greatest id are read back.

    Returns
    -------
    array
        Of `num_segments` items, or rows.

    >>> ids = np.array([2, 0, 2, 0])
    >>> arrays.segment_reduce(np.array([1, 2, 3, 4]), ids, lambda a, b: a + b, 3, init=0)
    array([6, 0, 4])
    """
    count = segment_count(num_segments)
    if ids.shape not in (x.shape, x.shape[:1]):
        raise ArgumentValueError(
            "ids", f"expected the shape of `x`, {x.shape}, or one for each of its rows, got shape {ids.shape}"
        )
    check_numbers("ids", ids, "biu")
    determinism = known_determinism(determinism)
    if not isinstance(mode, str) or mode not in ("drop", "raise"):
        raise ArgumentValueError("mode", f"expected 'drop' or 'raise', got {mode!r}")
    if mode == "raise" and ids.size:
        low, high = bounds(work, ids, "mode")
        if low < 0 or high >= count:
            wanted = f"from 0 to {count - 1}" if count else "none, as there are no segments"
            raise IndexError(f"ids: expected {wanted}, got from {int(low)} to {int(high)}")
    result, within = dtypes_of(x, dtype, init)
    known = operators.identity_of(op, within) if init is None else init
    if init is None and known is not None:
        known += 0  # 0.0 for -0.0, as segments without items have it as their result
    if known is None:
        raise ArgumentTypeError(
            "init",
            "expected the result of a segment without items, as the operator has no known identity, got None",
        )
    if ids.ndim == x.ndim:
        x, ids = (Operand(each.own, each.items, (each.size,), each.parts) for each in (x, ids))
    return segment_rows(
        work, x, ids, op, count, result, initial("init", known, within), determinism=determinism
    )


# --- Bins ------------------------------------------------------------------------------------------------


def counted(work: Work, bins: Any, size: int, out: Any, number: int) -> None:
    """Count how often each bin from 0 to ``number - 1`` is among integers."""
    levels = number + 1, 0, number
    algorithm = histogram_even(bins, out, *levels, size)
    work.run(algorithm, bins, out, *levels, size)


def check_weights(weights: Operand | None, x: Operand, kinds: str) -> None:
    """Raise TypeError or ValueError unless weights are numbers of these kinds, one for each item."""
    if weights is not None:
        check_numbers("weights", weights, kinds)
        if weights.shape != x.shape:
            raise ArgumentValueError("weights", f"expected shape {x.shape}, that of `x`, got {weights.shape}")


@described()
def bincount(
    work: Work,
    x: Operand,
    /,
    *,
    weights: Operand | None = None,
    minlength: int = 0,
    size: int | None = None,
) -> Numbers:
    """Return how often each number from 0 on is among integers, or the sum of their weights.

    Parameters
    ----------
    x : array of integers
        Of one dimension.
    weights : array, optional
        One for each item; summed in float64.
    minlength : int, optional
        The least number of items of the result.
    size : int, optional
        How many items it has. By default the greatest number is read back, which waits for the GPU. With it
        nothing is read, and other numbers are left out.

    Returns
    -------
    array of int64, or with weights of float64

    >>> arrays.bincount(np.array([1, 3, 1]))
    array([0, 2, 0, 1])
    """
    length, least = size_of(size), integer("minlength", minlength, _MOST)
    check_numbers("x", x, "biu")
    if x.ndim != 1:
        raise ArgumentValueError("x", f"expected one dimension, got {x.ndim}")
    check_weights(weights, x, "biuf")
    if length is None:
        low, high = bounds(work, x) if x.size else (0, -1)
        if low < 0:
            raise ArgumentValueError("x", f"expected no item below 0, got {low}")
        length = max(integer("x", high, _MOST - 1) + 1 if x.size else 0, least)
    out = work.empty((length,), INT64 if weights is None else _FLOAT)
    if length and weights is None:
        counted(work, cast(x.items, INT64) if x.dtype.kind == "b" else x.items, x.size, out.items, length)
    elif length and weights is not None:
        values = cast(weights.items, _FLOAT)
        segments(work, values, x.items, x.size, out.items, length, OpKind.PLUS, np.zeros(1))
    return out


class Histogram(NamedTuple):
    """The number of items in each bin, and the edges of the bins."""

    hist: Any
    edges: Any


def bin_of(s: Any) -> Any:
    """Return the bin of an item from the number of edges at or below it; -1: it is in none."""
    value, behind, last, number = s
    if behind > number:  # at the last edge, which is in the last bin, or beyond
        return number - 1 if value == last else -1
    return behind - 1


def _density(s: Any) -> Any:
    number, high, low, total = s
    return number / (high - low) / total


def edges_of(
    x: Operand, bins: Any, interval: Any, work: Work | None = None, of_items: bool = True
) -> np.ndarray[Any, Any]:
    """Return the edges of bins, as in NumPy. `work` finds the range of items if none is given.

    Edges in a range that is given have the dtype of items only if they are `of_items`, else the range's.
    """
    if not isinstance(bins, (int, np.integer)) or isinstance(bins, bool):
        edges = np.asarray(bins)
        if edges.ndim != 1 or edges.size < 2 or edges.dtype.kind not in "biuf":
            raise ArgumentTypeError(
                "bins", f"expected an integer or a sequence of at least 2 edges, got {bins!r}"
            )
        edges = edges.astype(edges.dtype.newbyteorder("="), copy=False)
        structs.normal("bins", edges.dtype)
        if not np.all(edges[:-1] <= edges[1:]):
            raise ArgumentValueError("bins", "expected edges that rise")
        return edges
    if bins < 1 or bins > _MOST:
        raise ArgumentValueError("bins", f"expected from 1 to {_MOST}, got {bins}")
    if interval is not None:
        if np.shape(interval) != (2,) or np.asarray(interval).dtype.kind not in "biuf":
            raise ArgumentTypeError("range", f"expected a pair of numbers, got {interval!r}")
        low, high = interval
    elif x.size and work is not None:
        low, high = (x.dtype.type(each) for each in bounds(work, x, "range"))
    else:
        low, high = 0, 1
    if not (np.isfinite(low) and np.isfinite(high)) or low > high:
        raise ArgumentValueError("range", f"expected two finite numbers that rise, got {low} and {high}")
    if low == high:
        low, high = low - 0.5, high + 0.5
    given = (low, high) if interval is not None and not of_items else (low, high, x.dtype)
    dtype = _FLOAT if structs.has_bfloat16(x.dtype) else np.result_type(*given)
    return _equal_bins(low, high, int(bins), dtype if dtype.kind == "f" else _FLOAT)


def _equal_bins(low: Any, high: Any, bins: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the edges of bins of equal width in a float dtype, or in float64 if that has no such range."""
    with np.errstate(all="ignore"):
        edges = np.linspace(low, high, bins + 1, dtype=dtype)
        if not _rise(edges):  # NumPy computes in the dtype of the range, where the width may overflow
            wide = 2 * np.linspace(float(low) / 2, float(high) / 2, bins + 1)
            edges = wide.astype(dtype)
            edges = edges if np.isfinite(edges[[0, -1]]).all() else wide
    if not _rise(edges):
        raise ArgumentValueError(
            "bins", f"{edges.dtype} has no {bins + 1} edges from {low} to {high}; give fewer"
        )
    return edges


def _rise(edges: np.ndarray[Any, Any]) -> bool:
    return bool(np.isfinite(edges[[0, -1]]).all() and np.all(edges[:-1] < edges[1:]))


def _common(items: np.dtype[Any], edges: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which items and edges are compared; NumPy has none of bfloat16 and integers."""
    return np.result_type(np.float32 if structs.has_bfloat16(items) else items, edges)


def bins_of(work: Work, x: Operand, known: np.ndarray[Any, Any]) -> tuple[Operand, Any]:
    """Return edges as an array, and an iterator over the bin that each item is in; -1: none."""
    number, edges = len(known) - 1, work.operand(work.put(known))
    dtype = _common(x.dtype, known.dtype)
    levels = work.kept(cast(edges.items, dtype), number + 1)
    values, behind = cast(x.items, dtype), work.temporary(x.size, INT64)
    if x.size:
        search = upper_bound(levels, values, behind, operators.less_of(dtype))
        work.run(search, levels, number + 1, values, x.size, behind)
    last = PermutationIterator(levels, constant(number))
    return work.fresh(edges, known), TransformIterator(
        ZipIterator(values, behind, last, constant(number)), bin_of, INT64
    )


@np.errstate(over="ignore")
def levels_of(dtype: np.dtype[Any], edges: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return levels with which half-open bins count as bins with these edges do, the last one with both.

    Those of small floats are float32: x >= edge if, and only if, x is not below the first float32 that is
    not. None if there are no such levels: the last edge is the greatest integer.
    """
    common = _common(dtype, edges.dtype)
    if common.kind != "f" and structs.kind_of(common) != "f":
        levels = edges.astype(common if common.itemsize == 8 else INT64)
        if levels[-1] == np.iinfo(levels.dtype).max:
            return None
        levels[-1] += 1
        return levels
    wide = edges.astype(common).astype(_FLOAT)
    levels = wide
    if structs.kind_of(dtype) == "f" and dtype.itemsize <= 4:
        levels = wide.astype(np.float32)
        levels = np.where(levels < wide, np.nextafter(levels, np.float32(np.inf)), levels)
    if levels[-1] == wide[-1]:  # items may be the last edge itself
        above = levels.dtype.type(np.inf)
        levels[-1] = np.nan if levels[-1] == above else np.nextafter(levels[-1], above)
    return levels


def _with_levels(known: np.ndarray[Any, Any], levels: np.ndarray[Any, Any]) -> tuple[Any, int]:
    """Return an array of edges with levels in the memory behind them, and how many of its items come before.

    One copy takes both to a device.
    """
    number, unit = len(known), known.itemsize
    begin = -(-number * unit // 8) * 8
    both = np.zeros(begin + -(-levels.nbytes // unit) * unit, np.uint8)
    both[: known.nbytes], both[begin : begin + levels.nbytes] = known.view(np.uint8), levels.view(np.uint8)
    return both.view(known.dtype), begin // unit


def _equal_bins_of(
    dtype: np.dtype[Any], bins: int, low: Any, high: Any, of_edges: np.dtype[Any] | None = None
) -> tuple[Any, ...]:
    """Return an array of edges with levels behind them, its length, the edges' part of it, and both dtypes.

    ValueError if there are no such levels, or the edges are not of a given dtype.
    """
    found = _known_bins(dtype, bins, low, high, math.copysign(1, low), math.copysign(1, high))
    if of_edges not in (None, found[-1]):
        raise ArgumentValueError("range", f"expected edges of {of_edges}")
    return found


@of_builds
@lru_cache(64, typed=True)
def _known_bins(dtype: np.dtype[Any], bins: int, low: Any, high: Any, *signs: float) -> tuple[Any, ...]:
    known = edges_of(Operand(None, np.empty(0, dtype), (0,)), bins, (low, high))
    levels = levels_of(dtype, known)
    if levels is None:
        raise ArgumentValueError("range", "there are no levels for these bins")
    both, begin = _with_levels(known, levels)
    return both, len(both), begin, levels.dtype, known.dtype


def _put_bins(work: Work, dtype: np.dtype[Any], bins: Any, interval: Any) -> tuple[Operand, Any, Any]:
    """Return an array of edges with levels behind them, the edges' part of it, and the levels' dtype.

    These are equal bins, whose number or range varies.
    """
    *_, levels, of_edges = _equal_bins_of(dtype, *map(sizes.value_of, (bins, *interval)))
    both, size, begin, *_ = sizes.apply(_equal_bins_of, dtype, bins, *interval, of_edges)
    return work.operand(work.put(both, size)), begin, levels


def _counted_between(work: Work, x: Operand, edges: Operand, begin: int, number: int, dtype: str) -> Operand:
    """Count items between levels of some dtype, of which there are some number from an item of `edges` on."""
    levels, kind = edges.items[begin:], np.dtype(dtype)
    if isinstance(levels, View):
        levels = type(levels)(levels.address, kind, (number,), (kind.itemsize,), False, levels)
    else:
        levels = levels.view(kind)[:number]
    hist = work.empty((number - 1,), INT64)
    wanted = x.items, hist.items, number, levels, x.size
    work.run(histogram_range(*map(sizes.value_of, wanted)), *wanted)
    return hist


def histogram_of(
    work: Work, x: Operand, weights: Operand | None, bins: Any, interval: Any, density: bool
) -> Histogram:
    check_kind("histogram", x, "biuf")
    if x.dtype.kind == "b":
        x = Operand(None, cast(x.items, np.dtype(np.uint8)), x.shape)
    check_weights(weights, x, "biufc")
    levels: Any = None
    is_pair = isinstance(interval, (tuple, list))
    is_known = weights is not None or not is_pair or True not in map(sizes.is_size, (bins, *interval))
    if not is_known:
        number, (both, begin, levels) = bins, _put_bins(work, x.dtype, bins, interval)
    else:
        known = edges_of(x, bins, interval, work)
        number, found = len(known) - 1, levels_of(x.dtype, known)
        if weights is None and found is not None:
            together, begin = _with_levels(known, found)
            both, levels = work.operand(work.put(together)), found.dtype
    if levels is not None:
        edges = work.first(both, number + 1)
        if is_known:
            edges = work.fresh(edges, known)
        hist = work.part(_counted_between, (x, both), begin, number + 1, levels.str)
    elif weights is None:
        edges, found = bins_of(work, x, known)
        hist = work.empty((number,), INT64)
        counted(work, found, x.size, hist.items, number)
    else:
        edges, found = bins_of(work, x, known)
        hist = work.empty((number,), np.dtype(complex) if weights.dtype.kind == "c" else _FLOAT)
        each, zero = cast(weights.items, hist.dtype), np.zeros(1, hist.dtype)
        segments(work, each, found, x.size, hist.items, number, OpKind.PLUS, zero)
    if density:
        result = hist.dtype if hist.dtype.kind == "c" else _FLOAT
        sums, total = cast(hist.items, result), work.empty((1,), result)
        reduced_rows(work, sums, total.items, AxisLayout(1, number, 1), OpKind.PLUS, None)
        wide = cast(over("edges", edges.items), _FLOAT)
        parts = ZipIterator(sums, wide + 1, wide, PermutationIterator(total.items, constant(0)))
        hist = work.made(TransformIterator(parts, _density, result), (number,))
    return Histogram(hist, edges)


@described(x="reals")
def histogram(
    work: Work,
    x: Operand,
    /,
    *,
    bins: int | Floats = 10,
    range: Floats | None = None,
    weights: Operand | None = None,
    density: bool = False,
) -> Histogram:
    """Count the items in bins; the last bin includes both of its edges.

    The result is a named tuple of two arrays, `hist` and `edges`.

    Parameters
    ----------
    range : pair of numbers, optional
        The first and the last edge, if `bins` is a number. By default the least and the greatest item, which
        are read back. Items that are outside, and NaNs, are not counted.
    weights : array, optional
        One for each item; summed in float64, or complex128.
    density : bool, optional
        Whether the result is a density, whose integral is 1.

    >>> arrays.histogram(np.array([1, 2, 2, 4]), bins=3).hist
    array([1, 2, 1])
    """
    return histogram_of(work, x, weights, bins, range, density)
