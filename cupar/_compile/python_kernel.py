"""Kernels of the user's in Python: numba compiles frozen copies of them, under its own calling convention.

The linker gets LTO-IR, as of operators. numba names a kernel by a number that counts in each process, so
it gets another name before it is compiled: a unique one, which profilers show.
"""

from __future__ import annotations

import enum
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._base.causes import place
from .._base.data import dataclass
from .._base.errors import BuildError
from .._fingerprint.names import package
from .._ir import types as described
from .._ir.cpp import kernel_symbol
from .._ir.specialisation import Specialisation
from .._numba import OPTIONS
from .numba_types import array_type, number_type, value_type
from .python_to_ltoir import Thaw, _compiled, _ltoir, explained_as

# Functions that numba has in C++, for kernels that reshape arrays.
_RESHAPES = ("nocopy_empty_reshape", "numba_attempt_nocopy_reshape")


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel, for the linker."""

    ltoirs: list[bytes]
    is_cooperative: bool  # it waits for its whole grid, so all blocks must run at once
    llvm: str


def compile_kernel(spec: Specialisation) -> Compiled:
    """Compile a kernel for the types of its parameters.

    Raises
    ------
    TypeError
        If numba cannot compile it for them.
    Unfingerprintable
        If it uses registrations with numba that are not numba's own.
    """
    _, op = spec.operators[0]

    def work() -> Compiled:
        from .._numba import compiler

        has_lines = bool(spec.option("lineinfo"))
        function = Thaw(has_lines).device_function(op.function).py_func
        captured = [array_type(each.dtype, each.ndim) for each in op.captures]
        library, _ = compiler._compile_pyfunc_with_fixup(
            function,
            (*captured, *(_numba_type(each.type) for each in spec.parameters)),
            device=False,
            abi="numba",
            lto=True,
            cc=divmod(spec.cc, 10),
            launch_bounds=spec.option("launch_bounds"),
            fastmath=bool(spec.option("fastmath")),
            **{**OPTIONS, "lineinfo": has_lines, "opt": spec.option("opt") is not False},
        )
        named = f'"{library._entry_name}"'
        symbol = f'"{kernel_symbol(op.name)}"'
        library._llvm_strs = [each.replace(named, symbol) for each in library.llvm_strs]
        llvm = library.get_llvm_str()
        if any(each in llvm for each in _RESHAPES):
            library.add_linking_file(str(Path(compiler.__file__).with_name("reshape_funcs.cu")))
        codes = [library.get_ltoir(cc=divmod(spec.cc, 10)), *_linked(library, spec)]
        return Compiled(codes, bool(library.use_cooperative), llvm)

    types = ", ".join(f"{each.name}: {each.type}" for each in spec.parameters)
    with explained_as(op, f"kernel {op.name}{place(op.user)}", types, spec.cc):
        return _compiled(spec.cc, work)


def _linked(library: Any, spec: Specialisation) -> Iterator[bytes]:
    """Return what numba, or the functions that a kernel calls, want to have linked."""
    from .._numba import LinkableCode
    from .._numba import nvrtc as numbas

    found = (LinkableCode.from_path_or_obj(each) for each in library._linking_files)
    for each in sorted(found, key=lambda each: str(each.name)):
        if not all(map(_is_numbas, (each.setup_callback, each.teardown_callback))):
            raise BuildError(
                f"{each.name}: linkable code with a setup_callback or teardown_callback needs numba's own "
                "modules, and cannot be linked with a cupar kernel"
            )
        if each.kind == "cu":
            code, _ = numbas.compile(each.data, each.name, divmod(spec.cc, 10), ltoir=True)
            yield _ltoir(code)
        else:
            yield _ltoir(each)


def _is_numbas(callback: Any) -> bool:
    """Whether there is no callback, or only numba's own, which warns."""
    return callback is None or package(callback.__module__) == "numba"


def _numba_type(kind: described.Type) -> Any:
    from .._numba import types

    if isinstance(kind, described.Tuple):
        cls: Any = namedtuple(kind.name, kind.fields, rename=True) if kind.fields else tuple
        return types.BaseTuple.from_types([_numba_type(each) for each in kind.items], cls)
    dtype = kind.item.dtype
    if isinstance(kind, described.Array):
        return types.Array(number_type(dtype), kind.ndim, kind.layout, readonly=not kind.mutable)
    if isinstance(kind, described.Struct):
        return value_type(dtype)
    if isinstance(kind, described.Address):
        return types.CPointer(number_type(dtype))
    if isinstance(kind, described.Member):
        is_integer = issubclass(kind.enum, enum.IntEnum)
        return (types.IntEnumMember if is_integer else types.EnumMember)(kind.enum, number_type(dtype))
    return number_type(dtype)
