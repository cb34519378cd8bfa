"""Launches in LLVM IR: one function launches the shapes of all builds and kernels, and of programs of JAX's.

It reads the words that `_launch.words` makes: those of a shape, and those of a call. For each record of the
shape it packs the parameters on the stack, and calls cuLaunchKernelEx.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._device.kernels import LaunchConfig
from .._launch.words import DIMENSIONS, IN_RECORD, OWN, PLACES, STATUS, STORE, STREAM, SUM
from .._numba_cpu import cgutils, cpu_target, global_compiler_lock, ir
from .native import ALIGNMENT, I64, WORDS, called, set_word, word_at

_I8, _I32 = (ir.IntType(bits) for bits in (8, 32))
_BYTES = _I8.as_pointer()
_FIELDS = (
    "grid",
    "grid_y",
    "grid_z",
    "block",
    "block_y",
    "block_z",
    "shared",
    "stream",
    "attributes",
    "count",
)
_NO_SHAPE = 999  # CUDA_ERROR_UNKNOWN: no plan has a shape that the build has not


_kept: list[Any] = []


@functools.cache
@global_compiler_lock
def functions() -> tuple[int, ...]:
    """Return the addresses of `OWN`, which are compiled once in a process; tables have them.

    - ``launch(table, shape, call)``: see `launcher`.
    - ``emit(table, shapes, number, call)`` launches a shape by its number, unless a launch before it has
      failed, and sets the call's status.
    - ``publish(address, word)``: see `publish`.
    """
    library = cpu_target.target_context.codegen().create_library("cupar")
    module = library.create_ir_module("cupar")
    launch = launcher(module)
    launch.linkage = "external"
    emit, store = (
        ir.Function(module, ir.FunctionType(I64, [I64] * count), f"cupar_{name}")
        for name, count in zip(OWN[1:], (4, 2), strict=True)
    )
    _write_emit(emit, launch)
    _write_publish(store)
    library.add_ir_module(module)
    library.finalize()
    _kept.append(library)
    return tuple(library.get_pointer_to_function(each.name) for each in (launch, emit, store))


def publish(place: np.ndarray[Any, Any], word: int) -> None:
    """Store a word after all that was written before, for threads that load it by `native.acquired_word`.

    Python has no store with release semantics, without which aarch64 may show them the word first.
    """
    store = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 3)(functions()[OWN.index("publish")])
    store(place.ctypes.data, word)


def call_own(builder: Any, table: Any, name: str, *given: Any) -> Any:
    """Call one of `OWN`."""
    kind = ir.FunctionType(I64, [I64] * (1 + len(given))).as_pointer()
    return builder.call(builder.inttoptr(word_at(builder, table, PLACES[name]), kind), [table, *given])


def launcher(module: Any) -> Any:
    """Return a module's function that launches shapes: ``cupar_launch(table, shape, call)``.

    It takes the addresses of words. It returns a status; if that is not 0, it has the number of the launch
    that failed in its upper half.
    """
    found = module.globals.get("cupar_launch")
    if found is None:
        found = ir.Function(module, ir.FunctionType(I64, [I64] * 3), "cupar_launch")
        found.linkage = "linkonce_odr"
        _write_launch(found)
    return found


def _write_emit(function: Any, launch: Any) -> None:
    table, shapes, number, call = function.args
    builder = ir.IRBuilder(function.append_basic_block())
    with builder.if_then(builder.icmp_unsigned("==", word_at(builder, call, STATUS), I64(0))):
        status = builder.call(launch, [table, word_at(builder, shapes, number), call])
        set_word(builder, call, STATUS, status)
    builder.ret(I64(0))


def _write_publish(function: Any) -> None:
    address, word = function.args
    builder = ir.IRBuilder(function.append_basic_block())
    builder.store_atomic(word, builder.inttoptr(address, WORDS), "release", 8)
    builder.ret(I64(0))


def on_stack(builder: Any, words: Sequence[Any], more: int = 0) -> Any:
    """Put words on the stack, with room for more behind them; return their address."""
    place = cgutils.alloca_once(builder, ir.ArrayType(I64, len(words) + more))
    for k, each in enumerate(words):
        builder.store(each, builder.gep(place, [I64(0), I64(k)]))
    return builder.ptrtoint(place, I64)


def _write_launch(function: Any) -> None:
    table, shape, call = function.args
    builder = ir.IRBuilder(function.append_basic_block())
    with builder.if_then(builder.icmp_unsigned("==", shape, I64(0))):
        builder.ret(I64(_NO_SHAPE))
    launches, size, most = (word_at(builder, shape, k) for k in range(3))
    # An integer is stored as 8 bytes, and its successor then overwrites the surplus; so 8 more bytes follow
    # the last.
    memory = builder.alloca(_I8, builder.add(size, I64(8)))
    memory.align = ALIGNMENT
    pointers = builder.alloca(_BYTES, most)
    config = builder.bitcast(builder.alloca(ir.ArrayType(I64, ctypes.sizeof(LaunchConfig) // 8)), _BYTES)
    at = builder.alloca(I64)
    builder.store(builder.add(shape, I64(3 * 8)), at)

    def summed(first: Any) -> Any:
        """Return the sum whose words begin at an address."""
        one, other, constant = (word_at(builder, first, k) for k in range(SUM))
        return builder.add(builder.add(word_at(builder, call, one), word_at(builder, call, other)), constant)

    with cgutils.for_range(builder, launches):
        cgutils.memset(builder, memory, size, 0)
        record = builder.load(at)
        length, number, kernel, attributes, shown, name, parameters, stores = (
            word_at(builder, record, k) for k in range(len(IN_RECORD))
        )
        sums = [builder.add(record, I64(8 * (DIMENSIONS + SUM * k))) for k in range(7)]
        numbers = [*map(summed, sums), word_at(builder, call, I64(STREAM))]
        count = builder.zext(builder.icmp_unsigned("!=", attributes, I64(0)), I64)
        for field, value in zip(_FIELDS, (*numbers, attributes, count), strict=True):
            member = getattr(LaunchConfig, field)
            kind = ir.IntType(8 * member.size)
            value = value if kind == I64 else builder.trunc(value, kind)
            place = builder.gep(config, [I64(member.offset)])
            builder.store(value, builder.bitcast(place, kind.as_pointer()))
        offsets = builder.add(record, I64(8 * (DIMENSIONS + SUM * 7)))
        with cgutils.for_range(builder, parameters) as loop:
            place = builder.gep(memory, [word_at(builder, offsets, loop.index)])
            builder.store(place, builder.gep(pointers, [loop.index]))
        first = builder.add(offsets, builder.mul(parameters, I64(8)))
        with cgutils.for_range(builder, stores) as loop:
            store = builder.add(first, builder.mul(loop.index, I64(8 * STORE)))
            offset, nbytes, are_bytes = (word_at(builder, store, k) for k in range(3))
            value, place = summed(builder.add(store, I64(3 * 8))), builder.gep(memory, [offset])
            with builder.if_else(builder.trunc(are_bytes, ir.IntType(1))) as (copied, stored):
                with copied:
                    cgutils.raw_memcpy(builder, place, builder.inttoptr(value, _BYTES), nbytes, 1)
                with stored:
                    unused = builder.sub(I64(64), builder.mul(nbytes, I64(8)))
                    value = builder.lshr(builder.shl(value, unused), unused)
                    builder.store(value, builder.bitcast(place, WORDS), align=1)
        with builder.if_then(builder.icmp_unsigned("!=", shown, I64(0)), likely=False):
            kind = ir.FunctionType(ir.VoidType(), [I64] * 9).as_pointer()
            builder.call(builder.inttoptr(shown, kind), [name, *numbers])
        status = called(builder, table, "cuLaunchKernelEx", config, kernel, pointers, I64(0))
        with builder.if_then(builder.icmp_unsigned("!=", status, _I32(0)), likely=False):
            builder.ret(builder.or_(builder.zext(status, I64), builder.shl(number, I64(32))))
        builder.store(builder.add(record, builder.mul(length, I64(8))), at)
    builder.ret(I64(0))
