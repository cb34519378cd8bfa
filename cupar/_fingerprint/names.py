"""Names of objects that the compilers define: ``math.sqrt``, ``np.float32``, ``cuda.atomic``.

Such objects are encoded by name, for the versions of the compilers are in the key elsewhere.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any, Final

import numpy as np

from .._numba import Name

# Objects defined in these packages are encoded by name.
COMPILERS: Final = frozenset(
    ("builtins", "math", "cmath", "operator", "_operator", "numpy", "ml_dtypes", "numba", "numba_cuda")
    + ("llvmlite",)
)

_DISPATCHERS: Final = frozenset(
    (
        ("numba.cuda.dispatcher", "CUDADispatcher"),
        ("numba.core.registry", "CPUDispatcher"),
        ("cupar.kernel", "Kernel"),
        ("cupar.kernel", "DeviceFunction"),
        ("cupar.cuda", "Jitted"),
    )
)


def package(module: object) -> str:
    """Return the top-level package of a module's name, empty for anything but a name."""
    return module.partition(".")[0] if isinstance(module, str) else ""


def type_name(cls: type) -> str:
    """Return the name of a class, with its module unless that is `builtins`."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def is_dispatcher(value: object) -> bool:
    """Whether a value is a function under ``cuda.jit`` or ``njit``."""
    cls = type(value)
    return (cls.__module__, cls.__name__) in _DISPATCHERS


def compilers_name(value: object) -> str | None:
    """Return the qualified name of an object that one of the compilers defines, or None.

    The module and name that an object claims are not believed until the object is found there: ufuncs
    of the user's and wrapped functions claim the names of others.
    """
    if isinstance(value, Name):
        return None if value.kind else value.name
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(value, np.ufunc):  # without both before NumPy 2.2
        module, name = "numpy", value.__name__
    if not isinstance(name, str) or package(module) not in COMPILERS:
        return None
    if isinstance(value, FunctionType) and package(value.__globals__.get("__name__")) not in COMPILERS:
        return None
    for home in (module, "numba.cuda"):  # numba.cuda's vector types can be found in it alone
        found: object = sys.modules.get(str(home))
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is value:
            return f"{home}.{name}"
    return None


def numba_type_name(value: object) -> str | None:
    """Return the name of one of numba's types of numbers or records, or None.

    Names of other types can hold addresses.
    """
    if isinstance(value, Name):
        return value.kind
    cls = type(value)
    if package(cls.__module__) not in ("numba", "numba_cuda"):
        return None
    bases = {base.__name__ for base in cls.__mro__}
    if bases & {"Number", "Boolean", "CharSeq", "UnicodeCharSeq"}:
        return f"{cls.__name__} {value}"
    if "Record" in bases:
        return _record_name(value)
    if "NestedArray" in bases and (inner := numba_type_name(value.dtype)) is not None:  # type: ignore[attr-defined]
        return f"NestedArray {value.shape} of {inner}"  # type: ignore[attr-defined]
    return None


def _record_name(record: Any) -> str | None:
    """Return a record's layout as text, None if one of its fields has no name."""
    fields = [
        (name, field.offset, field.alignment, field.title, numba_type_name(field.type))
        for name, field in record.fields.items()
    ]
    if any(inner is None for *_, inner in fields):
        return None
    return f"Record {record.size} {record.aligned} {fields}"
