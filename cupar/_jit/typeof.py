"""Arguments of launches: the type of each, and the values that are packed."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import structs
from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._device import arrays, driver, peers
from .._ir.types import Address, Array, Item, Member, Record, Scalar, Struct, Tuple, Type, varying_parts

_PYTHON: dict[type, np.dtype[Any]] = {
    bool: np.dtype(bool),
    float: np.dtype(np.float64),
    complex: np.dtype(np.complex128),
}
_NO_ARRAYS = (list, str, bytes, bytearray, dict, set, frozenset, type)
_INT, _UNSIGNED = np.dtype(np.int64), np.dtype(np.uint64)


def typeof(name: str, value: Any) -> Type:
    """Return the type of an argument, as numba.cuda has it.

    Raises
    ------
    TypeError, ValueError
        If it cannot be an argument, as host memory cannot; the message begins with `name`.
    """
    found = _of_value(name, value)
    if found is not None:
        return found
    view = arrays.strided(name, value)
    item = _item(name, view.dtype)
    if view.is_record:
        return Record(item)
    return Array(item, len(view.shape), view.layout, view.writable)


def _of_value(name: str, value: Any) -> Type | None:
    """Return the type of an argument that is not an array; None for arrays."""
    cls = type(value)
    if cls in _PYTHON:
        return Scalar(Item.of(_PYTHON[cls]))
    if cls is int:
        if not -(2**63) <= value < 2**64:
            raise ArgumentValueError(name, f"expected an integer of 64 bits, got {value}")
        return Scalar(Item.of(_INT if value < 2**63 else _UNSIGNED))
    if isinstance(value, enum.Enum):
        inner = _of_value(name, value.value)
        if not isinstance(inner, Scalar):
            raise ArgumentTypeError(name, f"expected a member of an enum of numbers, got {value!r}")
        return Member(cls, inner.item)
    if isinstance(value, np.void):
        raise ArgumentTypeError(
            name,
            "expected a record in device memory, got a NumPy record, which is in host memory; copy "
            "it to the device (numba.cuda.to_device), or give a value of a cupar.gpu_struct",
        )
    if isinstance(value, np.generic) and structs.kind_of(value.dtype) in "biufcmM":
        return Scalar(_item(name, value.dtype))
    if isinstance(value, tuple):
        if (dtype := structs.dtype_of_value(value)) is not None:
            return Struct(Item.of(dtype))
        items = tuple(typeof(f"{name}[{i}]", each) for i, each in enumerate(value))
        fields = tuple(getattr(cls, "_fields", ()))
        return Tuple(items, fields, cls.__name__ if fields else "")
    if value is None or isinstance(value, _NO_ARRAYS):
        got = "None" if value is None else cls.__name__
        instead = ": make it a tuple, or a device array" if cls is list else ""
        raise ArgumentTypeError(
            name, f"expected a device array, a number, a tuple or a struct, got {got}{instead}"
        )
    return None


def _item(name: str, dtype: np.dtype[Any]) -> Item:
    if dtype.kind in "OSUg" and dtype.char != "S":
        raise ArgumentTypeError(name, f"items of dtype {dtype} are not supported on a GPU")
    try:
        return Item.of(dtype)
    except TypeError as error:
        raise ArgumentTypeError(name, str(error)) from None


# --- Values ------------------------------------------------------------------------------------------------


def values(name: str, kind: Type, value: Any, lent: list[Any]) -> list[Any]:
    """Return a value's items to pack, in the order of its type's slots. Numbers are converted to the type.

    The owners of arrays' memory, where they are not the arrays, are added to `lent`.
    """
    return list(_VALUES[type(kind)](name, kind, value, lent))


def array_values(name: str, kind: Array, value: Any, lent: list[Any]) -> list[Any] | None:
    """Return an array's items to pack, or None if it is of another type: it is read once for both."""
    if _of_value(name, value) is not None:
        return None
    view = arrays.strided(name, value)
    item = _item(name, view.dtype)
    if view.is_record or Array(item, len(view.shape), view.layout, view.writable) != kind:
        return None
    return _array(name, kind, value, lent, view)


def _array(
    name: str, kind: Any, value: Any, lent: list[Any], read: arrays.Strided | None = None
) -> list[Any]:
    view = read or arrays.strided(name, value)
    if view.owner is not None:
        lent.append(view.owner)
    if driver.has_several_devices:
        peers.check_memory(name, view.address)
    if view.address % kind.item.dtype.alignment:
        raise ArgumentValueError(
            name,
            f"expected an array aligned to {kind.item.dtype.alignment} bytes, got one at {view.address:#x}",
        )
    shape, itemsize, size = view.shape, kind.item.dtype.itemsize, 1
    for extent in shape:
        size *= extent
    if kind.layout == "A":
        strides = arrays.strides(value, itemsize)
    else:
        strides = arrays.contiguous_strides(shape, itemsize, kind.layout)
    parts = (size, view.address, *shape, *strides)
    return [parts[i] for i in varying_parts(kind.ndim, kind.layout)]


def _scalar(name: str, kind: Any, value: Any, lent: list[Any]) -> list[Any]:
    return number(name, kind.item.dtype, value.value if isinstance(value, enum.Enum) else value)


def number(name: str, dtype: np.dtype[Any], value: Any) -> list[Any]:
    """Return a number's items to pack: its parts if it is complex."""
    try:
        if dtype.kind == "c":
            found = complex(value)
            return [found.real, found.imag]
        if dtype.kind in "mM":
            return [int(np.asarray(value).astype(dtype).view(np.int64))]
        if dtype.kind == "b":
            return [bool(value)]
        if structs.is_bfloat16(dtype):
            return [int(np.asarray(value).astype(dtype).view(np.uint16))]
        if dtype.kind == "f":
            return [float(value)]
        return [int(dtype.type(value)) if isinstance(value, (float, np.floating)) else int(value)]
    except (TypeError, ValueError, OverflowError) as error:
        kind = type(value).__name__
        raise ArgumentTypeError(name, f"expected a {dtype}, got {kind}: {error}") from None


def _struct(name: str, kind: Any, value: Any, lent: list[Any]) -> list[Any]:
    return _fields(name, kind.item.dtype, value)


def _fields(name: str, dtype: np.dtype[Any], value: Any) -> list[Any]:
    found: list[Any] = []
    for field, each in zip(dtype.names or (), value, strict=True):
        read: Callable[..., list[Any]] = number if dtype[field].names is None else _fields
        found += read(f"{name}.{field}", dtype[field], each)
    return found


def _tuple(name: str, kind: Any, value: Any, lent: list[Any]) -> list[Any]:
    found = []
    for i, (item, each) in enumerate(zip(kind.items, value, strict=True)):
        found += values(f"{name}[{i}]", item, each, lent)
    return found


def _record(name: str, kind: Any, value: Any, lent: list[Any]) -> list[Any]:
    found = _address(name, kind, value, lent)
    if driver.has_several_devices:
        peers.check_memory(name, found[0])
    return found


def _address(name: str, kind: Any, value: Any, lent: list[Any]) -> list[Any]:
    if isinstance(value, int):
        return [value]
    view = arrays.strided(name, value)
    if view.owner is not None:
        lent.append(view.owner)
    return [view.address]


_VALUES: dict[type, Callable[..., list[Any]]] = {
    Array: _array,
    Scalar: _scalar,
    Member: _scalar,
    Struct: _struct,
    Tuple: _tuple,
    Record: _record,
    Address: _address,
}
