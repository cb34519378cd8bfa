"""Known programs: by a call's key, which has classes, dtypes and layouts of arrays, and no sizes."""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from inspect import signature
from types import BuiltinFunctionType, CodeType, FunctionType, NoneType
from typing import Any

import numpy as np

from .._base.generated import define
from .._device import arrays, driver
from .._device.driver import NoDeviceError
from .._fingerprint import walk
from .._obtain import factory_cache
from .render import MISS, Program, rendered, syntax_of
from .trace import CannotTraceError, Trace

_MOST_ITEMS = 64  # of a host array among the arguments that are told by value
_MOST_PROGRAMS = 4  # of a key, for sizes of different kinds
_MOST_IN_VAIN = 8  # traces of a key, one after another, whose programs no call has used


class _NoKeyError(Exception):
    """An argument has no token, so that no program is kept for the call."""


# --- Keys -------------------------------------------------------------------------------------------------

# Expressions for the parts of a key that an argument ``{v}`` has, by its kind. Its class is told before.
_ATOM, _NUMBER = "{v}", "{v}.dtype, {v}.tobytes()"
_FLOAT = "_bytes_of({v})"  # which tell -0.0 from 0.0, and one NaN from another
_CLASS = '{v}, getattr({v}, "dtype", None)'  # an attribute that NumPy reads
_FUNCTION = "_id({v}.__code__)"  # which what was learned keeps
_SEVERAL = "_several({v}, found, operators)"
_HOST_ARRAY = "_of_host({v})"  # that is no input: told by value
_TENSOR = "{v}.dtype, {v}.ndim, {v}.device, {v}.is_contiguous()"
_NUMPYS = "{v}.dtype, {v}.ndim, {v}.flags.c_contiguous"
_CUPYS = "{v}.dtype, {v}.ndim, {v}._c_contiguous"

_ATOMS = frozenset((int, bool, str, NoneType, BuiltinFunctionType, np.ufunc))


def output_of(function: Any, arguments: int) -> int | None:
    """Return which argument of a function, of so many behind its work, is an array that it writes to.

    That is its parameter `out`; a function of any number of inputs says so by `out_is_last`.
    """
    names = [*signature(function).parameters]
    if getattr(function, "out_is_last", False):
        return arguments - 1
    return names.index("out") - 1 if "out" in names else None


def _kind_of(cls: type, is_input: bool) -> str:
    """Return the expression for arguments of a class."""
    if cls in _ATOMS or issubclass(cls, (enum.Enum, np.dtype)):
        return _ATOM
    if cls is float:
        return _FLOAT
    if cls is type:
        return _CLASS
    if cls is FunctionType:
        return _FUNCTION
    if cls is tuple or cls is list:
        return _SEVERAL
    if issubclass(cls, np.generic) and not issubclass(cls, (np.void, np.object_)):
        return _NUMBER
    if cls is np.ndarray:
        return _NUMPYS if is_input else _HOST_ARRAY
    if is_input and cls in arrays.CUPY:
        return _CUPYS
    if is_input and cls.__module__.partition(".")[0] == "torch" and hasattr(cls, "data_ptr"):
        return _TENSOR
    raise _NoKeyError  # perhaps the class of arrays of which none was read yet


_ARRAYS = (_TENSOR, _NUMPYS, _CUPYS)
_KEY = """
def key(given):
    ({values}) = given
    found, operators = [{arrays}], [{functions}]
    return (_maker, {tokens}), found, operators
"""


def _of_host(x: np.ndarray[Any, Any]) -> Hashable:
    if x.dtype.hasobject or x.size > _MOST_ITEMS:
        raise _NoKeyError
    return x.dtype, x.shape, x.tobytes()


_NAMES: dict[str, Any] = {"_id": id, "_of_host": _of_host, "_bytes_of": struct.Struct("d").pack}


def _several(of_inputs: bool, value: Any, found: list[Any], operators: list[Any]) -> Hashable:
    """Return the part of a key of a tuple or list."""
    classes = (*map(type, value),)
    if _ATOMS.issuperset(classes):
        return classes, tuple(value)
    parts: list[Any] = []
    for each in value:
        kind = _kind_of(type(each), of_inputs)
        parts.append(type(each))
        if kind in _ARRAYS:
            found.append(each)
        elif kind is _FUNCTION:
            operators.append(each)
        if kind is _SEVERAL:
            parts.append(_several(of_inputs, each, found, operators))
        else:
            parts.append(eval(_code(kind), {"v": each, **_NAMES}))
    return tuple(parts)


@lru_cache(32)
@lru_cache(32)
def _code(kind: str) -> CodeType:
    return compile(f"({kind.replace('{v}', 'v')},)", "<cupar>", "eval")


def _key_maker(function: Any, inputs: int, classes: tuple[type, ...]) -> Callable[[tuple[Any, ...]], Any]:
    """Return the function that makes the key of a call with arguments of these classes.

    It returns the arrays among the inputs, and the functions, too, which a key has by their code.
    """
    names: dict[str, Any] = {**_NAMES, "_maker": object()}
    tokens, found, functions = list[str](), list[str](), list[str]()
    output = output_of(function, len(classes))
    for i, cls in enumerate(classes):
        kind = _kind_of(cls, i < inputs or i == output)
        if i == output and kind is _NUMPYS:
            kind, found = f"{kind}, {{v}}.flags.writeable", [*found, f"v{i}"]
        if kind is _SEVERAL:
            names[f"_several_{i}"] = partial(_several, i < inputs)
            kind = kind.replace("_several", f"_several_{i}")
        elif kind in _ARRAYS:
            found.append(f"v{i}")
        elif kind is _FUNCTION:
            functions.append(f"v{i}")
        tokens.append(kind.replace("{v}", f"v{i}"))
    texts = {
        "values": "".join([f"v{i}, " for i in range(len(classes))]),
        "arrays": ", ".join(found),
        "functions": ", ".join(functions),
        "tokens": ", ".join(tokens),
    }
    made: Callable[[tuple[Any, ...]], Any] = define("key of a call", "key", _KEY, names, **texts)
    return made


# --- The table --------------------------------------------------------------------------------------------


class Asked:
    """A call that no program has made: its key, its arrays, and the functions that it is given.

    Attributes
    ----------
    is_due : bool
        Whether it is to be traced.
    """

    __slots__ = ("arrays", "is_due", "key", "operators")

    def __init__(self, key: Hashable, arrays: list[Any], operators: list[Any], is_due: bool) -> None:
        self.key, self.arrays, self.operators, self.is_due = key, arrays, operators, is_due


class _Known:
    """The programs of a key."""

    __slots__ = ("in_vain", "kept", "programs")

    def __init__(self) -> None:
        self.programs: tuple[Program, ...] = ()
        self.in_vain = 0
        self.kept: tuple[Any, ...] = ()  # code of operators, whose ids are in the key


_MAKERS: Any = factory_cache.new_table()  # of keys, by a function, the number of inputs and classes
_KNOWN: Any = factory_cache.new_table()


def call(function: Any, inputs: tuple[Any, ...], arguments: tuple[Any, ...]) -> Any:
    """Make a call by a program, and return its result; else return what is asked, or None without a key."""
    given = inputs + arguments
    classes = (function, len(inputs), *map(type, given))
    try:
        key, found, operators = _MAKERS[classes](given)
        if driver.has_several_devices and found and _is_on_device(found[0]):
            key += (driver.current_device(),)
        known: _Known = _KNOWN[key]
    except (KeyError, TypeError, RuntimeError, AttributeError, _NoKeyError):
        return _new(classes, inputs, given)
    for program in known.programs:
        result = program(found, operators)
        if result is None:  # something is wrong, or the arrays have no memory
            return None
        if result is not MISS:
            if known.in_vain:
                known.in_vain = 0
            return result
    return Asked(key, found, operators, known.in_vain < _MOST_IN_VAIN)


def _new(classes: tuple[Any, ...], inputs: tuple[Any, ...], given: tuple[Any, ...]) -> Any:
    """Note a key that was not asked for before; None if there is none."""
    try:
        make = _MAKERS.find(classes)
        if make is None:
            make = _MAKERS[classes] = _key_maker(classes[0], len(inputs), classes[2:])
        key, found, operators = make(given)
        if not found:
            return None
        if driver.has_several_devices and _is_on_device(found[0]):
            key += (driver.current_device(),)
        if _KNOWN.find(key) is None:
            _KNOWN[key] = _Known()
    # The key of a number of symbols has no hash; nested and sparse tensors raise RuntimeErrors, as do tuples
    # nested deeply.
    except (_NoKeyError, TypeError, RuntimeError, AttributeError, NoDeviceError):
        return None
    return Asked(key, found, operators, False)


def _is_on_device(x: Any) -> bool:
    return not getattr(x, "is_cpu", type(x) is np.ndarray)


def traced(asked: Asked, library: Any, make: Callable[[Trace | None], Any]) -> Any:
    """Make a call, which `make` does given a trace to fill, and keep its program; return its result."""
    known = _KNOWN.setdefault(asked.key, _Known())
    known.in_vain += 1
    with walk.fingerprint_scope():  # so that the guards are of what the call has built
        try:
            checks = [walk.fingerprint(each).guard.checker() for each in asked.operators]
            trace = Trace(library, asked.arrays, [*map(_is_whole, asked.arrays)])
            result = make(trace)
        except Exception:  # the general path raises the error; nothing of the user's is written
            return make(None)
    try:
        program = rendered(trace, asked.arrays, result, checks)
    except CannotTraceError:
        return trace.value_of(result)
    else:
        known.kept = tuple([getattr(each, "__code__", each) for each in asked.operators])
        # The newest comes first, as what operators read may have changed for good.
        known.programs = (program, *known.programs[: _MOST_PROGRAMS - 1])
        return trace.value_of(result)
    finally:
        trace.end()


def _is_whole(x: Any) -> bool:
    syntax = syntax_of(x)
    if syntax is None:
        raise CannotTraceError("an array without expressions")
    found: bool = eval(syntax.is_whole.replace("{x}", "x"), {"x": x})
    return found
