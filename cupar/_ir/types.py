"""Parameters of kernels: their types as plain data, from which numba's are made only to compile.

A type is what numba.cuda compiles a kernel for: of an array its dtype, dimensions and layout, of a number its
dtype. Types are equal if the same code serves; they can be pickled, and need no numba.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from .. import structs
from .._base.data import dataclass, field
from .._base.digests import sha256
from .._fingerprint.values import _copy_dtype, encode

DType = np.dtype[Any]


@dataclass(frozen=True)
class Item:
    """A dtype, compared by its whole layout: NumPy treats some dtypes as equal that numba does not."""

    dtype: DType = field(compare=False)
    token: str

    @staticmethod
    def of(dtype: DType) -> Item:
        """Return that of a dtype; TypeError if it has no exact encoding, or other bytes first."""
        if dtype.names is None and dtype.subdtype is None:
            return _plain(dtype)
        if dtype.type is np.record:  # of a recarray, which differs in what NumPy makes of an item
            dtype = _copy_dtype(dtype)
        return Item(dtype, sha256(encode(dtype)).hexdigest())

    def __str__(self) -> str:
        return structs.text(self.dtype)


@lru_cache
def _plain(dtype: DType) -> Item:
    if not dtype.isnative:
        raise TypeError(f"dtype {dtype} has its bytes in another order than the GPU: convert the array")
    return Item(dtype, sha256(encode(dtype)).hexdigest()[:16])


@dataclass(frozen=True)
class Scalar:
    """A number, bool, date or time span."""

    item: Item

    def part(self) -> list[Any]:
        """Describe it for a key."""
        return ["scalar", self.item.token]

    def __str__(self) -> str:
        return str(self.item)


@dataclass(frozen=True)
class Array:
    """A device array.

    `layout` is ``"C"`` or ``"F"`` for one that is contiguous in that order, else ``"A"``.
    """

    item: Item
    ndim: int
    layout: str
    mutable: bool = True

    def part(self) -> list[Any]:
        """Describe it for a key."""
        return ["array", self.item.token, self.ndim, self.layout, self.mutable]

    def __str__(self) -> str:
        constness = "" if self.mutable else "readonly "
        return f"{constness}array({self.item}, {self.ndim}d, {self.layout})"


@dataclass(frozen=True)
class Record:
    """A record in device memory, whose address a kernel gets."""

    item: Item

    def part(self) -> list[Any]:
        """Describe it for a key."""
        return ["record", self.item.token]

    def __str__(self) -> str:
        return f"record {self.item}"


@dataclass(frozen=True)
class Address:
    """The address of items in device memory, as an integer."""

    item: Item

    def part(self) -> list[Any]:
        """Describe it for a key."""
        return ["address", self.item.token]

    def __str__(self) -> str:
        return f"{self.item}*"


@dataclass(frozen=True)
class Tuple:
    """A tuple; a named one if it has `fields`."""

    items: tuple[Type, ...]
    fields: tuple[str, ...] = ()
    name: str = ""

    def part(self) -> list[Any]:
        """Describe it for a key."""
        return ["tuple", self.name, list(self.fields), *(each.part() for each in self.items)]

    def __str__(self) -> str:
        if self.fields:
            named = zip(self.fields, self.items, strict=True)
            return f"{self.name}({', '.join(f'{name}: {each}' for name, each in named)})"
        return f"({', '.join(map(str, self.items))})"


@dataclass(frozen=True)
class Struct:
    """A value of a class that `gpu_struct` made."""

    item: Item

    def part(self) -> list[Any]:
        """Describe it for a key."""
        return ["struct", self.item.token]

    def __str__(self) -> str:
        return str(self.item)


@dataclass(frozen=True)
class Member:
    """A member of an enum."""

    enum: Any
    item: Item

    def part(self) -> list[Any]:
        """Describe it for a key."""
        return ["member", sha256(encode(self.enum)).hexdigest(), self.item.token]

    def __str__(self) -> str:
        return f"{self.enum.__name__}({self.item})"


Type = Scalar | Array | Record | Address | Tuple | Struct | Member


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel, which stands among the arguments of a specialisation."""

    name: str
    type: Type

    @property
    def given(self) -> Type:
        """Its type; of arguments of algorithms, the iterator that was given."""
        return self.type

    @property
    def operators(self) -> Mapping[str, Any]:
        """Empty: a parameter has no operators."""
        return {}

    def without_user(self, *, with_code: bool = False) -> Parameter:
        """Return it: it holds nothing of the user's."""
        return self

    def part(self) -> list[Any]:
        """Describe it for a key: as text, and all that matters."""
        return [str(self.type), *self.type.part()]


# --- Parameters of the GPU code --------------------------------------------------------------------------


@dataclass(frozen=True)
class ConstantSlot:
    """A parameter of the GPU code that is the same in each launch."""

    code: str  # of the module struct
    value: int


@dataclass(frozen=True)
class VaryingSlot:
    """A parameter of the GPU code with a name: ``"p"``, ``"n"``, ``"s0"``, … of arrays."""

    code: str
    name: str


ArgumentSlot = ConstantSlot | VaryingSlot


def slots(kind: Type, name: str = "") -> Iterator[ArgumentSlot]:
    """Yield the parameters that GPU code has for a value, in numba's order; their names begin with `name`."""
    if isinstance(kind, Tuple):
        for i, each in enumerate(kind.items):
            yield from slots(each, f"{name}_{i}")
    elif isinstance(kind, Struct):
        yield from _fields(kind.item.dtype, name)
    elif isinstance(kind, Array):
        constants = {"meminfo": 0, "parent": 0, "one": 1, "itemsize": kind.item.dtype.itemsize}
        for part in _array(kind.ndim, kind.layout):
            code, value = "Q" if part in ("meminfo", "parent", "p") else "q", constants.get(part)
            yield VaryingSlot(code, name + part) if value is None else ConstantSlot(code, value)
    elif isinstance(kind, (Record, Address)):
        yield VaryingSlot("Q", f"{name}p")
    else:
        yield from number_slots(kind.item.dtype, name)


def varying(kind: Type, name: str = "") -> dict[str, str]:
    """Return the codes of the slots that vary by their names, each once, in their order."""
    return {each.name: each.code for each in slots(kind, name) if isinstance(each, VaryingSlot)}


def number_slots(dtype: DType, name: str) -> Iterator[ArgumentSlot]:
    """Yield the parameters of a number: its parts if it is complex."""
    if dtype.kind == "c":
        part = {8: "f", 16: "d"}[dtype.itemsize]
        yield VaryingSlot(part, f"{name}re")
        yield VaryingSlot(part, f"{name}im")
    elif dtype.kind in "mM":
        yield VaryingSlot("q", f"{name}v")
    else:
        yield VaryingSlot(dtype.char if dtype.kind in "?bf" else _integer(dtype), f"{name}v")


def _integer(dtype: DType) -> str:
    """Return the code of an integer, or of the bits of a bfloat16."""
    code = {1: "b", 2: "h", 4: "i", 8: "q"}[dtype.itemsize]
    return code if dtype.kind == "i" else code.upper()


def _fields(dtype: DType, name: str) -> Iterator[ArgumentSlot]:
    for i, field_name in enumerate(dtype.names or ()):
        kind = dtype[field_name]
        yield from (number_slots(kind, f"{name}_{i}") if kind.names is None else _fields(kind, f"{name}_{i}"))


@lru_cache
def _array(ndim: int, layout: str) -> tuple[str, ...]:
    """Return the values that an array is passed as, by name: two objects, which are null, come first."""
    inner = {"C": ndim - 1, "F": 0, "A": -1}[layout]
    shape = ["n"] if ndim == 1 else [f"s{i}" for i in range(ndim)]
    strides = ["itemsize" if i == inner else f"t{i}" for i in range(ndim)]
    return ("meminfo", "parent", "n" if ndim else "one", "itemsize", "p", *shape, *strides)


@lru_cache
def array_parts(ndim: int) -> tuple[str, ...]:
    """Return the names of an array's fields: number of items, address, shape, and strides in bytes."""
    return ("n", "p", *(f"s{i}" for i in range(ndim)), *(f"t{i}" for i in range(ndim)))


@lru_cache
def varying_parts(ndim: int, layout: str) -> tuple[int, ...]:
    """Return the places, among `array_parts`, of those that are passed for an array, in their order."""
    passed = varying(Array(Item.of(np.dtype(np.int8)), ndim, layout))
    return tuple(map(array_parts(ndim).index, passed))
