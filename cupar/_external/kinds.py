"""Recognises functions that are not written in Python, without imports, since every hit asks."""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Final

LINK: Final = "__numba_cuda_link__"


def is_cpp(value: object) -> bool:
    """Whether a value is a function that `cupar.cpp` made."""
    cls = type(value)
    return cls.__name__ == "CppFunction" and cls.__module__ == "cupar._ir.cpp_function"


def is_declared(value: object) -> bool:
    """Whether a value is a function that ``cuda.declare_device`` made."""
    return any(
        cls.__name__ == "ExternFunction" and cls.__module__ == "numba.cuda.compiler"
        for cls in type(value).__mro__
    )


def is_external(value: object) -> bool:
    """Whether a value is an external function, or an object that names code to link."""
    if isinstance(value, (type, FunctionType, ModuleType)):
        return False
    if is_cpp(value) or is_declared(value):
        return True
    return hasattr(value, LINK) and not hasattr(value, "py_func")  # a jitted function may have it, too
