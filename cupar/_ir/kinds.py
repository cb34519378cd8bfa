"""CCCL's own operators as C++ functions, for where CCCL takes functions alone: those that give a bool."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import cpp

_SIGNS = {
    "EQUAL_TO": "==",
    "NOT_EQUAL_TO": "!=",
    "GREATER": ">",
    "LESS": "<",
    "GREATER_EQUAL": ">=",
    "LESS_EQUAL": "<=",
}


def source(kind: str, arity: int, dtype: np.dtype[Any]) -> str | None:
    """Return the C++ of a function ``SYMBOL`` that gives, as a bool, what a kind gives for values of a dtype.

    The kind, by its name, must be defined for the dtype. None if it is not one of those that are written in
    C++ for it.
    """
    result = _result(kind, dtype) if dtype.names is None else None
    if result is None:
        return None
    names = "ab"[:arity]
    parameters = ", ".join(f"void* p_{name}" for name in names)
    loads = "".join(f"  const auto {name} = {_loaded(f'p_{name}', dtype)};\n" for name in names)
    return cpp.unit(
        f'extern "C" __device__ void SYMBOL({parameters}, void* out) {{\n'
        f"{loads}  *static_cast<bool*>(out) = {result};\n}}\n"
    )


def _loaded(pointer: str, dtype: np.dtype[Any]) -> str:
    if dtype.kind == "b":  # of which memory may hold any byte
        return f"*static_cast<const unsigned char*>({pointer}) != 0"
    value = f"*static_cast<const {cpp.type_name(dtype)}*>({pointer})"
    return f"__half2float({value})" if dtype == np.float16 else value


def _result(kind: str, dtype: np.dtype[Any]) -> str | None:
    is_complex = dtype.kind == "c"
    a, b = (f"({x}.re != 0 || {x}.im != 0)" if is_complex else f"({x} != 0)" for x in "ab")
    if kind in _SIGNS:
        sign = _SIGNS[kind]
        if is_complex:
            return f"a.re {sign} b.re {'&&' if sign == '==' else '||'} a.im {sign} b.im"
        return f"a {sign} b"
    if kind == "BIT_NOT":
        return "!a" if dtype.kind == "b" else f"static_cast<{cpp.type_name(dtype)}>(~a) != 0"
    logical = {"LOGICAL_AND": f"{a} && {b}", "LOGICAL_OR": f"{a} || {b}", "LOGICAL_NOT": f"!{a}"}
    if not is_complex:  # complex numbers become no bools but of themselves
        logical.update(IDENTITY=a, NEGATE=a)
    return logical.get(kind)
