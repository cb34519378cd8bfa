"""Sorts by a comparison on the CPU: stable merge sorts, whose merges several threads share.

Items go back and forth between the outputs and as much temporary storage. A part is sorted, or is a part of
what two sorted ranges are merged to, which finds its own items by binary search (O. Green, R. McColl and D.
Bader, "GPU Merge Path", 2012).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .kit import Kit, Phases, begin, end, high, low, middle, number
from .values import address, inlined, integer, outlined

_RUN = 16  # items that are sorted by insertion


class _Side(NamedTuple):
    """How the keys and items of one of two ranges are read."""

    key: Any
    item: Any


def _merger(before: Any, left: _Side, right: _Side, item_of: Any, store: Any, store_item: Any) -> Any:
    """Return what merges two ranges, or a part of them.

    `item_of` chooses between an item of each.
    """
    left_key, left_item = left
    right_key, right_item = right

    def merge(
        p: Any, source: Any, to: Any, lefts: tuple[Any, Any], rights: tuple[Any, Any], wanted: Any, out: Any
    ) -> None:
        """Write merged items to the output, from the one with `wanted` items before it."""
        keys, items = source
        (low, middle), (begin, high), (k, stop) = lefts, rights, out
        least, most = max(0, wanted - (high - begin)), min(wanted, middle - low)
        while least < most:
            half = (least + most) // 2
            if before(p, right_key(keys, begin + wanted - half - 1), left_key(keys, low + half)):
                most = half
            else:
                least = half + 1
        i, j = low + least, begin + wanted - least
        while k < stop and i < middle and j < high:
            one, other = left_key(keys, i), right_key(keys, j)
            is_right = before(p, other, one)
            store(to[0], k, other if is_right else one)
            store_item(to[1], k, item_of(items, i, j, is_right))
            step = np.int64(is_right)
            j += step
            i += 1 - step
            k += 1
        rest = min(stop, k + middle - i)
        while k < rest:  # the rest of one of them
            store(to[0], k, left_key(keys, i))
            store_item(to[1], k, left_item(items, i))
            i += 1
            k += 1
        while k < stop:
            store(to[0], k, right_key(keys, j))
            store_item(to[1], k, right_item(items, j))
            j += 1
            k += 1

    return outlined(merge)


def _functions(kit: Kit, items: str) -> Any:
    """Return what sorts a range of the input, what merges, and the outputs and the temporary storage.

    Those are pointers to keys, and to items beside them.
    """
    before, read, (load, store) = kit.predicate("op"), kit.read("d_in_keys"), kit.memory("d_in_keys")
    places = kit.place("d_out_keys"), kit.columns[0][1]
    beside = places
    read_item, load_item = inlined(lambda p, i: 0), inlined(lambda to, i: 0)
    store_item = inlined(lambda to, i, item: None)
    if f"d_in_{items}" in kit.arguments:
        read_item = kit.read(f"d_in_{items}")
        load_item, store_item = kit.memory(f"d_in_{items}")
        beside = kit.place(f"d_out_{items}"), kit.columns[1][1]
    (out, spare), (out_beside, spare_beside) = map(address, places), map(address, beside)

    side = _Side(load, load_item)
    # Without a branch, which the CPU could not foresee.
    item_of = inlined(lambda items, i, j, is_right: load_item(items, j if is_right else i))
    merged = _merger(before, side, side, item_of, store, store_item)

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
                middle = min(start + length, high)
                merged(p, one, other, (start, middle), (middle, stop), 0, (start, stop))
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
        lefts, rights, places = (low(p), middle(p)), (middle(p), high(p)), (begin(p), end(p))
        merge(p, source, to, lefts, rights, begin(p) - low(p), places)

    return sort_part, merge_part


def merge(kit: Kit) -> Phases:
    """Merge parts of the output, each of which finds its items in both ranges."""
    nothing = inlined(lambda p, i: 0)
    has_items = "d_in_items1" in kit.arguments
    left, right = (
        _Side(
            kit.read(f"d_in_keys{i}", "d_in_keys1"),
            kit.read(f"d_in_items{i}", "d_in_items1") if has_items else nothing,
        )
        for i in "12"
    )
    left_item, right_item = left.item, right.item
    store_item = kit.write("d_out_items") if has_items else inlined(lambda p, i, item: None)

    def item_of(p: Any, i: Any, j: Any, is_right: Any) -> Any:
        one, other = left_item(p, i), right_item(p, j)  # both are there
        return other if is_right else one

    merged = _merger(kit.predicate("op"), left, right, inlined(item_of), kit.write("d_out_keys"), store_item)
    count1, count2 = map(integer, kit.numbers)

    def part(p: Any) -> None:
        merged(p, (p, p), (p, p), (0, count1(p)), (0, count2(p)), begin(p), (begin(p), end(p)))

    return (part,)


def segmented_sort(kit: Kit) -> Phases:
    (sort, _, out, spare), bounds = _functions(kit, "values"), kit.bounds()

    def each(p: Any, i: Any) -> None:
        low, high = bounds(p, i)
        if low < high:
            sort(p, out(p), spare(p), low, high)

    return kit.segments(each)
