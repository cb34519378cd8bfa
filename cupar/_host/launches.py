"""Launches in LLVM's terms: of the shapes of a build, by one function for all; and of a kernel by itself."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from .._base.digests import sha256
from .._device.kernels import LaunchConfig
from .layout import FIRST, PLACES, WORDS_OF_A_LAUNCH, Layout, NativeLaunch, Store
from .native import ALIGNMENT, called, word_at

_I8, _I32, _I64 = (ir.IntType(bits) for bits in (8, 32, 64))
_BYTES = _I8.as_pointer()


def launched(
    builder: Any, layout: Layout, state: Any, address: Any, values: Sequence[Any], shape: Any, numbers: Any
) -> Any:
    """Launch a shape; return a status, which if it is not 0 has the launch that failed in its upper half.

    It is one function for all who call it, which LLVM may put into these.
    """
    place = cgutils.alloca_once(builder, ir.ArrayType(_I64, len(numbers)))
    for k, each in enumerate(numbers):
        builder.store(each, builder.gep(place, [_I32(0), _I32(k)]))
    first = builder.bitcast(place, _I64.as_pointer())
    return builder.call(_function(builder.module, layout), [state, address, shape, first, *values])


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
        size = max((each.size for each in every), default=1)
        self.memory = _stack(self.builder, size)
        most = max((len(each.parameters) for each in every), default=1)
        self.pointers = self.builder.alloca(_BYTES, most)
        cgutils.memset(self.builder, self.memory, _I64(size), 0)  # what is between parameters, and of no use
        self.config = _stack(self.builder, ctypes.sizeof(LaunchConfig))
        one = _I32(1)
        _set(self.builder, self.config, grid_y=one, grid_z=one, block_y=one, block_z=one, stream=self.stream)

    def write(self) -> None:
        """Write it."""
        builder, place = self.builder, 0
        done = self.function.append_basic_block("done")
        none = self.function.append_basic_block("none")
        switch = builder.switch(self.shape, none)
        for number, shape in enumerate(self.layout.shapes):
            if not shape:
                continue
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
        kernel, block, shared = (word_at(builder, self.state, first + k) for k in range(WORDS_OF_A_LAUNCH))
        grid = _I64(launch.blocks) if launch.grid is None else self._number(launch.grid)
        shared = shared if launch.shared is None else self._number(launch.shared)
        attributes = word_at(builder, self.state, PLACES["programmatic"]) if launch.overlaps else _I64(0)
        of_launch = {"grid": grid, "block": block, "shared": shared, "attributes": attributes}
        _set(builder, self.config, count=_I32(int(launch.overlaps)), **of_launch)
        for each in launch.stores:
            self._store(each)
        for k, offset in enumerate(launch.parameters):
            builder.store(builder.gep(self.memory, [_I32(offset)]), builder.gep(self.pointers, [_I32(k)]))
        if self.layout.is_traced:
            _trace(builder, launch.kernel, [grid], [block], shared, self.stream)
        status = called(builder, self.state, "cuLaunchKernelEx", self.config, kernel, self.pointers, _I64(0))
        with builder.if_then(builder.icmp_unsigned("!=", status, _I32(0)), likely=False):
            builder.ret(builder.or_(builder.zext(status, _I64), _I64(place << 32)))

    def _store(self, store: Store) -> None:
        builder = self.builder
        if store.source == "bytes":
            cgutils.raw_memcpy(
                builder,
                builder.gep(self.memory, [_I32(store.offset)]),
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
        place = builder.gep(self.memory, [_I32(store.offset)])
        builder.store(value, builder.bitcast(place, kind.as_pointer()), align=1)


def launch_one(
    builder: Any,
    state: Any,
    name: str,
    kernel: Any,
    values: Sequence[Any],
    numbers: Sequence[Any],
    attributes: Any,
    is_traced: bool,
) -> Any:
    """Launch a kernel with values; return the status.

    The numbers are the grid, the block, the shared memory and the stream; `attributes` is the address of one
    attribute, or 0.
    """
    *dimensions, shared, stream = numbers
    if is_traced:
        _trace(builder, name, dimensions[:3], dimensions[3:], shared, stream)
    config = _stack(builder, ctypes.sizeof(LaunchConfig))
    fields = ("grid", "grid_y", "grid_z", "block", "block_y", "block_z", "shared", "stream")
    count = builder.zext(builder.icmp_unsigned("!=", attributes, _I64(0)), _I32)
    of_launch = dict(zip(fields, numbers, strict=True))
    _set(builder, config, attributes=attributes, count=count, **of_launch)
    pointers = cgutils.alloca_once(builder, ir.ArrayType(_BYTES, max(1, len(values))))
    for k, value in enumerate(values):
        place = cgutils.alloca_once(builder, value.type)
        builder.store(value, place)
        builder.store(builder.bitcast(place, _BYTES), builder.gep(pointers, [_I32(0), _I32(k)]))
    given = builder.bitcast(pointers, _BYTES.as_pointer())
    return builder.zext(called(builder, state, "cuLaunchKernelEx", config, kernel, given, _I64(0)), _I64)


def _stack(builder: Any, nbytes: int) -> Any:
    """Return memory on the stack."""
    place = cgutils.alloca_once(builder, ir.ArrayType(_I8, nbytes))
    place.align = ALIGNMENT
    return builder.bitcast(place, _BYTES)


def _set(builder: Any, config: Any, **fields: Any) -> None:
    """Set how a kernel is launched."""
    for name, value in fields.items():
        field = getattr(LaunchConfig, name)
        kind = ir.IntType(8 * field.size)
        value = value if value.type == kind else builder.trunc(value, kind)
        place = builder.gep(config, [_I32(field.offset)])
        builder.store(value, builder.bitcast(place, kind.as_pointer()))


# --- What is printed ---------------------------------------------------------------------------------------


def _trace(
    builder: Any, kernel: str, grid: Sequence[Any], block: Sequence[Any], shared: Any, stream: Any
) -> None:
    """Print a launch."""
    each = "%lld" if len(grid) == 1 else "(%lld,%lld,%lld)"
    text = f"cupar: %s grid={each} block={each} shared=%lld stream=0x%llx from compiled code\n"
    kind = ir.FunctionType(_I32, [_I32, _BYTES], var_arg=True)
    function = cgutils.get_or_insert_function(builder.module, kind, "dprintf")
    texts = (_text(builder, each) for each in (text, kernel))
    builder.call(function, [_I32(2), *texts, *grid, *block, shared, stream])


def _text(builder: Any, text: str) -> Any:
    """Return a pointer to a text that a module has."""
    data = cgutils.make_bytearray(text.encode() + b"\0")
    name = f"cupar_text_{sha256(text.encode()).hexdigest()[:16]}"
    found = builder.module.globals.get(name)
    if found is None:
        found = cgutils.global_constant(builder.module, name, data, linkage="linkonce_odr")
    return builder.bitcast(found, _BYTES)
