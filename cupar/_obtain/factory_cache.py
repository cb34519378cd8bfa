"""Factory cache: maps the raw arguments of a factory to an algorithm that was built before.

Resolving a factory's arguments to a specialisation takes 15 microseconds. To avoid that for repeated
requests, each factory has a table, which all callers share. Its keys are tuples of tokens, one for each
argument: an array's dtype, a Python function's code object, a number's value, an immutable object's identity.
A request is resolved every time if an argument has no token, a Python function is given by name, or there is
a `link`.
Functions with equal code may read different values: the guard of a fingerprint checks these.

An algorithm enters the table with the second request. The first request gets a separate object, whose `build`
says where the code came from; see `obtain.answer`.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Hashable
from functools import partial, wraps
from itertools import takewhile
from types import BuiltinFunctionType, FunctionType, NoneType
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .. import _cache, structs
from .._base.bounded import of_builds
from .._base.causes import EXPECTED, cause, nested, without_own_frames
from .._base.data import Recent, dataclass
from .._base.device import is_cpu, using
from .._call.algorithm import Launchable
from .._device import arrays, driver
from .._fingerprint import registries, walk
from .._ir.iterator import Iterator
from ..operators import RawOp
from .target import is_cpu_name

P = ParamSpec("P")
A = TypeVar("A", bound=Launchable)

_MOST = 512  # requests in a generation of a factory's table, which has two: see `Recent`


class _NoTokenError(Exception):
    """An argument has no token, so the request is not looked up."""


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
    # Its operators are frozen copies; only registrations of others with numba could change its code.
    return iterator.node, registries.epoch()


def _double_buffer(tokens: _Tokens, buffer: Any) -> Hashable:
    return type(buffer), *[tokens[type(array)](array) for array in buffer.d_buffers]


def _struct_value(value: Any) -> Hashable:
    return "host", value.dtype


def _none(value: Any) -> Hashable:
    raise _NoTokenError


class _Tokens(dict[type, Callable[[Any], Hashable]]):
    """Maps the class of an argument to the function that makes its token."""

    def __missing__(self, cls: type) -> Callable[[Any], Hashable]:
        found: Callable[[Any], Hashable]
        if issubclass(cls, enum.Enum) or cls in (BuiltinFunctionType, np.ufunc):
            found = id  # they live as long as the process
        elif issubclass(cls, (np.dtype, np.number, np.bool_)) or cls.__module__ == "ml_dtypes":
            found = _number  # a dtype is told from an array of it, whose token is the dtype alone
        elif issubclass(cls, Iterator):
            found = _iterator
        elif hasattr(cls, "alternate"):  # a `DoubleBuffer`, which most programs never import
            found = partial(_double_buffer, self)
        elif structs.is_struct(cls):
            found = _struct_value
        else:
            found = self._of_others(cls)
        if found is not _none:  # the class may be an array's that has not been read yet: look again then
            self[cls] = found
        return found

    def _of_others(self, cls: type) -> Callable[[Any], Hashable]:
        """Return the function that makes tokens of a class that may be an array's."""
        if arrays.reader_of(cls) is None:
            return _none
        return _cupy_array if cls in arrays.CUPY else _device_array


class _TokensOnCpu(_Tokens):
    """The same where arrays are in host memory."""

    def _of_others(self, cls: type) -> Callable[[Any], Hashable]:
        from .._device import host_arrays

        if issubclass(cls, np.ndarray):
            return _none if host_arrays.is_masked(cls) else _numpy_array
        return _other_array if host_arrays.is_array_class(cls) else _none


def _numpy_array(array: Any) -> Hashable:
    flags = array.flags
    if not (flags.c_contiguous or flags.f_contiguous):
        raise _NoTokenError
    # An initial value has one item; in an array without dimensions it is a value, in others read by the call.
    return array.dtype, array.size == 1, array.ndim == 0


def _other_array(array: Any) -> Hashable:
    found = arrays.view("", array)
    if not found.contiguous:
        raise _NoTokenError
    return found.dtype, found.size == 1, False


_COMMON: dict[type, Callable[[Any], Hashable]] = {
    NoneType: _itself,
    str: _itself,
    type: _itself,
    int: _number,
    float: _number,
    bool: _number,
    complex: _number,
    FunctionType: _function,
    np.void: _struct_value,
    RawOp: _itself,  # which is equal only to one with the same code and state
}
_TOKENS = _Tokens({**_COMMON, np.ndarray: _host_array})
_TOKENS_ON_CPU = _TokensOnCpu({**_COMMON, np.ndarray: _numpy_array})


# For each Python function among the positional arguments: its position, and the check of its guard, which
# takes a function of the same code.
_Checks = tuple[tuple[int, Callable[[Any], bool]], ...]


@dataclass(frozen=True)
class _Answer:
    """An algorithm, and the conditions under which it answers a request with the same tokens."""

    algorithm: Launchable
    device: driver.Device | None  # that must be current; None: any, as with `cc` or on the CPU
    checks: _Checks


tables: list[Recent[Any, Any]] = []  # two of each factory (GPU, CPU), and those of `_functions`


def new_table() -> Recent[Any, Any]:
    """Return a new table, forgotten with all others."""
    made: Recent[Any, Any] = of_builds(Recent(_MOST))
    tables.append(made)
    return made


def _make(factory: Callable[..., A], args: tuple[Any, ...], named: dict[str, Any]) -> A:
    """Call a factory; errors show the user's frames alone."""
    try:
        with walk.fingerprint_scope():
            return factory(*args, **named)
    except RecursionError as error:
        raise nested(factory.__name__) from cause(error)
    except EXPECTED as error:
        raise without_own_frames(error)  # noqa: B904 - it is the same error


def memoised(factory: Callable[P, A]) -> Callable[P, A]:
    """Decorate a factory: repeated requests are answered from a table.

    It relies on names of parameters: `h_init` is the initial value, and those that begin with ``d_``,
    ``start_`` or ``end_``, which come first, are data, of which only the type matters.
    """
    on_gpu, on_cpu = _lookup(factory, _TOKENS, 0), _lookup(factory, _TOKENS_ON_CPU, len(data_names(factory)))

    @wraps(factory)
    def ask(*args: P.args, **named: P.kwargs) -> A:
        cc = named.get("cc") if named else None
        found: A
        if cc is None:
            found = on_cpu(args, named) if is_cpu() else on_gpu(args, named)
        elif not (is_on_cpu := is_cpu_name(cc)) and not is_cpu():
            found = on_gpu(args, named)
        else:  # `cc` decides whether host or device arrays are read; requests for a GPU are rare here
            try:
                found = using(is_on_cpu, on_cpu if is_on_cpu else partial(_make, factory), args, named)
            except EXPECTED as error:
                raise without_own_frames(error)  # noqa: B904
        return found

    return ask


def data_names(factory: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a factory's first parameters: the data of the algorithm."""
    names = inspect.unwrap(factory).__code__.co_varnames
    return tuple(takewhile(lambda name: name.startswith(("d_", "start_", "end_")), names))


def _lookup(
    factory: Callable[..., Launchable], tokens: _Tokens, first_option: int
) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """Return a function of a request's arguments that answers from a table, else asks the factory."""
    table: Recent[Hashable, _Answer] = new_table()
    # Of an initial value only the type matters; of other NumPy arrays, as a histogram's levels, the value.
    takes_init = "h_init" in factory.__code__.co_varnames
    count = _cache.counter("memory")

    def ask(args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        key: Any = None
        try:
            # Lists, as Ctrl-C at the end of a generator would be lost.
            options = () if takes_init else (*args[first_option:], *named.values())
            if True not in [isinstance(arg, np.ndarray) for arg in options]:
                key = tuple([tokens[type(arg)](arg) for arg in args])
                if named:
                    key = key, tuple([(name, tokens[type(arg)](arg)) for name, arg in named.items()])
                    if named.get("link") is not None:  # files may change
                        key = None
        except (_NoTokenError, TypeError, ValueError, RecursionError):
            key = None  # the factory reports errors
        if key is None:
            return _make(factory, args, named)
        try:
            known: _Answer | None = table[key]
        # RecursionError: iterators are nested deeply. ValueError: a timedelta64 has no unit, and so no hash.
        except (KeyError, RecursionError, ValueError):
            known = None
        if (
            known is not None
            and (not known.checks or _are_unchanged(known.checks, args))
            and _is_for_this_device(known)
        ):
            count()
            return known.algorithm
        return _make_and_memoise(factory, table, key, args, named)

    return ask


def _make_and_memoise(
    factory: Callable[..., Launchable],
    table: dict[Hashable, _Answer],
    key: Hashable,
    args: tuple[Any, ...],
    named: dict[str, Any],
) -> Launchable:
    """Call a factory, and put its result into the table if that may be shared."""
    # The guards must be of exactly what the factory resolves: in the scope, each function is read once.
    with walk.fingerprint_scope():
        checks = _checks_of(args, named)
        algorithm = _make(factory, args, named)
    if checks is not None:
        _memoise(table, key, algorithm, checks, named)
    return algorithm


def _are_unchanged(checks: _Checks, args: tuple[Any, ...]) -> bool:
    for place, is_unchanged in checks:  # noqa: SIM110 - a generator costs as much as the rest
        if not is_unchanged(args[place]):
            return False
    return True


def _is_for_this_device(known: _Answer) -> bool:
    if known.device is None or hasattr(driver.this_thread, "has_the_only_device"):
        return True
    return driver.current_device() == known.device


def _checks_of(args: tuple[Any, ...], named: dict[str, Any]) -> _Checks | None:
    """Return the checks of the Python functions among the arguments; None if the request is not memoised."""
    if any(type(arg) is FunctionType for arg in named.values()):
        return None  # checks are found by position
    places = [place for place, arg in enumerate(args) if type(arg) is FunctionType]
    try:
        return tuple((place, walk.fingerprint(args[place]).guard.checker()) for place in places)
    except walk.Unfingerprintable:
        return None


def _memoise(
    table: dict[Hashable, _Answer],
    key: Hashable,
    algorithm: Launchable,
    checks: _Checks,
    named: dict[str, Any],
) -> None:
    """Put an algorithm into a table, unless it is not shared: see `obtain.answer`."""
    # Not the first request's object, whose `build` says what it cost; nor one with state, which belongs to
    # the arrays that one operator captured.
    if not algorithm.is_built or algorithm.build.origin != "memory" or algorithm.has_state:
        return
    device = None if named.get("cc") is not None or is_cpu() else driver.current_device()
    table[key] = _Answer(algorithm, device, checks)


def forget() -> None:
    """Clear the tables of all factories."""
    for table in tables:
        table.clear()
