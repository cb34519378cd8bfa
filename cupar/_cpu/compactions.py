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
from .values import inlined

_WORDS = 4  # of a part: numbers of items kept for each output, and last whether it continues a run
_GOES_ON = 3


def _compacted(kit: Kit, stage: Any, total: str, outs: Sequence[str], first: int = 0) -> Phases:
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
                total += count(p, word)
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
    stage = _selected(kit, "d_in", "", inlined(lambda p, i, before, key: holds(p, key)))
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
