"""Makes a build for the CPU: numba compiles all of it to one object file, whose one function C can call."""

from __future__ import annotations

import pkgutil
from typing import Any

from llvmlite import ir
from numba import njit
from numba.core import types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from .._base.errors import BuildError
from .._fingerprint import extensions
from .._ir.specialisation import Specialisation
from .code import SYMBOL, packed
from .plans import ALGORITHMS, is_gathered, is_numpys
from .values import OPTIONS, pointer

_MOST_TRIES = 10


def build(spec: Specialisation) -> bytes:
    """Return the object code of a specialisation.

    Raises
    ------
    TypeError
        If numba cannot compile an operator, or its result is not converted to the type needed.
    Unfingerprintable
        If an operator uses what others have registered with numba.
    """
    if is_numpys(spec) and not is_gathered(spec):
        return packed([], b"")
    for _ in range(_MOST_TRIES):
        with global_compiler_lock, extensions.refuse_foreign():
            before = extensions.foreign()
            made = _object(_function(spec))
            if extensions.foreign() == before:
                return made
    raise BuildError("something is registered with numba all the time, so what it compiles to cannot be told")


def _function(spec: Specialisation) -> Any:
    place, _ = ALGORITHMS[spec.algorithm]
    # By name, as it is in the table: what these files import is no matter of a program that finds its builds.
    kit, make = (pkgutil.resolve_name(f"{__package__}.{each}") for each in ("algorithms:Kit", place))
    inner = njit(**OPTIONS)(make(kit(spec)))

    def run(address: Any) -> None:
        inner(pointer(address))

    made = njit(**OPTIONS)(run)
    made.compile((types.int64,))
    return made.overloads[(types.int64,)]


def _object(compiled: Any) -> bytes:
    """Return the object code of a compiled function, and around it one with C's calling convention."""
    context = cpu_target.target_context
    module = ir.Module("cupar")
    around = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)]), SYMBOL)
    builder = ir.IRBuilder(around.append_basic_block())
    signature = types.void, (types.int64,)
    kind = context.call_conv.get_function_type(*signature)
    function = ir.Function(module, kind, compiled.fndesc.llvm_func_name)
    context.call_conv.call_function(builder, function, *signature, [around.args[0]])
    builder.ret_void()
    library = context.codegen().create_library("cupar")
    library.add_ir_module(module)
    library.add_linking_library(compiled.library)
    library.enable_object_caching()
    library.finalize()
    calls = {
        each.name
        for each in library._final_module.functions
        if each.is_declaration and not each.name.startswith("llvm.")
    }
    return packed(sorted(calls), bytes(library._get_compiled_object()))
