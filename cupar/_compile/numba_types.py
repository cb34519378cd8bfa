"""The types of an operator's values in numba: numbers, structs as named tuples, captured arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _numba, structs
from .._base.generated import define
from .._numba import OPTIONS
from . import bfloat16

if TYPE_CHECKING:
    from .._fingerprint.numbers import NumberType


def number_type(dtype: np.dtype[Any]) -> Any:
    """Return the numba type of a number, or of a struct as it is in memory."""
    from .._numba import from_dtype

    if structs.has_bfloat16(dtype):
        bfloat16.register()
    return from_dtype(dtype)


def array_type(dtype: np.dtype[Any], ndim: int) -> Any:
    """Return the numba type of a captured array."""
    from .._numba import types

    return types.Array(number_type(dtype), ndim, "C")


def parameter_type(dtype: np.dtype[Any]) -> Any:
    """Return the numba type under which a wrapper gets the address of a value."""
    from .._numba import types

    if dtype.names is not None:
        return number_type(structs.layout(dtype))
    return types.CPointer(types.uint8 if dtype.kind == "b" else number_type(dtype))


def value_type(dtype: np.dtype[Any]) -> Any:
    """Return the numba type of a value in an operator."""
    if dtype.names is None:
        return number_type(dtype)
    return struct_type(dtype, [value_type(dtype[i]) for i in range(len(dtype.names))], _numba)


def struct_type(dtype: np.dtype[Any], fields: list[Any], numba: Any) -> Any:
    """Return the type of a struct as a named tuple; `numba` is as for `dtype_of`.

    Its attributes are its fields, even where tuples have methods of these names.
    """
    struct = numba.types.BaseTuple.from_types(fields, structs.plain_class(dtype))
    if not {"count", "index"} & {*(dtype.names or ())}:
        return struct
    typing, target = numba.cuda_target.typing_context, numba.cuda_target.target_context
    if struct in typing._attributes:
        return struct
    attribute: Any = numba.NamedTupleAttribute

    class FieldAttribute(attribute):  # type: ignore[misc]
        key = struct

    def get(context: Any, builder: Any, kind: Any, value: Any, field: str) -> Any:
        return builder.extract_value(value, kind.fields.index(field))

    typing.insert_attributes(FieldAttribute(typing))
    target._insert_getattr_defn([(get, field, (struct,)) for field in struct.fields])
    return struct


def struct_maker(dtype: np.dtype[Any]) -> Any:
    """Return a device function that makes a struct of its fields, each converted to its type."""
    from .._numba import cuda

    # The parameters have the names of the fields, for they may be given by name; all other names are longer.
    names = dtype.names or ()
    own = "_" * max(map(len, names)) + "_"
    namespace: dict[str, Any] = {f"{own}plain": structs.plain_class(dtype)}
    converted = []
    for i, name in enumerate(names):
        kind = dtype[i]
        if kind.names is None:
            namespace[f"{own}{i}"] = bool if kind.kind == "b" else kind.type
            converted.append(f"{own}{i}({name})")
        else:
            namespace[f"{own}{i}"] = struct_maker(kind)
            converted.append(f"{own}{i}({', '.join(f'{name}[{j}]' for j in range(len(kind.names)))})")
    value_type(dtype)  # so that numba knows its fields
    source = f"def _make({', '.join(names)}):\n    return {own}plain({', '.join(converted)})\n"
    return cuda.jit(device=True, **OPTIONS)(define("maker of a struct", "_make", source, namespace))


def array_of(context: Any, builder: Any, kind: Any, address: Any, shape: list[Any], numba: Any) -> Any:
    """Return a C-contiguous array, in LLVM's code, of a pointer and extents; `numba` is as for `dtype_of`."""
    made = numba.make_array(kind)(context, builder)
    item = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    size = context.get_constant(numba.types.intp, item)
    strides = [size]
    for extent in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], extent))
    data = builder.bitcast(address, made.data.type)
    strides = strides[: kind.ndim]
    numba.populate_array(made, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)
    return made._getvalue()


def array_loader(kind: Any, at: int) -> Any:
    """Return a device function that makes an array of its address and shape in an operator's state.

    They begin `at` words of 8 bytes into it.
    """
    from .._numba import cgutils, intrinsic, ir

    @intrinsic  # type: ignore[untyped-decorator]
    def array(typing_context: Any, state: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            words = [builder.load(cgutils.gep(builder, arguments[0], at + i)) for i in range(1 + kind.ndim)]
            address = builder.inttoptr(words[0], ir.IntType(8).as_pointer())
            return array_of(context, builder, kind, address, words[1:], _numba)

        return kind(state), generate

    return array


def number_at(builder: Any, address: Any, number: NumberType, ir: Any) -> Any:
    """Return a number, in LLVM's code, whose bytes are at an address; it has the type of the constant."""

    def kind(dtype: np.dtype[Any]) -> Any:
        if dtype.kind == "f":
            return ir.DoubleType() if dtype.itemsize == 8 else ir.FloatType()
        return ir.IntType(8 * dtype.itemsize)

    found = builder.load(builder.bitcast(address, kind(number.stored).as_pointer()))
    if number.stored == number.dtype:
        return found
    return (builder.fpext if number.dtype.kind == "f" else builder.sext)(found, kind(number.dtype))


def number_loader(number: NumberType, at: int) -> Any:
    """Return a device function that reads a number, some words of 8 bytes into an operator's state."""
    from .._numba import cgutils, intrinsic, ir

    result = number_type(number.dtype)

    @intrinsic  # type: ignore[untyped-decorator]
    def read(typing_context: Any, state: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return number_at(builder, cgutils.gep(builder, arguments[0], at), number, ir)

        return result(state), generate

    return read


def dtype_of(numba_type: Any, numba: Any = _numba) -> np.dtype[Any] | None:
    """Return the dtype of a value in an operator, None if arrays cannot hold it.

    `numba` has the parts of numba-cuda, or of numba for the CPU, by the names that `_numba` has for them.
    """
    types = numba.types
    if isinstance(numba_type, types.BaseTuple):
        fields = [dtype_of(field, numba) for field in numba_type]
        if not fields or any(field is None for field in fields):  # a dtype equals None if it is float64
            return None
        names = getattr(numba_type, "fields", [f"field_{i}" for i in range(len(fields))])
        return structs.normal("op", np.dtype(list(zip(names, fields, strict=True)), align=True))
    if numba_type == getattr(types, "bfloat16", None):
        return structs.bfloat16()
    try:
        dtype: np.dtype[Any] = numba.as_dtype(getattr(numba_type, "literal_type", numba_type))
    except (numba.NumbaError, NotImplementedError):
        return None
    return dtype if structs.is_number(dtype) else None
