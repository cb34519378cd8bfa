"""Algorithms whose outputs are as long as the input decides, on the CPU.

Each part writes the items it keeps to columns of the temporary storage, then the parts' counts are added up,
and then each part copies its own items to their places. So each item is read once, and no branch depends on
whether it is kept, which no CPU could foresee.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._base.generated import define
from .kit import Kit, Phases, begin, end, number, size
from .values import inlined, integer, outlined

_WORDS = 4  # of a part: numbers of items kept for each output, and last whether it continues a run
_GOES_ON = 3


@inlined
def _endless(p: Any) -> Any:
    return 1 << 62


def _compacted(
    kit: Kit, stage: Any, total: str, outs: Sequence[str], first: int = 0, capacity: Any = _endless
) -> Phases:
    """Return all phases, beginning with `stage`.

    Parameters
    ----------
    kit, stage
    total : str
        The output of the counts. With three outputs, each has a count, and two counts are written.
    outs : sequence of str
        The outputs, in the order of the columns.
    first : int, optional
        The first item of a part that is copied.
    capacity : callable, optional
        ``capacity(p)``: how many items are copied at most.
    """
    (count, store_count), write_total = kit.column(0), kit.write(total)
    counts, told = (3, 2) if len(outs) == 3 else (1, 1)
    names: dict[str, Any] = {"begin": begin, "number": number, "count": count}
    lines = [f"place, word = begin(p) + number(p) + {first}, {_WORDS} * number(p)"]
    for i, name in enumerate(outs):
        names[f"load{i}"], names[f"write{i}"] = kit.column(1 + i)[0], kit.write(name)
        lines += [
            f"to = count(p, word + {i % counts - _WORDS}) if word > 0 else 0",
            f"for i in range(count(p, word + {i % counts}) - to):",
            f"    write{i}(p, to + i, load{i}(p, place + i))",
        ]
    copy = define("copies of a compaction", "copy", "def copy(p):\n    {lines}", names, lines=lines)

    def add(p: Any) -> None:
        for i in range(counts):
            total = 0
            for word in range(i, _WORDS * end(p), _WORDS):
                total = min(total + count(p, word), capacity(p))
                store_count(p, word, total)
            if i < told:
                write_total(p, i, total)

    return stage, add, copy


def _selected(kit: Kit, keys: str, items: str, kept: Any) -> Any:
    """Return what keeps keys, and items beside them, where ``kept(p, index, before, key)``."""
    read, (_, store_count), (_, store) = kit.read(keys), kit.column(0), kit.column(1)
    has_items = items in kit.arguments
    read_item, store_item = (kit.read(items), kit.column(2)[1]) if has_items else (read, store)

    def stage(p: Any) -> None:
        first = place = begin(p) + number(p)
        before = read(p, max(begin(p) - 1, 0))
        for i in range(begin(p), end(p)):
            key = read(p, i)
            store(p, place, key)  # the next one overwrites it, if it is not kept
            if has_items:
                store_item(p, place, read_item(p, i))
            place += 1 if kept(p, i, before, key) else 0
            before = key
        store_count(p, _WORDS * number(p), place - first)

    return stage


def select(kit: Kit) -> Phases:
    holds = kit.predicate("cond")
    kept = inlined(lambda p, i, before, key: holds(p, key))
    if "d_flags" in kit.arguments:
        flag = kit.read("d_flags")
        kept = inlined(lambda p, i, before, key: holds(p, flag(p, i)))
    stage = _selected(kit, "d_in", "", kept)
    return _compacted(kit, stage, "d_num_selected_out", ["d_out"])


def unique_by_key(kit: Kit) -> Phases:
    equal = kit.predicate("op")
    is_first = inlined(lambda p, i, before, key: i == 0 or not equal(p, before, key))
    stage = _selected(kit, "d_in_keys", "d_in_items", is_first)
    outs = [each for each in ("d_out_keys", "d_out_items") if each in kit.arguments]
    return _compacted(kit, stage, "d_out_num_selected", outs)


def partition(kit: Kit) -> Phases:
    read, (_, store_count) = kit.read("d_in"), kit.column(0)
    is_first, is_second = kit.predicate("select_first_part_op"), kit.predicate("select_second_part_op")
    (_, store_1), (_, store_2), (_, store_3) = (kit.column(i) for i in (1, 2, 3))

    def stage(p: Any) -> None:
        start = begin(p) + number(p)
        one = two = three = start
        for i in range(begin(p), end(p)):
            item = read(p, i)
            store_1(p, one, item)
            store_2(p, two, item)
            store_3(p, three, item)
            in_1 = 1 if is_first(p, item) else 0
            in_2 = 1 if in_1 == 0 and is_second(p, item) else 0
            one += in_1
            two += in_2
            three += 1 - in_1 - in_2
        store_count(p, _WORDS * number(p), one - start)
        store_count(p, _WORDS * number(p) + 1, two - start)
        store_count(p, _WORDS * number(p) + 2, three - start)

    return _compacted(
        kit, stage, "d_num_selected_out", ["d_first_part_out", "d_second_part_out", "d_unselected_out"]
    )


def runs(kit: Kit) -> Phases:
    """Reduce the values of each run of equal keys, or count them.

    The first item of a part's columns is its contribution to a run that began in an earlier part.
    """
    (word, store_word), (load_key, store_key), (load, store) = (kit.column(i) for i in range(3))
    equal, is_counted = kit.predicate("equality_op"), "d_in_values" not in kit.arguments
    if is_counted:
        keys, out = "d_in", "d_out_counts"
        read, op = inlined(lambda p, i: 1), inlined(lambda p, a, b: a + b)
    else:
        keys, out = "d_in_keys", "d_out_aggregates"
        read, op = kit.items("d_in_values"), kit.operator("op")
    read_key, begun = kit.read(keys), kit.begun(op)

    def stage(p: Any) -> None:
        first = place = begin(p) + number(p)
        before, total = read_key(p, begin(p)), read(p, begin(p))
        goes_on = begin(p) > 0 and equal(p, read_key(p, begin(p) - 1), before)
        if not goes_on:
            place += 1
            _, total = begun(p, total)
        for i in range(begin(p) + 1, end(p)):
            key, value = read_key(p, i), read(p, i)
            if equal(p, before, key):
                total = op(p, total, value)
            else:
                store_key(p, place, before)
                store(p, place, total)
                place += 1
                _, total = begun(p, value)
            before = key
        store_key(p, place, before)
        store(p, place, total)
        store_word(p, _WORDS * number(p), place - first)
        store_word(p, _WORDS * number(p) + _GOES_ON, goes_on)

    _, add, copy = _compacted(kit, stage, "d_out_num_runs", ["d_out_unique", out], first=1)
    count = inlined(add)

    def join(p: Any) -> None:
        last = 0  # where the run is that may go on
        for i in range(end(p)):
            first = i * (size(p) + 1)
            if word(p, _WORDS * i + _GOES_ON) != 0:
                store_key(p, last, load_key(p, first))
                store(p, last, op(p, load(p, last), load(p, first)))
            if word(p, _WORDS * i) > 0:
                last = first + word(p, _WORDS * i)
        count(p)

    return stage, join, copy


def _first(holds: Any) -> Any:
    """Return what finds the first index from which on something holds of a range's keys and a key."""

    def first(p: Any, low: Any, high: Any, key: Any) -> Any:
        while low < high:
            half = (low + high) // 2
            if holds(p, half, key):
                high = half
            else:
                low = half + 1
        return low

    return outlined(first)


def _cutter(kit: Kit) -> Any:
    """Return what cuts two ranges of keys so that pairs of equal ones stay together."""
    read1, before = kit.read("d_in_keys1"), kit.predicate("op")
    read2 = kit.read("d_in_keys2", "d_in_keys1")
    count1, count2 = map(integer, kit.numbers)
    from1, from2 = (
        _first(inlined(lambda p, i, key: not before(p, read1(p, i), key))),
        _first(inlined(lambda p, i, key: not before(p, read2(p, i), key))),
    )
    behind2 = _first(inlined(lambda p, i, key: before(p, key, read2(p, i))))

    def cut(p: Any, wanted: Any) -> Any:
        """Return how many keys of each range are in front, with one more if it completes a pair."""
        n, m = count1(p), count2(p)
        least, most = max(0, wanted - m), min(wanted, n)
        while least < most:  # as in a merge
            half = (least + most) // 2
            if before(p, read2(p, wanted - half - 1), read1(p, half)):
                most = half
            else:
                least = half + 1
        i, j = least, wanted - least
        if i == 0 or j == m or before(p, read1(p, i - 1), read2(p, j)):
            return i, j
        # The run of this key is cut. In a merge its keys of the first range come first; here they take turns.
        key = read2(p, j)
        start1, start2 = from1(p, 0, i, key), from2(p, 0, j, key)
        run = i - start1 + j - start2
        if j - start2 > i - start1:
            return i, j
        there = behind2(p, j, min(m, start2 + run // 2 + 1), key) - start2
        second = min(run // 2, there)
        first = run - second
        return start1 + first, start2 + second + (1 if first == second + 1 and second < there else 0)

    return outlined(cut)


def sets(kit: Kit) -> Phases:
    """Find a set of two sorted ranges, each part of which goes through its own keys as through a merge.

    Ranges that are not sorted, or by an operator that is no order, have an unspecified result: but that
    ends, and fits where that of sorted ones does.
    """
    read1, before = kit.read("d_in_keys1"), kit.predicate("op")
    read2 = kit.read("d_in_keys2", "d_in_keys1")
    (_, store_count), (_, store), cut = kit.column(0), kit.column(1), _cutter(kit)
    has_pairs, has_first, has_second = {
        "set_union": (True, True, True),
        "set_intersection": (True, False, False),
        "set_difference": (False, True, False),
        "set_symmetric_difference": (False, True, True),
    }[kit.spec.algorithm]
    count1, count2 = map(integer, kit.numbers)
    capacity = {
        "set_intersection": inlined(lambda p: min(count1(p), count2(p))),
        "set_difference": count1,
    }.get(kit.spec.algorithm, inlined(lambda p: count1(p) + count2(p)))
    read_item1 = read_item2 = inlined(lambda p, i: 0)
    store_item = inlined(lambda p, i, item: None)
    if "d_in_items1" in kit.arguments:
        read_item1, (_, store_item) = kit.read("d_in_items1"), kit.column(2)
        read_item2 = kit.read("d_in_items2", "d_in_items1") if has_second else read_item2

    def stage(p: Any) -> None:
        first = place = begin(p) + number(p)
        (i, j), (n, m) = cut(p, begin(p)), cut(p, end(p))
        n = min(max(n, i), i + end(p) - begin(p) + 1)  # which changes nothing if keys are sorted
        m = min(max(m, j), j + end(p) - begin(p) + 1 - (n - i))
        while i < n or j < m:
            is_first = j == m or (i < n and not before(p, read2(p, j), read1(p, i)))
            is_second = not is_first or (j < m and not before(p, read1(p, i), read2(p, j)))
            if is_first and (has_pairs if is_second else has_first):
                store(p, place, read1(p, i))
                store_item(p, place, read_item1(p, i))
                place += 1
            elif has_second and not is_first:
                store(p, place, read2(p, j))
                store_item(p, place, read_item2(p, j))
                place += 1
            i += 1 if is_first else 0
            j += 1 if is_second else 0
        store_count(p, _WORDS * number(p), place - first)

    outs = [each for each in ("d_out_keys", "d_out_items") if each in kit.arguments]
    return _compacted(kit, stage, "d_out_num_selected", outs, capacity=capacity)
