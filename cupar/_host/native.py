"""What compiled code is made of, in LLVM's terms: words that are read, functions, launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.cpython.unsafe.numbers import leading_zeros
from numba.cpython.unsafe.tuple import tuple_setitem
from numba.extending import NativeValue, intrinsic, register_jitable

from .._base.digests import sha256
from .._device.kernels import LaunchConfig
from .layout import FIRST, PLACES, WORDS_OF_A_LAUNCH, Layout, NativeLaunch

_I8, _I32, _I64 = (ir.IntType(bits) for bits in (8, 32, 64))
_BYTES = _I8.as_pointer()
_ALIGNMENT = 16


def _word_at(builder: Any, state: Any, place: Any) -> Any:
    block = builder.inttoptr(state, _I64.as_pointer())
    return builder.load(builder.gep(block, [place if isinstance(place, ir.Value) else _I64(place)]))


@intrinsic
def word(typing: Any, state: Any, place: Any) -> Any:
    """Read a word of a build's block."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return _word_at(builder, *values)

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
    "_word_of": word_of,
    "_distance": distance,
    "_scaled": scaled,
}


# --- Calls of the driver -----------------------------------------------------------------------------------


def _call(builder: Any, state: Any, name: str, *values: Any) -> Any:
    """Call a function of the driver, whose address is in the block; return its status."""
    kinds = [each.type for each in values]
    pointer = ir.FunctionType(_I32, kinds).as_pointer()
    return builder.call(builder.inttoptr(_word_at(builder, state, PLACES[name]), pointer), values)


@intrinsic
def allocate(typing: Any, state: Any, nbytes: Any, stream: Any) -> Any:
    """Allocate memory in the order of a stream; return the status and the address."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        state, nbytes, stream = values
        place = cgutils.alloca_once(builder, _I64)
        pool = _word_at(builder, state, PLACES["pool"])
        status = _call(builder, state, "cuMemAllocFromPoolAsync", place, nbytes, pool, stream)
        found = builder.zext(status, _I64), builder.load(place)
        return context.make_tuple(builder, signature.return_type, found)

    return types.UniTuple(types.int64, 2)(types.int64, types.int64, types.int64), code


@intrinsic
def release(typing: Any, state: Any, address: Any, stream: Any) -> Any:
    """Free memory in the order of a stream; return the status."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        state, address, stream = values
        return builder.zext(_call(builder, state, "cuMemFreeAsync", address, stream), _I64)

    return types.int64(types.int64, types.int64, types.int64), code


@intrinsic
def adopt_context(typing: Any, state: Any) -> Any:
    """Make the build's context current if this thread has none; return whether it was done."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        (state,) = values
        place = cgutils.alloca_once(builder, _I64, zfill=True)
        failed = _call(builder, state, "cuCtxGetCurrent", place)
        current = builder.load(place)
        has_none = builder.and_(
            builder.icmp_unsigned("==", failed, _I32(0)), builder.icmp_unsigned("==", current, _I64(0))
        )
        with builder.if_then(has_none):
            _call(builder, state, "cuCtxSetCurrent", _word_at(builder, state, PLACES["context"]))
        return builder.zext(has_none, _I64)

    return types.int64(types.int64), code


def occupancy(first: int) -> Any:
    """Return what asks how many blocks of a kernel run at once; kernels are words from `first` on."""

    @intrinsic
    def occupancy(typing: Any, state: Any, kernel: Any, threads: Any, shared: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            state, kernel, threads, shared = values
            place = cgutils.alloca_once(builder, _I32, zfill=True)
            function = _word_at(builder, state, builder.add(kernel, _I64(first)))
            threads = builder.trunc(threads, _I32)
            _call(
                builder,
                state,
                "cuOccupancyMaxActiveBlocksPerMultiprocessor",
                place,
                function,
                threads,
                shared,
            )
            return builder.sext(builder.load(place), _I64)

        return types.int64(types.int64, types.int64, types.int64, types.int64), code

    return occupancy


# --- Values ------------------------------------------------------------------------------------------------


@intrinsic
def on_stack(typing: Any, value: Any) -> Any:
    """Put a value on the stack, as it is in an array; return its address."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        (kind,) = signature.args
        model = context.data_model_manager[kind]
        stored = model.as_data(builder, values[0])
        place = cgutils.alloca_once(builder, stored.type)
        place.align = _ALIGNMENT
        builder.store(stored, place)
        return builder.ptrtoint(place, _I64)

    return types.int64(value), code


# --- Launches ----------------------------------------------------------------------------------------------


def launcher(layout: Layout) -> Any:
    """Return ``launch(state, address, values, shape, numbers)``: it launches a shape and returns a status.

    The values are the stream, and then those of the call: addresses, of arrays or of bytes. A status that is
    not 0 has the launch that failed in its upper half. It is one function for all who call it, which LLVM may
    put into these.
    """

    @intrinsic
    def launch(typing: Any, state: Any, address: Any, values: Any, shape: Any, numbers: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            state, address, values, shape, numbers = given
            kinds = signature.args[4]
            place = cgutils.alloca_once(builder, ir.ArrayType(_I64, len(kinds)))
            for k, each in enumerate(cgutils.unpack_tuple(builder, numbers)):
                whole = context.cast(builder, each, kinds[k], types.int64)
                builder.store(whole, builder.gep(place, [_I32(0), _I32(k)]))
            function = _function(builder.module, layout)
            first = builder.bitcast(place, _I64.as_pointer())
            return builder.call(
                function, [state, address, shape, first, *cgutils.unpack_tuple(builder, values)]
            )

        return types.int64(types.int64, types.int64, values, types.int64, numbers), code

    return launch


def _function(module: Any, layout: Layout) -> Any:
    """Return the function that launches the shapes of a layout, which a module has once."""
    name = f"cupar_launch_{sha256(repr(layout).encode()).hexdigest()[:16]}"
    found = module.globals.get(name)
    if found is None:
        kind = ir.FunctionType(
            _I64, [_I64, _I64, _I64, _I64.as_pointer(), *[_I64] * (1 + len(layout.values))]
        )
        found = ir.Function(module, kind, name)
        found.linkage = "linkonce_odr"
        _Writer(found, layout).write()
    return found


class _Writer:
    """Writes the function that launches."""

    def __init__(self, function: Any, layout: Layout) -> None:
        self.function, self.layout = function, layout
        self.state, self.address, self.shape, self.numbers, self.stream, *self.values = function.args
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        every = [launch for shape in layout.shapes for launch in shape]
        self.config = self._stack(ctypes_size(LaunchConfig))
        size = max((each.size for each in every), default=1)
        self.memory = self._stack(size)
        most = max((len(each.parameters) for each in every), default=1)
        self.pointers = self.builder.alloca(_BYTES, most)
        cgutils.memset(self.builder, self.memory, _I64(size), 0)  # what is between parameters, and of no use
        for field in ("grid_y", "grid_z", "block_y", "block_z"):
            self._set(field, _I32(1))
        self._set("stream", self.stream)

    def _stack(self, nbytes: int) -> Any:
        place = self.builder.alloca(_I8, nbytes)
        place.align = _ALIGNMENT
        return place

    def _at(self, place: Any, offset: int, kind: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(place, [_I32(offset)]), kind.as_pointer())

    def _set(self, field: str, value: Any) -> None:
        self.builder.store(value, self._at(self.config, getattr(LaunchConfig, field).offset, value.type))

    def write(self) -> None:
        """Write it."""
        builder, place = self.builder, 0
        done = self.function.append_basic_block("done")
        none = self.function.append_basic_block("none")
        switch = builder.switch(self.shape, none)
        for number, shape in enumerate(self.layout.shapes):
            block = self.function.append_basic_block(f"shape_{number}")
            switch.add_case(_I64(number), block)
            builder.position_at_end(block)
            for launch in shape:
                self._launch(launch, place)
                place += 1
            builder.branch(done)
        builder.position_at_end(done)
        builder.ret(_I64(0))
        builder.position_at_end(none)
        builder.ret(_I64(999))  # CUDA_ERROR_UNKNOWN; no plan has a shape that the build has not

    def _number(self, place: int) -> Any:
        return self.builder.load(self.builder.gep(self.numbers, [_I32(place)]))

    def _launch(self, launch: NativeLaunch, place: int) -> None:
        builder, first = self.builder, FIRST + WORDS_OF_A_LAUNCH * place
        kernel, block, shared = (_word_at(builder, self.state, first + k) for k in range(WORDS_OF_A_LAUNCH))
        grid = _I64(launch.blocks) if launch.grid is None else self._number(launch.grid)
        shared = shared if launch.shared is None else self._number(launch.shared)
        for field, value in (("grid", grid), ("block", block), ("shared", shared)):
            self._set(field, builder.trunc(value, _I32))
        self._set("count", _I32(int(launch.overlaps)))
        attributes = _word_at(builder, self.state, PLACES["programmatic"]) if launch.overlaps else _I64(0)
        self._set("attributes", attributes)
        for each in launch.stores:
            self._store(each)
        for k, offset in enumerate(launch.parameters):
            builder.store(builder.gep(self.memory, [_I32(offset)]), builder.gep(self.pointers, [_I32(k)]))
        if self.layout.is_traced:
            self._trace(launch, grid, block, shared)
        status = _call(builder, self.state, "cuLaunchKernelEx", self.config, kernel, self.pointers, _I64(0))
        with builder.if_then(builder.icmp_unsigned("!=", status, _I32(0)), likely=False):
            builder.ret(builder.or_(builder.zext(status, _I64), _I64(place << 32)))

    def _store(self, store: Any) -> None:
        builder = self.builder
        if store.source == "bytes":
            cgutils.raw_memcpy(
                builder,
                self._at(self.memory, store.offset, _I8),
                builder.inttoptr(self.values[store.which], _BYTES),
                _I64(store.size),
                1,
            )
            return
        if store.source == "value":
            value = self.values[store.which]
        else:
            value = _I64(store.constant) if store.which < 0 else self._number(store.which)
            if store.source == "address":
                value = builder.add(self.address, value)
        kind = ir.IntType(8 * store.size)
        value = value if store.size == 8 else builder.trunc(value, kind)
        builder.store(value, self._at(self.memory, store.offset, kind), align=1)

    def _trace(self, launch: NativeLaunch, grid: Any, block: Any, shared: Any) -> None:
        text = "cupar: %s grid=%lld block=%lld shared=%lld stream=0x%llx from compiled code\n"
        print_to(self.builder, 2, text, self._text(launch.kernel), grid, block, shared, self.stream)

    def _text(self, text: str) -> Any:
        return global_text(self.builder, text)


# --- Single launches ---------------------------------------------------------------------------------------

INTEGERS = {"q": _I64, "Q": _I64}
_DIMENSIONS = ("grid", "grid_y", "grid_z", "block", "block_y", "block_z")


def word_at(builder: Any, state: Any, place: int) -> Any:
    """Read a word."""
    return _word_at(builder, state, place)


def on_stack_each(builder: Any, values: Sequence[Any]) -> Any:
    """Put values on the stack, and pointers to them, in an array; return a pointer to that."""
    array = ir.ArrayType(_BYTES, max(1, len(values)))
    pointers = cgutils.alloca_once(builder, array)
    for k, value in enumerate(values):
        place = cgutils.alloca_once(builder, value.type)
        builder.store(value, place)
        builder.store(builder.bitcast(place, _BYTES), builder.gep(pointers, [_I32(0), _I32(k)]))
    return builder.bitcast(pointers, _BYTES.as_pointer())


def configuration(builder: Any, dimensions: Sequence[Any], shared: Any, stream: Any, attributes: Any) -> Any:
    """Put on the stack how a kernel is launched: with one attribute, or none if its address is 0."""
    array = ir.ArrayType(_I64, ctypes_size(LaunchConfig) // 8)
    config = builder.bitcast(cgutils.alloca_once(builder, array), _BYTES)
    has_one = builder.icmp_unsigned("!=", attributes, _I64(0))
    found = {
        **{name: builder.trunc(each, _I32) for name, each in zip(_DIMENSIONS, dimensions, strict=True)},
        "shared": builder.trunc(shared, _I32),
        "stream": stream,
        "attributes": attributes,
        "count": builder.zext(has_one, _I32),
    }
    for name, value in found.items():
        place = builder.gep(config, [_I32(getattr(LaunchConfig, name).offset)])
        builder.store(value, builder.bitcast(place, value.type.as_pointer()))
    return config


def launched(builder: Any, state: Any, config: Any, kernel: Any, pointers: Any) -> Any:
    """Launch a kernel; return the status."""
    status = _call(builder, state, "cuLaunchKernelEx", config, kernel, pointers, _I64(0))
    return builder.zext(status, _I64)


def trace_launch(builder: Any, kernel: str, dimensions: Sequence[Any], shared: Any, stream: Any) -> None:
    """Print a launch."""
    three = "(%lld,%lld,%lld)"
    text = f"cupar: %s grid={three} block={three} shared=%lld stream=0x%llx from compiled code\n"
    print_to(builder, 2, text, global_text(builder, kernel), *dimensions, shared, stream)


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


def global_text(builder: Any, text: str) -> Any:
    """Return a pointer to a text that a module has."""
    data = cgutils.make_bytearray(text.encode() + b"\0")
    name = f"cupar_text_{sha256(text.encode()).hexdigest()[:16]}"
    found = builder.module.globals.get(name)
    if found is None:
        found = cgutils.global_constant(builder.module, name, data, linkage="linkonce_odr")
    return builder.bitcast(found, _BYTES)


def print_to(builder: Any, descriptor: int, text: str, *values: Any) -> None:
    """Print to a file, as C does."""
    kind = ir.FunctionType(_I32, [_I32, _BYTES], var_arg=True)
    function = cgutils.get_or_insert_function(builder.module, kind, "dprintf")
    builder.call(function, [_I32(descriptor), global_text(builder, text), *values])


def ctypes_size(kind: Any) -> int:
    """Return the bytes of a C struct."""
    import ctypes

    return ctypes.sizeof(kind)
