"""Sorts by a comparison on the CPU: stable merge sorts, whose merges several threads share.

Items go back and forth between the outputs and as much temporary storage. A phase sorts a range, or merges
two sorted ranges; of a merge, each thread finds its own part by binary search (O. Green, R. McColl and D.
Bader, "GPU Merge Path", 2012).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .algorithms import Kit, Run, begin, bounds_of, end, phase, storage
from .plans import SORT
from .values import inlined, moved, outlined

_RUN = 16  # items that are sorted by insertion


class Items(NamedTuple):
    """Functions of what is sorted. Without items beside the keys, those of items do nothing."""

    opened: Any  # what gives the inputs, the operator's state, the outputs and the temporary storage
    before: Any
    read: Any
    size: int  # of a key
    load: Any
    store: Any
    store_item: Any
    place_item: Any


def _items(kit: Kit, in_keys: str, out_keys: str, in_items: str, out_items: str) -> Items:
    open_in, read, _ = kit.argument(in_keys)
    open_out, _, _ = kit.argument(out_keys)
    state, before = kit.operator("op")
    keys, places = kit.value(in_keys), kit.number(0)  # of items in the temporary storage
    open_items = open_out_items = inlined(lambda p: p)
    store_item = place_item = inlined(lambda out, i, items, j: None)
    if in_items in kit.arguments:
        open_items, read_item, _ = kit.argument(in_items)
        open_out_items, _, _ = kit.argument(out_items)
        dtype, load, store, _ = kit.value(in_items)
        size = dtype.itemsize

        def placed(out: Any, i: Any, items: Any, j: Any) -> None:
            item = read_item(items, i)
            while i > j:
                store(out, i * size, load(out, (i - 1) * size))
                i -= 1
            store(out, j * size, item)

        store_item = inlined(lambda out, i, items, j: store(out, i * size, load(items, j * size)))
        place_item = inlined(placed)

    def opened(p: Any) -> Any:
        out, spare = (open_out(p), open_out_items(p)), (storage(p), moved(storage(p), places(p)))
        return open_in(p), open_items(p), state(p), out, spare

    return Items(
        inlined(opened), before, read, keys.dtype.itemsize, keys.load, keys.store, store_item, place_item
    )


def _merger(of: Items) -> Any:
    """Return what merges two ranges, from a place in each, up to a place in the result."""
    _, before, _, size, load, store, store_item, _ = of

    def merge(
        own: Any, source: Any, to: Any, i: Any, middle: Any, j: Any, high: Any, k: Any, stop: Any
    ) -> None:
        keys, items = source
        out, out_items = to
        while k < stop:
            if i >= middle or j >= high:
                break
            left, right = load(keys, i * size), load(keys, j * size)
            is_right = before(own, right, left)
            store(out, k * size, right if is_right else left)
            store_item(out_items, k, items, j if is_right else i)
            step = np.int64(is_right)
            j += step
            i += 1 - step
            k += 1
        while k < stop and i < middle:
            store(out, k * size, load(keys, i * size))
            store_item(out_items, k, items, i)
            i += 1
            k += 1
        while k < stop:
            store(out, k * size, load(keys, j * size))
            store_item(out_items, k, items, j)
            j += 1
            k += 1

    return outlined(merge)


def _sorter(of: Items, merge: Any) -> Any:
    """Return what sorts a range of the input."""
    _, before, read, size, load, store, _, place_item = of

    def sort_runs(own: Any, items: Any, payload: Any, to: Any, low: Any, high: Any) -> None:
        out, out_items = to
        for start in range(low, high, _RUN):
            for i in range(start, min(start + _RUN, high)):
                key, j = read(items, i), i
                while j > start and before(own, key, load(out, (j - 1) * size)):
                    j -= 1
                k = i
                while k > j:
                    store(out, k * size, load(out, (k - 1) * size))
                    k -= 1
                store(out, j * size, key)
                place_item(out_items, i, payload, j)

    sort_runs = outlined(sort_runs)

    def sort(own: Any, items: Any, payload: Any, to: Any, spare: Any, low: Any, high: Any) -> None:
        """Sort a range of the input into `to`."""
        levels, length = 0, _RUN
        while length < high - low:
            length *= 2
            levels += 1
        one, other = to, spare
        if levels % 2 == 1:
            one, other = spare, to
        sort_runs(own, items, payload, one, low, high)
        length = _RUN
        for _ in range(levels):
            for start in range(low, high, 2 * length):
                middle, stop = min(start + length, high), min(start + 2 * length, high)
                merge(own, one, other, start, middle, middle, stop, start, stop)
            one, other = other, one
            length *= 2

    return outlined(sort)


def _part_merger(of: Items, merge: Any) -> Any:
    """Return what writes a part of what two ranges are merged to."""
    _, before, _, size, load, _, _, _ = of

    def merge_part(
        own: Any, source: Any, to: Any, low: Any, middle: Any, high: Any, first: Any, stop: Any
    ) -> None:
        """Write the places from `first` to `stop` of what two ranges are merged to."""
        keys, _ = source
        wanted = first - low
        least, most = max(0, wanted - (high - middle)), min(wanted, middle - low)
        while least < most:
            i = (least + most) // 2
            if before(own, load(keys, (middle + wanted - i - 1) * size), load(keys, (low + i) * size)):
                most = i
            else:
                least = i + 1
        merge(own, source, to, low + least, middle, middle + wanted - least, high, first, stop)

    return outlined(merge_part)


def merge_sort(kit: Kit) -> Run:
    names = "d_in_keys", "d_out_keys", "d_in_items", "d_out_items"
    of = _items(kit, *names)
    merge, opened = _merger(of), of.opened
    sort, merge_part = _sorter(of, merge), _part_merger(of, merge)
    low, middle, high, to_spare = (kit.number(i) for i in range(1, 5))

    def run(p: Any) -> None:
        items, payload, own, out, spare = opened(p)
        if phase(p) == SORT:
            if to_spare(p):
                sort(own, items, payload, spare, out, begin(p), end(p))
            else:
                sort(own, items, payload, out, spare, begin(p), end(p))
        elif to_spare(p):
            merge_part(own, out, spare, low(p), middle(p), high(p), begin(p), end(p))
        else:
            merge_part(own, spare, out, low(p), middle(p), high(p), begin(p), end(p))

    return run


def segmented_merge_sort(kit: Kit) -> Run:
    names = "d_in_keys", "d_out_keys", "d_in_values", "d_out_values"
    of = _items(kit, *names)
    sort, opened = _sorter(of, _merger(of)), of.opened
    open_bounds, bounds = bounds_of(kit, 1)

    def run(p: Any) -> None:
        items, payload, own, out, spare = opened(p)
        segments = open_bounds(p)
        for i in range(begin(p), end(p)):
            low, high = bounds(segments, i)
            if low < high:
                sort(own, items, payload, out, spare, low, high)

    return run
