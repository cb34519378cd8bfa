"""Items of arrays selected, taken and joined: what functions of places have in common."""

from __future__ import annotations

import struct
from ctypes import c_size_t, c_uint64, c_void_p
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._base.bounded import of_builds
from .._base.errors import ArgumentTypeError
from .._base.fork import in_child
from .._device import driver
from .._ir.iterator import Iterator, Leaf, Packed
from .._obtain import factory_cache
from .._program.memory import in_c_order
from ..copies import segmented_copy
from ..host import View
from ..iterators import (
    ConstantIterator,
    CountingIterator,
    PermutationIterator,
    TransformIterator,
    ZipIterator,
)
from ..operators import Op
from ..partition import select
from .axes import INT64, AxisLayout, axis_of, constant, indices, layout_of
from .calls import Operand, Work
from .libraries import ArrayLibrary, Spans
from .values import cast, integer

if TYPE_CHECKING:
    pass


class Counted(NamedTuple):
    """Items, and their number, in an array without dimensions."""

    items: Any
    count: Any


def selected(
    work: Work, items: Any, number: int, predicate: Any, length: int | None = None, flags: Any = None
) -> tuple[Operand, Operand]:
    """Return the items for which a predicate holds, or for whose flags it does, in order, and their number.

    The array has room for all, or for `length` if that is more.
    """
    out, count = work.empty((capacity_of(number, length),), items.dtype), work.empty((), INT64)
    algorithm = select(items, out.items, count.items, predicate, d_flags=flags)
    work.run(algorithm, items, out.items, count.items, number, d_flags=flags)
    return out, count


def capacity_of(number: int, length: int | None) -> int:
    """Return how many items a result has room for, of which there are `number` at most."""
    return number if length is None else max(number, length)


def size_of(size: Any) -> int | None:
    """Return a size as an int; TypeError or ValueError if it is invalid."""
    return None if size is None else integer("size", size)


def chosen(
    work: Work, items: Any, number: int, predicate: Op, size: int | None, flags: Any = None
) -> Operand | Counted:
    """Return the items of `selected`, as many as there are; or `size` of them, and the count beside them."""
    length = size_of(size)
    out, count = selected(work, items, number, predicate, length, flags)
    found = work.cut([out], count, length)
    return found[0] if length is None else Counted(*found)


def bits(items: Any, out: Any) -> tuple[Any, Any]:
    """Return items and an output of their dtype as unsigned integers: moves of all dtypes share builds then.

    They stay as they are if there are no such integers, or if items begin in the middle of one.
    """
    dtype = items.dtype
    if hasattr(items, "node") or dtype.names is not None or dtype.itemsize not in (1, 2, 4, 8):
        return items, out
    plain = np.dtype(f"u{dtype.itemsize}")
    if dtype.alignment < plain.alignment:
        address = items.address if isinstance(items, View) else items.__array_interface__["data"][0]
        if address % plain.alignment:
            return items, out
    return _viewed(items, plain), _viewed(out, plain)


def _viewed(items: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(items, View):
        return type(items)(items.address, dtype, items.shape, items.strides, items.writable, items)
    return items.view(dtype)


def along(x: Operand, axis: int | None, name: str) -> tuple[AxisLayout, tuple[int, ...], tuple[int, ...]]:
    """Return the layout of an axis, and the extents before and behind it; None: of all items."""
    if x.parts:
        raise ArgumentTypeError("x", f"{name} takes an array, got a tuple")
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
    items, written = bits(x.items, out.items)
    work.copy(PermutationIterator(items, source), written, out.size)
    return out


def _part_of_whole(s: Any) -> Any:
    i, own, whole, offset = s
    return i // own * whole + offset + i % own


_WORDS = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
_WORDS[16] = np.dtype(np.complex128)
_FEWER, _FEW = 4, 16  # arrays that the driver copies, and those whose places are parameters of the kernel
# Bytes that a kernel copies in the time that the driver takes to be told, or not in much more.
_MOST_BY_KERNEL = 1 << 22
_PLACES = np.dtype([(f"place_{i}", INT64) for i in range(_FEW)])
_COPIES: Any = factory_cache.new_table()  # by the bytes of an item and the device


def copy_spans(library: ArrayLibrary, stream: Any, spans: Spans, target: int) -> None:
    """Write the memory of arrays one behind another from some address on.

    They are segments of an array that spans all of them; the driver copies a few in less time of the host.
    """
    addresses, sizes, itemsize = spans
    word = _WORDS.get(itemsize)
    at_once = len(sizes) > _FEWER and not target % itemsize
    if word is None or not (at_once and _copied_at_once(library, stream, spans, word, target)):
        handle = c_void_p(driver.stream_handle(stream))
        for address, size in zip(addresses, sizes, strict=True):
            nbytes = size * itemsize
            if size:
                places = c_uint64(target), c_uint64(address), c_size_t(nbytes)
                driver.call("cuMemcpyDtoDAsync_v2", *places, handle)
            target += nbytes


def _copied_at_once(
    library: ArrayLibrary, stream: Any, spans: Spans, word: np.dtype[Any], target: int
) -> bool:
    """Copy arrays by one kernel, unless they are not aligned, or are many while a stream is captured.

    A graph could not copy the places of many from the host again.
    """
    is_few = len(spans.sizes) <= _FEW
    if not is_few and driver.is_captured(driver.stream_handle(stream)):
        return False
    lengths = np.fromiter(spans.sizes, np.int64, len(spans.sizes))
    addresses, itemsize = np.fromiter(spans.addresses, np.int64, len(lengths)), word.itemsize
    if not lengths.all():  # those without items may be anywhere
        addresses, lengths = addresses[lengths > 0], lengths[lengths > 0]
    if not (number := len(lengths)):
        return True
    if (addresses % itemsize).any():
        return False
    starts, behind = addresses // itemsize, np.cumsum(lengths)
    table = np.concatenate([starts, starts + lengths, behind - lengths])
    given: Any
    if is_few:
        kept, own = None, "few"
        given = [
            _in_parameters(itemsize, _pack(*each.tolist(), *[0] * (_FEW - number)))
            for each in itemsize * table.reshape(3, number)
        ]
    else:
        kept, own = library.empty((table.nbytes,), np.dtype(np.uint8)), "many"
        offsets = library.memory(kept).address
        places = c_uint64(offsets), c_void_p(table.ctypes.data), c_size_t(table.nbytes)
        # From memory that is not pinned, the driver has read all when it returns.
        driver.call("cuMemcpyHtoDAsync_v2", *places, c_void_p(driver.stream_handle(stream)))
        given = [_array(offsets + 8 * number * i, INT64, number) for i in range(3)]
    key = itemsize, own, driver.current_device() if driver.has_several_devices else None
    copy = _COPIES.get(key)
    if copy is None:
        copy = segmented_copy(word, word, *given)
        if copy.is_built:
            _COPIES[key] = copy
    total = int(behind[-1])
    copy.run(_array(0, word, total), _array(target, word, total), number, *given, stream)
    return True


def _copied(work: Work, views: list[View], target: View) -> None:
    """Copy arrays one behind another, of a call that is traced: by one kernel, or by the driver."""
    itemsize, number = target.itemsize, len(views)
    word, nbytes = _WORDS.get(itemsize), [each.size * itemsize for each in views]
    if number > _FEW:
        work.cannot_trace("more arrays than one kernel has places for")
    if word is None or number == 1 or not all(nbytes) or {each.address % itemsize for each in views} != {0}:
        by_kernel = False
    else:
        by_kernel = number > _FEWER or sum(nbytes) <= _MOST_BY_KERNEL
    begins = [sum(nbytes[:i]) for i in range(number)]
    if not by_kernel or word is None:
        for each, begin, count in zip(views, begins, nbytes, strict=True):
            if count:
                work.copied(each.address, target.address + begin, count)
        return
    given = (
        _in_parameters(itemsize, _packed([each.address for each in views])),
        _in_parameters(itemsize, _packed([each.address + n for each, n in zip(views, nbytes, strict=True)])),
        _in_parameters(itemsize, _packed(begins)),
    )
    copy = segmented_copy(word, word, *given)
    source = in_c_order(0, word, (target.size,), None)
    work.run(copy, source, in_c_order(target.address, word, target.shape, target), number, *given)


# A place is chosen by the bits of its number: a tuple has no index that is known only as a kernel runs.


def _one_of(i: Any, bit: Any, first: Any, second: Any) -> Any:
    return second if i & bit else first


def _four_of(i: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return _one_of(i, 2, _one_of(i, 1, a, b), _one_of(i, 1, c, d))


def _place_in_items(s: Any) -> Any:
    i, t, shift = s
    first = _one_of(i, 4, _four_of(i, t[0], t[1], t[2], t[3]), _four_of(i, t[4], t[5], t[6], t[7]))
    second = _one_of(i, 4, _four_of(i, t[8], t[9], t[10], t[11]), _four_of(i, t[12], t[13], t[14], t[15]))
    return _one_of(i, 8, first, second) >> shift


@of_builds
@lru_cache(8)
def _few_places(itemsize: int) -> TransformIterator:
    zero, shift = ConstantIterator(np.zeros((), _PLACES)[()]), constant(itemsize.bit_length() - 1)
    return TransformIterator(ZipIterator(CountingIterator(np.int64(0)), zero, shift), _place_in_items, INT64)


in_child(_few_places.cache_clear)
_pack = struct.Struct(f"={_FEW}q").pack


def _packed(places: list[Any]) -> Packed:
    return Packed(_pack, (*places, *[0] * (_FEW - len(places))))


def _in_parameters(itemsize: int, places: bytes | Packed) -> Iterator:
    """Return an iterator over a few places, in items, which kernels have among their parameters, in bytes."""
    known = _few_places(itemsize)
    found = object.__new__(TransformIterator)
    *others, values, shift = known.leaves
    found.node, found.leaves = known.node, (*others, Leaf(places, 0, values.slot), shift)
    return found


def _array(address: int, dtype: np.dtype[Any], size: int) -> View:
    return View(address, dtype, (size,), (dtype.itemsize,), True, None)


def joined(work: Work, parts: list[Operand], axis: int, dtype: np.dtype[Any]) -> Operand:
    """Return arrays one after another along an axis, in a dtype."""
    shape = parts[0].shape
    total = [each.shape[axis] for each in parts]
    whole = work.empty((*shape[:axis], sum(total), *shape[axis + 1 :]), dtype)
    layout, offset = layout_of(whole.shape, axis, axis), 0
    views = [each.items for each in parts]
    is_plain = not work.library.on_cpu and layout.outer == 1
    if is_plain and False not in [isinstance(each, View) and each.dtype == dtype for each in views]:
        if work.is_traced:
            _copied(work, views, whole.items)
            return whole
        spans = Spans([each.address for each in views], [each.size for each in views], dtype.itemsize)
        copy_spans(work.library, work.stream, spans, whole.items.address)
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
