"""What a function that numba compiles is: its code, and all of cupar's that this reads."""

from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType, NoneType

import numpy as np


def content(function):
    """Return what a function of cupar's own is, the same in each process; None if that is not known."""
    try:
        return _told(function, ())
    except LookupError:
        return None


def _told(value, within):
    from numba.core import types

    if id(value) in within:
        return "itself"
    within = *within, id(value)
    kind = type(value).__qualname__

    def each(values):
        return kind, *(_told(value, within) for value in values)

    if hasattr(value, "py_func"):  # numba compiles it
        return each([value.py_func, value.targetoptions])
    if hasattr(value, "_defn"):  # an intrinsic
        return each([value._defn])
    if isinstance(value, FunctionType):
        names = {} if "__spec__" in value.__globals__ else value.__globals__  # of generated code
        cells = (cell.cell_contents for cell in value.__closure__ or ())
        defaults = value.__defaults__ or (), value.__kwdefaults__ or {}
        read = (names.get(name) for name in value.__code__.co_names)
        return each([value.__code__, *defaults, *cells, *read])
    if isinstance(value, CodeType):
        return each([value.co_code, value.co_names, value.co_varnames, value.co_freevars, value.co_consts])
    if isinstance(value, (tuple, list)):
        return each(value)
    if isinstance(value, dict):
        return each(value.items())
    if isinstance(value, (type, BuiltinFunctionType, ModuleType)):
        return each([getattr(value, "__module__", ""), value.__name__])
    if isinstance(value, (NoneType, bool, int, float, complex, str, bytes, np.generic, np.dtype, types.Type)):
        return kind, repr(value)
    raise LookupError(kind)
