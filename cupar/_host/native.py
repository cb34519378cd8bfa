"""What compiled code is made of, in LLVM's terms: words that are read, calls of the driver, values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from llvmlite import ir
from numba.core import cgutils, types
from numba.cpython.unsafe.numbers import leading_zeros
from numba.cpython.unsafe.tuple import tuple_setitem
from numba.extending import NativeValue, intrinsic, register_jitable

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


@register_jitable
def bit_length(number):  # type: ignore[no-untyped-def]
    return 64 - leading_zeros(types.int64(number))


@register_jitable
def aligned(*sizes):  # type: ignore[no-untyped-def]
    """Do what `family.aligned` does."""
    at, offsets = 0, sizes + (0,)  # numba has no stars in the middle of a function
    for k in range(len(sizes)):
        offsets = tuple_setitem(offsets, k, at)
        at += (sizes[k] + 255) // 256 * 256
    return tuple_setitem(offsets, len(sizes), at)


@intrinsic
def bits_of(typing: Any, number: Any) -> Any:
    """Do what `histogram.bits_of` does."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], _I64)

    return types.int64(types.float64), code


@intrinsic
def float_of(typing: Any, bits: Any) -> Any:
    """Do what `histogram.float_of` does."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], ir.DoubleType())

    return types.float64(types.int64), code


@register_jitable
def word_of(number):  # type: ignore[no-untyped-def]
    """Do what `histogram.word_of` does: words are int64 here, whatever their bits mean."""
    return number


@register_jitable
def distance(upper, lower):  # type: ignore[no-untyped-def]
    """Do what `histogram.distance` does."""
    return types.int64(types.uint64(upper) - types.uint64(lower))


@register_jitable
def scaled(part, whole, bits):  # type: ignore[no-untyped-def]
    """Do what `histogram.scaled` does, bit by bit."""
    one, rest, divisor, found = types.uint64(1), types.uint64(part), types.uint64(whole), types.uint64(0)
    for _ in range(bits):
        rest, found = rest << one, found << one
        if rest >= divisor:
            rest, found = rest - divisor, found | one
    return types.int64(found + one if rest > types.uint64(0) else found)


# What plans call, by the names that they have there.
OF_PLANS = {
    "_word": word,
    "_bit_length": bit_length,
    "_aligned": aligned,
    "_bits_of": bits_of,
    "_float_of": float_of,
    "_word_of": word_of,
    "_distance": distance,
    "_scaled": scaled,
}


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


def occupancy(first: int) -> Any:
    """Return what asks how many blocks of a kernel run at once; kernels are words from `first` on."""

    @intrinsic
    def occupancy(typing: Any, state: Any, kernel: Any, threads: Any, shared: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            state, kernel, threads, shared = values
            place = cgutils.alloca_once(builder, _I32, zfill=True)
            function = word_at(builder, state, builder.add(kernel, _I64(first)))
            threads = builder.trunc(threads, _I32)
            ask = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
            called(builder, state, ask, place, function, threads, shared)
            return builder.sext(builder.load(place), _I64)

        return types.int64(types.int64, types.int64, types.int64, types.int64), code

    return occupancy


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
