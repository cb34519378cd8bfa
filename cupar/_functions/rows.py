"""Rows of arrays reduced, scanned and sorted: what functions along axes have in common."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import structs
from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._base.sizes import value_of
from ..columns import column_reduce, exclusive_column_scan, inclusive_column_scan
from ..iterators import (
    ConstantIterator,
    CountingIterator,
    TransformIterator,
    TransformOutputIterator,
    ZipIterator,
)
from ..operators import Op
from ..reduce import reduce_into
from ..scan import exclusive_scan, inclusive_scan
from ..segmented import segmented_reduce, segmented_sort
from ..segmented_scan import exclusive_segmented_scan, inclusive_segmented_scan
from ..sort import SortOrder, merge_sort, radix_sort
from . import operators
from .axes import INT64, AxisLayout, axes_of, axis_of, constant, indices, layout_of, with_numbers
from .calls import Operand, Work, output_of
from .values import Compared, accumulated, cast, casting, check_same_kind, dtype_of, dtype_with, initial, item

if TYPE_CHECKING:
    from .._base.annotations import Array, Axes, DType


def reduced_rows(work: Work, items: Any, out: Any, layout: AxisLayout, op: Op, h_init: Any) -> None:
    """Reduce each row, which has items, into an item of `out`; `h_init` may be None as `needs_init` says."""
    if layout.inner > 1:
        columns = column_reduce(items, out, op, value_of(h_init))
        work.run(columns, items, out, *layout, h_init)
    elif layout.rows == 1:
        work.run(reduce_into(items, out, op, value_of(h_init)), items, out, layout.length, h_init)
    elif layout.rows:
        reduction = segmented_reduce(items, out, None, None, op, value_of(h_init))
        work.run(reduction, items, out, layout.rows, h_init=h_init, segment_size=layout.length)


def needs_init(layout: AxisLayout) -> bool:
    """Whether a reduction of such rows needs an initial value."""
    return layout.inner == 1 and layout.rows != 1


def over_axes(
    work: Work, x: Operand, axis: Axes, where: Operand | None = None
) -> tuple[Any, Any, AxisLayout, Any]:
    """Return the items of each row of some axes, those of a mask, their layout, and the shape of the result.

    Items are to be read once. The shape is one with 1 for each of the axes; without these it is that of the
    array without them.
    """
    axes = axes_of(axis, x.ndim)
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    if not axes:
        return x.once, where and where.once, AxisLayout(x.size, 1, 1), (kept, axes)
    if axes[-1] - axes[0] + 1 != len(axes):  # others are between them
        order = (*(i for i in range(x.ndim) if i not in axes), *axes)
        x, where = work.permuted(x, order), where and work.permuted(where, order)
        axes_now = tuple(range(x.ndim - len(axes), x.ndim))
    else:
        axes_now = axes
    layout = layout_of(x.shape, axes_now[0], axes_now[-1])
    return x.once, where and where.once, layout, (kept, axes)


def result_shape(shape: Any, keepdims: bool) -> tuple[int, ...]:
    """Return the shape of a result, of what `over_axes` says of it."""
    kept, axes = shape
    return kept if keepdims else tuple(n for i, n in enumerate(kept) if i not in axes)


def check_kind(name: str, x: Operand, kinds: str) -> None:
    """Raise TypeError unless an operand is of numbers, of these kinds of dtype."""
    if x.parts or structs.kind_of(x.dtype) not in kinds:
        raise ArgumentTypeError(
            "x", f"{name} takes {'real ' if kinds == 'biuf' else ''}numbers, got {structs.text(x.dtype)}"
        )


def check_numbers(name: str, x: Operand, kinds: str = "biufc") -> None:
    """Raise TypeError, which begins with `name`, unless an operand is of numbers, of these kinds of dtype."""
    if x.parts or structs.kind_of(x.dtype) not in kinds:
        wanted = {"biuf": "real numbers", "iu": "integers", "biu": "integers"}.get(kinds, "numbers")
        raise ArgumentTypeError(name, f"expected {wanted}, got {structs.text(x.dtype)}")


def promoted(**given: Operand) -> np.dtype[Any]:
    """Return the dtype of numbers of several operands, which errors name."""
    for name, each in given.items():
        check_numbers(name, each)
    try:
        return np.result_type(*[each.dtype for each in given.values()])
    except TypeError:
        said = ", ".join(f"{name} of {structs.text(each.dtype)}" for name, each in given.items())
        raise ArgumentTypeError(next(iter(given)), f"no dtype has the items of {said}") from None


def compared(less: Any = None, /, **given: Operand) -> Compared:
    """Return how numbers of several operands, which errors name, are compared; `less` takes promoted ones."""
    result = promoted(**given)
    return Compared.of(result, *([] if less is not None else [each.dtype for each in given.values()]))


def dtypes_of(x: Operand, dtype: DType, init: Any = None) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return the dtype of a result, and that in which items are combined.

    It is given, or else that of the initial value, if it has one, or else that of the items.
    """
    wanted = dtype_of("dtype", dtype)
    if wanted is not None and (x.dtype.names is not None or wanted.names is not None):
        said = structs.text(x.dtype)
        raise ArgumentTypeError(
            "dtype", f"expected None or one of numbers, and `x` is of {said}, got {dtype!r}"
        )
    if wanted is None:
        wanted = dtype_with(init, structs.closed(structs.normal("x", x.dtype)))
    check_same_kind("dtype", x.dtype, wanted)
    return wanted, accumulated(wanted)


def check_items(name: str, x: Operand, axes: tuple[int, ...]) -> None:
    """Raise ValueError if there are results of no items."""
    if not math.prod([x.shape[i] for i in axes]):
        raise ArgumentValueError("x", f"{name} of no items has no result, got shape {x.shape}")


def check_mask(x: Operand, where: Operand) -> None:
    """Raise ValueError unless a mask has the shape of what it is of."""
    if where.shape != x.shape or where.parts:
        expected = f"expected an array of bool of the shape of `x`, {x.shape}"
        raise ArgumentValueError(
            "where", f"{expected}, got {structs.text(where.dtype)} of shape {where.shape}"
        )


def reduced(
    work: Work,
    x: Operand,
    where: Operand | None,
    op: Op,
    axis: Axes,
    init: Any,
    keepdims: bool,
    dtype: DType,
    out: Array | None,
    empty: Any = None,
) -> Operand:
    result, within = dtypes_of(x, dtype, init)
    if where is not None:
        check_mask(x, where)
    items, mask, layout, shape = over_axes(work, x, axis, where)
    target = output_of(work, out, result_shape(shape, keepdims), result, [x] if where is None else [x, where])
    known = operators.identity_of(op, within)
    if not target.size:
        return target
    if not layout.length:
        if init is None and empty is None and known is None:
            raise ArgumentValueError(
                "x", "a reduction of no items has no result, as the operator has no known identity; give init"
            )
        # 0 makes 0.0 of -0.0, which is the identity of sums, and not the sum of nothing.
        filling = init if init is not None else known + 0 if empty is None else empty
        filled = constant(item("init", filling, result))
        work.copy(filled, target.items, target.size)
        return target
    start = None if init is None else initial("init", init, within)
    if start is None and known is not None:
        start = initial("init", known if mask is None else known + 0, within)
    if mask is not None or start is None:
        items = cast(items, within)
    if mask is not None:
        other = ConstantIterator(np.zeros(1, within)[0] if known is None else item("init", known, within))
        items = TransformIterator(ZipIterator(mask, items, other), operators.chosen, within)
        mask = mask if known is None else None
    written = casting(target.items, within)
    if mask is None and (start is not None or not needs_init(layout)):
        reduced_rows(work, items, written, layout, op, start)
        return target
    flagged = ZipIterator(items, ConstantIterator(np.bool_(True)) if mask is None else mask)
    zero = np.zeros(1, flagged.dtype)
    if start is not None:
        zero["field_0"], zero["field_1"] = start, True
    written = TransformOutputIterator(written, operators.first, flagged.dtype)
    reduced_rows(work, flagged, written, layout, operators.flagged(op, within), zero)
    return target


def whether(
    work: Work, items: Any, predicate: Op, size: int, told: Any, out: Operand | None = None
) -> Operand:
    """Return an operator's result for the index of the first match, or for -1 without a match."""
    from ..find import find_if  # others import fewer files

    out = work.empty((), np.dtype(bool)) if out is None else out
    written = TransformOutputIterator(casting(out.items, np.dtype(bool)), told, INT64)
    work.run(find_if(items, written, predicate, none=-1), items, written, size)
    return out


def scanned_rows(
    work: Work, items: Any, out: Any, layout: AxisLayout, op: Op, h_init: Any, exclusive: bool = False
) -> None:
    """Scan each row of `items` into `out`."""
    if not layout.size:
        return
    init = value_of(h_init)
    if layout.inner > 1:
        columns = (exclusive_column_scan if exclusive else inclusive_column_scan)(items, out, op, init)
        work.run(columns, items, out, *layout, h_init)
    elif layout.rows == 1:
        scan = (exclusive_scan if exclusive else inclusive_scan)(items, out, op, init)
        work.run(scan, items, out, layout.length, h_init)
    else:
        made = exclusive_segmented_scan if exclusive else inclusive_segmented_scan
        rows = made(items, out, None, None, op, init)
        work.run(rows, items, out, layout.rows, h_init=h_init, segment_size=layout.length)


def layout_along(x: Operand, axis: int | None) -> tuple[AxisLayout, tuple[int, ...]]:
    """Return the layout of an axis, and the shape of what has one item for each; None: of all items."""
    if axis is None:
        return AxisLayout(1, x.size, 1), (x.size,)
    at = axis_of(axis, x.ndim)
    return layout_of(x.shape, at, at), x.shape


def within_row(s: Any) -> Any:
    """Return the index of an item in its row."""
    return s[0] % s[1]


def positions(work: Work, layout: AxisLayout) -> Any:
    """Return an array of the index of each item in its row."""
    out = work.temporary(layout.size, INT64)
    work.copy(
        CountingIterator(np.int64(0)) if layout.rows == 1 else indices(within_row, layout.length),
        out,
        layout.size,
    )
    return out


def ordered(items: Any, less: Any) -> Any:
    """Return items as sorts by bits put them in NumPy's order: with one NaN, which is the greatest."""
    if less is None and structs.kind_of(items.dtype) == "f":
        return TransformIterator(items, operators.with_one_nan(items.dtype), items.dtype)
    return items


def sorted_rows(
    work: Work,
    items: Any,
    layout: AxisLayout,
    descending: bool,
    less: Op | None,
    values: Any = None,
    out: Any = None,
    stable: bool = True,
) -> tuple[Any, Any]:
    """Return the items of each row sorted, and values that go with them, if there are any.

    By `less`, or in NumPy's order. `out` is where the items go, if that is known. Without `stable`, and
    without values, -0.0 may come before 0.0 wherever it was.
    """
    size, dtype = layout.size, items.dtype
    if less is None and structs.kind_of(dtype) == "c":
        less = operators.less_of(dtype)
    source = work.kept(ordered(items, less), size)
    of_bits = less is None and layout.rows > 1 and structs.kind_of(dtype) == "f" and not work.library.on_cpu
    if of_bits and stable and values is None:  # by bits alone, sorts of segments tell -0.0 from 0.0
        values = work.temporary(size, np.dtype(np.uint8))
    keys = work.temporary(size, dtype) if out is None or out is source else out
    moved = None if values is None else work.temporary(size, values.dtype)
    if not size:
        return keys, moved
    arrays = source, keys, values, moved
    if less is not None:
        op = operators.swapped(less) if descending else less
        if layout.rows == 1:
            given = source, values, keys, moved
            work.run(merge_sort(*given, op), *given, size)
        else:
            work.run(
                segmented_sort(*arrays, op=op), *arrays, segment_size=layout.length, num_segments=layout.rows
            )
        return keys, moved
    order = SortOrder.DESCENDING if descending else SortOrder.ASCENDING
    if layout.rows == 1:
        work.run(radix_sort(*arrays, order), *arrays, size)
    else:
        sort = segmented_sort(*arrays, order=order)
        work.run(sort, *arrays, segment_size=layout.length, num_segments=layout.rows)
    return keys, moved


def twice(value: Any) -> Any:
    """Return a pair of one value."""
    return (value, value)


def least_and_greatest(a: Any, b: Any) -> Any:
    """Return the least of the first and the greatest of the second fields; NaN if there is one."""
    return (
        b[0] if b[0] < a[0] or b[0] != b[0] else a[0],
        b[1] if b[1] > a[1] or b[1] != b[1] else a[1],
    )


def bounds(work: Work, x: Operand, name: str = "size") -> tuple[Any, Any]:
    """Return the least and the greatest item, read back at once; there is one at least.

    `name` is the parameter without which they have to be read.
    """
    low, high = work.lengths(work.part(_bounds, (x,)), name)
    return low, high


def _bounds(work: Work, x: Operand) -> Operand:
    both = np.dtype([("field_0", x.dtype), ("field_1", x.dtype)], align=True)
    out, layout = work.empty((2,), x.dtype), AxisLayout(1, x.size, 1)
    if work.library.on_cpu:  # in two passes of many items at once
        reduced_rows(work, x.items, out.items[:1], layout, np.minimum, None)
        reduced_rows(work, x.items, out.items[1:], layout, np.maximum, None)
        return out
    pair = ZipIterator(out.items[:1], out.items[1:])
    reduced_rows(
        work,
        TransformIterator(x.items, twice, both),
        pair,
        layout,
        least_and_greatest,
        None,
    )
    return out


def _or_nought(s: Any) -> Any:
    return s[1] if s[0] else s[1] - s[1]


def places_of(work: Work, name: str, places: Operand, length: int, where: Any = None) -> Any:
    """Return places as indices of `length` items: they wrap around, and those beyond are an error on the CPU.

    There is nothing beyond the items that could be read, and a GPU does not wait for a check. Of some places
    flags may say that nobody uses them.
    """
    check_numbers(name, places, "iu")
    if places.size and not length:
        raise IndexError(f"{name}: expected none, as there are no items")
    if work.library.on_cpu and places.size:
        used = places
        if where is not None:
            guarded = TransformIterator(ZipIterator(where, places.items), _or_nought, places.dtype)
            used = Operand(None, guarded, places.shape)
        low, high = bounds(work, used)
        if low < -length or high >= length:
            raise IndexError(f"{name}: expected from {-length} to {length - 1}, got from {low} to {high}")
    return wrapped(cast(places.items, INT64), length)


def wrapped(places: Any, length: int) -> Any:
    """Return places that wrap around behind some length, which is not 0 if there are places."""
    return TransformIterator(with_numbers(places, length), _wrapped, INT64)


def _wrapped(s: Any) -> Any:
    place, length = s
    return place if 0 <= place < length else place % length  # which takes a GPU a hundred instructions
