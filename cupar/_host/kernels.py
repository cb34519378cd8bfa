"""Kernels of the user's in compiled code: ``kernel[grid, block, stream, shared](...)``."""

from __future__ import annotations

import operator
from typing import Any

from .._base.generated import define, fill
from .._ir.types import Array, Member, Scalar, Tuple, Type, array_parts
from .._jit.overload import packed_arguments
from .._launch.words import FIRST
from .._numba_cpu import (
    cgutils,
    errors,
    from_dtype,
    intrinsic,
    lower_builtin,
    njit,
    overload,
    overload_method,
    types,
)
from . import dump, native, view_types
from .arguments import CALLED, NO_CONTEXT, aligned, call_compiled, integer, stream
from .errors import LaunchError
from .kernel_types import ENTRY, NUMBERS, PLACES, KernelType, LaunchType, Types, kind_of, type_of
from .launches import call_own, on_stack
from .native import I64

__all__ = ["type_of"]  # from here, so that launches can be compiled wherever a kernel has a type

# --- Configurations ----------------------------------------------------------------------------------------

_CONFIGURE = """
def configure({parameters}):
    grid_x, grid_y, grid_z = {grid}
    block_x, block_y, block_z = {block}
    shared, stream = {shared}, {stream}
    if grid_x < 1 or grid_x > 2147483647:
        raise ValueError("grid: expected 1 to 2147483647 in x")
    if grid_y < 1 or grid_y > 65535 or grid_z < 1 or grid_z > 65535:
        raise ValueError("grid: expected 1 to 65535 in y and z")
    if block_x < 1 or block_x > 1024 or block_y < 1 or block_y > 1024 or block_z < 1 or block_z > 64:
        raise ValueError("block: expected 1 to 1024 in x and y, and 1 to 64 in z")
    if block_x * block_y * block_z > 1024:
        raise ValueError("block: has more than the 1024 threads that a block can have")
    if shared < 0 or shared > 2147483647:
        raise ValueError("shared: expected bytes of shared memory")
    return _made(kernel, (grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream))
"""

_FORALL = """
def forall(kernel, ntasks, tpb=0, stream=None, sharedmem=0):
    if ntasks < 0:
        raise ValueError("ntasks: expected 0 or more")
    if tpb < 0 or tpb > 1024:
        raise ValueError("tpb: expected 1 to 1024, or 0")
    if sharedmem < 0 or sharedmem > 2147483647:
        raise ValueError("sharedmem: expected bytes of shared memory")
    return _made(kernel, (_int(ntasks), -1, 1, _int(tpb), 1, 1, _int(sharedmem), {stream}))
"""


def _dimensions(name: str, given: Any, expression: str) -> str:
    """Return the expression of a grid or block in three numbers."""
    each = list(given) if isinstance(given, types.BaseTuple) else [given]
    if not 1 <= len(each) <= 3 or not all(isinstance(types.unliteral(one), types.Integer) for one in each):
        raise errors.TypingError(f"{name}: expected one to three integers, got {given}")
    found = [expression]
    if isinstance(given, types.BaseTuple):
        found = [f"{expression}[{k}]" for k in range(len(each))]
    return ", ".join([*(f"_int({one})" for one in found), *["_int(1)"] * (3 - len(each))])


def _configure(kernel: KernelType, parameters: str, given: list[Any], expressions: list[str]) -> Any:
    grid, block, *others = given
    handle = stream(others[0], expressions[2]) if others else "_int(0)"
    shared = integer("shared", others[1], expressions[3]) if len(others) > 1 else "_int(0)"
    return define(
        f"configuration of {kernel.kernel.__name__}",
        "configure",
        _CONFIGURE,
        {"_made": _made, "_int": types.int64},
        parameters=parameters,
        grid=_dimensions("grid", grid, expressions[0]),
        block=_dimensions("block", block, expressions[1]),
        stream=handle,
        shared=shared,
    )


def _getitem(kernel: Any, index: Any) -> Any:
    if not isinstance(kernel, KernelType):
        return None
    if not isinstance(index, types.BaseTuple) or not 2 <= len(index) <= 4:
        raise errors.TypingError(
            f"{kernel.kernel.__name__}: expected [grid, block], [grid, block, stream] or "
            f"[grid, block, stream, shared], got {index}"
        )
    return _configure(kernel, "kernel, index", list(index), [f"index[{k}]" for k in range(len(index))])


def _forall(kernel: Any, ntasks: Any, tpb: Any, on: Any, sharedmem: Any) -> Any:
    for name, each in (("ntasks", ntasks), ("tpb", tpb), ("sharedmem", sharedmem)):
        integer(name, each, name)
    names: dict[str, Any] = {"_made": _made, "_int": types.int64}
    return define("forall", "forall", _FORALL, names, stream=stream(on, "stream"))


# As in `view_types`: numba compares the signatures, annotations included.
overload(operator.getitem)(lambda kernel, index: _getitem(kernel, index))  # noqa: PLW0108
overload_method(KernelType, "forall")(
    lambda kernel, ntasks, tpb=0, stream=None, sharedmem=0: _forall(kernel, ntasks, tpb, stream, sharedmem)
)
overload_method(KernelType, "configure")(
    lambda kernel, grid, block, stream=None, shared=0: _configure(
        kernel,
        "kernel, grid, block, stream=None, shared=0",
        [grid, block, stream, shared],
        ["grid", "block", "stream", "shared"],
    )
)


@intrinsic
def _made(typing: Any, kernel: Any, numbers: Any) -> Any:
    """Make a kernel with its configuration; see `LaunchType`."""
    kind = LaunchType(kernel)

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        made = cgutils.create_struct_proxy(kind)(context, builder)
        made.table, made.numbers = values
        return made._getvalue()

    return kind(kernel, numbers), code


# --- Launches ----------------------------------------------------------------------------------------------

_LAUNCH = """
def launch(launch, {parameters}):
    table, entry = _table(launch), {first}
    known = _acquired(table, entry)
    while known != {number}:
        if known == 0:
            raise ValueError("kernel {name}: is not compiled for the types that it is launched with here")
        entry += {size}
        known = _acquired(table, entry)
    grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream = _numbers(launch)
    if grid_y < 0:
        if grid_x == 0:
            return
        if block_x == 0:
            if shared > 0:
                raise ValueError("tpb: give the threads of a block where there is dynamic shared memory")
            block_x = _word(table, entry + {block})
        grid_x, grid_y = (grid_x + block_x - 1) // block_x, 1
        if grid_x > 2147483647:
            raise ValueError("ntasks: is more than a grid can have")
    if block_x * block_y * block_z > _word(table, entry + {threads}):
        raise ValueError("block: has more threads than kernel {name} can have: see its attributes")
    if shared + _word(table, entry + {static}) > _word(table, entry + {shared}):
        raise ValueError("shared: more shared memory than a block can have on this card")
    {checks}
    numbers = (grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream)
    record = _word(table, entry + {record})
    status = _launch(table, record, numbers, ({parameters}))
    if status == {no_context} and _adopt(table):
        status = _launch(table, record, numbers, ({parameters}))
    if status:
        raise _LaunchError("kernel {name}", "cuLaunchKernelEx", status)
"""


_table = native.field("table", lambda launch: types.int64)
_numbers = native.field("numbers", lambda launch: types.UniTuple(types.int64, len(NUMBERS)))


def _lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Compile a launch with arguments of some types."""
    launch, *given = signature.args
    kernel = launch.kernel.kernel
    names = kernel.names
    number, kinds = launch.kernel.place(
        tuple(kind_of(name, types.unliteral(each)) for name, each in zip(names, given, strict=True))
    )
    parameters = [f"_a{k}" for k in range(len(names))]
    checks = []
    for name, parameter, kind in zip(names, parameters, kinds, strict=True):
        checks += _checks(name, parameter, kind)
    text = fill(
        _LAUNCH,
        parameters="".join(f"{each}, " for each in parameters),
        name=kernel.__name__,
        checks=checks,
        no_context=NO_CONTEXT,
        first=FIRST,
        number=number,
        size=ENTRY,
        **PLACES,
    )
    own: dict[str, Any] = {
        "_table": _table,
        "_numbers": _numbers,
        "_word": native.word,
        "_acquired": native.acquired_word,
        "_adopt": native.adopt_context,
        "_launch": _launcher(kinds),
        "_LaunchError": LaunchError,
    }
    launched = define(f"compiled launch of {kernel.__name__}", "launch", text, own)
    function = launch.kernel.compiled.setdefault((number, signature.args), njit(launched, **CALLED))
    done = call_compiled(context, builder, function, signature.args, values)
    build = kernel.overload_of(kinds).build
    dump.write(build, ".py", lambda: text)
    dump.write(build, ".ll", lambda: function.inspect_llvm(signature.args))
    return done


lower_builtin(LaunchType, LaunchType, types.VarArg(types.Any))(_lower)


def _checks(name: str, value: str, kind: Type) -> list[str]:
    """Return the lines that check an argument."""
    if isinstance(kind, Tuple):
        return [
            line
            for k, each in enumerate(kind.items)
            for line in _checks(f"{name}[{k}]", f"{value}[{k}]", each)
        ]
    return aligned(name, value, kind.item.dtype.alignment) if isinstance(kind, Array) else []


def _launcher(kinds: Types) -> Any:
    """Return ``launch(table, record, numbers, arguments)``, which launches and returns a status."""
    _, names, _ = packed_arguments(kinds)

    @intrinsic
    def launch(typing: Any, table: Any, record: Any, numbers: Any, arguments: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            table, record, numbers, arguments = values
            *dimensions, stream = cgutils.unpack_tuple(builder, numbers)
            parts: dict[str, Any] = {}
            each = zip(kinds, signature.args[3], cgutils.unpack_tuple(builder, arguments), strict=True)
            for k, (kind, given, value) in enumerate(each):
                parts.update(_parts(context, builder, kind, given, value, f"{k}_"))
            zero = I64(0)
            own = [native.as_word(builder, parts[name]) for name in names]
            call = on_stack(builder, [zero, zero, stream, zero, *own, *dimensions])
            return call_own(builder, table, "launch", record, call)

        return types.int64(types.int64, types.int64, numbers, arguments), code

    return launch


def _parts(context: Any, builder: Any, kind: Type, given: Any, value: Any, name: str) -> dict[str, Any]:
    """Return the values of an argument's slots that vary, by name: see `types.slots`."""
    if isinstance(kind, Tuple):
        found: dict[str, Any] = {}
        items = zip(kind.items, given, cgutils.unpack_tuple(builder, value), strict=True)
        for k, each in enumerate(items):
            found.update(_parts(context, builder, *each, f"{name}_{k}"))
        return found
    if isinstance(kind, Array):
        view = cgutils.create_struct_proxy(given)(context, builder, value)
        shape, strides = (cgutils.unpack_tuple(builder, each) for each in (view.shape, view.strides))
        size = I64(1)
        for extent in shape:
            size = builder.mul(size, extent)
        known = array_parts(kind.ndim), (size, view.address, *shape, *strides)
        return {f"{name}{part}": each for part, each in zip(*known, strict=True)}
    assert isinstance(kind, (Scalar, Member))
    wanted = from_dtype(kind.item.dtype)
    own = given if isinstance(kind, Scalar) else given.dtype
    number = context.cast(builder, value, types.unliteral(own), wanted)
    if isinstance(wanted, types.Complex):
        both = context.make_complex(builder, wanted, number)
        return {f"{name}re": both.real, f"{name}im": both.imag}
    return {f"{name}v": context.data_model_manager[wanted].as_data(builder, number)}


view_types.refresh()
