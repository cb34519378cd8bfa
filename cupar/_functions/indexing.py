"""Items by their places: taken, repeated, joined, and subtracted from their neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._ir.iterator import Iterator
from ..copies import segmented_copy
from ..iterators import CountingIterator, PermutationIterator, TransformIterator, ZipIterator
from ..operators import OpKind
from ..search import upper_bound
from ..transform import binary_transform
from . import libraries
from .axes import INT64, AxisLayout, axis_of, constant, indices, layout_of
from .calls import Numbers, Operand, Work, enter
from .described import described
from .items import Counted, along, bits, copy_spans, joined, size_of, taken
from .rows import bounds, check_numbers, places_of, promoted, reduced_rows, scanned_rows, wrapped
from .values import cast, integer

if TYPE_CHECKING:
    from .._base.annotations import Array, Axes, Stream

# --- Taken and repeated ----------------------------------------------------------------------------------


@described()
def take(work: Work, x: Operand, indices: Operand, /, *, axis: int | None = None) -> Operand:
    """Return the items at some places of an axis, or of all items.

    >>> arrays.take(np.array([10, 20, 30]), np.array([2, 0, -1]))
    array([30, 10, 30])
    """
    layout, before, behind = along(x, axis, "take")
    items = places_of(work, "indices", indices, layout.length)
    return taken(work, x, layout, items, indices.size, (*before, *indices.shape, *behind))


def _repeated_item(s: Any) -> Any:
    i, times, inner = s
    return i // (inner * times) * inner + i % inner


def _repeated(s: Any) -> Any:
    i, times = s
    return i // times


def _not_negative(value: Any) -> Any:
    return value if value > 0 else 0


# Items that are repeated often are segments of an input that has each as often as the result has items: a
# place there is the item's number, and bits that tell which one it is.
_OFTEN, _PLACE_BITS = 64, 63


def _first_place(s: Any) -> Any:
    i, width = s
    return i << width


def _last_place(s: Any) -> Any:
    i, width, times, total = s
    return (i << width) + (times if times < total else total)


def _item_at(s: Any) -> Any:
    place, width = s
    return place >> width


def _repeated_often(work: Work, x: Operand, times: Any, length: int, total: int) -> Operand:
    """Return each item several times, in all so many of the result as it has room for."""
    numbers, width, out = (
        CountingIterator(np.int64(0)),
        constant(total.bit_length()),
        work.empty((total,), x.dtype),
    )
    first = TransformIterator(ZipIterator(numbers, width), _first_place, INT64)
    last = TransformIterator(ZipIterator(numbers, width, times, constant(total)), _last_place, INT64)
    item = TransformIterator(ZipIterator(numbers, width), _item_at, INT64)
    items, target = bits(x.items, out.items)
    source = PermutationIterator(items, item)
    copy = segmented_copy(source, target, first, last)
    work.run(copy, source, target, length, first, last, max_items=total)
    return out


def _repeat(
    work: Work, x: Operand, repeats: Operand | None, number: Any, axis: int | None, size: int | None
) -> Any:
    layout, before, behind = along(x, axis, "repeat")
    length = size_of(size)
    if repeats is None:
        if number < 0:
            raise ArgumentValueError("repeats", f"expected 0 or more, got {number}")
        if length is not None:
            raise ArgumentTypeError("size", "expected None, as the length does not depend on data")
        out = work.empty((*before, layout.length * number, *behind), x.dtype)
        if out.size:
            alone = layout.inner == 1
            source = indices(_repeated, number) if alone else indices(_repeated_item, number, layout.inner)
            items, written = bits(x.items, out.items)
            work.copy(PermutationIterator(items, source), written, out.size)
        return out
    check_numbers("repeats", repeats, "iu")
    if repeats.shape not in ((layout.length,), (1,), ()):
        raise ArgumentValueError("repeats", f"expected shape ({layout.length},), got {repeats.shape}")
    if work.library.on_cpu and repeats.size and bounds(work, repeats)[0] < 0:
        raise ArgumentValueError("repeats", "expected 0 or more, got less")
    times = _signed(repeats.items)
    if repeats.size != layout.length:
        times = PermutationIterator(times, constant(0))
    times = TransformIterator(times, _not_negative, INT64)
    ends, total = work.empty((layout.length,), INT64), 0
    if layout.length:
        scanned_rows(work, times, ends.items, AxisLayout(1, layout.length, 1), OpKind.PLUS, None)
    count = work.made(ends.items[-1:] if layout.length else constant(0), (), INT64)
    total = work.lengths(count)[0] if length is None else length
    n, is_often = layout.length, layout.rows == 1 and total >= _OFTEN * layout.length > 0
    if is_often and n.bit_length() + total.bit_length() <= _PLACE_BITS:
        out = _repeated_often(work, x, times, n, total)
        return out if length is None else Counted(out, count)
    places = work.temporary(total, INT64)
    numbers = CountingIterator(np.int64(0))
    if total and layout.length:
        search = upper_bound(ends.items, numbers, places, values_sorted=True)
        work.run(search, ends.items, layout.length, numbers, total, places)
    shape = (*before, total, *behind)
    if layout.length:
        out = taken(work, x, layout, wrapped(places, layout.length), total, shape)
    else:
        out = work.empty(shape, x.dtype)  # of items beyond the count alone
    return out if length is None else Counted(out, count)


def repeat(
    x: Array,
    repeats: Array | int,
    /,
    *,
    axis: int | None = None,
    size: int | None = None,
    stream: Stream = None,
) -> Array | Counted:
    """Return each item of an axis several times, one after another.

    Parameters
    ----------
    x : array
    repeats : int or array of integers
        Number of repetitions, for each item of the axis or for all.
    axis : int or None, optional
        None: of all items in C's order.
    size : int, optional
        How long the axis of the result is, if `repeats` is an array. By default that is read back, which
        waits for the GPU. With it nothing is read, and the length that it should have comes beside it.
    stream
        As for `reduce`.

    Returns
    -------
    array or Counted
        With `size`, a named tuple of two arrays, `items` and `count`.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import arrays
    >>> arrays.repeat(np.array([7, 8]), np.array([1, 3]))
    array([7, 8, 8, 8])
    """
    number = int(repeats) if isinstance(repeats, (int, np.integer)) else None
    optional = () if number is None else ("repeats",)
    inputs = x, repeats if number is None else None
    found: Array | Counted = enter(_repeat, inputs, (number, axis, size), stream, optional=optional)
    return found


def _length(s: Any) -> Any:
    return s[1] - s[0] if s[1] > s[0] else 0


def _cut(s: Any) -> Any:
    at, size = s
    if at < 0:
        return at * 0
    return at if at < size else size


def _at_most(value: Any) -> Any:
    return np.int64(value) if value < 2**63 else 2**63 - 1


def _signed(offsets: Any) -> Any:
    """Return offsets as int64: of those of uint64 that this has not, the greatest one."""
    if offsets.dtype == np.uint64:
        return TransformIterator(offsets, _at_most, INT64)
    return cast(offsets, INT64)


@described(starts="indices", ends="indices", size="length")
def take_ranges(
    work: Work, x: Operand, starts: Operand, ends: Operand, /, *, size: int | None = None
) -> Operand | Counted:
    """Return the items of many ranges, one after another: of ``x[start:end]`` for each start and end.

    Ranges are cut to the items that there are; a start or an end below 0 is 0.

    >>> arrays.take_ranges(np.array([5, 6, 7, 8]), np.array([2, 0]), np.array([4, 1]))
    array([7, 8, 5])
    """
    check_numbers("starts", starts, "iu")
    check_numbers("ends", ends, "iu")
    if starts.shape != ends.shape:
        raise ArgumentValueError("ends", f"expected the shape of `starts`, {starts.shape}, got {ends.shape}")
    total, number = size_of(size), starts.size
    first, last = (
        TransformIterator(ZipIterator(_signed(each.items), constant(x.size)), _cut, INT64)
        for each in (starts, ends)
    )
    if total is None:
        found = work.empty((), INT64)
        lengths = TransformIterator(ZipIterator(first, last), _length, INT64)
        reduced_rows(work, lengths, found.items, AxisLayout(1, number, 1), OpKind.PLUS, np.int64(0))
        total = work.lengths(found)[0]
    out, count = work.empty((total,), x.dtype), work.empty((), INT64)
    source, target = bits(x.items, out.items)
    algorithm = segmented_copy(source, target, first, last, d_out_num_items=count.items)
    work.run(algorithm, source, target, number, first, last, d_out_num_items=count.items, max_items=total)
    return out if size is None else Counted(out, count)


# --- Joined and subtracted -------------------------------------------------------------------------------


def _concatenate(work: Work, *given: Any) -> Operand:
    *parts, axis = given
    named = {f"arrays[{i}]": each for i, each in enumerate(parts)}
    dtype, first = promoted(**named), parts[0]
    if axis is None:
        parts = [Operand(each.own, each.items, (each.size,)) for each in parts]
        return joined(work, parts, 0, dtype)
    if not first.ndim:
        raise ArgumentValueError("arrays[0]", "expected an array with dimensions, got one without")
    at = axis_of(axis, first.ndim)
    for name, each in named.items():
        if each.ndim != first.ndim or _without(each.shape, at) != _without(first.shape, at):
            raise ArgumentValueError(
                name, f"expected the shape of arrays[0], {first.shape}, but for the axis, got {each.shape}"
            )
    return joined(work, parts, at, dtype)


def _joined(*arguments: Any, stream: Any = None) -> Any:
    """Return arrays on a GPU along an axis; None if it takes more than copies of their memory."""
    *given, axis = arguments
    if axis != 0 or isinstance(given[0], (tuple, Iterator)):
        return None
    library = libraries.of("arrays[0]", given[0])
    if library.on_cpu:
        return None
    with nullcontext() if stream is None else library.on(stream):
        return _joined_spans(library, given, library.stream() if stream is None else stream)


def _joined_spans(library: libraries.ArrayLibrary, given: list[Any], stream: Any) -> Any:
    spans = library.spans(given)
    row = 0 if spans is None else math.prod(given[0].shape[1:])
    if spans is None or not row:
        return None
    found, address = library.joined(given, sum(spans.sizes) // row)
    copy_spans(library, stream, spans, address)
    return found


def concatenate(arrays: Sequence[Array], /, *, axis: int | None = 0, stream: Stream = None) -> Array:
    """Return arrays one after another along an axis.

    Arrays on a GPU that are of one dtype are copied by the driver along the first
    axis; many of them by one kernel.

    Parameters
    ----------
    arrays : sequence of arrays of numbers
        Of the same shape but for the axis.
    axis : int or None, optional
        None: all items in C's order.
    stream
        As for `reduce`.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import arrays
    >>> arrays.concatenate([np.array([1, 2]), np.array([3])])
    array([1, 2, 3])
    """
    found = [*arrays]
    if not found:
        raise ArgumentValueError("arrays", "expected at least one array, got none")
    if len(found) > _FEW or stream is not None:
        made = _joined(*found, axis, stream=stream)
        if made is not None:
            return made  # type: ignore[no-any-return]
    return enter(  # type: ignore[no-any-return]
        _concatenate, (*found,), (axis,), stream, optional=(), prefix="arrays"
    )


_FEW = 16  # arrays, whose concatenation is made again; more have a key that takes longer than to copy them


def _of_longer_row(s: Any) -> Any:
    i, own, step = s
    return i + i // own * step


def _nought(s: Any) -> Any:
    return s[0] - s[0]


def _without(shape: tuple[int, ...], at: int) -> tuple[int, ...]:
    return shape[:at] + shape[at + 1 :]


def check_ends(
    x: Operand, axis: Axes, n: Any, prepend: Operand | None, append: Operand | None
) -> tuple[int, list[Any], np.dtype[Any]]:
    """Return the axis of differences, the lengths along it of all that is joined, and its dtype.

    An end without dimensions is an item of each row. Nothing is joined if there are no differences.
    """
    if not x.ndim:
        raise ArgumentValueError("x", "expected an array with dimensions, got one without")
    at = axis_of(axis, x.ndim)
    integer("n", n)
    check_numbers("x", x)
    given = {"prepend": prepend, "x": x, "append": append} if n else {"x": x}
    parts = {name: each for name, each in given.items() if each is not None}
    for name, each in parts.items():
        if each.shape and _without(each.shape, at) != _without(x.shape, at):
            raise ArgumentValueError(
                name, f"expected the shape of `x`, {x.shape}, but for the axis, got {each.shape}"
            )
    return at, [each.shape[at] if each.shape else 1 for each in parts.values()], promoted(**parts)


@described(numbers=True)
def diff(
    work: Work,
    x: Operand,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Operand | None = None,
    append: Operand | None = None,
) -> Numbers:
    """Return each item minus the one before it along an axis; of bools, whether they differ.

    >>> arrays.diff(np.array([1, 4, 9, 16]))
    array([3, 5, 7])
    """
    at, _, dtype = check_ends(x, axis, n, prepend, append)
    if n and (prepend is not None or append is not None):
        parts = [each for each in (prepend, x, append) if each is not None]
        for each in parts:
            if not each.shape:
                each.items = PermutationIterator(each.items, indices(_nought))
                each.shape = (*x.shape[:at], 1, *x.shape[at + 1 :])
        x = joined(work, parts, at, dtype)
    if not n:
        return work.made(x.items, x.shape)
    op = OpKind.NOT_EQUAL_TO if x.dtype.kind == "b" else OpKind.MINUS
    for _ in range(min(n, x.shape[at] or 1)):  # then there are no items
        layout = layout_of(x.shape, at, at)
        shorter = (*x.shape[:at], max(layout.length - 1, 0), *x.shape[at + 1 :])
        out = work.empty(shorter, x.dtype)
        if out.size:
            if layout.outer == 1:
                first, second = x.items[: out.size], x.items[layout.inner : layout.inner + out.size]
            else:
                places = indices(_of_longer_row, (layout.length - 1) * layout.inner, layout.inner)
                first = PermutationIterator(x.items, places)
                second = PermutationIterator(x.items[layout.inner :], places)
            work.run(binary_transform(second, first, out.items, op), second, first, out.items, out.size)
        x = out
    return x
