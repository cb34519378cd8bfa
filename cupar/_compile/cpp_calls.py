"""Calls of functions in C++ from compiled Python: structs go and come in their parts."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .. import structs
from .._base.generated import define
from .._numba import OPTIONS
from .numba_types import array_type, number_type, struct_maker

if TYPE_CHECKING:
    from .._ir.cpp_function import CppFunction

_CALL = """
def call({parameters}):
    {lines}
"""


@functools.lru_cache(256)
def caller(function: CppFunction) -> Any:
    """Return what compiled Python calls a function in C++ by."""
    from .._numba import cuda, types

    signature, result = function.signature, types.void
    arguments: list[Any] = []
    passed: list[str] = []
    if signature.returned is not None:
        arguments.append(array_type(structs.layout(signature.returns), 1))
        passed.append("out")
    elif signature.returns is not None:
        result = number_type(signature.returns)
    for i, (dtype, ndim) in enumerate(signature.takes):
        if ndim is None:
            _pass(f"a{i}", dtype, arguments, passed)
        else:
            arguments.append(array_type(dtype, ndim) if ndim else types.CPointer(number_type(dtype)))
            passed.append(f"a{i}")
    foreign: Any = cuda.declare_device(function.symbol, result(*arguments), abi="c")
    foreign.__name__ = function.name  # for numba's messages
    if signature.returned is None and all(dtype.names is None for dtype, _ in signature.takes):
        return foreign
    names: dict[str, Any] = {"foreign": foreign, "__name__": __name__, "cuda": cuda}
    call = f"foreign({', '.join(passed)})"
    lines = [f"return {call}"]
    if signature.returned is not None:
        names["out_type"] = arguments[0].dtype
        found = _read("out[0]", signature.returns, names)
        lines = ["out = cuda.local.array(1, out_type)", call, f"return {found}"]
    parameters = ", ".join(f"a{i}" for i in range(len(signature.parameters)))
    made = define(f"call of {function.name}", "call", _CALL, names, parameters=parameters, lines=lines)
    return cuda.jit(device=True, **OPTIONS)(made)


def _pass(name: str, dtype: Any, arguments: list[Any], passed: list[str]) -> None:
    """Add the types that a value has in C, and the expressions that are passed."""
    if dtype.names is None:
        arguments.append(number_type(dtype))
        passed.append(name)
    for i in range(len(dtype.names or ())):
        _pass(f"{name}[{i}]", dtype[i], arguments, passed)


def _read(place: str, dtype: Any, names: dict[str, Any]) -> str:
    """Return the expression of a value that is in memory as a record."""
    if dtype.names is None:
        return place
    fields = [_read(f"{place}['f{i}']", dtype[i], names) for i in range(len(dtype.names))]
    maker = f"struct_{len(names)}"
    names[maker] = struct_maker(dtype)
    return f"{maker}({', '.join(fields)})"
