"""Scans and reductions along columns on the CPU: row by row, as they lie in memory.

A part has some columns, and keeps each one's running result in the temporary storage.
"""

from __future__ import annotations

from typing import Any

from .kit import Kit, Phases, begin, end
from .values import inlined, integer


def _walk(kit: Kit, first: Any, later: Any) -> Any:
    """Return ``walk(p)``, which does something with each item of a part's columns, row after row.

    ``first(p, c, i)`` is done for column c whose first item is number i, and ``later(p, c, i)`` for others.
    """
    length, inner = map(integer, kit.numbers)
    first, later = inlined(first), inlined(later)

    def walk(p: Any) -> None:
        low = begin(p) if length(p) > 0 else end(p)
        while low < end(p):
            plane = low // inner(p)
            count = min(end(p), (plane + 1) * inner(p)) - low
            i = low + plane * (length(p) - 1) * inner(p)
            for j in range(count):
                first(p, low + j, i + j)
            for _ in range(1, length(p)):
                i += inner(p)
                for j in range(count):
                    later(p, low + j, i + j)
            low += count

    return inlined(walk)


def scan(kit: Kit) -> Phases:
    read, write, op, (load, store) = kit.items("d_in"), kit.write("d_out"), kit.operator("op"), kit.column(0)
    is_exclusive, begun = kit.spec.algorithm.startswith("exclusive"), kit.begun(op)

    def first(p: Any, c: Any, i: Any) -> None:
        before, total = begun(p, read(p, i))
        store(p, c, total)
        write(p, i, before if is_exclusive else total)

    def later(p: Any, c: Any, i: Any) -> None:
        before = load(p, c)
        total = op(p, before, read(p, i))
        store(p, c, total)
        write(p, i, before if is_exclusive else total)

    walk = _walk(kit, first, later)
    return (walk,)


def reduce(kit: Kit) -> Phases:
    read, write, op, (load, store) = kit.items("d_in"), kit.write("d_out"), kit.operator("op"), kit.column(0)
    begun, length, has_init = kit.begun(op), integer(kit.numbers[0]), kit.has_init
    initial: Any = kit.initial() if has_init else None

    def first(p: Any, c: Any, i: Any) -> None:
        store(p, c, begun(p, read(p, i))[1])

    def later(p: Any, c: Any, i: Any) -> None:
        store(p, c, op(p, load(p, c), read(p, i)))

    walk = _walk(kit, first, later)

    def part(p: Any) -> None:
        walk(p)
        if length(p) > 0:
            for c in range(begin(p), end(p)):
                write(p, c, load(p, c))
        elif has_init:
            for c in range(begin(p), end(p)):
                write(p, c, initial(p))

    return (part,)
