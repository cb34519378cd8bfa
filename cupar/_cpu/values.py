"""Values in memory and in operators: numba functions that load, store and convert those of a dtype.

In an operator a value is what it is on the GPU: a number, or a named tuple for a struct. numba has no 16-bit
floats on the CPU; there they are float32, rounded to 16 bits wherever they are converted.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import carray, njit
from numba.core import types
from numba.core.typing.collections import NamedTupleAttribute
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype

from .. import structs

OPTIONS = {"error_model": "numpy", "nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
BYTES = types.CPointer(types.uint8)  # how memory is reached: with pointers that LLVM sees through


def inlined(function: Any) -> Any:
    """Have numba compile a function into those that call it."""
    return njit(forceinline=True, **OPTIONS)(function)


def outlined(function: Any) -> Any:
    """Have numba compile a function that others call."""
    return njit(**OPTIONS)(function)


class Value(NamedTuple):
    """Functions of a dtype: `load(pointer, offset)`, `store(pointer, offset, value)`, `cast(value)`."""

    dtype: np.dtype[Any]
    load: Any
    store: Any
    cast: Any


def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is a float of 16 bits."""
    return dtype.itemsize == 2 and structs.kind_of(dtype) == "f"


def value_type(dtype: np.dtype[Any]) -> Any:
    """Return the numba type of a value in an operator."""
    if dtype.names is None:
        return types.float32 if is_half(dtype) else from_dtype(dtype)
    fields = [value_type(dtype[i]) for i in range(len(dtype.names))]
    struct = types.BaseTuple.from_types(fields, structs.plain_class(dtype))
    if {"count", "index"} & {*dtype.names}:
        _prefer_fields(struct)
    return struct


def _prefer_fields(struct: Any) -> None:
    """Let the attributes of a named tuple be its fields, even where tuples have methods of these names."""
    from numba.core.registry import cpu_target

    typing, target = cpu_target.typing_context, cpu_target.target_context
    if struct in typing._attributes:
        return

    class FieldAttribute(NamedTupleAttribute):  # type: ignore[misc]
        key = struct

    def get(context: Any, builder: Any, kind: Any, value: Any, field: str) -> Any:
        return builder.extract_value(value, kind.fields.index(field))

    typing.insert_attributes(FieldAttribute(typing))
    target._insert_getattr_defn([(get, field, (struct,)) for field in struct.fields])


@intrinsic  # type: ignore[untyped-decorator]
def pointer(typing: Any, address: Any) -> Any:
    """Return an address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(BYTES))

    return BYTES(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def moved(typing: Any, start: Any, offset: Any) -> Any:
    """Return a pointer some bytes further on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return BYTES(BYTES, types.int64), generate


def _of_type(kind: Any) -> tuple[Any, Any]:
    """Return what loads and what stores values of a numba type."""

    def place(context: Any, builder: Any, arguments: Any) -> Any:
        there = builder.gep(arguments[0], [arguments[1]])
        return builder.bitcast(there, context.get_data_type(kind).as_pointer())

    @intrinsic  # type: ignore[untyped-decorator]
    def load(typing: Any, start: Any, offset: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return context.unpack_value(builder, kind, place(context, builder, arguments))

        return kind(BYTES, types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def store(typing: Any, start: Any, offset: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            context.pack_value(builder, kind, arguments[2], place(context, builder, arguments))
            return context.get_dummy_value()

        return types.void(BYTES, types.int64, kind), generate

    return load, store


load_int, store_int = _of_type(types.int64)


@inlined
def address_of(start: Any, offset: Any) -> Any:
    """Return a pointer that is in memory."""
    return pointer(load_int(start, offset))


@functools.cache
def of_dtype(dtype: np.dtype[Any]) -> Value:
    """Return the functions of a dtype."""
    if dtype.names is not None:
        return _of_struct(dtype)
    if is_half(dtype):
        return _of_half(dtype)
    if dtype.kind == "b":
        load_byte, store_byte = _of_type(types.uint8)
        return Value(
            dtype,
            inlined(lambda start, offset: load_byte(start, offset) != 0),
            inlined(lambda start, offset, value: store_byte(start, offset, np.uint8(value))),
            inlined(lambda value: bool(value)),  # noqa: PLW0108
        )
    kind = dtype.type
    return Value(dtype, *_of_type(from_dtype(dtype)), inlined(lambda value: kind(value)))  # noqa: PLW0108


def _of_struct(dtype: np.dtype[Any]) -> Value:
    names: dict[str, Any] = {"make": structs.plain_class(dtype)}
    value_type(dtype)  # so that numba knows its fields
    loads, stores, casts = [], [], []
    for i, (_, field, offset) in enumerate(structs.members(dtype)):
        names[f"load{i}"], names[f"store{i}"], names[f"cast{i}"] = of_dtype(field)[1:]
        loads.append(f"load{i}(start, offset + {offset})")
        stores.append(f"    store{i}(start, offset + {offset}, value[{i}])\n")
        casts.append(f"cast{i}(value[{i}])")
    source = (
        f"def load(start, offset):\n    return make({', '.join(loads)})\n"
        f"def store(start, offset, value):\n{''.join(stores)}"
        f"def cast(value):\n    return make({', '.join(casts)})\n"
    )
    exec(source, names)
    return Value(dtype, *(inlined(names[each]) for each in ("load", "store", "cast")))


def struct_maker(dtype: np.dtype[Any]) -> Any:
    """Return a function that makes a struct of its fields, each converted to its type."""
    own = "_" * max(map(len, dtype.names or ())) + "_"
    names: dict[str, Any] = {f"{own}make": structs.plain_class(dtype)}
    value_type(dtype)
    given = []
    for i, (name, field, _) in enumerate(structs.members(dtype)):
        names[f"{own}{i}"] = of_dtype(field).cast
        given.append(f"{own}{i}({name})")
    exec(f"def _make({', '.join(dtype.names or ())}):\n    return {own}make({', '.join(given)})\n", names)
    return inlined(names["_make"])


# --- Floats of 16 bits -----------------------------------------------------------------------------------


def _bits_as(kind: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def bits(typing: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], context.get_value_type(kind))

        return kind(value), generate

    return bits


_to_bits, _to_float = _bits_as(types.uint32), _bits_as(types.float32)
_load_16, _store_16 = _of_type(types.uint16)
_U = np.uint32


def _from_float16(half: Any) -> Any:
    bits = _U(half)
    sign, magnitude = (bits & _U(0x8000)) << _U(16), (bits & _U(0x7FFF)) << _U(13)
    # Scaled by 2**112, which is exact for subnormal numbers, too.
    value = _to_float(_U(magnitude)) * np.float32(2.0**112)
    found = _U(_to_bits(value))
    if magnitude >= _U(0x0F800000):  # infinities and NaNs
        found = _U(magnitude | _U(0x70000000))
    return _to_float(_U(found | sign))


def _to_float16(value: Any) -> Any:
    bits = _U(_to_bits(np.float32(value)))
    sign, magnitude = _U((bits >> _U(16)) & _U(0x8000)), _U(bits & _U(0x7FFFFFFF))
    if magnitude > _U(0x7F800000):
        found = _U(0x7FFF)
    elif magnitude >= _U(0x477FF000):  # what is rounded to infinity
        found = _U(0x7C00)
    elif magnitude < _U(0x38800000):  # subnormal: added to 0.5, the sum has the bits, rounded
        found = _U(_U(_to_bits(np.float32(_to_float(magnitude) + np.float32(0.5)))) - _U(0x3F000000))
    else:
        odd = _U((magnitude >> _U(13)) & _U(1))
        found = _U(_U(magnitude + _U(0xC8000FFF) + odd) >> _U(13))
    return np.uint16(found | sign)


def _from_bfloat16(half: Any) -> Any:
    return _to_float(_U(_U(half) << _U(16)))


def _to_bfloat16(value: Any) -> Any:
    bits = _U(_to_bits(np.float32(value)))
    if bits & _U(0x7FFFFFFF) > _U(0x7F800000):
        return np.uint16(0x7FFF)
    return np.uint16(_U(bits + _U(0x7FFF) + ((bits >> _U(16)) & _U(1))) >> _U(16))


def _of_half(dtype: np.dtype[Any]) -> Value:
    is_brain = structs.is_bfloat16(dtype)
    widen = inlined(_from_bfloat16 if is_brain else _from_float16)
    narrow = inlined(_to_bfloat16 if is_brain else _to_float16)
    return Value(
        dtype,
        inlined(lambda start, offset: widen(_load_16(start, offset))),
        inlined(lambda start, offset, value: _store_16(start, offset, narrow(value))),
        inlined(lambda value: widen(narrow(value))),
    )


# --- Captured arrays -------------------------------------------------------------------------------------


def array_loader(dtype: np.dtype[Any], ndim: int, at: int) -> Any:
    """Return what makes an array of its address and shape in an operator's state, `at` words into it."""
    if structs.has_bfloat16(dtype) or dtype == np.float16:
        raise TypeError(f"numba has no arrays of {dtype} on the CPU")
    kind = from_dtype(dtype)
    shape = ", ".join(f"load_int(state, {8 * (at + 1 + i)})" for i in range(ndim))

    @intrinsic  # type: ignore[untyped-decorator]
    def typed(typing: Any, start: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], context.get_value_type(types.CPointer(kind)))

        return types.CPointer(kind)(BYTES), generate

    names = {"carray": carray, "typed": typed, "address_of": address_of, "load_int": load_int}
    exec(f"def load(state):\n    return carray(typed(address_of(state, {8 * at})), ({shape},))\n", names)
    return inlined(names["load"])
