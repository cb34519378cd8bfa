"""Factory cache: maps the raw arguments of a factory to an algorithm that was built before.

Resolving a factory's arguments to a specialisation takes 15 microseconds. To avoid that for repeated
requests, each factory has a table, which all callers share. Its keys have a token for each argument
(`_arguments/tokens.py`): of an array and an initial value, the dtype.
A request is resolved every time if an argument has no token, or there is a `link`.
Functions with equal code may read different values: the guard of a fingerprint checks these.

An algorithm enters the table with the second request. The first request gets a separate object, whose `build`
says where the code came from; see `obtain.answer`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from functools import partial, wraps
from itertools import takewhile
from types import NoneType
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .. import _cache, structs
from .._arguments import tokens
from .._arguments.initial import reach
from .._arguments.tokens import NoTokenError
from .._base.bounded import of_builds
from .._base.causes import EXPECTED, cause, nested, without_own_frames
from .._base.data import Recent, dataclass
from .._base.device import is_cpu, using
from .._base.sizes import is_size
from .._call.algorithm import Launchable
from .._device import arrays, driver, readers
from .._fingerprint import numbers, registries, walk
from .._ir.iterator import Iterator
from .target import is_cpu_name

P = ParamSpec("P")
A = TypeVar("A", bound=Launchable)

_MOST = 512  # requests in a generation of a factory's table, which has two: see `Recent`

# --- Keys -------------------------------------------------------------------------------------------------

# Tokens of what has only its type in a key: data, and initial values.
_DTYPE = "{v}.dtype"
_CONTIGUOUS = "{{v}}.dtype if {0.c_order} or {0.f_order} else _refuse()"
_CUPYS = _CONTIGUOUS.format(readers.CUPY)
_OF_DEVICE = "_of_device({v})"
# Python's numbers are told by the dtypes that hold them; most are alike.
_NUMBERS = {
    int: "{v} if {v} in (0, 1) else 2 if 1 < {v} < 128 else _reach({v})",
    float: "{v} if {v} in (0.0, 1.0) else 2 if -65504.0 <= {v} <= 65504.0 else _reach({v})",
    complex: "_reach({v})",
}
_OF_HOST = "{v}.dtype if {v}.size == 1 else _refuse()"  # an initial value
# An initial value has one item; in an array without dimensions it is a value, in others read by the call.
_NUMPYS = f"{_CONTIGUOUS.format(readers.NUMPY)}, {{v}}.size == 1, {{v}}.ndim == 0"
_ON_CPU = "_on_cpu({v})"
# Its operators are frozen copies; only registrations of others with numba could change its code.
_ITERATOR = "{v}.node, _epoch()"
_BUFFERS = "*map(_of_device, {v}.d_buffers)"


def _of_device(array: Any) -> Hashable:
    found = arrays.view("", array)
    return found.dtype if found.contiguous else tokens.refuse()


def _on_cpu(array: Any) -> Hashable:
    found = arrays.view("", array)
    if not found.contiguous or is_size(found.size):  # in a trace, the comparison is a guard
        tokens.refuse()
    return found.dtype, found.size == 1


_NAMES = {"_of_device": _of_device, "_on_cpu": _on_cpu, "_epoch": registries.epoch, "_reach": reach}


def _token(cls: type, on_cpu: bool) -> str:
    """Return the expression for the token of data and initial values of a class."""
    if issubclass(cls, Iterator):
        return _ITERATOR
    if hasattr(cls, "alternate"):  # a `DoubleBuffer`, which most programs never import
        return _BUFFERS
    if issubclass(cls, np.generic) or structs.is_struct(cls):
        return _DTYPE
    if cls in _NUMBERS:
        return _NUMBERS[cls]
    if not on_cpu:
        if cls is np.ndarray:
            return _OF_HOST
        if arrays.reader_of(cls) is not None:  # else the class may be an array's that has not been read yet
            return _CUPYS if cls in arrays.CUPY else _OF_DEVICE
        return tokens.of_value(cls)
    from .._device import host_arrays

    if issubclass(cls, np.ndarray):
        return tokens.refuse() if host_arrays.is_masked(cls) else _NUMPYS
    is_array = host_arrays.is_array_class(cls) or arrays.is_anywhere(cls)
    return _ON_CPU if is_array else tokens.of_value(cls)


# The check of the guard of each Python function among the arguments, which takes a function of the same code.
_Checks = tuple[Callable[[Any], bool], ...]


@dataclass(frozen=True)
class _Answer:
    """An algorithm, and the conditions under which it answers a request with the same tokens."""

    algorithm: Launchable
    device: driver.Device | None  # that must be current; None: any, as with `cc` or on the CPU
    checks: _Checks
    reads_numbers: bool = False  # whether an operator does


# --- Tables -----------------------------------------------------------------------------------------------

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
            if named.get("numbers") is None:
                return factory(*args, **named)
            return numbers.choosing(numbers.choice(named["numbers"]), factory, *args, **named)
    except RecursionError as error:
        raise nested(factory.__name__) from cause(error)
    except EXPECTED as error:
        raise without_own_frames(error)  # noqa: B904 - it is the same error


def memoised(factory: Callable[P, A]) -> Callable[P, A]:
    """Decorate a factory: repeated requests are answered from a table.

    It relies on names of parameters: `h_init` is the initial value, and those that begin with ``d_``,
    ``start_`` or ``end_``, which come first, are data, of which only the type matters. What is given as
    `numbers` holds for all operators that the factory resolves; itself, it does nothing with it.
    """
    on_gpu, on_cpu = _lookup(factory, False), _lookup(factory, True)

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
    factory: Callable[..., Launchable], on_cpu: bool
) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """Return a function of a request's arguments that answers from a table, else asks the factory."""
    makers: Recent[Any, Any] = of_builds(Recent(_MOST))  # of keys, by the classes of arguments
    table: Recent[Hashable, _Answer] = new_table()
    by_type, parameters = {*data_names(factory), "h_init"}, factory.__code__.co_varnames
    count = _cache.counter("memory")

    def key_maker(classes: Sequence[type], names: tuple[str, ...]) -> Any:
        """Return the function that makes keys of arguments; the last ones are given by these names."""
        found = dict(zip((*parameters[: len(classes) - len(names)], *names), classes, strict=True))
        if found.get("link", NoneType) is not NoneType:
            raise NoTokenError  # files may change
        texts = [
            _token(cls, on_cpu) if name in by_type else tokens.of_value(cls) for name, cls in found.items()
        ]
        operators = [i for i, text in enumerate(texts) if text == tokens.FUNCTION]
        return tokens.key_maker(texts, _NAMES, operators=operators)

    def ask(args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if named:
            given: tuple[Any, ...] = (*args, *named.values())
            classes: tuple[Any, ...] = (*map(type, args), *named, *map(type, named.values()))
        else:
            given, classes = args, (*map(type, args),)
        try:
            make = makers.get(classes)
            if make is None:
                make = makers[classes] = key_maker([*map(type, given)], (*named,))
            key, operators = make(given)
        except (NoTokenError, TypeError, ValueError, RecursionError):
            return _make(factory, args, named)  # which reports errors
        try:
            known: _Answer | None = table[key]
        except (KeyError, RecursionError):  # iterators are nested deeply
            known = None
        if (
            known is not None
            and (not known.checks or _are_unchanged(known.checks, operators))
            and not (known.reads_numbers and walk.is_traced())
            and _is_for_this_device(known)
        ):
            count()
            return known.algorithm
        return _make_and_memoise(factory, table, key, operators, args, named)

    return ask


def _make_and_memoise(
    factory: Callable[..., Launchable],
    table: dict[Hashable, _Answer],
    key: Hashable,
    operators: list[Any],
    args: tuple[Any, ...],
    named: dict[str, Any],
) -> Launchable:
    """Call a factory, and put its result into the table if that may be shared."""
    # The guards must be of exactly what the factory resolves: in the scope, each function is read once.
    with walk.fingerprint_scope():
        try:
            prints = [walk.fingerprint(each) for each in operators]
            checks = tuple([each.guard.checker() for each in prints])
        except walk.Unfingerprintable:
            return _make(factory, args, named)
        algorithm = _make(factory, args, named)
    _memoise(table, key, algorithm, checks, True in [bool(each.numbers) for each in prints], named)
    return algorithm


def _are_unchanged(checks: _Checks, operators: list[Any]) -> bool:
    for is_unchanged, operator in zip(checks, operators):  # noqa: B905, SIM110 - others cost as much as the rest
        if not is_unchanged(operator):
            return False
    return True


def _is_for_this_device(known: _Answer) -> bool:
    if known.device is None or hasattr(driver.this_thread, "has_the_only_device"):
        return True
    return driver.current_device() == known.device


def _memoise(
    table: dict[Hashable, _Answer],
    key: Hashable,
    algorithm: Launchable,
    checks: _Checks,
    reads_numbers: bool,
    named: dict[str, Any],
) -> None:
    """Put an algorithm into a table, unless it is not shared: see `obtain.answer`."""
    # Not the first request's object, whose `build` says what it cost; nor one with state, which belongs to
    # the arrays that one operator captured.
    if not algorithm.is_built or algorithm.build.origin != "memory" or algorithm.has_state:
        return
    device = None if named.get("cc") is not None or is_cpu() else driver.current_device()
    table[key] = _Answer(algorithm, device, checks, reads_numbers)


def forget() -> None:
    """Clear the tables of all factories."""
    for table in tables:
        table.clear()
