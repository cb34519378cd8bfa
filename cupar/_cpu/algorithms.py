"""Algorithms on the CPU: short functions, which numba compiles with operators and iterators.

Reductions and scans are done in parts, whose number depends on the problem alone: a part is
reduced separately, the partial results are combined in order, and in scans each part continues from its
prefix. So the grouping of floats does not depend on the number of cores.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._base.generated import define
from .kit import WORD, Kit, Phases, begin, end, mapped, number
from .values import cast_to, constant, inlined, integer, memory, outlined

_LANE = 16  # items that are combined one after another, while others are in seven lanes beside
_LEVELS = 8  # of pairs of leaves
_FEW = 16  # fewer items are combined one by one
_TESTED = 1024  # items of a search, after which it first looks whether another thread has found one


def transform(kit: Kit) -> Phases:
    *inputs, _ = kit.spec.arguments
    write, op, read = kit.write("d_out"), kit.operator("op"), kit.read(inputs[0].name)
    if len(inputs) == 1:
        return mapped(lambda p, i: write(p, i, op(p, read(p, i))))
    other = kit.read(inputs[1].name)
    return mapped(lambda p, i: write(p, i, op(p, read(p, i), other(p, i))))


_FOLD = """
def fold(p, i, end):
    if regroups(p) != 0:
        value = read(p, i)
        for j in range(i + 1, end):
            value = regrouped(p, value, read(p, j))
        return value
    if end - i < few:
        value = read(p, i)
        for j in range(i + 1, end):
            value = op(p, value, read(p, j))
        return value
    {unset}
    leaves = 0
    while True:
        value, i = leaf(p, i, end)
        if i == end:
            break
        {push}
        leaves += 1
    if leaves > 0:
        {pop}
    return value
"""


def _fold(kit: Kit, read: Any, op: Any, in_order: bool = False) -> Any:
    """Return ``fold(p, i, end)``, which combines one item or more: leaves, pairs of these, pairs of pairs, ….

    A sum of floats is rounded as little as in NumPy, whose leaves are the same: N. J. Higham, "The accuracy
    of floating point summation", SIAM J. Sci. Comput. 14, 1993. As in a binary counter, ``total3`` is that of
    eight leaves, if bit 3 of the number of leaves is set.
    """
    push, pop, indent = [], [], ""
    for level in range(_LEVELS):
        push += [f"{indent}if leaves & {1 << level} == 0:", f"{indent}    total{level} = value"]
        push += [f"{indent}else:", f"{indent}    value = join(p, total{level}, value)"]
        pop += [f"if leaves & {1 << level} != 0:", f"    value = join(p, total{level}, value)"]
        indent += "    "
    push += [f"{indent}top = join(p, top, value) if leaves >= {1 << _LEVELS} else value"]
    pop += [f"if leaves >= {1 << _LEVELS}:", "    value = join(p, top, value)"]
    leaf = _leaf if kit.accumulator.names is None else _leaf_of_structs
    names = {
        "few": _FEW,
        "regroups": kit.regroups("op")[0],
        "regrouped": kit.regroups("op")[1],
        "read": read,
        "op": op,
        "leaf": inlined(leaf(read, op, in_order)),
        "join": outlined(lambda p, a, b: op(p, a, b)),  # noqa: PLW0108 - not inlined, as operators are
    }
    unset = [" = ".join(["top", *(f"total{level}" for level in range(_LEVELS)), "read(p, i)"])]
    return inlined(define("a fold", "fold", _FOLD, names, unset=unset, push=push, pop=pop))


def _leaf(read: Any, op: Any, in_order: bool) -> Any:
    """Return ``leaf(p, i, end)``, which combines the items of a leaf, eight or more, and the place behind it.

    They are combined in eight lanes, which the CPU does at once. Lanes of neighbours are quicker; lanes of
    one stretch each keep the order.
    """

    def lanes(p: Any, i: Any, length: Any) -> Any:
        step, apart = (1, length) if in_order else (8, 1)
        a, b = read(p, i), read(p, i + apart)
        c, d = read(p, i + 2 * apart), read(p, i + 3 * apart)
        e, f = read(p, i + 4 * apart), read(p, i + 5 * apart)
        g, h = read(p, i + 6 * apart), read(p, i + 7 * apart)
        for _ in range(1, length):
            i += step
            a, b = op(p, a, read(p, i)), op(p, b, read(p, i + apart))
            c, d = op(p, c, read(p, i + 2 * apart)), op(p, d, read(p, i + 3 * apart))
            e, f = op(p, e, read(p, i + 4 * apart)), op(p, f, read(p, i + 5 * apart))
            g, h = op(p, g, read(p, i + 6 * apart)), op(p, h, read(p, i + 7 * apart))
        a, b = op(p, op(p, a, b), op(p, c, d)), op(p, op(p, e, f), op(p, g, h))
        return op(p, a, b)

    lanes = inlined(lanes)

    def leaf(p: Any, i: Any, end: Any) -> Any:
        length = min((end - i) // 8, _LANE)
        value = lanes(p, i, length)
        i += 8 * length
        if end - i < 8:
            for j in range(i, end):
                value = op(p, value, read(p, j))
            i = end
        return value, i

    return leaf


def _leaf_of_structs(read: Any, op: Any, in_order: bool) -> Any:
    """Do the same for structs, which are combined one by one."""

    def leaf(p: Any, i: Any, end: Any) -> Any:
        value, stop = read(p, i), min(i + _LANE, end)
        for j in range(i + 1, stop):
            value = op(p, value, read(p, j))
        return value, stop

    return leaf


def reduce(kit: Kit) -> Phases:
    write, op, has_init = kit.write("d_out"), kit.operator("op"), kit.has_init
    in_order = kit.spec.option("commutative") is not None
    fold, (load, store) = _fold(kit, kit.items("d_in"), op, in_order), kit.column(0)
    begun = kit.begun(op)
    initial: Any = kit.initial() if has_init else None

    def whole(p: Any) -> None:
        left = end(p)
        while left > 1:  # pairs of parts, and pairs of these
            for i in range(left // 2):
                store(p, i, op(p, load(p, 2 * i), load(p, 2 * i + 1)))
            if left % 2 != 0:
                store(p, left // 2, load(p, left - 1))
            left = (left + 1) // 2
        if left > 0:
            write(p, 0, begun(p, load(p, 0))[1])
        elif has_init:
            write(p, 0, initial(p))

    return lambda p: store(p, number(p), fold(p, begin(p), end(p))), whole


def segmented_reduce(kit: Kit) -> Phases:
    write, op, initial, bounds = kit.write("d_out"), kit.operator("op"), kit.initial(), kit.bounds()
    fold = _fold(kit, kit.items("d_in"), op, kit.spec.option("commutative") is not None)

    def each(p: Any, i: Any) -> None:
        low, high = bounds(p, i)
        total = initial(p)
        if low < high:
            total = op(p, total, fold(p, low, high))
        write(p, i, total)

    return kit.segments(each)


def scan(kit: Kit) -> Phases:
    values, out = ("d_in", "d_out") if "d_in" in kit.arguments else ("d_in_values", "d_out_values")
    read, op, (load, store), (is_begun, store_begun) = (
        kit.items(values),
        kit.operator("op"),
        kit.column(0),
        kit.column(1),
    )
    begun, (read_key, differs) = kit.begun(op), _keys(kit)
    fold = _fold(kit, read, op, in_order=True)
    walk = _walk(kit, read, kit.write(out), op, begun, read_key, differs)

    def part(p: Any) -> None:
        first = end(p) - 1  # where the part's last run of keys begins
        while first > begin(p) and not differs(p, read_key(p, first - 1), read_key(p, first)):
            first -= 1
        total = fold(p, first, end(p))
        is_first = first == 0 or differs(p, read_key(p, first - 1), read_key(p, first))
        if is_first:
            _, total = begun(p, total)
        store(p, number(p), total)
        store_begun(p, number(p), is_first)

    def carry(p: Any) -> None:
        total = load(p, 0)
        for i in range(1, end(p)):
            own = load(p, i)
            store(p, i, total)
            total = own if is_begun(p, i) != 0 else op(p, total, own)

    def go_on(p: Any) -> None:
        walk(p, begin(p), end(p), begin(p) == 0, 0, load(p, number(p)))

    return part, carry, go_on


def _keys(kit: Kit) -> tuple[Any, Any]:
    """Return ``read(p, index)`` and ``differs(p, a, b)`` of keys; without keys all are one run."""
    if "d_in_keys" not in kit.arguments:
        return inlined(lambda p, i: 0), inlined(lambda p, a, b: False)
    equal = kit.predicate("equality_op")
    return kit.read("d_in_keys"), inlined(lambda p, a, b: not equal(p, a, b))


def _walk(kit: Kit, read: Any, write: Any, op: Any, begun: Any, read_key: Any, differs: Any) -> Any:
    """Return ``walk(p, low, high, is_first, shift, total)``, which scans a range.

    If it is not the first item of the scan, `total` is that of all before.
    """
    is_exclusive, has_init = kit.spec.algorithm.startswith("exclusive"), kit.has_init
    initial: Any = kit.initial() if has_init else None

    def walk(p: Any, low: Any, high: Any, is_first: Any, shift: Any, total: Any) -> None:
        if is_first:
            if has_init:
                total = initial(p)
            else:
                total = read(p, low)
                write(p, low + shift, total)
                low += 1
        last = read_key(p, max(low - 1, 0))
        for i in range(low, high):
            key, value = read_key(p, i), read(p, i)
            if differs(p, last, key):
                before, total = begun(p, value)
            else:
                before, total = total, op(p, total, value)
            write(p, i + shift, before if is_exclusive else total)
            last = key

    return inlined(walk)


def segmented_scan(kit: Kit) -> Phases:
    read, op, bounds, (nothing, _) = kit.items("d_in"), kit.operator("op"), kit.bounds(), kit.column(0)
    walk = _walk(kit, read, kit.write("d_out"), op, kit.begun(op), *_keys(kit))
    start = inlined(lambda p, i, low: low)
    if "start_offsets_out" in kit.arguments:
        of_segment = kit.offset("start_offsets_out")
        start = inlined(lambda p, i, low: of_segment(p, i))

    def each(p: Any, i: Any) -> None:
        low, high = bounds(p, i)
        if low < high:
            walk(p, low, high, True, start(p, i, low) - low, nothing(p, 0))

    return kit.segments(each)


def segmented_copy(kit: Kit) -> Phases:
    read, write, bounds = kit.read("d_in"), kit.write("d_out"), kit.bounds()
    is_packed, is_told = ("start_offsets_out" not in kit.arguments, "d_out_num_items" in kit.arguments)
    start = inlined(lambda p, i: 0) if is_packed else kit.offset("start_offsets_out")
    if not is_packed and not is_told:

        def each(p: Any, i: Any) -> None:
            low, high = bounds(p, i)
            to = start(p, i) - low
            for k in range(low, high):
                write(p, k + to, read(p, k))

        return kit.segments(each)
    (load, store), tell = kit.column(0), kit.write("d_out_num_items") if is_told else inlined(_tell_nobody)
    most, _, capacity = map(integer, kit.numbers)

    def part(p: Any) -> None:
        total = 0
        for i in range(begin(p), end(p)):
            low, high = bounds(p, i)
            total += high - low
        store(p, number(p), total)

    def carry(p: Any) -> None:
        total = 0
        for i in range(end(p)):
            own = load(p, i)
            store(p, i, total)
            total += own
        tell(p, 0, total)

    def go_on(p: Any) -> None:
        behind, left = load(p, number(p)), min(most(p), capacity(p))
        for i in range(begin(p), end(p)):
            low, high = bounds(p, i)
            to = (behind if is_packed else start(p, i)) - low
            behind += high - low
            if is_packed:
                high = min(high, left - to)
            for k in range(low, high):
                write(p, k + to, read(p, k))

    return kit.listed(part, carry, go_on)


def _tell_nobody(p: Any, i: Any, value: Any) -> None:
    pass


def search(kit: Kit) -> Phases:
    read, read_value, write = kit.read("d_data"), kit.read("d_values"), kit.write("d_out")
    before, length = kit.predicate("comp"), integer(kit.numbers[0])
    is_right = before
    if kit.spec.algorithm == "upper_bound":
        is_right = inlined(lambda p, item, value: not before(p, value, item))

    def each(p: Any, i: Any) -> None:
        value, low, left = read_value(p, i), 0, length(p)
        while left > 0:
            half = left // 2
            if is_right(p, read(p, low + half), value):
                low += half + 1
                left -= half + 1
            else:
                left = half
        write(p, i, low)

    return mapped(each)


def histogram(kit: Kit) -> Phases:
    dtype = np.dtype(kit.spec.option("levels"))
    bins, cast = integer(kit.numbers[0]), cast_to(dtype)
    low, high, unit, scale = (constant(dtype, place) for place in kit.numbers[1:])

    def of_floats(p: Any, x: Any) -> Any:
        return min(np.int64((x - low(p)) * unit(p) * scale(p)), bins(p))

    def of_integers(p: Any, x: Any) -> Any:
        width = np.uint64(high(p)) - np.uint64(low(p))
        return np.int64((np.uint64(x) - np.uint64(low(p))) * np.uint64(bins(p)) // width)

    place_of = inlined(of_floats if dtype.kind == "f" else of_integers)

    def bin_of(p: Any, sample: Any) -> Any:
        x = cast(sample)
        return place_of(p, x) if x >= low(p) and x < high(p) else bins(p)

    return _counted(kit, bin_of)


def histogram_range(kit: Kit) -> Phases:
    (read_level, _), bins = kit.exact("d_levels"), integer(kit.numbers[0])
    cast = cast_to(kit.arguments["d_levels"].value)

    def bin_of(p: Any, sample: Any) -> Any:
        x, low, left = cast(sample), 0, bins(p) + 1
        first = np.float64(read_level(p, 0))  # of bins of about one width, this is the right one
        width = np.float64(read_level(p, bins(p))) - first
        guess = np.int64((np.float64(x) - first) / width * np.float64(bins(p)))
        guess = max(0, min(guess, bins(p) - 1))
        if read_level(p, guess) <= x < read_level(p, guess + 1):
            return guess
        while left > 0:
            half = left // 2
            if read_level(p, low + half) <= x:
                low += half + 1
                left -= half + 1
            else:
                left = half
        return low - 1 if low > 0 else bins(p)

    return _counted(kit, bin_of)


def _counted(kit: Kit, bin_of: Any) -> Phases:
    """Return the phases that count samples, given ``bin_of(p, sample)``: the number of bins if in none."""
    (read, _), write, (load, store) = kit.exact("d_samples"), kit.write("d_histogram"), kit.column(0)
    bins, place_of = integer(kit.numbers[0]), inlined(bin_of)

    def part(p: Any) -> None:
        n, first = bins(p), number(p) * bins(p)
        for i in range(n):
            store(p, first + i, 0)
        for i in range(begin(p), end(p)):
            place = place_of(p, read(p, i))
            if place < n:
                store(p, first + place, load(p, first + place) + 1)

    def whole(p: Any) -> None:
        for i in range(bins(p)):
            total = 0
            for part in range(end(p)):
                total += load(p, part * bins(p) + i)
            write(p, i, total)

    return part, whole


def reduce_by_index(kit: Kit) -> Phases:
    read, index_of, write = kit.items("d_in"), kit.offset("d_indices"), kit.write("d_out")
    op, initial, bins = kit.operator("op"), kit.initial(), integer(kit.numbers[0])
    (load, store), (is_there, store_there) = kit.column(0), kit.column(1)

    def part(p: Any) -> None:
        n, first = bins(p), number(p) * bins(p)
        for i in range(n):
            store_there(p, first + i, 0)
        for i in range(begin(p), end(p)):
            index = index_of(p, i)  # below 0 also if it is beyond 2^63
            if index >= 0 and index < n:
                place = first + index
                if is_there(p, place) != 0:
                    store(p, place, op(p, load(p, place), read(p, i)))
                else:
                    store(p, place, read(p, i))
                    store_there(p, place, 1)

    def whole(p: Any) -> None:
        for i in range(bins(p)):
            total = initial(p)
            for part in range(end(p)):
                place = part * bins(p) + i
                if is_there(p, place) != 0:
                    total = op(p, total, load(p, place))
            write(p, i, total)

    return part, whole


def find(kit: Kit) -> Phases:
    """Find the first item that fits: a part stops at its own, or when one before it has found some."""
    read, cond, write, (load, store) = (
        kit.read("d_in"),
        kit.predicate("cond"),
        kit.write("d_out"),
        kit.column(0),
    )
    items, is_minus_one = integer(kit.numbers[0]), kit.spec.option("none") is not None

    def start(p: Any) -> None:
        for i in range(end(p)):
            store(p, i, -1)

    def part(p: Any) -> None:
        first, tested = begin(p), _TESTED
        while first < end(p):
            stop, fits = min(first + tested, end(p)), False
            for i in range(first, stop):  # without a branch, so that the CPU does several at once
                fits |= cond(p, read(p, i))
            if fits:  # with an end in sight, or LLVM makes strlen of a search for the first 0
                for i in range(first, stop):
                    if cond(p, read(p, i)):
                        store(p, number(p), i)
                        return
            store(p, number(p), -1)  # so that compiled code rereads the others' results in each iteration
            for i in range(number(p)):
                if load(p, i) >= 0:
                    return
            first, tested = stop, min(2 * tested, 16 * _TESTED)

    def whole(p: Any) -> None:
        found = -1 if is_minus_one else items(p)
        for i in range(end(p)):
            if load(p, i) >= 0:
                found = load(p, i)
                break
        write(p, 0, found)

    return start, part, whole


def gather(kit: Kit) -> Phases:
    """Write the values at the places that NumPy found, for values that are no array."""
    read, write = kit.read("d_in_values"), kit.write("d_out_values")
    (source, _), (target, _) = (memory(WORD, place) for place in kit.numbers)
    return mapped(lambda p, i: write(p, target(p, i), read(p, source(p, i))))
