"""What numba-cuda lacks of bfloat16, as far as it has it of float16.

numba computes with bfloat16 in C++ of its own, and mixes it with other numbers as it does float16: with a
literal in float64, with float16 and float32 in float32. Missing (numba-cuda 0.30) or wrong features are
registered here, once, before cupar has numba compile anything:

- a common type of bfloat16 and another number, as ``x if x > 0 else 0`` needs: numba recurs without an end;
- conversions of literal integers, which numba cuts the wrong half of, of integers of 8 bits and bools, and to
  float16 and complex numbers;
- ``bool``, ``int``, ``float``, ``complex`` and ``abs``;
- constants: NumPy's scalars of ml_dtypes' type;
- records with such fields; arrays of it in shared and local memory.
"""

from __future__ import annotations

import functools
import math
import operator
import struct
from typing import Any

from .._numba import dtype_of


@functools.cache
def register() -> None:
    """Register all of it with numba; numba's compiler lock must be held."""
    from .._numba import Conversion, cuda_target, numpy_support, numpy_support_of_cuda, types

    typing, target, own = cuda_target.typing_context, cuda_target.target_context, type(types.bfloat16)
    context, unify_pairs = type(typing), type(typing).unify_pairs
    can_convert_to, can_convert_from = own.can_convert_to, own.can_convert_from

    def unify(self: Any, first: Any, second: Any) -> Any:
        other = second if isinstance(first, own) else first
        if isinstance(first, own) != isinstance(second, own) and isinstance(other, types.Number):
            return _common(other)
        return unify_pairs(self, first, second)

    def converted_to(self: Any, context: Any, other: Any) -> Any:
        return Conversion.safe if isinstance(other, types.Complex) else can_convert_to(self, context, other)

    def converted_from(self: Any, context: Any, other: Any) -> Any:
        is_bool = isinstance(other, types.Boolean)
        return Conversion.unsafe if is_bool else can_convert_from(self, context, other)

    context.unify_pairs = unify
    own.can_convert_to, own.can_convert_from = converted_to, converted_from
    for module in (numpy_support, numpy_support_of_cuda):
        module.as_struct_dtype = _as_struct_dtype(module.as_struct_dtype)
    # Before anything is registered: numba puts intrinsics into the registry that was first. And some of the
    # modules that this imports expect all numbers to be NumPy's.
    target.refresh()
    types.number_domain |= {types.bfloat16}
    for function, result in (
        (abs, types.bfloat16),
        (int, types.int64),
        (float, types.float32),
        (complex, types.complex64),
    ):
        _type_first(typing, function, result)
    target.install_registry(_lowering())


def _as_struct_dtype(numbas: Any) -> Any:
    """Return numba's function that makes a dtype of a record's type, for records with bfloat16, too."""

    def as_struct_dtype(record: Any) -> Any:
        return dtype_of(record) if _has_bfloat16(record) else numbas(record)

    return as_struct_dtype


def _has_bfloat16(kind: Any) -> bool:
    from .._numba import types

    if isinstance(kind, types.Record):
        return any(_has_bfloat16(each.type) for each in kind.fields.values())
    return bool(kind == types.bfloat16)


def _common(other: Any) -> Any:
    """Return the type of a variable that is bfloat16 or another number."""
    from .._numba import types

    if isinstance(other, types.Float):
        return types.float64 if other.bitwidth == 64 else types.float32
    if isinstance(other, types.Integer):
        return types.float32 if other.bitwidth <= 16 else types.float64
    return other


def _type_first(context: Any, function: Any, result: Any) -> None:
    """Have numba type a function's call with bfloat16 before it tries to convert that to another type."""
    from .._numba import AbstractTemplate, signature_of, types

    class OfBfloat16(AbstractTemplate):  # type: ignore[misc]
        key = function

        def generic(self, args: Any, kws: Any) -> Any:
            return signature_of(result, *args) if args == (types.bfloat16,) and not kws else None

    numbas = context._lookup_global(function)
    context._remove_global(function)
    context._insert_global(function, type(numbas)((OfBfloat16, *numbas.templates)))


def _bits(number: int) -> int:
    """Return the bits of the bfloat16 that is nearest to an integer of 64 bits."""
    mantissa, exponent = math.frexp(number)
    rounded = math.ldexp(round(mantissa * 256), exponent - 8)  # to 8 bits, ties to even
    (bits,) = struct.unpack("<I", struct.pack("<f", rounded))
    return int(bits) >> 16


def _lowering() -> Any:
    from .._numba import LoweringRegistry, ir, types

    own, registry = types.bfloat16, LoweringRegistry()
    i16, i32, single = ir.IntType(16), ir.IntType(32), ir.FloatType()

    def widened(builder: Any, value: Any) -> Any:
        high = builder.shl(builder.zext(value, i32), ir.Constant(i32, 16))
        return builder.bitcast(high, single)

    def narrowed(builder: Any, value: Any) -> Any:
        """Round a float32 to the nearest, ties to even; a NaN stays one."""
        bits = builder.bitcast(value, i32)
        is_odd = builder.and_(builder.lshr(bits, ir.Constant(i32, 16)), ir.Constant(i32, 1))
        rounded = builder.add(bits, builder.add(is_odd, ir.Constant(i32, 0x7FFF)))
        is_nan = builder.fcmp_unordered("uno", value, value)
        found = builder.select(is_nan, ir.Constant(i32, 0x7FFF0000), rounded)
        return builder.trunc(builder.lshr(found, ir.Constant(i32, 16)), i16)

    def from_literal(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
        return ir.Constant(i16, _bits(source.literal_value))

    def from_small(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
        return narrowed(builder, context.cast(builder, value, source, types.float32))

    def to_number(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
        return context.cast(builder, widened(builder, value), types.float32, target)

    def magnitude(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.and_(arguments[0], ir.Constant(i16, 0x7FFF))

    def truth(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.icmp_unsigned("!=", magnitude(context, builder, signature, arguments), i16(0))

    def converted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return to_number(context, builder, own, signature.return_type, arguments[0])

    def constant(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        return ir.Constant(i16, int.from_bytes(value.tobytes(), "little"))

    registry.lower_cast(types.IntegerLiteral, own)(from_literal)
    for kind in (types.int8, types.uint8, types.boolean):
        registry.lower_cast(kind, own)(from_small)
    for kind in (types.float16, types.Complex):
        registry.lower_cast(own, kind)(to_number)
    registry.lower(abs, own)(magnitude)
    registry.lower(bool, own)(truth)
    registry.lower(operator.truth, own)(truth)
    for result in (int, float, complex):
        registry.lower(result, own)(converted)
    registry.lower_constant(type(own))(constant)
    return registry
