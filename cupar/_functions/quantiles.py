"""Items by their rank: n-th elements, and quantiles, which are between two of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import structs
from .._base import sizes
from .._base.errors import ArgumentValueError
from ..iterators import ConstantIterator, PermutationIterator, TransformIterator, ZipIterator
from ..nth_element import segmented_nth_element
from .axes import INT64, AxisLayout, columns, constant, indices
from .calls import Numbers, Operand, Work
from .described import described
from .rows import check_kind, check_numbers, over_axes, result_shape, sorted_rows
from .values import accumulated, cast, casting, whole

if TYPE_CHECKING:
    from .._base.annotations import Axes, Floats

_FLOAT = np.dtype(np.float64)


def _between(s: Any) -> Any:
    low, high, last, part = s
    if last != last:  # noqa: PLR0124
        return last
    if low == high or part == 0:
        return low
    span = high - low
    if span - span != 0:  # it overflows, or one of the two is infinite
        return low * (1 - part) + high * part
    return high - span * (1 - part) if part >= 0.5 else low + span * part


def _mean(s: Any) -> Any:
    low, high, last, part = s
    if last != last:  # noqa: PLR0124
        return last
    return low if part == 0 else _mean_of_floats(low, high)


def _mean_of_floats(low: Any, high: Any) -> Any:
    if low == high:
        return low
    total = low + high
    return low / 2 + high / 2 if total - total != 0 else total / 2


def _step(s: Any) -> Any:
    i, length, at = s
    return i * length + at


_METHODS = ("linear", "lower", "higher", "nearest", "midpoint")


def rank_of(q: float, length: int, method: str) -> tuple[int, float]:
    """Return the index of a quantile in a sorted row, and how far it is from that item to the next."""
    exact = q * (length - 1)
    low = min(int(exact), length - 1)
    part = exact - low
    if method == "lower" or not part:
        return low, 0.0
    if method == "higher":
        return low + 1, 0.0
    if method == "nearest":
        up = part > 0.5 or (part == 0.5 and low % 2 == 1)
        return (low + 1 if up else low), 0.0
    return low, 0.5 if method == "midpoint" else part


def quantiles_of(x: Operand, q: Any, method: str) -> tuple[np.ndarray[Any, Any], bool]:
    """Return the wanted quantiles, and whether they are items without interpolation."""
    check_kind("quantile", x, "biuf")
    if method not in _METHODS:
        raise ArgumentValueError(
            "method", f"expected one of {', '.join(map(repr, _METHODS))}, got {method!r}"
        )
    wanted = np.asarray(q)
    found = [*map(sizes.python, wanted.ravel().tolist())]
    is_known = wanted.dtype.kind in "iuf" or all(map(sizes.is_size, found))
    if not is_known or False in [0 <= each <= 1 for each in found]:
        raise ArgumentValueError("q", f"expected numbers from 0 to 1, got {q!r}")
    if wanted.dtype.kind == "O":
        wanted = np.array(found, object).reshape(wanted.shape)
    return wanted, method in ("lower", "higher", "nearest")


def check_ranks(x: Operand, axes: tuple[int, ...]) -> None:
    """Raise ValueError if there are no items along axes, and so no quantiles."""
    if not math.prod([x.shape[i] for i in axes]):
        raise ArgumentValueError("x", f"expected at least one item for quantiles, got shape {x.shape}")


_SELECTED = 4  # ranks that are looked for one by one: for more, rows are sorted
# Rows of fewer items and fewer bytes, whose sorts on a GPU are quicker than that.
_SORTED, _SORTED_BYTES = 513, 2049


def _is_selected(work: Work, layout: AxisLayout, dtype: np.dtype[Any], ranks: int) -> bool:
    """Whether items are looked for rank by rank, and rows not sorted."""
    is_short = layout.length < _SORTED and layout.length * dtype.itemsize < _SORTED_BYTES
    return ranks <= _SELECTED and (work.library.on_cpu or layout.rows == 1 or not is_short)


def _quantile(
    work: Work, x: Operand, q: Any, axis: Axes, method: str, keepdims: bool, mean: bool = False
) -> Operand:
    wanted, exact = quantiles_of(x, q, method)
    items, _, layout, shape = over_axes(work, x, axis)
    check_ranks(x, shape[1])
    result = x.dtype if structs.kind_of(x.dtype) == "f" else _FLOAT
    out = work.empty((*wanted.shape, *result_shape(shape, keepdims)), x.dtype if exact else result)
    if not layout.rows:
        return out
    places = [sizes.apply(rank_of, each, layout.length, method) for each in wanted.ravel().tolist()]
    rows = columns(items, layout)
    ranks = wanted.size if wanted.dtype.kind == "O" else len({*wanted.ravel().tolist()})
    is_selected = _is_selected(work, layout, x.dtype, ranks)
    if is_selected:
        given = work.kept(rows, layout.size)
    else:
        given, _ = sorted_rows(work, rows, layout, False, None, stable=False)
    within = accumulated(out.dtype)
    real = within if structs.kind_of(within) == "f" else _FLOAT
    op = _mean if mean else _first_or_nan if exact else _between
    for i, (low, part) in enumerate(places):
        target = out.items[i * layout.rows : (i + 1) * layout.rows]
        if is_selected and not part and out.dtype == x.dtype:
            _selected(work, given, layout, low, target)
            continue
        if is_selected:
            memory = work.temporary((2 if part else 1) * layout.rows, x.dtype)
            first, second = memory[: layout.rows], memory[layout.rows :] if part else None
            _selected(work, given, layout, low, first, second)
            items = first, first if second is None else second, first  # NaN if any item is
        else:
            at = low, low + 1 if part else low, layout.length - 1
            items = tuple(PermutationIterator(given, indices(_step, layout.length, each)) for each in at)
        parts = ZipIterator(*(cast(each, within) for each in items), ConstantIterator.of(part, real))
        work.copy(TransformIterator(parts, op, within), casting(target, within), layout.rows)
    return out


def _selected(
    work: Work, items: Any, layout: AxisLayout, n: int, out: Any, behind: Any = None, nans: str = "propagate"
) -> None:
    """Write the item of rank n of each row, and the one behind it if there is room for that."""
    arrays = items, out, behind
    search = segmented_nth_element(*arrays, nans=nans)
    work.run(search, *arrays, n, num_items=layout.size, num_segments=layout.rows, segment_size=layout.length)


@described(x="reals", axis="axes")
def nth_element(work: Work, x: Operand, n: int, /, *, axis: Axes = None, keepdims: bool = False) -> Operand:
    """Return the item that a sort would put at an index, of all items or along axes, without a sort.

    NaN is the greatest, as in `sort`, and -0.0 is as 0.0. If there is no such item, it is an IndexError.

    Parameters
    ----------
    n : int
        The index, from 0 on; negative numbers count from the greatest.

    >>> arrays.nth_element(np.array([[3, 9, 1], [7, 5, 6]]), 0, axis=1)
    array([1, 5])
    """
    check_kind("nth_element", x, "biuf")
    items, _, layout, shape = over_axes(work, x, axis)
    rank = whole("n", n)
    if not layout.length:
        raise IndexError(f"x: expected at least one item for a rank, got shape {x.shape}")
    if not -layout.length <= rank < layout.length:
        raise IndexError(f"n: expected from {-layout.length} to {layout.length - 1}, got {rank}")
    out = work.empty(result_shape(shape, keepdims), x.dtype)
    if not layout.rows:
        return out
    rows, n = columns(items, layout), rank % layout.length
    if _is_selected(work, layout, x.dtype, 1):
        _selected(work, work.kept(rows, layout.size), layout, n, out.items, nans="last")
    else:
        ordered, _ = sorted_rows(work, rows, layout, False, None, stable=False)
        work.copy(PermutationIterator(ordered, indices(_step, layout.length, n)), out.items, layout.rows)
    return out


def _first_or_nan(s: Any) -> Any:
    return s[0] if s[2] == s[2] else s[2]


@described(x="reals", axis="axes")
def quantile(
    work: Work,
    x: Operand,
    q: float | Floats,
    /,
    *,
    axis: Axes = None,
    method: str = "linear",
    keepdims: bool = False,
) -> Numbers:
    """Return quantiles of all items, or along axes; NaN if there is one. Integers become float64.

    No items are a ValueError.

    Returns
    -------
    array
        With the dimensions of `q` in front.

    >>> arrays.quantile(np.array([4.0, 1.0, 2.0]), [0.25, 0.5])
    array([1.5, 2. ])
    """
    return _quantile(work, x, q, axis, method, keepdims)


@described(x="reals", axis="axes")
def median(work: Work, x: Operand, /, *, axis: Axes = None, keepdims: bool = False) -> Numbers:
    """Return the median of all items, or along axes; NaN if there is one. That of integers is float64.

    No items are a ValueError.

    >>> float(arrays.median(np.array([4, 1, 2, 3])))
    2.5
    """
    return _quantile(work, x, 0.5, axis, "linear", keepdims, mean=True)


# --- Of many ranges --------------------------------------------------------------------------------------


def _rank_in_range(s: Any) -> Any:
    first, last, q = s
    low = np.int64(q * (last - first - 1))
    return low if low < last - first else last - first - 1


def _between_in_range(s: Any) -> Any:
    low, high, first, last, q, nan = s
    if first >= last:
        return nan
    exact = q * (last - first - 1)
    place = np.int64(exact)
    place = place if place < last - first else last - first - 1
    return _between((low, high, low, exact - place))


@described(starts="offsets", ends="offsets", q="fraction")
def segment_quantile(work: Work, x: Operand, starts: Operand, ends: Operand, /, q: float = 0.5) -> Numbers:
    """Return a quantile of the items of each of many ranges, ``x[start:end]``; NaN if one is, or of none.

    Ranges may have any lengths, leave items out and be in any order, but may not overlap.

    >>> arrays.segment_quantile(np.array([4.0, 1.0, 2.0, 8.0]), np.array([0, 3]), np.array([3, 4]))
    array([2., 8.])
    """
    fraction, _ = quantiles_of(x, q, "linear")
    if fraction.shape:
        raise ArgumentValueError("q", f"expected one number, got {q!r}")
    check_numbers("starts", starts, "iu")
    check_numbers("ends", ends, "iu")
    if starts.shape != ends.shape:
        raise ArgumentValueError("ends", f"expected the shape of `starts`, {starts.shape}, got {ends.shape}")
    out = work.empty(starts.shape, x.dtype if structs.kind_of(x.dtype) == "f" else _FLOAT)
    number = out.size
    if not number:
        return out
    within, part = accumulated(out.dtype), ConstantIterator.of(fraction.item(), _FLOAT)
    bounds = cast(starts.items, INT64), cast(ends.items, INT64)
    ranks = work.kept(TransformIterator(ZipIterator(*bounds, part), _rank_in_range, INT64), number)
    low, high = (work.temporary(number, x.dtype) for _ in range(2))
    given = [work.kept(each.items, number) for each in (starts, ends)]
    items = work.kept(x.items, x.size)
    search = segmented_nth_element(items, low, high, ranks, *given, nans="propagate")
    work.run(search, items, low, high, None, x.size, number, ranks, *given)
    nan = constant(within.type(np.nan))
    if not x.size:  # the search has written nothing, even if a range begins where no items are
        work.copy(nan, casting(out.items, within), number)
        return out
    values = ZipIterator(cast(low, within), cast(high, within), *bounds, part, nan)
    work.copy(TransformIterator(values, _between_in_range, within), casting(out.items, within), number)
    return out


# --- Of sorted items in several blocks or shards


class QuantileIndices(NamedTuple):
    """Where the items are that quantiles are between, in sorted ones: low, high and last ones in a row."""

    places: np.ndarray[Any, Any]
    parts: np.ndarray[Any, Any]  # how far each quantile is from the low item to the high one


def places_of(wanted: np.ndarray[Any, Any], total: int, method: str) -> QuantileIndices:
    """Return the indices of the neighbours of quantiles among `total` sorted items."""
    found = [rank_of(each, total, method) for each in wanted.ravel().tolist()]
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
    op = _mean if mean else _first_or_nan if exact else _between
    made = TransformIterator(ZipIterator(*given, work.put(parts.astype(real))), op, within)
    work.copy(made, casting(out.items, within), number)
    return out
