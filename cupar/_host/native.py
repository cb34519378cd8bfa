"""What compiled code is made of, in LLVM's terms: words that are read, calls of the driver, values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from llvmlite import ir
from numba.core import cgutils, types
from numba.cpython.unsafe.numbers import leading_zeros
from numba.extending import NativeValue, intrinsic, overload

from .._kernels import family, histogram
from .layout import PLACES

_I8, _I32, _I64 = (ir.IntType(bits) for bits in (8, 32, 64))
_BYTES = _I8.as_pointer()
ALIGNMENT = 16


def word_at(builder: Any, state: Any, place: Any) -> Any:
    """Read a word of a block; its place is a number, or a value."""
    block = builder.inttoptr(state, _I64.as_pointer())
    return builder.load(builder.gep(block, [place if isinstance(place, ir.Value) else _I64(place)]))


@intrinsic
def word(typing: Any, state: Any, place: Any) -> Any:
    """Read a word of a build's block."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return word_at(builder, *values)

    return types.int64(types.int64, types.int64), code


# --- What plans call that CPython has in another way --------------------------------------------------------

# Words are int64 here, whatever their bits mean.


@overload(family.bits, strict=False)
def _bits(number: Any) -> Any:
    return lambda number: 64 - leading_zeros(types.int64(number))


@intrinsic
def _cast_bits(typing: Any, value: Any, kind: Any) -> Any:
    """Return the bits of a value as those of another type."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], context.get_value_type(kind.instance_type))

    return kind.instance_type(value, kind), code


@overload(histogram.bits_of, strict=False)
def _bits_of(number: Any) -> Any:
    return lambda number: _cast_bits(number, types.int64)


@overload(histogram.float_of, strict=False)
def _float_of(bits: Any) -> Any:
    return lambda bits: _cast_bits(bits, types.float64)


@overload(histogram.word_of, strict=False)
def _word_of(number: Any) -> Any:
    return lambda number: number


@overload(histogram.scaled, strict=False)
def _scaled(part: Any, whole: Any, bits: Any) -> Any:
    def scaled(part, whole, bits):  # type: ignore[no-untyped-def]
        rest, found = part, 0
        for _ in range(bits):  # without ever doubling the rest, which may have 63 bits
            found += found
            if rest >= whole - rest:
                rest, found = rest - (whole - rest), found + 1
            else:
                rest += rest
        return found + 1 if rest > 0 else found

    return scaled


# --- Calls of the driver -----------------------------------------------------------------------------------


def called(builder: Any, state: Any, name: str, *values: Any) -> Any:
    """Call a function of the driver, whose address is in the block; return its status."""
    kinds = [each.type for each in values]
    pointer = ir.FunctionType(_I32, kinds).as_pointer()
    return builder.call(builder.inttoptr(word_at(builder, state, PLACES[name]), pointer), values)


@intrinsic
def allocate(typing: Any, state: Any, nbytes: Any, stream: Any) -> Any:
    """Allocate memory in the order of a stream; return the status and the address."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        state, nbytes, stream = values
        place = cgutils.alloca_once(builder, _I64)
        pool = word_at(builder, state, PLACES["pool"])
        status = called(builder, state, "cuMemAllocFromPoolAsync", place, nbytes, pool, stream)
        found = builder.zext(status, _I64), builder.load(place)
        return context.make_tuple(builder, signature.return_type, found)

    return types.UniTuple(types.int64, 2)(types.int64, types.int64, types.int64), code


@intrinsic
def release(typing: Any, state: Any, address: Any, stream: Any) -> Any:
    """Free memory in the order of a stream; return the status."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        state, address, stream = values
        return builder.zext(called(builder, state, "cuMemFreeAsync", address, stream), _I64)

    return types.int64(types.int64, types.int64, types.int64), code


@intrinsic
def adopt_context(typing: Any, state: Any) -> Any:
    """Make the build's context current if this thread has none; return whether it was done."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        (state,) = values
        place = cgutils.alloca_once(builder, _I64, zfill=True)
        failed = called(builder, state, "cuCtxGetCurrent", place)
        current = builder.load(place)
        has_none = builder.and_(
            builder.icmp_unsigned("==", failed, _I32(0)), builder.icmp_unsigned("==", current, _I64(0))
        )
        with builder.if_then(has_none):
            called(builder, state, "cuCtxSetCurrent", word_at(builder, state, PLACES["context"]))
        return builder.zext(has_none, _I64)

    return types.int64(types.int64), code


# --- Values ------------------------------------------------------------------------------------------------

# What constants in compiled code need, by numba's code library: that lives as long as any code it is part of.
_constants: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()


def constant_address(context: Any, builder: Any, kind: Any, address: int, needed: Any) -> Any:
    """Return an address as a constant of the function that is compiled, which keeps what is needed there."""
    _constants.setdefault(context.active_code_library, []).append(needed)
    return context.add_dynamic_addr(builder, address, info=str(kind))


@intrinsic
def on_stack(typing: Any, value: Any) -> Any:
    """Put a value on the stack, as it is in an array; return its address."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        (kind,) = signature.args
        model = context.data_model_manager[kind]
        stored = model.as_data(builder, values[0])
        place = cgutils.alloca_once(builder, stored.type)
        place.align = ALIGNMENT
        builder.store(stored, place)
        return builder.ptrtoint(place, _I64)

    return types.int64(value), code


def unboxed_word(find: Any, obj: Any, c: Any) -> NativeValue:
    """Return the integer that a Python function finds for an object that comes in."""
    function = c.pyapi.unserialize(c.pyapi.serialize_object(find))
    found = c.pyapi.call_function_objargs(function, [obj])
    failed = cgutils.is_null(c.builder, found)
    place = cgutils.alloca_once(c.builder, _I64, zfill=True)
    with c.builder.if_then(c.builder.not_(failed)):
        c.builder.store(c.pyapi.long_as_longlong(found), place)
        c.pyapi.decref(found)
    c.pyapi.decref(function)
    return NativeValue(c.builder.load(place), is_error=failed)


def field(name: str, kind_of: Callable[[Any], Any]) -> Any:
    """Return what reads a member of a struct; its type is that of the struct, as `kind_of` says."""

    @intrinsic
    def read(typing: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return getattr(cgutils.create_struct_proxy(value)(context, builder, values[0]), name)

        return kind_of(value)(value), code

    return read
