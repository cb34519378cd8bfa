"""Items of arrays selected, taken and joined: what functions of places have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._device import driver
from ..copies import segmented_copy
from ..host import View
from ..iterators import (
    CountingIterator,
    PermutationIterator,
    TransformIterator,
    TransformOutputIterator,
    ZipIterator,
)
from ..partition import select
from .axes import INT64, AxisLayout, axis_of, constant, indices, layout_of
from .calls import Operand, Work
from .values import cast, integer


class Counted(NamedTuple):
    """Items, and their number, in an array without dimensions."""

    items: Any
    count: Any


def selected(
    work: Work, items: Any, size: int, keep: Any, dtype: np.dtype[Any], predicate: Any, length: Any = None
) -> tuple[Operand, Operand]:
    """Return what `keep` makes of those items for which a predicate holds, in order, and their number.

    The array has room for all, or for `length` if that is more. `keep` None: the items themselves.
    """
    capacity = size if length is None else max(size, length)
    out, count = work.empty((capacity,), dtype), work.empty((), INT64)
    written = out.items if keep is None else TransformOutputIterator(out.items, keep, items.dtype)
    algorithm = select(items, written, count.items, predicate)
    work.run(algorithm, items, written, count.items, size)
    return out, count


def size_of(size: Any) -> int | None:
    """Return a size as an int; TypeError or ValueError if it is invalid."""
    return None if size is None else integer("size", size)


def bits(items: Any) -> Any:
    """Return numbers as unsigned integers of their size, as moves of all dtypes share builds then."""
    dtype = items.dtype
    if hasattr(items, "node") or dtype.names is not None or dtype.itemsize not in (1, 2, 4, 8):
        return items
    plain = np.dtype(f"u{dtype.itemsize}")
    if isinstance(items, View):
        return View(items.address, plain, items.shape, items.strides, items.writable, items)
    return items.view(plain)


def along(x: Operand, axis: Any, name: str) -> tuple[AxisLayout, tuple[int, ...], tuple[int, ...]]:
    """Return the layout of an axis, and the extents before and behind it; None: of all items."""
    if x.parts:
        raise TypeError(f"x: {name} takes an array, got a tuple")
    if axis is None:
        return AxisLayout(1, x.size, 1), (), ()
    at = axis_of(axis, x.ndim)
    return layout_of(x.shape, at, at), x.shape[:at], x.shape[at + 1 :]


def _place_of(s: Any) -> Any:
    i, number, inner = s
    return (i // inner) % number


def _source_of(s: Any) -> Any:
    i, place, length, number, inner = s
    return (i // inner // number * length + place) * inner + i % inner


def taken(
    work: Work, x: Operand, layout: AxisLayout, places: Any, number: int, shape: tuple[int, ...]
) -> Operand:
    """Return an array of the items at some places of an axis."""
    out = work.empty(shape, x.dtype)
    if not out.size:
        return out
    if layout.rows == 1:
        source = places
    else:
        each = PermutationIterator(places, indices(_place_of, number, layout.inner))
        numbers = constant(layout.length), constant(number), constant(layout.inner)
        source = TransformIterator(
            ZipIterator(CountingIterator(np.int64(0)), each, *numbers), _source_of, INT64
        )
    work.copy(PermutationIterator(bits(x.items), source), bits(out.items), out.size)
    return out


def _part_of_whole(s: Any) -> Any:
    i, own, whole, offset = s
    return i // own * whole + offset + i % own


MANY = 8  # arrays that are copied at once, since each copy is a launch


def copied_at_once(work: Work, spans: Sequence[tuple[int, int]], whole: Operand, owner: Any) -> bool:
    """Write arrays one after another by one copy of segments, of the memory that all of them are in.

    `spans` has the address and the items of each. Returns whether that is done: not if they are few or lie
    askew, nor while a stream is captured, as a graph could not copy the offsets from the host again.
    """
    if len(spans) < MANY or work.library.on_cpu or driver.is_captured(driver.stream_handle(work.stream)):
        return False
    addresses, lengths = np.array([each for each in spans if each[1]], np.int64).reshape(-1, 2).T
    address, size, number = int(addresses.min(initial=2**62)), whole.dtype.itemsize, len(lengths)
    starts, askew = np.divmod(addresses - address, size)
    if askew.any() or not number:
        return False
    ends, behind = starts + lengths, np.cumsum(lengths)
    source = bits(View(address, whole.dtype, (int(ends.max()),), (size,), False, owner))
    offsets = work.operand(work.put(np.concatenate([starts, ends, behind - lengths]))).items
    target, given = bits(whole.items), [offsets[i * number : (i + 1) * number] for i in range(3)]
    work.run(segmented_copy(source, target, *given), source, target, number, *given)
    return True


def joined(work: Work, parts: list[Operand], axis: int, dtype: np.dtype[Any]) -> Operand:
    """Return arrays one after another along an axis, in a dtype."""
    shape = parts[0].shape
    total = [each.shape[axis] for each in parts]
    whole = work.empty((*shape[:axis], sum(total), *shape[axis + 1 :]), dtype)
    layout, offset = layout_of(whole.shape, axis, axis), 0
    views = [each.items for each in parts]
    if layout.outer == 1 and all(isinstance(each, View) and each.dtype == dtype for each in views):
        spans = [(each.address, each.size) for each in views]
        if copied_at_once(work, spans, whole, views):
            return whole
    for part, length in zip(parts, total, strict=True):
        own = length * layout.inner
        if part.size and layout.outer == 1:
            target = whole.items[offset : offset + own]
            work.copy(cast(part.items, dtype), target, own)
        elif part.size:
            places = indices(_part_of_whole, own, layout.length * layout.inner, offset)
            work.copy(cast(part.items, dtype), PermutationIterator(whole.items, places), part.size)
        offset += own
    return whole
