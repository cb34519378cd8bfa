"""The one handler of all programs, which numba compiles; it is kept in the cache as an object file.

The interface is C's: ``xla/ffi/api/c_api.h``. A handler takes the address of a call frame and returns that of
an error, or 0. It touches no Python object, unless a program calls functions of Python's, or is not resolved
in this process yet.

Functions of Python's are called through Python's C interface. A callback of ctypes would not do: it ignores
an exception that is raised before the function's first line, as by Ctrl-C, and returns whatever is on the
stack, such as the result of the call before.

A program is words of 8 bytes and relocations, which are attributes of the call (see `program`). The handler
copies the words to the stack, adds the addresses of buffers and functions, and goes through the records: each
launches a shape, or calls a function of the CPU's code with words of its own.
"""

from __future__ import annotations

from typing import Any

from .._cpu.target import jitted, target
from .._host.launches import launcher
from .._host.native import I64, WORDS, emitted
from .._launch.words import STREAM, VALUES
from .._numba_cpu import cgutils, ir, types
from . import layout

_I32 = ir.IntType(32)
_INT = types.int64
_STATE = "cupar_state"


def _load(kind: Any) -> Any:
    def emit(builder: Any, address: Any) -> Any:
        found = builder.load(builder.inttoptr(address, kind.as_pointer()), align=4)
        return found if kind == I64 else builder.sext(found, I64)

    return emitted(_INT, 1, emit)


def _store(kind: Any) -> Any:
    def emit(builder: Any, address: Any, value: Any) -> None:
        value = value if kind == I64 else builder.trunc(value, kind)
        builder.store(value, builder.inttoptr(address, kind.as_pointer()), align=1)

    return emitted(types.void, 2, emit)


def _load_acquire(builder: Any, address: Any) -> Any:
    return builder.load_atomic(builder.inttoptr(address, WORDS), "acquire", 8)


def _store_release(builder: Any, address: Any, value: Any) -> None:
    builder.store_atomic(value, builder.inttoptr(address, WORDS), "release", 8)


def _call(count: int, result: Any = I64) -> Any:
    """Return an intrinsic that calls a C function, whose address is its first argument."""

    def emit(builder: Any, function: Any, *given: Any) -> Any:
        pointer = ir.FunctionType(result, [I64] * count).as_pointer()
        found = builder.call(builder.inttoptr(function, pointer), given)
        return found if result == I64 else builder.sext(found, I64)

    return emitted(_INT, 1 + count, emit)


def _stack(builder: Any, size: Any) -> Any:
    place = builder.alloca(I64, size)
    place.align = 16
    return builder.ptrtoint(place, I64)


def _state(builder: Any) -> Any:
    """Return the variable that holds the address of the state."""
    found = builder.module.globals.get(_STATE)
    if found is None:
        found = ir.GlobalVariable(builder.module, I64, _STATE)
        found.linkage, found.initializer = "internal", I64(0)
    return found


def _copy(builder: Any, target: Any, source: Any, count: Any) -> None:
    words = [builder.inttoptr(each, WORDS) for each in (target, source)]
    cgutils.raw_memcpy(builder, *words, count, 8)


load, load32 = _load(I64), _load(_I32)
store, store32 = _store(I64), _store(_I32)
load_acquire, store_release = emitted(_INT, 1, _load_acquire), emitted(types.void, 2, _store_release)
call0, call1, call2 = (_call(count) for count in range(3))
int0, int1 = (_call(count, _I32) for count in range(2))
launch = emitted(_INT, 3, lambda builder, *given: builder.call(launcher(builder.module), given))
stack, copy = emitted(_INT, 1, _stack), emitted(types.void, 3, _copy)
state_of = emitted(_INT, 0, lambda builder: builder.load(_state(builder)))
set_state = emitted(types.void, 1, lambda builder, address: builder.store(address, _state(builder)))

_TRIES = 16  # signals that arrive just as a function begins; and a stack that is full is for ever


@jitted
def _word(address, k):  # type: ignore[no-untyped-def]
    return load(address + 8 * k)


@jitted
def _found(state, key):  # type: ignore[no-untyped-def]
    """Return the address of a program's functions, 0 if it is not resolved."""
    mask, at = _word(state, layout.MASK), key
    while True:
        entry = _word(state, layout.TABLE) + 16 * (at & mask)
        known = load_acquire(entry)  # before what `publish` of `_jax.runtime` wrote ahead of it
        if known == key:
            return _word(entry, 1)
        if known == 0:
            return 0
        at += 1


@jitted
def _answer(state, function, frame, number, status, given):  # type: ignore[no-untyped-def]
    """Call a function of Python's, which returns the address of an error, or 0.

    It raises nothing of its own: an exception comes from a signal's handler, as KeyboardInterrupt does. This
    thread raises it again once XLA has returned to Python. Before that, the function is called again; if it
    had begun its work, XLA gets an error.
    """
    words = stack(5)
    store(words, frame)
    store(words + 8, number)
    store(words + 16, status)
    store(words + 24, given)
    store(words + 8 * layout.BEGUN, 0)
    gil = int0(_word(state, layout.ENSURE))
    address = call1(_word(state, layout.FROM_INT), words)
    answer = raised = 0
    for _ in range(_TRIES):
        result = call2(_word(state, layout.CALL), function, address)
        if result != 0:
            answer = call1(_word(state, layout.AS_INT), result)
            call1(_word(state, layout.DROP), result)
            break
        if raised != 0:
            call1(_word(state, layout.DROP), raised)
        raised = call0(_word(state, layout.OCCURRED))
        call1(_word(state, layout.KEEP), raised)
        call0(_word(state, layout.CLEAR))
        if _word(words, layout.BEGUN) != 0:
            break
    call1(_word(state, layout.DROP), address)
    if raised != 0:
        call2(_word(state, layout.RAISE), call0(_word(state, layout.THREAD)), raised)
        call1(_word(state, layout.DROP), raised)
    if result == 0:
        store(words, 32)
        store(words + 8, 0)
        store(words + 16, _word(state, layout.INTERRUPTED))
        store(words + 24, layout.CANCELLED)
        answer = call1(load(load(frame + layout.API) + layout.ERROR_CREATE), words)
    call1(_word(state, layout.RELEASE), gil)
    return answer


@jitted
def _launched(state, words, count, stream, frame):  # type: ignore[no-untyped-def]
    call, at = stack(VALUES), words
    for k in range(VALUES):
        store(call + 8 * k, stream if k == STREAM else 0)
    for _ in range(count):
        if _word(at, 1) != 0:
            failed = launch(state + 8 * layout.LAUNCH, at + 8 * layout.RECORD, call)
            if failed != 0:
                return _answer(state, _word(state, layout.FAIL), frame, failed >> 32, failed & 0xFFFFFFFF, 0)
        at += 8 * (layout.RECORD + _word(at, 2))
    return 0


@jitted
def _called(state, functions, words, count, most, frame):  # type: ignore[no-untyped-def]
    given, at = stack(layout.PART + most), words
    for _ in range(count):
        number, parts, common = _word(at, 0), _word(at, 1), _word(at, 2)
        begin = at + 8 * layout.RECORD
        first = begin + 8 * common
        for k in range(parts):
            for i in range(layout.PART):
                store(given + 8 * i, _word(first, layout.PART * k + i))
            for i in range(common):
                store(given + 8 * (layout.PART + i), _word(begin, i))
            function = _word(functions, number)
            if function & 1:  # an object of Python's
                failed = _answer(state, function - 1, frame, number, 0, given)
                if failed:
                    return failed
            else:
                failed = call1(function, given)
                if failed:
                    return _answer(state, _word(state, layout.FAIL), frame, number, failed, given)
        at = first + 8 * layout.PART * parts
    return 0


@jitted
def _relocated(frame, functions, words, num, places):  # type: ignore[no-untyped-def]
    """Add the addresses of buffers, of arguments and then results, and of functions, where they belong."""
    num_args, args, rets = load(frame + layout.NUM_ARGS), load(frame + layout.ARGS), load(frame + layout.RETS)
    for k in range(0, num, 2):
        at, which = words + _word(places, k), _word(places, k + 1)
        if which <= layout.FIRST_FUNCTION:
            address = _word(functions, layout.FIRST_FUNCTION - which)
        elif which == layout.SELF:
            address = words
        elif which < num_args:
            address = load(_word(args, which) + layout.DATA)
        else:
            address = load(_word(rets, which - num_args) + layout.DATA)
        store(at, load(at) + address)


def run(frame):  # type: ignore[no-untyped-def]
    """Run the program of a call frame; the program's words are the frame's attributes."""
    if load(frame) == 0:  # from `_jax.runtime`: the state, or a word to publish
        if _word(frame, 1) == 0:
            store_release(_word(frame, 2), _word(frame, 3))
        else:
            set_state(_word(frame, 1))
        return 0
    state, extension = state_of(), load(frame + layout.EXTENSION)
    if extension != 0:
        if load32(extension + 8) == layout.METADATA:
            metadata, version = load(extension + 24), state + 8 * layout.VERSION
            store32(metadata + 24, load32(version))
            store32(metadata + 28, load32(version + 4))
            store32(metadata + 32, 1)  # it may be captured in a command buffer
        return 0
    if load32(frame + layout.STAGE) == layout.INSTANTIATE:
        return _answer(state, _word(state, layout.FIND), frame, 0, 0, 0)
    attributes = load(frame + layout.ATTRS)
    program, relocations = _word(attributes, 1), _word(attributes, 2)
    size, source = _word(program, 1), _word(program, 2)
    key, on_gpu, count = _word(source, 0), _word(source, 1), _word(source, 2)
    if on_gpu:
        current = stack(1)
        store(current, 0)
        int1(_word(state, layout.CURRENT), current)
        key = (key ^ load(current) * layout.SPREAD) | 1
    functions = _found(state, key)
    if functions == 0:
        failed = _answer(state, _word(state, layout.RESOLVE), frame, key, 0, 0)
        if failed:
            return failed
        functions = _found(state, key)
    words = stack(size)
    copy(words, source, size)
    _relocated(frame, functions, words, _word(relocations, 1), _word(relocations, 2))
    if not on_gpu:
        return _called(state, functions, words + 8 * layout.HEAD, count, size, frame)
    asked = stack(4)
    store(asked, 32)
    store(asked + 8, 0)
    store(asked + 16, load(frame + layout.CONTEXT))
    store(asked + 24, 0)
    failed = call1(load(load(frame + layout.API) + layout.STREAM_GET), asked)
    if failed:
        return failed
    return _launched(state, words + 8 * layout.HEAD, count, load(asked + 24), frame)


def library() -> Any:
    """Return the handler as LLVM's code, under its symbol."""
    compiled = jitted(run)
    compiled.compile((_INT,))
    made = compiled.overloads[(_INT,)]
    context = target.target_context
    module = ir.Module("cupar")
    around = ir.Function(module, ir.FunctionType(I64, [I64]), layout.SYMBOL)
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
