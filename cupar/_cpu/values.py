"""Values in memory and in operators: numba functions that load, store and convert those of a dtype.

In an operator a value has the same type as on the GPU: a number, or a named tuple for a struct. numba has no
16-bit floats on the CPU; there they are float32, rounded to 16 bits wherever they are converted.

Functions of memory take the address of a call's parameters, which do not change, so that LLVM reads each
once, however often it is asked for. They are intrinsics, for which numba compiles no function of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import FunctionType, SimpleNamespace
from typing import Any, Final, NamedTuple

import numpy as np
from cachetools import LRUCache

from .. import structs
from .._base.bounded import Bounded, of_builds
from .._base.generated import define
from .._compile import arithmetic
from .._compile.numba_types import array_of, struct_type
from .._numba_cpu import (
    NamedTupleAttribute,
    NumbaError,
    as_dtype,
    from_dtype,
    intrinsic,
    ir,
    make_array,
    populate_array,
    types,
)
from .target import own, target

DType = np.dtype[Any]

BYTES = types.CPointer(types.uint8)  # how memory is reached: with pointers that LLVM sees through
INDEX = types.int64
_WORD = ir.IntType(64)

# numba's parts for the CPU, by the names that `_numba` has for those of numba-cuda.
NUMBA: Final = SimpleNamespace(
    types=types,
    as_dtype=as_dtype,
    NumbaError=NumbaError,
    NamedTupleAttribute=NamedTupleAttribute,
    cuda_target=target,
    make_array=make_array,
    populate_array=populate_array,
)


def inlined(function: Any) -> Any:
    """Have numba inline a function into its callers, if it does not already."""
    return function if hasattr(function, "py_func") else _shared(function, forceinline=True)


def outlined(function: Any) -> Any:
    """Have numba compile a function out of line."""
    return _shared(function)


# What numba compiles: of cupar's own functions, and of users'.
_own: Final = Bounded[Any](functools.partial(LRUCache, 512))
_users: Final = of_builds(Bounded[Any](functools.partial(LRUCache, 512)))


def forget_functions() -> None:
    """Have functions compiled anew from now on."""
    _own.clear()
    _users.clear()


def _shared(function: Any, **options: Any) -> Any:
    """Return what numba compiles of a function: the same one for functions that do the same."""
    try:
        key = _identity(function), *options
    except TypeError:  # it calls functions of one build only
        return of_one_build(own(function, **options))
    return _kept(_own, key, lambda: own(function, **options))


def of_user(key: Any, make: Callable[[], Any]) -> Any:
    """Return what numba compiled of a user's function under a key, or make it."""
    return _kept(_users, key, make)


def _kept(table: Bounded[Any], key: Any, make: Callable[[], Any]) -> Any:
    found = table.get(key)
    if found is None:
        found = table[key] = make()
    return found


def of_one_build(function: Any) -> Any:
    """Mark what numba compiles as that of one build, and return it."""
    function.is_of_one_build = True
    return function


def _identity(function: Any) -> tuple[Any, ...]:
    """Return what a function of cupar's own is: its code and what that refers to.

    Raises
    ------
    TypeError
        If that is of one build alone.
    """
    names = {} if "__spec__" in function.__globals__ else function.__globals__  # of generated code
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    held += [names[each] for each in function.__code__.co_names if each in names]
    return function.__code__, *map(_held, held)


def _held(value: Any) -> Any:
    if getattr(value, "is_of_one_build", False):
        raise TypeError("this is of one build")
    if isinstance(value, FunctionType):
        return _identity(value)
    hash(value)
    return type(value), value


# --- Types -----------------------------------------------------------------------------------------------


class Value(NamedTuple):
    """A value of a dtype, as code has it."""

    kind: Any  # its numba type in operators
    stored: Any  # and in memory, of a number
    half: str = ""  # the sort of 16-bit float that it is: "f2" or "bf2"
    fields: tuple[tuple[Value, int], ...] = ()  # of a struct, with their offsets


@functools.cache
def value_of(dtype: DType) -> Value:
    """Return what code has for a dtype."""
    if dtype.names is not None:
        given: Any = dtype.fields
        fields = tuple((value_of(given[name][0]), given[name][1]) for name in dtype.names)
        return Value(struct_type(dtype, [each.kind for each, _ in fields], NUMBA), None, fields=fields)
    if structs.is_half(dtype):
        return Value(types.float32, types.uint16, structs.code_of(dtype))
    return Value(from_dtype(dtype), from_dtype(dtype))


# --- LLVM's code -----------------------------------------------------------------------------------------


def _load(context: Any, builder: Any, value: Value, at: Any, unchanging: bool = False) -> Any:
    """Load a value from a pointer to bytes."""
    if value.fields:
        fields = [
            _load(context, builder, field, builder.gep(at, [_WORD(offset)]), unchanging)
            for field, offset in value.fields
        ]
        return context.make_tuple(builder, value.kind, fields)
    at = builder.bitcast(at, context.get_data_type(value.stored).as_pointer())
    if isinstance(value.kind, types.Complex):
        return context.unpack_value(builder, value.kind, at)
    loaded = builder.load(at)
    if unchanging:
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    if value.half:
        return _widened(builder, value.half, loaded)
    return builder.icmp_unsigned("!=", loaded, loaded.type(0)) if value.kind is types.boolean else loaded


def _store(context: Any, builder: Any, value: Value, at: Any, given: Any) -> None:
    """Store a value of its type in operators."""
    for i, (field, offset) in enumerate(value.fields):
        item = builder.extract_value(given, i)
        _store(context, builder, field, builder.gep(at, [_WORD(offset)]), item)
    if not value.fields:
        at = builder.bitcast(at, context.get_data_type(value.stored).as_pointer())
        given = _narrowed(builder, value.half, given) if value.half else given
        context.pack_value(builder, value.stored, given, at)


def converted(context: Any, builder: Any, value: Value, given: Any, kind: Any) -> Any:
    """Convert a value of some type to its type in operators."""
    if value.fields:
        fields = [
            converted(context, builder, field, builder.extract_value(given, i), kind[i])
            for i, (field, _) in enumerate(value.fields)
        ]
        return context.make_tuple(builder, value.kind, fields)
    if value.kind is types.boolean:
        return context.is_true(builder, kind, given)
    if value.half:
        single = _single(context, builder, given, kind)
        return _widened(builder, value.half, _narrowed(builder, value.half, single))
    return context.cast(builder, given, kind, value.kind)


_I16, _I32, _FLOAT, _DOUBLE = ir.IntType(16), ir.IntType(32), ir.FloatType(), ir.DoubleType()


def _single(context: Any, builder: Any, value: Any, kind: Any) -> Any:
    """Return a number as a 32-bit float that is rounded to 16 bits as the number itself would be.

    Lost bits are kept in the last bit ("round to odd"): S. Boldo, G. Melquiond, "When double rounding is
    odd", IMACS 2005.
    """
    if isinstance(kind, types.Literal):
        value, kind = context.cast(builder, value, kind, kind.literal_type), kind.literal_type
    bits = kind.bitwidth if isinstance(kind, (types.Integer, types.Float)) else 0
    if bits < (64 if isinstance(kind, types.Float) else 32):
        return context.cast(builder, value, kind, types.float32)
    if isinstance(kind, types.Integer) and bits == 64:  # to no more bits than a double has
        odd = builder.or_(builder.and_(value, _WORD(~0xFFF)), _WORD(0x800))
        is_whole = builder.icmp_unsigned("==", builder.and_(value, _WORD(0xFFF)), _WORD(0))
        from_zero = builder.add(value, _WORD(kind.signed << 52))
        is_small = builder.icmp_unsigned("<", from_zero, _WORD(1 << 52 + kind.signed))
        value = builder.select(builder.or_(is_small, is_whole), value, odd)
    wide = context.cast(builder, value, kind, types.float64)
    near = builder.fptrunc(wide, _FLOAT)
    magnitude = builder.module.declare_intrinsic("llvm.fabs", [_DOUBLE])
    found, exact = (builder.call(magnitude, [each]) for each in (builder.fpext(near, _DOUBLE), wide))
    beyond = builder.zext(builder.fcmp_ordered(">", found, exact), _I32)
    lost = builder.zext(builder.fcmp_ordered("!=", found, exact), _I32)
    return builder.bitcast(builder.or_(builder.sub(builder.bitcast(near, _I32), beyond), lost), _FLOAT)


def _widened(builder: Any, half: str, bits: Any) -> Any:
    """Return the 32-bit float that 16 bits are."""
    if half == "bf2":
        return builder.bitcast(builder.shl(builder.zext(bits, _I32), _I32(16)), _FLOAT)
    return builder.fpext(builder.bitcast(bits, ir.HalfType()), _FLOAT)


def _narrowed(builder: Any, half: str, value: Any) -> Any:
    """Return the 16 bits that a 32-bit float is rounded to."""
    if half == "f2":
        found = builder.bitcast(builder.fptrunc(value, ir.HalfType()), _I16)
    else:
        bits = builder.bitcast(value, _I32)
        odd = builder.and_(builder.lshr(bits, _I32(16)), _I32(1))
        rounded = builder.add(bits, builder.add(odd, _I32(0x7FFF)))
        found = builder.trunc(builder.lshr(rounded, _I32(16)), _I16)
    return builder.select(builder.fcmp_unordered("uno", value, value), _I16(0x7FFF), found)


class Written(NamedTuple):
    """A function whose LLVM code is written here: numba types and compiles nothing to call it.

    Attributes
    ----------
    result : numba type
    takes : tuple
        The types of its arguments; None: any.
    emit : callable
        Returns the result, given numba's context, LLVM's builder, the values, and the types of those that may
        have any; None for `types.void`.
    """

    result: Any
    takes: tuple[Any, ...]
    emit: Callable[..., Any]

    def call(self, context: Any, builder: Any, values: Sequence[Any], kinds: Sequence[Any]) -> Any:
        """Return the result of a call with values of some types."""
        given = zip(values, kinds, self.takes, strict=True)
        cast = [a if to is None else context.cast(builder, a, kind, to) for a, kind, to in given]
        open_kinds = (kind for kind, to in zip(kinds, self.takes, strict=True) if to is None)
        found = self.emit(context, builder, *cast, *open_kinds)
        return context.get_dummy_value() if found is None else found


def callable_of(written: Written) -> Any:
    """Return what numba compiles a call of in other functions."""
    takes = written.takes

    def typed(*given: Any) -> Any:
        kinds = [types.unliteral(a) if kind is None else kind for a, kind in zip(given, takes, strict=True)]

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return written.call(context, builder, values, signature.args)

        return written.result(*kinds), generate

    signatures = (  # numba asks how many arguments there are
        lambda typing, a: typed(a),
        lambda typing, a, b: typed(a, b),
        lambda typing, a, b, c: typed(a, b, c),
    )
    found = intrinsic(signatures[len(takes) - 1])
    found.written = written
    return found


def written_of(function: Any) -> Written | None:
    """Return how a function is written, None if numba compiles it."""
    return function if isinstance(function, Written) else getattr(function, "written", None)


def _emitted(result: Any, takes: tuple[Any, ...], emit: Callable[..., Any]) -> Any:
    return callable_of(Written(result, takes, emit))


# --- numba's functions -----------------------------------------------------------------------------------


class Place(NamedTuple):
    """The place of a value: a parameter itself, or an offset from the address in a parameter."""

    word: int  # bytes into the parameters
    offset: int | None = None

    def moved(self, by: int) -> Place:
        """Return the place some bytes further on."""
        return self._replace(offset=(self.offset or 0) + by)

    def pointer(self, builder: Any, parameters: Any) -> Any:
        """Return a pointer to it."""
        at = builder.gep(parameters, [_WORD(self.word)])
        if self.offset is None:
            return at
        return builder.gep(_address(builder, at), [_WORD(self.offset)])


def _address(builder: Any, at: Any) -> Any:
    """Return the pointer that is in memory."""
    loaded = builder.load(builder.bitcast(at, _WORD.as_pointer()))
    loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    return builder.inttoptr(loaded, ir.IntType(8).as_pointer())


def cast_to(dtype: DType) -> Any:
    """Return ``cast(value)``, which converts to the dtype."""
    return casting(value_of(dtype))


@functools.cache
def casting(value: Value) -> Any:
    """Return ``cast(given)``, which converts to the type of a value in operators."""
    return _emitted(value.kind, (None,), lambda c, b, given, kind: converted(c, b, value, given, kind))


@functools.cache
def division(dtype: DType) -> tuple[Any, Any]:
    """Return ``quotient(a, b)`` and ``remainder(a, b)`` of integers, as C's `/` and `%`."""
    kind, is_signed = value_of(dtype).kind, dtype.kind == "i"

    def function(emit: Callable[..., Any]) -> Any:
        return _emitted(kind, (kind, kind), lambda context, builder, a, b: emit(builder, is_signed, a, b))

    return function(arithmetic.quotient), function(arithmetic.remainder)


@functools.cache
def constant(dtype: DType, place: Place) -> Any:
    """Return ``read(p)``, of what does not change in a call."""
    value = value_of(dtype)
    return _emitted(value.kind, (BYTES,), lambda c, b, p: _load(c, b, value, place.pointer(b, p), True))


def integer(place: Place) -> Any:
    """Return ``read(p)``, of an integer."""
    return constant(np.dtype(np.int64), place)


@functools.cache
def fixed(number: int) -> Any:
    """Return ``read(p)``, of a number that a build knows."""
    return _emitted(types.int64, (BYTES,), lambda context, builder, p: _WORD(number))


@functools.cache
def memory(dtype: DType, place: Place | None = None) -> tuple[Any, Any]:
    """Return ``read(p, index)`` and ``write(p, index, value)``, which converts.

    `p` are the parameters, and the array's address is in a place; or `p` is the array itself.
    """

    def at(builder: Any, p: Any, index: Any) -> Any:
        start = p if place is None else _address(builder, place.pointer(builder, p))
        return builder.gep(start, [builder.mul(index, _WORD(dtype.itemsize))])

    def write(context: Any, builder: Any, p: Any, index: Any, given: Any, kind: Any) -> None:
        cast = converted(context, builder, value, given, kind)
        _store(context, builder, value, at(builder, p, index), cast)

    value = value_of(dtype)
    read = _emitted(value.kind, (BYTES, INDEX), lambda c, b, p, i: _load(c, b, value, at(b, p, i)))
    return read, _emitted(types.void, (BYTES, INDEX, None), write)


@functools.cache
def address(place: Place) -> Any:
    """Return ``address(p)``, of an array."""
    return _emitted(BYTES, (BYTES,), lambda context, b, p: _address(b, place.pointer(b, p)))


def struct_maker(dtype: DType) -> Any:
    """Return a function that makes a struct of its fields, each converted to its type."""
    own = "_" * max(map(len, dtype.names or ())) + "_"
    names: dict[str, Any] = {f"{own}make": structs.plain_class(dtype), f"{own}cast": cast_to(dtype)}
    fields = ", ".join(dtype.names or ())
    source = f"def _make({fields}):\n    return {own}cast({own}make({fields}))\n"
    return inlined(define("maker of a struct", "_make", source, names))


def array_at(context: Any, builder: Any, array: Any, place: Place, p: Any) -> Any:
    """Return an array of the address and the shape that are in a place."""
    words = [place.moved(8 * (1 + i)).pointer(builder, p) for i in range(array.ndim)]
    shape = [builder.load(builder.bitcast(each, _WORD.as_pointer())) for each in words]
    address = _address(builder, place.pointer(builder, p))
    return array_of(context, builder, array, address, shape, NUMBA)
