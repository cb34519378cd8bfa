"""The one handler of all programs, which numba compiles; it is kept in the cache as an object file.

The interface is C's: ``xla/ffi/api/c_api.h``. A handler takes the address of a call frame and returns that of
an error, or 0. It says that it is of the version of whoever asks, as nothing that it reads has changed since
the first one; or else of JAX's headers. It touches no Python object, unless a program is
called that this process has not resolved yet.

A program is words of 8 bytes and relocations, which are attributes of the call (see `program`). The handler
copies the words to the stack, adds the addresses of buffers, and goes through the records: each launches a
kernel, or calls a function of the CPU's code with words of its own.
"""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .._cpu.target import jitted, target
from .._device.kernels import LaunchConfig
from .layout import (
    API,
    ARGS,
    ATTRS,
    CONTEXT,
    CPU_RECORD,
    CURRENT,
    DATA,
    EXTENSION,
    FAIL,
    GPU_RECORD,
    HEAD,
    LAUNCH,
    MASK,
    METADATA,
    NUM_ARGS,
    OVERLAPS,
    OWN_VERSION,
    PART,
    RESOLVE,
    RETS,
    SELF,
    SPREAD,
    STREAM_GET,
    SYMBOL,
    TABLE,
    VERSION,
)

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_INT = types.int64
_STATE = "cupar_state"


def _emitted(result: Any, count: int, emit: Any) -> Any:
    """Return a function of integers, for which LLVM's code is written."""

    def typed(*given: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            found = emit(builder, *values)
            return context.get_dummy_value() if found is None else found

        return result(*[_INT] * len(given)), code

    forms = (
        lambda typing: typed(),
        lambda typing, a: typed(a),
        lambda typing, a, b: typed(a, b),
        lambda typing, a, b, c: typed(a, b, c),
        lambda typing, a, b, c, d: typed(a, b, c, d),
        lambda typing, a, b, c, d, e: typed(a, b, c, d, e),
    )
    return intrinsic(forms[count])  # numba inspects the signature


def _load(kind: Any) -> Any:
    def emit(builder: Any, address: Any) -> Any:
        found = builder.load(builder.inttoptr(address, kind.as_pointer()), align=4)
        return found if kind == _I64 else builder.sext(found, _I64)

    return _emitted(_INT, 1, emit)


def _store(kind: Any) -> Any:
    def emit(builder: Any, address: Any, value: Any) -> None:
        value = value if kind == _I64 else builder.trunc(value, kind)
        builder.store(value, builder.inttoptr(address, kind.as_pointer()), align=1)

    return _emitted(types.void, 2, emit)


def _load_acquire(builder: Any, address: Any) -> Any:
    return builder.load_atomic(builder.inttoptr(address, _I64.as_pointer()), "acquire", 8)


def _store_release(builder: Any, address: Any, value: Any) -> None:
    builder.store_atomic(value, builder.inttoptr(address, _I64.as_pointer()), "release", 8)


def _call(count: int, result: Any = _I64) -> Any:
    """Return an intrinsic that calls a C function, whose address is its first argument."""

    def emit(builder: Any, function: Any, *given: Any) -> Any:
        pointer = ir.FunctionType(result, [_I64] * count).as_pointer()
        found = builder.call(builder.inttoptr(function, pointer), given)
        return found if result == _I64 else builder.sext(found, _I64)

    return _emitted(_INT, 1 + count, emit)


def _stack(builder: Any, size: Any) -> Any:
    place = builder.alloca(_I64, size)
    place.align = 16
    return builder.ptrtoint(place, _I64)


def _state(builder: Any) -> Any:
    """Return the variable that holds the address of the state."""
    found = builder.module.globals.get(_STATE)
    if found is None:
        found = ir.GlobalVariable(builder.module, _I64, _STATE)
        found.linkage, found.initializer = "internal", _I64(0)
    return found


load, load32 = _load(_I64), _load(_I32)
store, store32 = _store(_I64), _store(_I32)
load_acquire, store_release = _emitted(_INT, 1, _load_acquire), _emitted(types.void, 2, _store_release)
call1, call4 = _call(1), _call(4)
driver1, driver4 = _call(1, _I32), _call(4, _I32)
stack = _emitted(_INT, 1, _stack)
state_of = _emitted(_INT, 0, lambda builder: builder.load(_state(builder)))
set_state = _emitted(types.void, 1, lambda builder, address: builder.store(address, _state(builder)))

_FIELDS = {field[0]: getattr(LaunchConfig, field[0]).offset for field in LaunchConfig._fields_}
_STREAM, _ATTRIBUTES, _COUNT = _FIELDS["stream"], _FIELDS["attributes"], _FIELDS["count"]
_CONFIG = -(-ctypes.sizeof(LaunchConfig) // 8)


@jitted
def _word(address, k):  # type: ignore[no-untyped-def]
    return load(address + 8 * k)


@jitted
def _found(state, key):  # type: ignore[no-untyped-def]
    """Return the address of a program's functions, 0 if it is not resolved."""
    mask, at = _word(state, MASK), key
    while True:
        entry = _word(state, TABLE) + 16 * (at & mask)
        known = load_acquire(entry)  # before what `publish` of `_jax.runtime` wrote ahead of it
        if known == key:
            return _word(entry, 1)
        if known == 0:
            return 0
        at += 1


@jitted
def _launched(state, functions, words, count, stream, frame):  # type: ignore[no-untyped-def]
    config, at = stack(_CONFIG), words
    for _ in range(count):
        num, size = _word(at, 9), _word(at, 10)
        offsets = at + 8 * GPU_RECORD
        data = offsets + 8 * num
        for k in range(7):
            store32(config + 4 * k, _word(at, 1 + k))
        for k in range(num):  # offsets become pointers, in this copy
            store(offsets + 8 * k, data + _word(offsets, k))
        overlaps = _word(at, 8)
        store(config + _STREAM, stream)
        store(config + _ATTRIBUTES, overlaps * _word(state, OVERLAPS))
        store32(config + _COUNT, overlaps)
        failed = driver4(_word(state, LAUNCH), config, _word(functions, _word(at, 0)), offsets, 0)
        if failed:
            return call4(_word(state, FAIL), frame, _word(at, 0), failed, 0)
        at = data + 8 * size
    return 0


@jitted
def _called(state, functions, words, count, most, frame):  # type: ignore[no-untyped-def]
    given, at = stack(PART + most), words
    for _ in range(count):
        number, parts, common = _word(at, 0), _word(at, 1), _word(at, 2)
        begin = at + 8 * CPU_RECORD
        first = begin + 8 * common
        for k in range(parts):
            for i in range(PART):
                store(given + 8 * i, _word(first, PART * k + i))
            for i in range(common):
                store(given + 8 * (PART + i), _word(begin, i))
            failed = call1(_word(functions, number), given)
            if failed:
                return call4(_word(state, FAIL), frame, number, failed, given)
        at = first + 8 * PART * parts
    return 0


@jitted
def _relocated(frame, size, words, num, places):  # type: ignore[no-untyped-def]
    """Add the addresses of buffers, of arguments and then results, where they belong."""
    num_args, args, rets = load(frame + NUM_ARGS), load(frame + ARGS), load(frame + RETS)
    for k in range(0, num, 2):
        at, which = words + _word(places, k), _word(places, k + 1)
        if which == SELF:
            address = words
        elif which < num_args:
            address = load(_word(args, which) + DATA)
        else:
            address = load(_word(rets, which - num_args) + DATA)
        store(at, load(at) + address)


def run(frame):  # type: ignore[no-untyped-def]
    """Run the program of a call frame; the program's words are the frame's attributes."""
    if load(frame) == 0:  # from `_jax.runtime`: the state, or a word to publish
        if _word(frame, 1) == 0:
            store_release(_word(frame, 2), _word(frame, 3))
        else:
            set_state(_word(frame, 1))
        return 0
    api, extension = load(frame + API), load(frame + EXTENSION)
    if extension != 0:
        if load32(extension + 8) == METADATA:
            metadata = load(extension + 24)
            version = state_of() + 8 * OWN_VERSION if api == 0 else api + VERSION  # JAX 0.7 gives no table
            store32(metadata + 24, load32(version))
            store32(metadata + 28, load32(version + 4))
            store32(metadata + 32, 1)  # it may be captured in a command buffer
        return 0
    state, attributes = state_of(), load(frame + ATTRS)
    program, relocations = _word(attributes, 1), _word(attributes, 2)
    size, source = _word(program, 1), _word(program, 2)
    key, on_gpu, count = _word(source, 0), _word(source, 1), _word(source, 2)
    if on_gpu:
        current = stack(1)
        store(current, 0)
        driver1(_word(state, CURRENT), current)
        key = (key ^ load(current) * SPREAD) | 1
    functions = _found(state, key)
    if functions == 0:
        failed = call4(_word(state, RESOLVE), frame, key, 0, 0)
        if failed:
            return failed
        functions = _found(state, key)
    words = stack(size)
    for k in range(size):
        store(words + 8 * k, _word(source, k))
    _relocated(frame, size, words, _word(relocations, 1), _word(relocations, 2))
    if not on_gpu:
        return _called(state, functions, words + 8 * HEAD, count, size, frame)
    asked = stack(4)
    store(asked, 32)
    store(asked + 8, 0)
    store(asked + 16, load(frame + CONTEXT))
    store(asked + 24, 0)
    failed = call1(load(api + STREAM_GET), asked)
    if failed:
        return failed
    return _launched(state, functions, words + 8 * HEAD, count, load(asked + 24), frame)


def library() -> Any:
    """Return the handler as LLVM's code, under its symbol."""
    compiled = jitted(run)
    compiled.compile((_INT,))
    made = compiled.overloads[(_INT,)]
    context = target.target_context
    module = ir.Module("cupar")
    around = ir.Function(module, ir.FunctionType(_I64, [_I64]), SYMBOL)
    builder = ir.IRBuilder(around.append_basic_block())
    signature = _INT, (_INT,)
    function = ir.Function(
        module, context.call_conv.get_function_type(*signature), made.fndesc.llvm_func_name
    )
    _, found = context.call_conv.call_function(builder, function, *signature, around.args)
    builder.ret(found)  # nothing in it raises
    library = context.codegen().create_library("cupar")
    library.add_ir_module(module)
    library.add_linking_library(made.library)
    library.finalize()
    library.optimize()
    return library
