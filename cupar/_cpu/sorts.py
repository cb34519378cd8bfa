"""Sorts by a comparison on the CPU: stable merge sorts, whose merges several threads share.

Items go back and forth between the outputs and as much temporary storage. A part is sorted, or is a part of
what two sorted ranges are merged to, which finds its own items by binary search (O. Green, R. McColl and D.
Bader, "GPU Merge Path", 2012).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .kit import Kit, Phases, begin, end, high, low, middle, number
from .values import address, inlined, memory, outlined

_RUN = 16  # items that are sorted by insertion


def _merger(before: Any, load: Any, store: Any, load_item: Any, store_item: Any) -> Any:
    """Return what merges two ranges, or a part of them."""

    def merge(p: Any, source: Any, to: Any, low: Any, middle: Any, high: Any, first: Any, stop: Any) -> None:
        """Write the places from `first` to `stop` of what two ranges are merged to."""
        keys, items = source
        wanted = first - low
        least, most = max(0, wanted - (high - middle)), min(wanted, middle - low)
        while least < most:
            half = (least + most) // 2
            if before(p, load(keys, middle + wanted - half - 1), load(keys, low + half)):
                most = half
            else:
                least = half + 1
        i, j, k = low + least, middle + wanted - least, first
        while k < stop and i < middle and j < high:
            left, right = load(keys, i), load(keys, j)
            is_right = before(p, right, left)
            store(to[0], k, right if is_right else left)
            store_item(to[1], k, load_item(items, j if is_right else i))
            step = np.int64(is_right)
            j += step
            i += 1 - step
            k += 1
        if i >= middle:
            i = j
        for place in range(k, stop):  # what is left of one of them
            store(to[0], place, load(keys, i))
            store_item(to[1], place, load_item(items, i))
            i += 1

    return outlined(merge)


def _functions(kit: Kit, items: str) -> Any:
    """Return what sorts a range of the input, what merges, and the outputs and the temporary storage.

    Those are pointers to keys, and to items beside them.
    """
    before, read, keys = kit.operator("op"), kit.read("d_in_keys"), kit.arguments["d_in_keys"]
    load, store = memory(keys.value)
    places = kit.place("d_out_keys"), kit.columns[0][1]
    beside = places
    read_item, load_item = inlined(lambda p, i: 0), inlined(lambda to, i: 0)
    store_item = inlined(lambda to, i, item: None)
    if f"d_in_{items}" in kit.arguments:
        read_item = kit.read(f"d_in_{items}")
        load_item, store_item = memory(kit.arguments[f"d_in_{items}"].value)
        beside = kit.place(f"d_out_{items}"), kit.columns[1][1]
    (out, spare), (out_beside, spare_beside) = map(address, places), map(address, beside)

    merged = _merger(before, load, store, load_item, store_item)

    def insert(p: Any, to: Any, low: Any, high: Any) -> None:
        """Sort short ranges of the input."""
        for start in range(low, high, _RUN):
            for i in range(start, min(start + _RUN, high)):
                key, item, j = read(p, i), read_item(p, i), i
                while j > start and before(p, key, load(to[0], j - 1)):
                    j -= 1
                for k in range(i, j, -1):
                    store(to[0], k, load(to[0], k - 1))
                    store_item(to[1], k, load_item(to[1], k - 1))
                store(to[0], j, key)
                store_item(to[1], j, item)

    inserted = outlined(insert)

    def sort(p: Any, to: Any, spare: Any, low: Any, high: Any) -> None:
        length, one, other = _RUN, to, spare
        while length < high - low:
            length *= 2
            one, other = other, one
        inserted(p, one, low, high)
        length = _RUN
        while length < high - low:
            for start in range(low, high, 2 * length):
                stop = min(start + 2 * length, high)
                merged(p, one, other, start, min(start + length, high), stop, start, stop)
            one, other = other, one
            length *= 2

    outputs = inlined(lambda p: (out(p), out_beside(p)))
    return outlined(sort), merged, outputs, inlined(lambda p: (spare(p), spare_beside(p)))


def merge_sort(kit: Kit) -> Phases:
    sort, merge, out, spare = _functions(kit, "items")

    def sort_part(p: Any) -> None:
        source, to = (out(p), spare(p)) if number(p) else (spare(p), out(p))
        sort(p, to, source, begin(p), end(p))

    def merge_part(p: Any) -> None:
        source, to = (out(p), spare(p)) if number(p) else (spare(p), out(p))
        merge(p, source, to, low(p), middle(p), high(p), begin(p), end(p))

    return sort_part, merge_part


def segmented_sort(kit: Kit) -> Phases:
    (sort, _, out, spare), bounds = _functions(kit, "values"), kit.bounds()

    def each(p: Any, i: Any) -> None:
        low, high = bounds(p, i)
        if low < high:
            sort(p, out(p), spare(p), low, high)

    return kit.segments(each)
