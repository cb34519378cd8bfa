"""Algorithms on runs of equal keys, on the CPU."""

from __future__ import annotations

from typing import Any

from .algorithms import Kit, Run, begin, end
from .values import inlined, load_int, pointer


def reduce_by_key(kit: Kit) -> Run:
    open_keys, read_key, _ = kit.argument("d_in_keys")
    open_unique, _, write_key = kit.argument("d_out_unique")
    open_values, read, _ = kit.argument("d_in_values")
    open_out, _, write = kit.argument("d_out_aggregates")
    open_count, _, write_count = kit.argument("d_out_num_runs")
    state, op = kit.operator("op")
    equal_state, equal = kit.operator("equality_op")
    cast = kit.accumulator.cast
    begun = _begun(kit, op)

    def run(p: Any) -> None:
        keys, unique, values, out, own = open_keys(p), open_unique(p), open_values(p), open_out(p), state(p)
        own_equal, count = equal_state(p), 0
        if begin(p) < end(p):
            before = read_key(keys, begin(p))
            total = begun(p, own, cast(read(values, begin(p))))
            for i in range(begin(p) + 1, end(p)):
                key, value = read_key(keys, i), cast(read(values, i))
                if equal(own_equal, before, key):
                    total = op(own, total, value)
                else:
                    write_key(unique, count, before)
                    write(out, count, total)
                    count += 1
                    total = begun(p, own, value)
                before = key
            write_key(unique, count, before)
            write(out, count, total)
            count += 1
        write_count(open_count(p), 0, count)

    return run


def _begun(kit: Kit, op: Any) -> Any:
    """Return what begins a run with its first value."""
    if kit.spec.option("init") is None:
        return inlined(lambda p, own, value: value)
    initial = kit.initial()
    return inlined(lambda p, own, value: op(own, initial(p), value))


def scan_by_key(kit: Kit) -> Run:
    open_keys, read_key, _ = kit.argument("d_in_keys")
    open_values, read, _ = kit.argument("d_in_values")
    open_out, _, write = kit.argument("d_out_values")
    state, op = kit.operator("op")
    equal_state, equal = kit.operator("equality_op")
    cast = kit.accumulator.cast
    if kit.spec.algorithm == "inclusive_scan_by_key":
        begun = _begun(kit, op)

        def inclusive(p: Any) -> None:
            keys, values, out, own, own_equal = (
                open_keys(p),
                open_values(p),
                open_out(p),
                state(p),
                equal_state(p),
            )
            before = read_key(keys, begin(p))
            total = begun(p, own, cast(read(values, begin(p))))
            write(out, begin(p), total)
            for i in range(begin(p) + 1, end(p)):
                key, value = read_key(keys, i), cast(read(values, i))
                total = op(own, total, value) if equal(own_equal, before, key) else begun(p, own, value)
                write(out, i, total)
                before = key

        return inclusive
    initial = kit.initial()

    def exclusive(p: Any) -> None:
        keys, values, out, own, own_equal = (
            open_keys(p),
            open_values(p),
            open_out(p),
            state(p),
            equal_state(p),
        )
        before, total = read_key(keys, begin(p)), initial(p)
        for i in range(begin(p), end(p)):
            key, value = read_key(keys, i), cast(read(values, i))
            if i > begin(p) and not equal(own_equal, before, key):
                total = initial(p)
            write(out, i, total)
            total = op(own, total, value)
            before = key

    return exclusive


def run_length_encode(kit: Kit) -> Run:
    open_in, read, _ = kit.argument("d_in")
    open_unique, _, write = kit.argument("d_out_unique")
    open_counts, _, write_length = kit.argument("d_out_counts")
    open_count, _, write_count = kit.argument("d_out_num_runs")
    state, equal = kit.operator("equality_op")

    def run(p: Any) -> None:
        items, unique, lengths, own, count = open_in(p), open_unique(p), open_counts(p), state(p), 0
        if begin(p) < end(p):
            before, first = read(items, begin(p)), begin(p)
            for i in range(begin(p) + 1, end(p)):
                item = read(items, i)
                if not equal(own, before, item):
                    write(unique, count, before)
                    write_length(lengths, count, i - first)
                    count += 1
                    first = i
                before = item
            write(unique, count, before)
            write_length(lengths, count, end(p) - first)
            count += 1
        write_count(open_count(p), 0, count)

    return run


def gather(kit: Kit) -> Run:
    """Write the values at the places that NumPy found, for values that are no array."""
    open_in, read, _ = kit.argument("d_in_values")
    open_out, _, write = kit.argument("d_out_values")
    places, targets = kit.number(0), kit.number(1)

    def run(p: Any) -> None:
        values, out, from_place, to_place = open_in(p), open_out(p), pointer(places(p)), pointer(targets(p))
        for i in range(begin(p), end(p)):
            write(out, load_int(to_place, 8 * i), read(values, load_int(from_place, 8 * i)))

    return run
