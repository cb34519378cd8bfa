"""What compiled code reads of one build in one context: a block of words, and where in it what is.

The block begins with what is the same for all builds: functions of the driver, the memory pool, the context.
Then come three words for each launch of each shape, and the facts of the plan.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Mapping, Sequence
from ctypes import addressof, byref, c_void_p
from typing import Any

import numpy as np

from .._base import trace
from .._base.data import dataclass
from .._device import driver, storage
from .._device.kernels import PROGRAMMATIC
from .._launch.chain import Chain, number

FUNCTIONS = (
    "cuLaunchKernelEx",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
)
PLACES = {name: place for place, name in enumerate((*FUNCTIONS, "pool", "context", "programmatic"))}
FIRST = len(PLACES)
WORDS_OF_A_LAUNCH = 3  # the kernel, threads of a block, bytes of dynamic shared memory


@dataclass(frozen=True)
class Store:
    """What is stored in a kernel's parameters: bytes of a value, an integer of some bytes, or an address."""

    offset: int
    size: int
    source: str  # "number", "address", "value" or "bytes"
    which: int  # a place among the numbers or the values
    constant: int = 0  # or what is added to an address


@dataclass(frozen=True)
class NativeLaunch:
    """A launch, as compiled code does it.

    Attributes
    ----------
    kernel : str
    grid, shared : int or None
        The place among the numbers; None if it is always the same.
    blocks : int
        The grid, if that is always the same.
    stores : tuple of Store
    parameters : tuple of int
        Offsets.
    size : int
        Bytes of all parameters.
    overlaps : bool
    """

    kernel: str
    grid: int | None
    blocks: int
    shared: int | None
    stores: tuple[Store, ...]
    parameters: tuple[int, ...]
    size: int
    overlaps: bool


@dataclass(frozen=True)
class Layout:
    """How all shapes of a build are launched; equal for builds that compiled code need not tell apart."""

    shapes: tuple[tuple[NativeLaunch, ...], ...]  # by their numbers; of those that a build has not, nothing
    values: tuple[str, ...]
    is_traced: bool

    @property
    def kernels(self) -> str:
        """The kernels, in the order of the launches."""
        return ", ".join(f"cuLaunchKernelEx of {each.kernel}" for shape in self.shapes for each in shape)

    @property
    def first_fact(self) -> int:
        """Where the facts of the plan begin."""
        return FIRST + WORDS_OF_A_LAUNCH * sum(map(len, self.shapes))


def layout_of(names: Sequence[str], chains: Mapping[str, Chain]) -> Layout:
    """Return how a build's chains are launched, by the names of all that its family has."""
    values = next(tuple(chain._values.sizes) for chain in chains.values())
    shapes = tuple(
        tuple(_launch(chains[name], *each[:2]) for each in chains[name]._launches) if name in chains else ()
        for name in names
    )
    return Layout(shapes, values, trace.is_on())


def _launch(chain: Chain, launch: Any, packed: Any) -> NativeLaunch:
    places = {number(name): place for place, name in enumerate(chain._numbers)}
    values = {f"v_{name}": place for place, name in enumerate(chain._values.sizes)}
    grid, shared = (
        places[number(each)] if isinstance(each, str) else None for each in (launch.grid, launch.shared)
    )
    head = 4 * sum(each is not None for each in (grid, shared))
    stores = tuple(_store(places, values, *field) for field in packed.fields)
    blocks = launch.grid if isinstance(launch.grid, int) else 0
    offsets = tuple(each - head for each in packed.offsets)
    size = struct.calcsize(packed.format) - head
    return NativeLaunch(launch.kernel, grid, blocks, shared, stores, offsets, size, chain.overlaps)


def _store(
    places: dict[str, int], values: dict[str, int], offset: int, size: int, code: str, item: str
) -> Store:
    first, _, added = item.partition(" + ")
    if first == "address":
        if added in places:
            return Store(offset, size, "address", places[added])
        return Store(offset, size, "address", -1, int(added or 0))
    if item in places:
        return Store(offset, size, "number", places[item])
    if item in values:
        return Store(offset, size, "bytes" if code.endswith("s") else "value", values[item])
    return Store(offset, size, "number", -1, int(item))


def words_of(chains: Iterable[Chain], facts: Sequence[int]) -> Any:
    """Return the block of words for the current context."""
    library = driver.library()
    context = c_void_p()
    driver.call("cuCtxGetCurrent", byref(context))
    words = [address_of(getattr(library, name)) for name in FUNCTIONS]
    words += [storage.memory().pool().value or 0, context.value or 0, addressof(PROGRAMMATIC)]
    for chain in chains:
        for launch, _, function, block in chain._launches:
            shared = launch.shared if isinstance(launch.shared, int) else 0
            words += [function.value or 0, block, shared]
    words += facts
    return np.array([each - 2**64 if each >= 2**63 else each for each in words], np.int64)


def address_of(function: Any) -> int:
    """Return the address of a C function."""
    return ctypes.cast(function, c_void_p).value or 0
