"""Types, by the names that ``cuda.compute.types`` has: where one is expected, a dtype will do as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._base.data import dataclass, field

__all__ = ["bfloat16", "boolean", "float16", "float32", "float64", "from_numpy_dtype", "int8", "int16"]
__all__ += ["int32", "int64", "pointer", "struct", "to_ctypes_type", "uint8", "uint16", "uint32", "uint64"]


@dataclass(frozen=True)
class TypeDescriptor:
    """A type of items: its NumPy dtype, None if NumPy has none, and the bytes it takes."""

    dtype: np.dtype[Any] | None
    size: int
    alignment: int

    def pointer(self) -> PointerTypeDescriptor:
        """Return the type of a pointer to it."""
        return pointer(self)


@dataclass(frozen=True)
class StructTypeDescriptor(TypeDescriptor):
    """A struct. Its name does not make it another type."""

    name: str = field(default="AnonStruct", compare=False)
    fields: Mapping[str, TypeDescriptor] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class PointerTypeDescriptor(TypeDescriptor):
    """A pointer, which is a uint64 on the host."""

    pointee: TypeDescriptor


def from_numpy_dtype(dtype: Any) -> TypeDescriptor:
    """Return the type of a dtype, or of what NumPy makes a dtype of."""
    found: np.dtype[Any] = np.dtype(dtype)
    if found.names is None:
        return TypeDescriptor(found, found.itemsize, found.alignment)
    return struct({name: from_numpy_dtype(found[name]) for name in found.names})


def struct(fields: Mapping[str, TypeDescriptor], name: str = "AnonStruct") -> StructTypeDescriptor:
    """Return the type of a struct, with its fields aligned as in C.

    Raises
    ------
    TypeError
        If a field's type is not NumPy's.
    """
    for each, kind in fields.items():
        if kind.dtype is None:  # of which NumPy would make a float64
            raise TypeError(f"fields: {each}: expected a type that NumPy has, got {kind}; install ml_dtypes")
    dtype = np.dtype([(each, kind.dtype) for each, kind in fields.items()], align=True)
    return StructTypeDescriptor(dtype, dtype.itemsize, dtype.alignment, name, dict(fields))


def pointer(pointee: TypeDescriptor) -> PointerTypeDescriptor:
    """Return the type of a pointer to another."""
    return PointerTypeDescriptor(np.dtype(np.uint64), 8, 8, pointee)


def to_ctypes_type(td: TypeDescriptor) -> Any:
    """Return the type that ctypes has for it."""
    dtype: Any = td.dtype
    return np.ctypeslib.as_ctypes_type(dtype)


def as_dtype(value: Any) -> Any:
    """Return a type as a dtype, and anything else as it is."""
    return value.dtype if isinstance(value, TypeDescriptor) else value


int8: TypeDescriptor = from_numpy_dtype("i1")
int16: TypeDescriptor = from_numpy_dtype("i2")
int32: TypeDescriptor = from_numpy_dtype("i4")
int64: TypeDescriptor = from_numpy_dtype("i8")
uint8: TypeDescriptor = from_numpy_dtype("u1")
uint16: TypeDescriptor = from_numpy_dtype("u2")
uint32: TypeDescriptor = from_numpy_dtype("u4")
uint64: TypeDescriptor = from_numpy_dtype("u8")
float16: TypeDescriptor = from_numpy_dtype("f2")
float32: TypeDescriptor = from_numpy_dtype("f4")
float64: TypeDescriptor = from_numpy_dtype("f8")
boolean: TypeDescriptor = from_numpy_dtype("?")

bfloat16: TypeDescriptor
try:  # NumPy itself has no bfloat16
    import ml_dtypes

    bfloat16 = from_numpy_dtype(ml_dtypes.bfloat16)
except ImportError:
    bfloat16 = TypeDescriptor(None, 2, 2)
