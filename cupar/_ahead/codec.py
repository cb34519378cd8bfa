"""Python functions from one process to another: by value, or else by the name under which they are found.

By value, a function takes along all that it reads: constants, globals, functions that it calls and the
attributes of modules that it reads, so that where it arrives nothing of the user's need be installed. What it
is does not change on the way: its fingerprint (see `_fingerprint`) is compared when it leaves and when it
arrives. Device arrays that it captures stay behind: in their place it finds something of their dtype and
dimensions, which is all that a build depends on.

cloudpickle does most of it. It takes what can be imported by name, though, with everything that a module has,
and of arrays the contents alone, so these and a few others are reduced here.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib
import importlib.util
import io
import os
import pickle
import sys
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle
import numpy as np

from .. import structs
from .._base import fork
from .._device import arrays
from .._fingerprint import names, walk

__all__ = ["CannotCarryError", "DeviceArray", "carry", "fetch"]


class CannotCarryError(TypeError):
    """A function depends on something that can be carried neither by value nor by name."""


class DeviceArray:
    """Stands for a device array of which only the type counts.

    Parameters
    ----------
    dtype : numpy.dtype
    ndim : int, optional
    """

    def __init__(self, dtype: np.dtype[Any], ndim: int = 1) -> None:
        self.dtype, self._ndim = dtype, ndim

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """No items, at no address."""
        shape = (0,) * self._ndim
        return {"typestr": self.dtype.str, "shape": shape, "data": (0, False), "strides": None, "version": 3}


def carry(function: Any) -> dict[str, Any]:
    """Return a function as what JSON can hold.

    Parameters
    ----------
    function : function
        Of Python, or under ``cuda.jit`` or ``njit``.

    Raises
    ------
    CannotCarryError
        If something that it reads cannot be pickled, and an import would not find it.
    """
    try:
        found = walk.fingerprint(function)
    except walk.Unfingerprintable as error:
        raise CannotCarryError(str(error)) from None
    described = {"name": _name(function), "fingerprint": found.digest.hex()}
    try:
        pickled = _pickled(function, found)
        if walk.fingerprint(pickle.loads(pickled)).digest == found.digest:
            return {**described, "pickle": base64.b64encode(pickled).decode()}
        problem = "unpickled, it is another function"
    except Exception as error:  # whatever the pickling of the user's objects raises
        problem = str(error) or type(error).__name__
    place = _place(function)
    if place is None:
        raise CannotCarryError(
            f"operator {_name(function)!r} cannot be pickled ({problem}), and no import finds it by its "
            "name: define it at the top of a module"
        )
    return {**described, **place}


def fetch(carried: Mapping[str, Any]) -> Any:
    """Return the function that `carry` described. This runs the code in a pickle, or of a module.

    Raises
    ------
    ValueError
        If it is not there, or is another one now.
    """
    name, expected = carried["name"], carried["fingerprint"]
    try:
        if "pickle" in carried:
            function = pickle.loads(base64.b64decode(carried["pickle"], validate=True))
        else:
            home = (
                _script(carried["file"]) if "file" in carried else importlib.import_module(carried["module"])
            )
            function = _attribute(home, name)
        digest = walk.fingerprint(function).digest.hex()
    except Exception as error:  # whatever the user's code raises
        raise ValueError(f"operator {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if digest != expected:
        raise ValueError(
            f"operator {name!r} is not what was recorded: its fingerprint is {digest[:12]}, expected "
            f"{str(expected)[:12]}"
        )
    return function


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


# ---------------------------------------------------------------------------------------------------------
# By name
# ---------------------------------------------------------------------------------------------------------

_MAINS = ("__main__", "__mp_main__")


def _place(function: Any) -> dict[str, str] | None:
    """Return where an import finds a function, None if nowhere."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    try:
        if module is None or _attribute(module, _name(function)) is not function:
            return None
    except AttributeError:
        return None
    if module.__name__ not in _MAINS:
        return {"module": module.__name__}
    if getattr(module, "__spec__", None) is not None:  # python -m
        return {"module": module.__spec__.name}  # type: ignore[union-attr]
    file = getattr(module, "__file__", None)
    return None if file is None else {"file": os.path.abspath(file)}  # noqa: PTH100 - as _script does


def _attribute(owner: object, qualified_name: str) -> Any:
    return functools.reduce(getattr, qualified_name.split("."), owner)


@functools.cache
def _script(path: str) -> ModuleType:
    """Import a script by its path, unless this process is running it."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is not None and os.path.abspath(file) == path:  # noqa: PTH100
        return main
    name = f"cupar script {path}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python script")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------------------------------------------------
# By value
# ---------------------------------------------------------------------------------------------------------

# What is of these packages is taken by name: they are wherever cupar is.
_EVERYWHERE = frozenset(names.COMPILERS | {*sys.stdlib_module_names, "cupar", "cloudpickle", "cuda"})


def _is_everywhere(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _EVERYWHERE


def _pickled(function: Any, found: walk.Fingerprint) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, found).dump(function)
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles a function with all that it reads, and nothing else."""

    def __init__(self, file: io.BytesIO, found: walk.Fingerprint) -> None:
        super().__init__(file)
        self._read: dict[int, dict[str, Any]] = {}  # attributes, by the id of the module
        for owner, name, _ in found.guard.attributes:
            if isinstance(owner, ModuleType) and hasattr(owner, name):
                self._read.setdefault(id(owner), {})[name] = getattr(owner, name)

    def reducer_override(self, obj: Any) -> Any:
        """Return how to make an object again, NotImplemented if as pickle does it."""
        if isinstance(obj, type):
            return self._class(obj)
        if isinstance(obj, FunctionType):
            # A copy is not what an import finds, and so is taken by value; without the annotations, which
            # numba does not read.
            return super().reducer_override(obj if _is_everywhere(obj.__module__) else _copy(obj))
        if isinstance(obj, ModuleType):
            if _is_everywhere(obj.__name__):
                return super().reducer_override(obj)
            return ModuleType, (obj.__name__,), self._read.get(id(obj), {})
        if type(obj) is np.ndarray:
            flags = obj.flags
            layout = obj.dtype, obj.shape, obj.strides, flags.writeable, flags.aligned
            return _array, (obj.tobytes(), *layout)
        if walk.is_dispatcher(obj):
            # Not as numba pickles them: with a pickler of its own.
            made_of = (obj.locals,) if hasattr(obj, "locals") else ()
            return type(obj), (obj.py_func, *made_of, obj.targetoptions)
        if arrays.is_device_array(obj):
            return DeviceArray, (arrays.view("a device array", obj).dtype, len(arrays.shape(obj)))
        return super().reducer_override(obj)

    def _class(self, cls: Any) -> Any:
        if structs.is_struct(cls):
            return structs.gpu_struct, (cls.dtype, cls.__name__)
        module = sys.modules.get(cls.__module__)
        if module is None or _is_everywhere(cls.__module__):
            return super().reducer_override(cls)
        with _by_value(module):
            return super().reducer_override(cls)


def _copy(function: FunctionType) -> FunctionType:
    parts = function.__name__, function.__defaults__, function.__closure__
    copy = FunctionType(function.__code__, function.__globals__, *parts)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
    copy.__dict__.update(function.__dict__)
    return copy


@contextlib.contextmanager
def _by_value(module: ModuleType) -> Iterator[None]:
    """Have cloudpickle take the classes of a module by value."""
    with _registering:
        if module.__name__ in cloudpickle.list_registry_pickle_by_value():
            yield
            return
        cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            cloudpickle.unregister_pickle_by_value(module)


_registering = fork.Lock()


def _array(
    items: bytes,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    writeable: bool,
    aligned: bool,
) -> np.ndarray[Any, Any]:
    """Return an array as it was, its strides and flags too: they are in the code that numba makes of it."""
    steps = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    first = -sum(step for step in steps if step < 0)
    size = first + sum(step for step in steps if step > 0) + dtype.itemsize if all(shape) else 0
    memory = np.zeros(size + 1, np.uint8)
    array: np.ndarray[Any, Any] = np.ndarray(
        shape, dtype, memory.data, first + (not aligned) if size else 0, strides
    )
    array[...] = np.frombuffer(items, dtype).reshape(shape)
    array.flags.writeable = writeable
    return array
