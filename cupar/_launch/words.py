"""Launches as 8-byte words, which the native launcher reads (`_host.launches`).

Compiled host code has them in tables, each for one context, whose launches depend on words of a call; a
program of JAX's has those of its calls, in which all is known but addresses (`_jax.program`). This is the
table of an algorithm's build (of a kernel's: see `_host.kernel_types`)::

    functions of the driver, pool, context, `OWN`     head, the same in all: `PLACES`
    facts                                             as the plan takes them
    the address of each shape's words, 0 without it   in the order of the family's names
    words of the shapes                               see below

A shape is the number of its launches, the most bytes and the most parameters that one of them has, and a
record of each launch::

    `RECORD`                                          function, launch attribute, and how many of each follow
    a sum for each of 7 dimensions                    grid, block, shared memory
    the offset of each parameter
    each store                                        offset, bytes, whether by address, and a sum

A call has words, too, on the stack: 0, the address of the temporary storage, the stream, a status, the
values of the call (addresses, of arrays or of bytes), and the numbers of a shape. A sum is two indices of
these words, and a constant to add: so a record holds the sources of grids and parameters.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Mapping, Sequence
from ctypes import CFUNCTYPE, addressof, byref, c_char_p, c_int64, c_void_p
from typing import Any

import numpy as np

from .._base import trace
from .._base.data import dataclass
from .._device import driver, storage
from .._device.kernels import PROGRAMMATIC
from .._kernels.family import Launch
from .chain import Chain, Packing, dimensions, variable_of

FUNCTIONS = (
    "cuLaunchKernelEx",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
)
OWN = ("launch", "emit", "publish")  # functions that read and write words
PLACES = {name: place for place, name in enumerate((*FUNCTIONS, "pool", "context", *OWN))}
FIRST = len(PLACES)  # words of the head

# Words of a record.
RECORD = ("length", "number", "function", "attributes", "shown", "name", "parameters", "stores")
IN_RECORD = {name: place for place, name in enumerate(RECORD)}
DIMENSIONS = len(RECORD)  # where 7 sums begin: grid and block in x, y and z, and shared memory
STORE, SUM = 6, 3  # words of each

ZERO, ADDRESS, STREAM, STATUS, VALUES = range(5)  # indices in the words of a call


class Place(int):
    """An item of a launch that is in a word of the call: its index."""


def places_of(values: Iterable[str], numbers: Iterable[str]) -> dict[str, Place]:
    """Return the items that are in a call's words, by the names that a `Packing` has for them."""
    names = [*(f"v_{each}" for each in values), *map(variable_of, numbers)]
    return {name: Place(place) for place, name in [(ADDRESS, "address"), *enumerate(names, start=VALUES)]}


def head(own: Sequence[int]) -> list[int]:
    """Return the head of a table for the current context; `own` are the addresses of `OWN`."""
    context = c_void_p()
    driver.call("cuCtxGetCurrent", byref(context))
    functions = [address_of(getattr(driver.library(), name)) for name in FUNCTIONS]
    return [*functions, storage.memory().pool().value or 0, context.value or 0, *own]


def address_of(function: Any) -> int:
    """Return the address of a C function."""
    return ctypes.cast(function, c_void_p).value or 0


@dataclass(frozen=True)
class LaunchRecord:
    """One launch, as a `Chain` has it, and what native code needs beside that.

    Attributes
    ----------
    function : int
        The kernel's handle.
    items : dict
        Values and a plan's numbers by the names that a `Packing` has for them: a `Place`, or an integer where
        it is known. A symbol may stand for it, as for a handle, if it is added as integers are.
    attributes : int
        The address of a launch attribute, or 0.
    number : int
        Of the launch among all of the build, for errors.
    name : str
        For traces.
    is_users : bool
    """

    launch: Launch
    packing: Packing
    function: Any
    block: Any
    items: Mapping[str, Any]
    attributes: Any
    number: int
    name: str = ""
    is_users: bool = False

    def words(self, kept: list[Any]) -> list[Any]:
        """Return its words; objects that they point to are added to `kept`."""
        shown, name = 0, 0
        if self.name and trace.is_on():
            kept.append(text := ctypes.create_string_buffer(self.name.encode()))
            shown, name = address_of(_show_users if self.is_users else _show), addressof(text)
        varying = (self.launch.grid, self.launch.shared)
        before = 0 if self.is_users else 4 * sum(isinstance(each, str) for each in varying)
        sums = [self._sum(variable_of(each)) for _, each in dimensions(self.launch, self.block)]
        stores = [
            (offset, size, int(code.endswith("s")), *self._sum(item))
            for offset, size, code, item in self.packing.fields
        ]
        if constants := self.packing.constants:
            kept.append(buffer := ctypes.create_string_buffer(constants, len(constants)))
            stores.append((self.size - len(constants), len(constants), 1, ZERO, ZERO, addressof(buffer)))
        offsets = [each - before for each in self.packing.offsets]
        words = [self.number, self.function, self.attributes, shown, name]
        words += [len(offsets), len(stores), *(word for each in sums for word in each), *offsets]
        words += [word for each in stores for word in each]
        return [1 + len(words), *words]

    @property
    def size(self) -> int:
        """Bytes of all parameters."""
        return struct.calcsize(self.packing.format) + len(self.packing.constants)

    def _sum(self, item: str) -> tuple[int, int, Any]:
        """Return the indices of two words of a call, and a constant."""
        terms = [self.items[each] if each in self.items else int(each) for each in item.split(" + ")]
        first, second, *_ = *[each for each in terms if type(each) is Place], ZERO, ZERO
        return first, second, sum(each for each in terms if type(each) is not Place)


def of_shape(records: Sequence[LaunchRecord], kept: list[Any]) -> list[Any]:
    """Return the words of a shape."""
    size = max(each.size for each in records)
    most = max(len(each.packing.offsets) for each in records)
    return [len(records), size, most, *(word for each in records for word in each.words(kept))]


def of_chains(chains: Sequence[Chain | None], kept: list[Any]) -> list[list[int]]:
    """Return the words of each shape; an empty list where the build has no such shape."""
    found, count = [], 0
    for chain in chains:
        records = []
        for launch, packing, function, block in chain.launches if chain else ():
            attributes = addressof(PROGRAMMATIC) if chain and chain.overlaps else 0
            items = places_of(chain.values.layouts, chain.numbers) if chain else {}
            own = launch, packing, function.value or 0, block
            records.append(LaunchRecord(*own, items, attributes, count, launch.kernel))
            count += 1
        found.append(of_shape(records, kept) if records else [])
    return found


def table_of(own: Sequence[int], first: Sequence[int], shapes: Sequence[Sequence[int]]) -> Any:
    """Return a table: its head, some words, the address of each shape's words or 0, and these words."""
    start = [*head(own), *first]
    at, addresses = len(start) + len(shapes), []
    for each in shapes:
        addresses.append(at if each else 0)
        at += len(each)
    words = as_words([*start, *addresses, *(word for each in shapes for word in each)])
    places = words[len(start) : len(start) + len(shapes)]
    places[places > 0] = places[places > 0] * 8 + words.ctypes.data
    return words


def as_words(numbers: Iterable[int]) -> Any:
    """Return integers as an array of words."""
    return np.array([each - 2**64 if each >= 2**63 else each for each in numbers], np.int64)


def _show_launch(name: bytes, grid: int, *others: int) -> None:
    """Print the launch of an algorithm."""
    _, _, threads, _, _, shared, stream = others
    trace.launch(name.decode(), grid, threads, shared, stream, "compiled code")


def _show_users_launch(name: bytes, *numbers: int) -> None:
    """Print the launch of a user's kernel."""
    *dimensions, shared, stream = numbers
    trace.launch(name.decode(), dimensions[:3], dimensions[3:], shared, stream, "compiled code")


_shows = CFUNCTYPE(None, c_char_p, *[c_int64] * 8)
_show, _show_users = _shows(_show_launch), _shows(_show_users_launch)
