"""The quickest way to an algorithm that was asked for before: by the arguments as they are.

Finding out what a factory's arguments mean, and so which specialisation it is, takes 15 microseconds. A
program that asks for the same again, with these arrays or others of the same types, should not wait for that.
So each factory remembers what it was asked, as a tuple of small tokens, one for each argument: an array's
dtype, the code of a Python function, a number's value, the identity of what never changes. What has no token
goes the long way. A Python function is the same only if what it reads is, too; its fingerprint knows that.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Hashable
from types import BuiltinFunctionType, FunctionType, NoneType
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .. import _cache, structs
from .._base import fork
from .._base.data import dataclass
from .._base.device import is_cpu, using
from .._base.errors import BuildError
from .._call.algorithm import Algorithm
from .._call.double_buffer import DoubleBuffer
from .._device import arrays, driver
from .._fingerprint import registries, walk
from .._ir.iterator import Iterator
from ..operators import RawOp
from .target import is_cpu_name

P = ParamSpec("P")
A = TypeVar("A", bound=Algorithm)

_MOST = 512  # questions that a factory remembers


class _NoTokenError(Exception):
    """Something without a token is among the arguments."""


def _itself(value: Any) -> Hashable:
    return value  # type: ignore[no-any-return]


def _number(value: Any) -> Hashable:
    return type(value), value


def _function(function: Any) -> Hashable:
    return id(function.__code__)  # its fingerprint keeps the code alive


def _host_array(array: Any) -> Hashable:
    if array.size != 1:
        raise _NoTokenError
    return "host", array.dtype


def _device_array(array: Any) -> Hashable:
    found = arrays.view("", array)
    if not found.contiguous:
        raise _NoTokenError
    return found.dtype


def _cupy_array(array: Any) -> Hashable:
    if not (array._c_contiguous or array._f_contiguous):
        raise _NoTokenError
    return array.dtype  # type: ignore[no-any-return]


def _iterator(iterator: Any) -> Hashable:
    # Its operators are frozen copies; all that could make a difference is what others register with numba.
    return iterator.node, registries.epoch()


def _double_buffer(buffer: Any) -> Hashable:
    return DoubleBuffer, *[_TOKENS[type(array)](array) for array in buffer.d_buffers]


def _struct_value(value: Any) -> Hashable:
    return "host", value.dtype


def _none(value: Any) -> Hashable:
    raise _NoTokenError


class _Tokens(dict[type, Callable[[Any], Hashable]]):
    """What makes a token, by the type of the argument."""

    def __missing__(self, cls: type) -> Callable[[Any], Hashable]:
        found: Callable[[Any], Hashable]
        reader = arrays.reader_of(cls)
        if reader is not None:
            found = _cupy_array if cls in arrays.CUPY else _device_array
        elif issubclass(cls, enum.Enum) or cls in (BuiltinFunctionType, np.ufunc):
            found = id  # they live as long as the process
        elif issubclass(cls, (np.dtype, np.number, np.bool_)) or cls.__module__ == "ml_dtypes":
            found = _number  # a dtype is told from an array of it, whose token is the dtype alone
        elif issubclass(cls, Iterator):
            found = _iterator
        elif structs.is_struct(cls):
            found = _struct_value
        else:
            found = _none
        if found is not _none:  # which could be an array's class that was not met yet
            self[cls] = found
        return found


_TOKENS = _Tokens(
    {
        NoneType: _itself,
        str: _itself,
        type: _itself,
        int: _number,
        float: _number,
        bool: _number,
        complex: _number,
        FunctionType: _function,
        np.ndarray: _host_array,
        np.void: _struct_value,
        DoubleBuffer: _double_buffer,
        RawOp: _itself,  # which is equal only to one with the same code and state
    }
)


# Of each Python function among the arguments, its place, and whether one of the same code does the same.
_Functions = tuple[tuple[int, Callable[[Any], bool]], ...]


@dataclass(frozen=True)
class _Answer:
    algorithm: Algorithm
    device: driver.Device | None
    functions: _Functions


_tables: list[dict[Hashable, _Answer]] = []  # one for each factory


def _asked(factory: Callable[P, A], /, *args: P.args, **named: P.kwargs) -> A:
    try:
        with walk.Once():
            return factory(*args, **named)
    except (TypeError, ValueError, BuildError) as error:
        from .._base.causes import cause

        if cause(error) is not None:
            raise
        raise error.with_traceback(None)  # noqa: B904 - it is the same error, without cupar's own frames


def memoised(factory: Callable[P, A]) -> Callable[P, A]:
    """Decorate a factory: what it was asked before, it answers at once."""
    table: dict[Hashable, _Answer] = {}
    _tables.append(table)
    # Of an initial value the type alone matters, of other NumPy arrays, as a histogram's levels, the value.
    takes_init = "h_init" in factory.__code__.co_varnames
    count = _cache.counter("memory")

    @functools.wraps(factory)
    def ask(*args: P.args, **named: P.kwargs) -> A:
        if is_cpu() or (named and named.get("cc") is not None):
            cc = named.get("cc")
            if (is_on_cpu := is_cpu() if cc is None else is_cpu_name(cc)) or is_cpu():
                with using(is_on_cpu):
                    return _asked(factory, *args, **named)
        key: Any = None
        try:
            key = tuple([_TOKENS[type(arg)](arg) for arg in args])
            if named:
                key = key, tuple([(name, _TOKENS[type(arg)](arg)) for name, arg in named.items()])
                if named.get("link") is not None:  # files may change
                    key = None
                if any(type(arg) is np.ndarray and name != "h_init" for name, arg in named.items()):
                    key = None
            if not takes_init and any(type(arg) is np.ndarray for arg in args):
                key = None
        except (_NoTokenError, TypeError, ValueError):
            key = None  # the factory says what is wrong, if something is
        if key is None:
            return _asked(factory, *args, **named)
        known = table.get(key)
        if (
            known is not None
            and (not known.functions or _holds(known.functions, args))
            and _is_for_this_device(known)
        ):
            count()
            return known.algorithm  # type: ignore[return-value]
        # What is remembered is what was asked: no function is read again while the factory looks at it.
        with walk.Once():
            functions = _fingerprints(args, named)
            algorithm = _asked(factory, *args, **named)
        if functions is not None:
            _memoise(table, key, algorithm, functions, named)
        return algorithm

    return ask


def _holds(functions: _Functions, args: tuple[Any, ...]) -> bool:
    for place, is_unchanged in functions:  # noqa: SIM110 - a generator costs as much as the rest
        if not is_unchanged(args[place]):
            return False
    return True


def _is_for_this_device(known: _Answer) -> bool:
    if known.device is None or hasattr(driver.this_thread, "has_the_only_device"):
        return True
    return driver.current_device() == known.device


def _fingerprints(args: tuple[Any, ...], named: dict[str, Any]) -> _Functions | None:
    """Return those of the Python functions among the arguments, None if this cannot be remembered."""
    if any(type(arg) is FunctionType for arg in named.values()):
        return None  # they are found by place
    places = [place for place, arg in enumerate(args) if type(arg) is FunctionType]
    try:
        return tuple((place, walk.fingerprint(args[place]).guard.checker()) for place in places)
    except walk.Unfingerprintable:
        return None


def _memoise(
    table: dict[Hashable, _Answer],
    key: Hashable,
    algorithm: Algorithm,
    functions: _Functions,
    named: dict[str, Any],
) -> None:
    # The first one tells in its build what it cost, and one with state belongs to one operator's arrays.
    if not algorithm.is_built or algorithm.build.origin != "memory" or algorithm.has_state:
        return
    device = None if named.get("cc") is not None else driver.current_device()
    if len(table) >= _MOST:
        table.clear()
    table[key] = _Answer(algorithm, device, functions)


def forget() -> None:
    """Forget what all factories were asked."""
    for table in _tables:
        table.clear()


@fork.in_child
def _forget_all() -> None:
    for table in _tables:
        fork.leak(dict(table))
        table.clear()
