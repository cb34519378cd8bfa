"""Addresses that are known in a call alone: symbols, and bytes in which they stand."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, Final

ALIGNMENT: Final = 64  # of all buffers of XLA's, at least; a GPU's have 256


class Address:
    """A buffer's address and an offset: an integer of which only sums and alignment are known.

    Whatever else is done with it raises TypeError.
    """

    __slots__ = ("buffer", "offset")

    def __init__(self, buffer: int, offset: int = 0) -> None:
        self.buffer, self.offset = buffer, offset

    def __add__(self, offset: int) -> Address:
        return Address(self.buffer, self.offset + offset)

    __radd__ = __add__

    def __sub__(self, offset: int) -> Address:
        return Address(self.buffer, self.offset - offset)

    def __eq__(self, other: object) -> bool:
        raise TypeError("whether two addresses of a program of JAX's are equal is known in a call alone")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("whether an address of a program of JAX's is 0 is known in a call alone")

    def __mod__(self, unit: int) -> int:
        if ALIGNMENT % unit:
            raise TypeError(f"a buffer is aligned to {ALIGNMENT} bytes, and perhaps not to {unit}")
        return self.offset % unit


class Block:
    """Bytes, and the places in them to which the addresses of buffers are added."""

    __slots__ = ("data", "places")

    def __init__(self, data: bytes, places: Sequence[tuple[int, int]]) -> None:
        self.data, self.places = data, places


def packed(form: str, *values: Any) -> Block:
    """Pack values as `struct.pack` does, addresses and blocks among them; `form` begins with ``=``."""
    plain, places = list[Any](), list[tuple[int, int]]()
    for at, value in zip(_offsets(form), values, strict=True):
        if isinstance(value, Address):
            places.append((at, value.buffer))
            value = value.offset % 2**64
        elif isinstance(value, Block):
            places += [(at + place, buffer) for place, buffer in value.places]
            value = value.data
        plain.append(value)
    return Block(struct.pack(form, *plain), places)


@lru_cache(512)
def _offsets(form: str) -> tuple[int, ...]:
    """Return where each value of a format is."""
    found, at = list[int](), 0
    for count, code in re.findall(r"(\d*)([a-zA-Z?])", form):
        number, size = int(count or 1), struct.calcsize(f"={code}")
        if code != "x":
            found += [at] if code == "s" else range(at, at + number * size, size)
        at += number * size
    return tuple(found)


def symbolic(value: Any) -> Any:
    """Return the `packed` of a method `Struct.pack`, and any other value unchanged."""
    form = getattr(value, "__self__", None)
    return partial(packed, form.format) if isinstance(form, struct.Struct) else value
