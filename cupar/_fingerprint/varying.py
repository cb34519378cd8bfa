"""Numbers that vary: read at each call of a program, while all else that an operator reads is guarded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .._base.data import replace
from .guards import ANYTHING, FunctionGuard, Guard
from .numbers import Number, NumberType, is_power_of_two, packed, type_of

if TYPE_CHECKING:
    from .bytecode import Chain
    from .fingerprint import Fingerprint


class Place(NamedTuple):
    """Where a number is read."""

    function: int  # the id of the user's function, as long as that lives
    kind: str
    read: Chain


class Argument(NamedTuple):
    """A number that is an argument of an operator's code."""

    place: Place
    type: NumberType
    is_divisor: bool


def place_of(operator: Any, found: Fingerprint, number: Number) -> Place:
    """Return where a number of an operator is read."""
    return Place(id(_reader(operator, found.guard, number)), number.kind, number.read)


def _reader(operator: Any, guard: Guard, number: Number) -> FunctionType:
    return operator if number.place < 0 else guard.called[number.place][0]


def reader(
    operator: Any, found: Fingerprint, given: Collection[tuple[Number, Argument]], varying: Collection[Place]
) -> Callable[[Any], list[bytes] | None]:
    """Return the function that reads the bytes of numbers of operators of the same code.

    It returns None of an operator that does not read the same otherwise, or whose numbers have other types.

    Parameters
    ----------
    operator : callable
    found : Fingerprint
        Its fingerprint.
    given : collection of (Number, Argument)
        The numbers to read.
    varying : collection of Place
        Those whose values do not matter.
    """
    guard = _unguarded(operator, found, varying)
    reads = [_read(operator, guard, number) for number, _ in given]
    types = [argument for _, argument in given]
    check = guard.check
    recent: tuple[Any, list[bytes]] = reads, []  # what was read by the call before, and its bytes

    def packed_anew(values: Any) -> list[bytes] | None:
        nonlocal recent
        data = []
        for value, (_, expected, is_divisor) in zip(values if several else [values], types, strict=True):
            if type_of(value) != expected or (is_divisor and is_power_of_two(value)):
                return None
            data.append(packed(value, expected))
        recent = values, data
        return data

    def read_several(other: Any) -> list[bytes] | None:
        if not check(other):
            return None
        try:
            values = [get(other) for get in reads]
            before, data = recent
            is_known = False not in [value is known for value, known in zip(values, before)]  # noqa: B905
            return data if is_known else packed_anew(values)
        except _GONE:
            return None

    def read_one(other: Any) -> list[bytes] | None:
        if not check(other):
            return None
        try:
            value = get(other)
            before, data = recent
            return data if value is before else packed_anew(value)
        except _GONE:
            return None

    several, get = len(reads) > 1, reads[0]
    return read_several if several else read_one


_GONE: Final = (KeyError, ValueError, AttributeError, TypeError)  # or it is no number any more


def _read(operator: Any, guard: Guard, number: Number) -> Callable[[Any], Any]:
    """Return the function that reads a number of an operator."""
    name, *attributes = number.read
    own: Any = None if number.place < 0 else guard.called[number.place][0]
    function = _reader(operator, guard, number)
    if attributes:
        home, attribute = _home(function, number), attributes[-1]
        return lambda other: getattr(home, attribute)
    if number.kind == "default":
        i = _index_of_default(function, name)
        return lambda other: (own or other).__defaults__[i]
    if number.kind == "closure variable":
        i = function.__code__.co_freevars.index(name)
        return lambda other: (own or other).__closure__[i].cell_contents
    namespace = function.__globals__  # which the guard compares
    return lambda other: namespace[name]


def _home(function: FunctionType, number: Number) -> Any:
    """Return the module of which a number is an attribute; the guard compares all on the way to it."""
    name, *attributes = number.read
    if number.kind == "closure variable":
        found: Any = (function.__closure__ or ())[function.__code__.co_freevars.index(name)].cell_contents
    else:
        found = function.__globals__[name]
    for each in attributes[:-1]:
        found = getattr(found, each)
    return found


def _index_of_default(function: FunctionType, name: str) -> int:
    code = function.__code__
    index = code.co_varnames.index(name) - code.co_argcount
    return index + len(function.__defaults__ or ())


def _unguarded(operator: Any, found: Fingerprint, varying: Collection[Place]) -> Guard:
    """Return an operator's guard that does not look at numbers whose values do not matter."""
    guard = found.guard
    attributes = Counter[tuple[int, str]]()  # of modules: their numbers that vary
    for number in found.numbers:
        if place_of(operator, found, number) not in varying:
            continue
        if len(number.read) > 1:
            attributes[id(_home(_reader(operator, guard, number), number)), number.read[-1]] += 1
        elif number.place < 0:
            guard = replace(guard, function=_without_value(operator, guard.function, number))
        else:
            called = [*guard.called]
            function, own = called[number.place]
            called[number.place] = function, _without_value(function, own, number)
            guard = replace(guard, called=tuple(called))
    # Others may read the same attribute as a constant.
    read = Counter([(id(owner), name) for owner, name, _ in guard.attributes])
    kept = [
        (owner, name, ANYTHING if attributes[id(owner), name] == read[id(owner), name] else before)
        for owner, name, before in guard.attributes
    ]
    return replace(guard, attributes=tuple(kept))


def _without_value(function: FunctionType, guard: Any, number: Number) -> FunctionGuard:
    (name,) = number.read
    if number.kind == "global":
        names = [(each, ANYTHING if each == name else before) for each, before in guard.names]
        return replace(guard, names=tuple(names))  # type: ignore[no-any-return]
    kind = "defaults" if number.kind == "default" else "cells"
    values = [*getattr(guard, kind)]
    if number.kind == "default":
        values[_index_of_default(function, name)] = ANYTHING
    else:
        values[function.__code__.co_freevars.index(name)] = ANYTHING
    return replace(guard, **{kind: tuple(values)})  # type: ignore[no-any-return]
