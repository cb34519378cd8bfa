"""Frozen copies of what an operator reads, which nobody else changes.

Values are copied in Python's own types. What numba must find as a function, class or module is kept as data
here, from which `_compile.ltoir` makes it anew.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from types import CodeType, ModuleType
from typing import Any, Final

import numpy as np

from .refusals import refusal

__all__ = [
    "MISSING",
    "Function",
    "Instance",
    "Jitted",
    "Module",
    "NamedTupleClass",
    "StructClass",
    "copy_dtype",
    "held",
]


class Missing:
    """Stands for a name that does not exist and for an empty closure cell."""


MISSING: Final = Missing()


@dataclass(slots=True, eq=False)
class Function:
    """A Python function as it was, with all that it read."""

    code: CodeType
    name: str
    globals: dict[str, Any] = field(default_factory=dict)  # those that it reads, builtins among them
    cells: list[Any] = field(default_factory=list)  # one for each of its code's free variables
    defaults: Any = None
    keyword_defaults: Any = None


@dataclass(slots=True, eq=False)
class Jitted:
    """A function under ``cuda.jit`` or ``njit``, with its options."""

    function: Function
    options: dict[str, Any]


@dataclass(slots=True, eq=False)
class Module:
    """The attributes of a module that an operator reads."""

    module: ModuleType
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StructClass:
    """A class that `gpu_struct` made."""

    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True, eq=False)
class NamedTupleClass:
    """A class of named tuples."""

    name: str
    fields: tuple[str, ...]
    defaults: Any


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """A struct or a named tuple."""

    cls: StructClass | NamedTupleClass
    fields: tuple[Any, ...]


# --------------------------------------------------------------------------------------------------
# Copies of what can change in place


def held(value: Any, where: str, around: frozenset[int] = frozenset()) -> Any:
    """Return a value whose contents nobody else can change: containers and arrays are copied.

    What cannot change is returned itself, as are functions and classes, which are read on their own.
    `around` has the ids of the containers that this one is in.
    """
    cls = type(value)
    if cls is np.ndarray:
        return _copy_array(value)
    if cls is np.void:
        return value.copy()
    if cls not in (tuple, list, dict, set, frozenset):
        return value
    if id(value) in around:
        raise refusal(where, value, "It contains itself, which no constant in compiled code can.")
    around |= {id(value)}
    if cls is dict:
        return {key: held(item, where, around) for key, item in value.copy().items()}
    items = tuple(value.copy() if cls in (list, set) else value)
    copies = tuple(held(item, where, around) for item in items)
    if cls in (tuple, frozenset) and all(map(operator.is_, items, copies)):
        return value
    return cls(copies)


def _copy_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy an array with its strides and flags: numba's type of it is made of these."""
    dtype, strides = copy_dtype(array.dtype), array.strides
    steps = [(extent - 1) * stride for extent, stride in zip(array.shape, strides, strict=True)]
    first = -sum(step for step in steps if step < 0)
    size = first + sum(step for step in steps if step > 0) + dtype.itemsize if array.size else 0
    memory = np.zeros(size + 1, np.uint8)
    is_odd = bool(size) and not array.flags.aligned
    copy: np.ndarray[Any, Any] = np.ndarray(
        array.shape, dtype, memory.data, (first if size else 0) + is_odd, strides
    )
    copy[...] = array
    copy.flags.writeable = array.flags.writeable
    return copy


def copy_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype equal to this one, whose fields nobody else can rename."""
    if dtype.names is None or dtype.hasobject:
        return dtype
    fields: Any = dtype.fields
    described: Any = {
        "names": list(dtype.names),
        "formats": [copy_dtype(fields[name][0]) for name in dtype.names],
        "offsets": [fields[name][1] for name in dtype.names],
        "titles": [fields[name][2] if len(fields[name]) > 2 else None for name in dtype.names],
        "itemsize": dtype.itemsize,
    }
    copy: np.dtype[Any] = np.dtype(described, align=dtype.isalignedstruct)
    return copy
