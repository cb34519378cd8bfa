"""Calls of functions in C++ from compiled Python: structs go and come in their parts."""

from __future__ import annotations

import functools
from typing import Any

from .. import structs
from .._base.generated import define
from .._external.cpp import CppFunction
from .._external.signatures import CppParameter
from .._numba import OPTIONS
from .numba_types import number_type, struct_maker

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
    if signature.returns_in_parts:
        arguments.append(types.Array(number_type(structs.layout(signature.result)), 1, "C"))
    elif signature.result is not None:
        result = number_type(signature.result)
    passed: list[str] = []
    for i, parameter in enumerate(signature.parameters):
        _pass(f"a{i}", parameter, arguments, passed)
    foreign: Any = cuda.declare_device(function.symbol, result(*arguments), abi="c")
    foreign.__name__ = function.name  # for numba's messages
    if not signature.returns_in_parts and all(each.dtype.names is None for each in signature.parameters):
        return foreign
    names: dict[str, Any] = {"foreign": foreign, "__name__": __name__, "cuda": cuda}
    if signature.returns_in_parts:
        names["out_type"] = arguments[0].dtype
        lines = [
            "out = cuda.local.array(1, out_type)",
            f"foreign({', '.join(['out', *passed])})",
            f"return {_read('out[0]', signature.result, names)}",
        ]
    else:
        lines = [f"return foreign({', '.join(passed)})"]
    parameters = ", ".join(f"a{i}" for i in range(len(signature.parameters)))
    call = define(f"call of {function.name}", "call", _CALL, names, parameters=parameters, lines=lines)
    return cuda.jit(device=True, **OPTIONS)(call)


def _pass(name: str, parameter: CppParameter, arguments: list[Any], passed: list[str]) -> None:
    """Add the types that a parameter has in C, and the expressions that are passed."""
    from .._numba import types

    dtype = parameter.dtype
    if parameter.ndim is not None:
        number = number_type(dtype)
        arguments.append(
            types.Array(number, parameter.ndim, "C") if parameter.ndim else types.CPointer(number)
        )
        passed.append(name)
    elif dtype.names is None:
        arguments.append(number_type(dtype))
        passed.append(name)
    else:
        for i in range(len(dtype.names)):
            _pass(f"{name}[{i}]", CppParameter(dtype[i]), arguments, passed)


def _read(place: str, dtype: Any, names: dict[str, Any]) -> str:
    """Return the expression of a value that is in memory as a record."""
    if dtype.names is None:
        return place
    fields = [_read(f"{place}['f{i}']", dtype[i], names) for i in range(len(dtype.names))]
    maker = f"struct_{len(names)}"
    names[maker] = struct_maker(dtype)
    return f"{maker}({', '.join(fields)})"
