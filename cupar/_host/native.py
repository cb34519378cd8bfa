"""Pieces of compiled code in LLVM IR: reads of words, calls of the driver, values on the stack, constants."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any
from weakref import WeakKeyDictionary

from .._kernels import family, histogram, segments
from .._launch.words import PLACES
from .._numba_cpu import (
    NativeValue,
    cgutils,
    intrinsic,
    ir,
    leading_zeros,
    lower_constant,
    models,
    overload,
    register_model,
    tuple_setitem,
    types,
    unbox,
)

I64 = ir.IntType(64)
WORDS = I64.as_pointer()
_I32 = ir.IntType(32)
ALIGNMENT = 16
LISTS = segments.LISTS
_NO_STARTS = (0,) * (LISTS + 1)


def word_at(builder: Any, address: Any, place: Any) -> Any:
    """Read one of the words at an address; its place is a number, or a value."""
    words = builder.inttoptr(address, WORDS)
    return builder.load(builder.gep(words, [place if isinstance(place, ir.Value) else I64(place)]))


def emitted(result: Any, count: int, emit: Callable[..., Any]) -> Any:
    """Return a function of integers for compiled code; `emit` writes it for a builder and their values."""

    def typed(typing: Any, *given: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            found = emit(builder, *values)
            return context.get_dummy_value() if found is None else found

        return result(*[types.int64] * count), code

    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("typing", *"abcdef"[:count])]
    typed.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # numba inspects it
    return intrinsic(typed)


def _acquired_word(builder: Any, table: Any, place: Any) -> Any:
    return builder.load_atomic(builder.gep(builder.inttoptr(table, WORDS), [place]), "acquire", 8)


def set_word(builder: Any, address: Any, place: int, value: Any) -> None:
    """Write one of the words at an address."""
    builder.store(value, builder.gep(builder.inttoptr(address, WORDS), [I64(place)]))


def as_word(builder: Any, value: Any) -> Any:
    """Return a number of at most 8 bytes as a word with its bits."""
    if isinstance(value.type, (ir.FloatType, ir.DoubleType)):
        value = builder.bitcast(value, ir.IntType(32 if isinstance(value.type, ir.FloatType) else 64))
    return value if value.type == I64 else builder.zext(value, I64)


# Reads of a table's words; with acquire semantics, what was written before `publish` wrote one is seen.
word, acquired_word = (emitted(types.int64, 2, each) for each in (word_at, _acquired_word))


# --- Twins that plans call: see `family.twin`. Those of makers of problems are in `problems` ---------------

# Words are int64 here, also those that hold other types.


@overload(family.bits, strict=False)
def _bits(number: Any) -> Any:
    return lambda number: 64 - leading_zeros(types.int64(number))


def _divide(builder: Any, *values: Any) -> Any:
    """Divide in a function that is never inlined: plans divide often, and LLVM makes 40 lines of it."""
    function = builder.module.globals.get("cupar_ceil_div")
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(I64, [I64] * 2), "cupar_ceil_div")
        function.linkage = "linkonce_odr"
        function.attributes.add("noinline")
        own = ir.IRBuilder(function.append_basic_block())
        a, b = function.args
        own.ret(own.sdiv(own.add(a, own.sub(b, I64(1))), b))
    return builder.call(function, values)


_ceil_div = emitted(types.int64, 2, _divide)


@overload(family.ceil_div, strict=False)
def _divided(a: Any, b: Any) -> Any:
    return lambda a, b: _ceil_div(a, b)  # noqa: PLW0108 - as numba wants it


@overload(segments.starts_of_lists, strict=False)
def _starts_of_lists(n: Any, items: Any, least: Any) -> Any:
    def starts(n, items, least):  # type: ignore[no-untyped-def]
        found, last = _NO_STARTS, 0
        for k in range(LISTS):
            last += min(n, items // least[k])
            found = tuple_setitem(found, k + 1, last)
        return found

    return starts


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


def called(builder: Any, table: Any, name: str, *values: Any) -> Any:
    """Call a function of the driver, whose address is in the table; return its status."""
    kinds = [each.type for each in values]
    pointer = ir.FunctionType(_I32, kinds).as_pointer()
    return builder.call(builder.inttoptr(word_at(builder, table, PLACES[name]), pointer), values)


def adopted(builder: Any, table: Any) -> Any:
    """Make the build's context current if this thread has none; return whether it was done."""
    place = cgutils.alloca_once(builder, I64, zfill=True)
    failed = called(builder, table, "cuCtxGetCurrent", place)
    current = builder.load(place)
    has_none = builder.and_(
        builder.icmp_unsigned("==", failed, _I32(0)), builder.icmp_unsigned("==", current, I64(0))
    )
    with builder.if_then(has_none):
        called(builder, table, "cuCtxSetCurrent", word_at(builder, table, PLACES["context"]))
    return has_none


adopt_context = emitted(types.int64, 1, lambda builder, table: builder.zext(adopted(builder, table), I64))


# --- Values ------------------------------------------------------------------------------------------------

# What constants in compiled code need, by numba's code library: that lives as long as any code it is part of.
_constants: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()


def constant_address(context: Any, builder: Any, kind: Any, address: int, needed: Any) -> Any:
    """Return an address as a constant of the function being compiled, whose code keeps `needed` alive."""
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
        return builder.ptrtoint(place, I64)

    return types.int64(value), code


def unboxed_word(find: Any, obj: Any, c: Any) -> NativeValue:
    """Return the integer that the Python function `find` returns for an argument of compiled code."""
    function = c.pyapi.unserialize(c.pyapi.serialize_object(find))
    found = c.pyapi.call_function_objargs(function, [obj])
    failed = cgutils.is_null(c.builder, found)
    place = cgutils.alloca_once(c.builder, I64, zfill=True)
    with c.builder.if_then(c.builder.not_(failed)):
        c.builder.store(c.pyapi.long_as_longlong(found), place)
        c.pyapi.decref(found)
    c.pyapi.decref(function)
    return NativeValue(c.builder.load(place), is_error=failed)


class WordModel(models.PrimitiveModel):  # type: ignore[misc]
    """Values that are a word."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, I64)


def register_word(kind: Any, find: Callable[[Any], int], needed: Callable[[Any], Any]) -> None:
    """Let objects of a type be words, which `find` returns; constants keep them, and what is `needed`."""

    def constant(context: Any, builder: Any, own: Any, value: Any) -> Any:
        pointer = constant_address(context, builder, own, find(value), (needed(value), value))
        return builder.ptrtoint(pointer, I64)

    register_model(kind)(WordModel)
    unbox(kind)(lambda own, obj, c: unboxed_word(find, obj, c))
    lower_constant(kind)(constant)


def field(name: str, kind_of: Callable[[Any], Any]) -> Any:
    """Return a function for compiled code that reads a struct's member; `kind_of` gives its type."""

    @intrinsic
    def read(typing: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return getattr(cgutils.create_struct_proxy(value)(context, builder, values[0]), name)

        return kind_of(value)(value), code

    return read
