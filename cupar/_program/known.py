"""Known programs: by a call's key, which has classes, dtypes and layouts of arrays, and no sizes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from inspect import signature
from typing import Any

import numpy as np

from .._arguments import tokens
from .._arguments.tokens import NoTokenError
from .._device import driver
from .._device.driver import NoDeviceError
from .._fingerprint import walk
from .._obtain import factory_cache
from .render import MISS, Program, rendered, syntax_of
from .trace import CannotTraceError, Trace

_MOST_PROGRAMS = 4  # of a key, for sizes of different kinds
_MOST_IN_VAIN = 8  # traces of a key, one after another, whose programs no call has used


# --- Keys -------------------------------------------------------------------------------------------------

_WRITEABLE = f"{tokens.NUMPYS.layout}, {{v}}.flags.writeable"
_ARRAYS = {_WRITEABLE, *[each.layout for each in (tokens.NUMPYS, tokens.CUPYS, tokens.TENSORS)]}
# Of tuples and lists, of inputs or not.
_SEVERAL = {each: f"_several({{v}}, {each}, found, operators)" for each in (True, False)}


def output_of(function: Any, arguments: int) -> int | None:
    """Return which argument of a function, of so many behind its work, is an array that it writes to.

    That is its parameter `out`; a function of any number of inputs says so by `out_is_last`.
    """
    names = [*signature(function).parameters]
    if getattr(function, "out_is_last", False):
        return arguments - 1
    return names.index("out") - 1 if "out" in names else None


def _token(cls: type, is_input: bool) -> str:
    """Return the expression for the token of arguments of a class."""
    if cls is tuple or cls is list:
        return _SEVERAL[is_input]
    found = tokens.of_array(cls) if is_input else None
    return tokens.of_value(cls) if found is None else found.layout


def _several(value: Any, are_inputs: bool, found: list[Any], operators: list[Any]) -> Hashable:
    """Return the token of a tuple or list: a key of its own."""
    classes = (*map(type, value),)
    if tokens.ATOMS.issuperset(classes):
        return classes, tuple(value)
    reader = _READERS.find((are_inputs, classes))
    if reader is None:
        reader = _READERS[are_inputs, classes] = _Reader([_token(each, are_inputs) for each in classes])
    key, own, functions = reader.read(value)
    found += own
    operators += functions
    return key  # type: ignore[no-any-return]


class _Reader:
    """Reads arguments of some classes: their key, the arrays among the inputs, and the functions.

    Attributes
    ----------
    read : callable
        Takes the arguments; returns these three. A key has functions by their code.
    """

    __slots__ = ("_texts", "read")

    def __init__(self, texts: list[str], output: int | None = None) -> None:
        if output is not None and texts[output] == tokens.NUMPYS.layout:
            texts[output] = _WRITEABLE
        self._texts = texts
        self.read = tokens.key_maker(texts, _NAMES, **self._lists())

    def _lists(self) -> dict[str, list[int]]:
        found = [i for i, text in enumerate(self._texts) if text in _ARRAYS]
        operators = [i for i, text in enumerate(self._texts) if text == tokens.FUNCTION]
        return {"found": found, "operators": operators}

    def matcher(self, given: tuple[Any, ...]) -> Callable[[tuple[Any, ...]], tuple[Any, ...] | None]:
        """Return the function that returns arrays and functions of arguments like these; None of others."""
        return tokens.matcher(self._texts, _NAMES, given, **self._lists())


_NAMES = {"_several": _several}


# --- The table --------------------------------------------------------------------------------------------


class _Known:
    """The programs of a key.

    Attributes
    ----------
    device : Device or None
        That of the key.
    match : callable or None
        Returns the arrays and functions of arguments that are alike, None of others: see `_Reader.matcher`.
    """

    __slots__ = ("device", "in_vain", "kept", "match", "programs")

    def __init__(self, device: Any = None) -> None:
        self.device, self.match = device, None
        self.programs: tuple[Program, ...] = ()
        self.in_vain = 0
        self.kept: tuple[Any, ...] = ()  # code of operators, whose ids are in the key


class Asked:
    """A call that no program has made: its arrays, and the functions that it is given.

    Attributes
    ----------
    known : _Known
        The programs of its key.
    is_due : bool
        Whether it is to be traced.
    """

    __slots__ = ("arrays", "is_due", "known", "operators")

    def __init__(self, known: _Known, arrays: list[Any], operators: list[Any], is_due: bool) -> None:
        self.known, self.arrays, self.operators, self.is_due = known, arrays, operators, is_due


_READERS: Any = factory_cache.new_table()  # by a function, the number of inputs and classes
_KNOWN: Any = factory_cache.new_table()  # by keys
_RECENT: Any = factory_cache.new_table()  # what the call before has used, by a function


def call(function: Any, inputs: tuple[Any, ...], arguments: tuple[Any, ...]) -> Any:
    """Make a call by a program, and return its result; else return what is asked, or None without a key."""
    given = inputs + arguments
    try:
        # Most calls of a function are like the one before, which takes less time to see than to make a key.
        known: _Known | None = _RECENT.get(function)
        if (
            known is None
            or (matched := known.match(given)) is None  # type: ignore[misc]
            or (driver.has_several_devices and known.device != _device_of(matched[0]))
        ):
            classes = (function, len(inputs), *map(type, given))
            reader = _READERS[classes]
            key, found, operators = reader.read(given)
            if driver.has_several_devices and (device := _device_of(found)) is not None:
                key += (device,)
            known = _KNOWN[key]
            if known.programs:
                if known.match is None:
                    known.match = reader.matcher(given)
                _RECENT[function] = known
        else:
            found, operators = matched
    except (KeyError, TypeError, RuntimeError, AttributeError, NoTokenError):
        return _new((function, len(inputs), *map(type, given)), given)
    for program in known.programs:
        result = program(found, operators)
        if result is None:  # something is wrong, or the arrays have no memory
            return None
        if result is not MISS:
            if known.in_vain:
                known.in_vain = 0
            return result
    return Asked(known, found, operators, known.in_vain < _MOST_IN_VAIN)


def _new(classes: tuple[Any, ...], given: tuple[Any, ...]) -> Any:
    """Note a key that was not asked for before; None if there is none."""
    try:
        reader = _READERS.find(classes)
        if reader is None:
            function, inputs, *of_given = classes
            output = output_of(function, len(of_given))
            texts = [_token(cls, i < inputs or i == output) for i, cls in enumerate(of_given)]
            reader = _READERS[classes] = _Reader(texts, output)
        key, found, operators = reader.read(given)
        if not found:
            return None
        device = _device_of(found)
        if device is not None:
            key += (device,)
        known = _KNOWN.find(key)
        if known is None:
            known = _KNOWN[key] = _Known(device)
    # The key of a number of symbols has no hash; nested and sparse tensors raise RuntimeErrors, as do tuples
    # nested deeply.
    except (NoTokenError, TypeError, RuntimeError, AttributeError, NoDeviceError):
        return None
    return Asked(known, found, operators, False)


def _device_of(found: list[Any]) -> Any:
    """Return the current device, if there are several and the first array is on one."""
    if not driver.has_several_devices or not found:
        return None
    if getattr(found[0], "is_cpu", type(found[0]) is np.ndarray):
        return None
    return driver.current_device()


def traced(asked: Asked, library: Any, make: Callable[[Trace | None], Any]) -> Any:
    """Make a call, which `make` does given a trace to fill, and keep its program; return its result."""
    known = asked.known  # which the tables may have dropped
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
