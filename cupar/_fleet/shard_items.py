"""The items of a shard, as calls read and write them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._ir.iterator import Iterator, over
from ..host import View
from ..iterators import PermutationIterator
from .comm import raw

if TYPE_CHECKING:
    from .._functions.calls import Work
    from .group import Group


def items_of(work: Work, name: str, array: Any) -> Any:
    """Return an iterator as it is, and the items of an array in the memory where they are, to be sliced."""
    if isinstance(array, Iterator):
        return array
    memory = work.library.memory(array)
    if isinstance(memory, np.ndarray):
        if not memory.flags.c_contiguous:
            raise ValueError(f"{name}: expected an array in C's order, got strides {memory.strides}")
        return memory.reshape(-1)
    size = memory.size
    return View(memory.address, memory.dtype, (size,), (memory.itemsize,), memory.writable, memory)


def first_items(work: Work, name: str, array: Any, number: int) -> Any:
    """Return the first items of an array; ValueError if it has less."""
    found = items_of(work, name, array)
    if len(found) < number:
        raise ValueError(f"{name}: needs at least {number} items, got an array of {len(found)}")
    return found[:number]


def items_from(work: Work, name: str, array: Any, index: int) -> Any:
    """Return the items of an array or iterator from an index on."""
    items = items_of(work, name, array)
    return items + index if isinstance(items, Iterator) else items[index:]


def items_at(work: Work, group: Group, items: Any, places: list[Any], order: Any = ...) -> Any:
    """Return an iterator over the items that all ranks have at some places each, in rank order or another."""
    most, mine = max(map(len, places)), places[group.rank]
    own, records = work.temporary(most, items.dtype), work.temporary(most * group.size, items.dtype)
    if len(mine):
        work.copy(PermutationIterator(items, work.put(mine)), own, len(mine))
    group.gather(raw(own), raw(records), work.stream)
    known = np.concatenate([r * most + np.arange(len(each)) for r, each in enumerate(places)])
    return PermutationIterator(records, work.put(known[order]))


def checksums(work: Work, number: int, **arrays: Any) -> dict[str, Any]:
    """Return checksums of numbers on the host, which ranks compare, by the names of arrays."""
    found: dict[str, str] = {}
    for name, each in arrays.items():
        items = items_of(work, name, each)
        # Not of structs: bytes between their fields may differ.
        if isinstance(items, np.ndarray) and items.dtype.names is None:
            found[name] = f"{zlib.crc32(raw(items[:number])):08x}"
    return found


def dtypes_of(**columns: Any) -> list[np.dtype[Any]]:
    """Return the dtypes of keys and, if there are any, of what goes with them."""
    return [over(name, each).dtype for name, each in columns.items() if each is not None]


def two(columns: Sequence[Any]) -> tuple[Any, Any]:
    """Return keys and what goes with them, or None."""
    return columns[0], columns[1] if len(columns) > 1 else None
