"""What each algorithm does on the CPU: short functions, which numba compiles with operators and iterators.

A function gets the address of a call's parameters, words of 8 bytes: the phase, the range of items or
segments that it is for, the address of temporary storage, the values of the call as
`Specialisation.value_names` lists them (an array's address; the address of all else), and the numbers of the
plan (see `plans`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._ir.nodes import Argument
from .._ir.specialisation import Specialisation
from .iterators import Functions, functions_of
from .operators import function_of
from .plans import FIRST_VALUE
from .values import Value, address_of, inlined, load_int, moved, of_dtype

Run = Callable[[Any], None]

_BLOCK = 2048  # items that are combined in lanes before their result is added to others'


@inlined
def phase(p: Any) -> Any:
    return load_int(p, 0)


@inlined
def begin(p: Any) -> Any:
    return load_int(p, 8)


@inlined
def end(p: Any) -> Any:
    return load_int(p, 16)


@inlined
def storage(p: Any) -> Any:
    return address_of(p, 24)


class Kit:
    """The functions of a specialisation's arguments and operators, by name."""

    def __init__(self, spec: Specialisation) -> None:
        self.spec = spec
        names = spec.value_names(spec.kind._uses)
        self._places = {name: 8 * (FIRST_VALUE + i) for i, name in enumerate(names)}
        self._numbers = 8 * (FIRST_VALUE + len(names))
        self.arguments = {each.name: each for each in spec.arguments}

    def argument(self, name: str) -> Functions:
        """Return an argument's functions; `open` takes the parameters."""
        argument: Argument = self.arguments[name]
        functions = functions_of(argument.node)
        if name not in self._places:  # built in, and keeps nothing
            return functions
        at, opened = self._places[name], functions.open
        if argument.is_pointer:
            return functions._replace(open=inlined(lambda p: opened(moved(p, at))))
        return functions._replace(open=inlined(lambda p: opened(address_of(p, at))))

    def value(self, name: str) -> Value:
        """Return the functions of an argument's dtype."""
        return of_dtype(self.arguments[name].value)

    def operator(self, name: str) -> tuple[Any, Any]:
        """Return what gives an operator's state, and what calls it with that."""
        at = self._places.get(name)
        state = inlined(lambda p: p) if at is None else inlined(lambda p: address_of(p, at))
        return state, function_of(dict(self.spec.operators)[name])

    def initial(self) -> Any:
        """Return what loads the initial value."""
        at, load = self._places["init"], self.accumulator.load
        return inlined(lambda p: load(address_of(p, at), 0))

    @property
    def accumulator(self) -> Value:
        """The functions of the dtype in which items are accumulated."""
        return of_dtype(self.spec.operators[0][1].output)

    def number(self, place: int) -> Any:
        """Return what loads a number of the plan."""
        at = self._numbers + 8 * place
        return inlined(lambda p: load_int(p, at))


def transform(kit: Kit) -> Run:
    *inputs, _ = kit.spec.arguments
    open_out, _, write = kit.argument("d_out")
    state, op = kit.operator("op")
    open_1, read_1, _ = kit.argument(inputs[0].name)
    if len(inputs) == 1:

        def unary(p: Any) -> None:
            out, one, own = open_out(p), open_1(p), state(p)
            for i in range(begin(p), end(p)):
                write(out, i, op(own, read_1(one, i)))

        return unary
    open_2, read_2, _ = kit.argument(inputs[1].name)

    def binary(p: Any) -> None:
        out, one, two, own = open_out(p), open_1(p), open_2(p), state(p)
        for i in range(begin(p), end(p)):
            write(out, i, op(own, read_1(one, i), read_2(two, i)))

    return binary


def _fold(kit: Kit, read: Any, op: Any) -> Any:
    """Return ``fold(state, items, i, end)``, which combines one item or more.

    Numbers are combined in eight lanes, which the CPU does at once, and by blocks, which rounds less.
    """
    dtype, _, _, cast = kit.accumulator

    def plain(state: Any, items: Any, i: Any, end: Any) -> Any:
        total = cast(read(items, i))
        for j in range(i + 1, end):
            total = op(state, total, cast(read(items, j)))
        return total

    def by_blocks(state: Any, items: Any, i: Any, end: Any) -> Any:
        total = cast(read(items, i))
        i += 1
        while end - i >= _BLOCK:
            a, b, c, d = (
                cast(read(items, i)),
                cast(read(items, i + 1)),
                cast(read(items, i + 2)),
                cast(read(items, i + 3)),
            )
            e, f, g, h = (
                cast(read(items, i + 4)),
                cast(read(items, i + 5)),
                cast(read(items, i + 6)),
                cast(read(items, i + 7)),
            )
            for j in range(i + 8, i + _BLOCK, 8):
                a, b = op(state, a, cast(read(items, j))), op(state, b, cast(read(items, j + 1)))
                c, d = op(state, c, cast(read(items, j + 2))), op(state, d, cast(read(items, j + 3)))
                e, f = op(state, e, cast(read(items, j + 4))), op(state, f, cast(read(items, j + 5)))
                g, h = op(state, g, cast(read(items, j + 6))), op(state, h, cast(read(items, j + 7)))
            a, b, c, d = op(state, a, b), op(state, c, d), op(state, e, f), op(state, g, h)
            total = op(state, total, op(state, op(state, a, b), op(state, c, d)))
            i += _BLOCK
        for j in range(i, end):
            total = op(state, total, cast(read(items, j)))
        return total

    return inlined(by_blocks if dtype.names is None else plain)


def reduce(kit: Kit) -> Run:
    open_in, read, _ = kit.argument("d_in")
    open_out, _, write = kit.argument("d_out")
    state, op = kit.operator("op")
    dtype, load, store, _ = kit.accumulator
    fold, size = _fold(kit, read, op), dtype.itemsize
    has_init = kit.spec.option("init") is not None
    first = kit.initial() if has_init else inlined(lambda p: load(storage(p), 0))
    start = 0 if has_init else 1

    def run(p: Any) -> None:
        own, parts = state(p), storage(p)
        if phase(p) == 0:
            store(parts, 0, fold(own, open_in(p), begin(p), end(p)))
        else:
            total = first(p)
            for i in range(start, end(p)):
                total = op(own, total, load(parts, i * size))
            write(open_out(p), 0, total)

    return run


def scan(kit: Kit) -> Run:
    open_in, read, _ = kit.argument("d_in")
    open_out, _, write = kit.argument("d_out")
    state, op = kit.operator("op")
    cast = kit.accumulator.cast
    has_init = kit.spec.option("init") is not None
    initial: Any = kit.initial() if has_init else None
    if kit.spec.algorithm == "exclusive_scan":

        def exclusive(p: Any) -> None:
            items, out, own, total = open_in(p), open_out(p), state(p), initial(p)
            for i in range(begin(p), end(p)):
                item = cast(read(items, i))
                write(out, i, total)
                total = op(own, total, item)

        return exclusive

    def first(p: Any, own: Any, items: Any) -> Any:
        return op(own, initial(p), cast(read(items, begin(p))))

    begun = inlined(first if has_init else lambda p, own, items: cast(read(items, begin(p))))

    def inclusive(p: Any) -> None:
        items, out, own = open_in(p), open_out(p), state(p)
        total = begun(p, own, items)
        write(out, begin(p), total)
        for i in range(begin(p) + 1, end(p)):
            total = op(own, total, cast(read(items, i)))
            write(out, i, total)

    return inclusive


def bounds_of(kit: Kit, place: int = 0) -> tuple[Any, Any]:
    """Return ``opened(p)`` and ``bounds(opened, segment)``, of the segments of an algorithm."""
    if "start_offsets_in" not in kit.arguments:
        size = kit.number(place)
        return size, inlined(lambda size, i: (i * size, (i + 1) * size))
    open_start, start, _ = kit.argument("start_offsets_in")
    open_end, stop, _ = kit.argument("end_offsets_in")
    return (
        inlined(lambda p: (open_start(p), open_end(p))),
        inlined(lambda opened, i: (np.int64(start(opened[0], i)), np.int64(stop(opened[1], i)))),
    )


def segmented_reduce(kit: Kit) -> Run:
    open_in, read, _ = kit.argument("d_in")
    open_out, _, write = kit.argument("d_out")
    state, op = kit.operator("op")
    fold, initial, (open_bounds, bounds) = _fold(kit, read, op), kit.initial(), bounds_of(kit)

    def run(p: Any) -> None:
        items, out, own, segments, first = open_in(p), open_out(p), state(p), open_bounds(p), initial(p)
        for i in range(begin(p), end(p)):
            low, high = bounds(segments, i)
            total = first
            if low < high:
                total = op(own, first, fold(own, items, low, high))
            write(out, i, total)

    return run


def select(kit: Kit) -> Run:
    open_in, read, _ = kit.argument("d_in")
    open_out, _, write = kit.argument("d_out")
    open_count, _, write_count = kit.argument("d_num_selected_out")
    state, holds = kit.operator("cond")

    def run(p: Any) -> None:
        items, out, own, count = open_in(p), open_out(p), state(p), 0
        for i in range(begin(p), end(p)):
            item = read(items, i)
            if holds(own, item):
                write(out, count, item)
                count += 1
        write_count(open_count(p), 0, count)

    return run


def three_way_partition(kit: Kit) -> Run:
    open_in, read, _ = kit.argument("d_in")
    open_1, _, write_1 = kit.argument("d_first_part_out")
    open_2, _, write_2 = kit.argument("d_second_part_out")
    open_3, _, write_3 = kit.argument("d_unselected_out")
    open_count, _, write_count = kit.argument("d_num_selected_out")
    state_1, is_first = kit.operator("select_first_part_op")
    state_2, is_second = kit.operator("select_second_part_op")

    def run(p: Any) -> None:
        items, counts, one, two, rest = open_in(p), open_count(p), open_1(p), open_2(p), open_3(p)
        own_1, own_2, in_1, in_2, in_rest = state_1(p), state_2(p), 0, 0, 0
        for i in range(begin(p), end(p)):
            item = read(items, i)
            if is_first(own_1, item):
                write_1(one, in_1, item)
                in_1 += 1
            elif is_second(own_2, item):
                write_2(two, in_2, item)
                in_2 += 1
            else:
                write_3(rest, in_rest, item)
                in_rest += 1
        write_count(counts, 0, in_1)
        write_count(counts, 1, in_2)

    return run


def unique_by_key(kit: Kit) -> Run:
    open_in, read, _ = kit.argument("d_in_keys")
    open_out, _, write = kit.argument("d_out_keys")
    open_count, _, write_count = kit.argument("d_out_num_selected")
    state, equal = kit.operator("op")
    has_items = "d_in_items" in kit.arguments
    nothing = Functions(inlined(lambda p: 0), inlined(lambda items, i: 0), inlined(lambda out, i, item: None))
    open_items, read_item, _ = kit.argument("d_in_items") if has_items else nothing
    open_out_items, _, write_item = kit.argument("d_out_items") if has_items else nothing

    def run(p: Any) -> None:
        keys, items, out, out_items, own = open_in(p), open_items(p), open_out(p), open_out_items(p), state(p)
        count = 0
        if begin(p) < end(p):
            before = read(keys, begin(p))
            write(out, 0, before)
            write_item(out_items, 0, read_item(items, begin(p)))
            count = 1
            for i in range(begin(p) + 1, end(p)):
                key = read(keys, i)
                if not equal(own, before, key):
                    write(out, count, key)
                    write_item(out_items, count, read_item(items, i))
                    count += 1
                before = key
        write_count(open_count(p), 0, count)

    return run


def search(kit: Kit) -> Run:
    open_data, read, _ = kit.argument("d_data")
    open_values, read_value, _ = kit.argument("d_values")
    open_out, _, write = kit.argument("d_out")
    state, before = kit.operator("comp")
    length = kit.number(0)
    if kit.spec.algorithm == "lower_bound":
        is_right = before
    else:
        is_right = inlined(lambda own, item, value: not before(own, value, item))

    def run(p: Any) -> None:
        data, values, out, own = open_data(p), open_values(p), open_out(p), state(p)
        for i in range(begin(p), end(p)):
            value, low, left = read_value(values, i), 0, length(p)
            while left > 0:
                half = left // 2
                if is_right(own, read(data, low + half), value):
                    low += half + 1
                    left -= half + 1
                else:
                    left = half
            write(out, i, low)

    return run


def histogram(kit: Kit) -> Run:
    open_in, read, _ = kit.argument("d_samples")
    open_out, read_count, write = kit.argument("d_histogram")
    bins = kit.number(0)
    as_level = of_dtype(np.dtype(kit.spec.option("levels")))
    at = kit._numbers + 8
    level, cast = as_level.load, as_level.cast
    is_float = as_level.dtype.kind == "f"

    def of_floats(p: Any) -> None:
        samples, counts, n = open_in(p), open_out(p), bins(p)
        low, high, scale = level(p, at), level(p, at + 8), level(p, at + 16)
        for i in range(n):
            write(counts, i, 0)
        for i in range(begin(p), end(p)):
            x = np.float64(read(samples, i))
            if x >= low and x < high:
                place = min(np.int64((x - low) * scale), n)
                if place < n:
                    write(counts, place, read_count(counts, place) + 1)

    def of_integers(p: Any) -> None:
        samples, counts, n = open_in(p), open_out(p), bins(p)
        low, high = level(p, at), level(p, at + 8)
        width = np.uint64(high) - np.uint64(low)
        for i in range(n):
            write(counts, i, 0)
        for i in range(begin(p), end(p)):
            x = cast(read(samples, i))
            if x >= low and x < high:
                place = np.int64((np.uint64(x) - np.uint64(low)) * np.uint64(n) // width)
                write(counts, place, read_count(counts, place) + 1)

    return of_floats if is_float else of_integers
