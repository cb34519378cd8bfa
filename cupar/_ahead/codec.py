"""Specialisations as bytes, for recorded lists and for the helper processes that build.

An operator goes by value: as the frozen copy that its fingerprint was taken of (see `_fingerprint`), which is
what is compiled. So the receiver needs none of the user's packages, and changes that the user has made
meanwhile is not seen. The compilers' own functions and types go by name, bytecode as `marshal` has it. Device
arrays that an operator captures stay behind: a build depends on their types alone. Numbers that are arguments
are there, as they were.

**These bytes are a program.** They hold pickles and bytecode: load only what you would run.
"""

from __future__ import annotations

import copyreg
import enum
import functools
import importlib
import io
import marshal
import pickle
import pkgutil
import sys
import zlib
from contextlib import suppress
from types import CodeType, ModuleType
from typing import Any, Final

import numpy as np

from .._fingerprint import frozen, guards, names
from .._fingerprint.values import zeros
from .._ir.operator import FixedState, Operator
from .._ir.specialisation import Specialisation
from .._numba import Name

PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
_PROTOCOL: Final = 5  # the same in all versions of Python


def dumps(spec: Specialisation) -> bytes:
    """Return a specialisation as bytes; raise pickle's error if an operator reads a value that it refuses."""
    buffer = io.BytesIO()
    _Pickler(buffer, _PROTOCOL).dump(spec)
    return zlib.compress(buffer.getvalue())  # which has a checksum, too


def loads(data: bytes) -> Specialisation:
    """Return a specialisation that builds the same; errors of pickle and of code in a list are passed on.

    Builds of it cannot be called if operators have captured arrays.
    """
    spec = pickle.loads(zlib.decompress(data))
    if not isinstance(spec, Specialisation):
        raise TypeError(f"expected a specialisation, got {type(spec).__name__}")
    return spec


class _Pickler(pickle.Pickler):
    """Pickles the parts of operators."""

    def reducer_override(self, obj: Any) -> Any:
        """Return how to make an object again, NotImplemented if as pickle does it."""
        kind = type(obj)
        if kind is Operator:
            is_kept = obj.state is None or isinstance(obj.state, FixedState)
            state = obj.state if is_kept else functools.partial(bytes, obj.state_size)
            return copyreg.__newobj__, (kind,), {**vars(obj), "user": None, "state": state}  # type: ignore[attr-defined]
        if kind is FixedState:
            return kind, (bytes(obj),)
        if kind is guards.Guard:
            return _no_guard, ()
        if kind is CodeType:
            return _code, (PYTHON, marshal.dumps(obj))
        if obj is frozen.MISSING:
            return "MISSING"
        if kind is ModuleType:
            return _module, (obj.__name__,)
        if kind is np.ndarray:
            flags = obj.flags
            return _array, (obj.tobytes(), obj.dtype, obj.shape, obj.strides, flags.writeable, flags.aligned)
        name = names.compilers_name(obj)
        if name is not None:
            return _resolved, (name,)
        if isinstance(obj, enum.EnumMeta) and not _is_everywhere(obj):
            enumeration: Any = obj
            members = [(each, member.value) for each, member in enumeration.__members__.items()]
            return _enum, (obj.__name__, obj.__module__, _bases(obj), members)
        if isinstance(obj, enum.Enum) and not _is_everywhere(kind):
            # Not by its value, as a NaN is not found by that.
            return (getattr, (kind, obj.name)) if obj.name in kind.__members__ else (kind, (obj.value,))
        return NotImplemented


def _no_guard() -> guards.Guard:
    """Return the guard of an operator that is not in this process; it never holds."""
    return guards.NO_GUARD


def _code(python: str, data: bytes) -> Any:
    if python != PYTHON:
        raise ValueError(f"an operator is in bytecode of Python {python}, expected {PYTHON}")
    return marshal.loads(data)


def _module(name: str) -> ModuleType:
    """Return a module: numba knows its own by identity, others become a frozen copy of the values read."""
    if names.package(name) in ("numba", "numba_cuda"):
        with suppress(ImportError):  # where there is no numba, nothing is compiled
            return importlib.import_module(name)
    return ModuleType(name)


def _resolved(name: str) -> Any:
    """Return an object of a compiler's; without the compiler, a stand-in that is resolved on use."""
    try:
        return pkgutil.resolve_name(name)
    except ImportError:
        return Name(name)


def _is_everywhere(cls: type) -> bool:
    return names.package(cls.__module__) in sys.stdlib_module_names | names.COMPILERS | {"cupar"}


def _bases(cls: type) -> tuple[type, ...]:
    """Return which of the standard library's enums and data types an enum of the user's derives from."""
    bases = [each for each in cls.__mro__[1:] if each.__module__ in ("enum", "builtins")]
    return tuple(
        base for place, base in enumerate(bases) if not any(issubclass(each, base) for each in bases[:place])
    )


def _enum(name: str, module: str, bases: tuple[type, ...], members: list[tuple[str, Any]]) -> Any:
    """Return an enum with these members, and no methods, which kernels cannot call."""
    namespace = enum.EnumMeta.__prepare__(name, bases)
    namespace["__module__"] = module
    for member, value in members:
        namespace[member] = value
    return enum.EnumMeta(name, bases, namespace)


def _array(
    items: bytes,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    writeable: bool,
    aligned: bool,
) -> np.ndarray[Any, Any]:
    """Return an array as it was, its strides and flags too: they are in the code that numba makes of it."""
    array = zeros(shape, dtype, strides, aligned)
    array[...] = np.frombuffer(items, dtype).reshape(shape)
    array.flags.writeable = writeable
    return array
