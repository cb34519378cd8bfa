"""Known programs: by a call's key, which has classes, dtypes and layouts of arrays, and no sizes.

A number among the arguments is part of keys until a call gives another one there. Then it varies: it is no
part of keys, and programs take it as a size. If a function needs the plain number, it becomes part of keys
again, for good.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from inspect import signature
from typing import Any

import numpy as np

from .._arguments import tokens
from .._arguments.tokens import NoTokenError
from .._device import arrays, driver, readers
from .._device.driver import NoDeviceError
from .._fingerprint import walk
from .._obtain import factory_cache
from .render import GUARD_FAILED, Program, attempts, rendered
from .trace import CannotTraceError, Trace

_MOST_PROGRAMS = 4  # of a key, for sizes of different kinds
_MOST_ITEMS = 64  # of a host array, for its numbers to vary
_MOST_RECENT = 4  # kinds of calls of a function that are known without a key
_MOST_IN_VAIN = 8  # traces of a key, one after another, whose programs no call has used


# --- Keys -------------------------------------------------------------------------------------------------

_WRITEABLE = f"{readers.NUMPY.layout}, {{v}}.flags.writeable"
_ARRAYS = {_WRITEABLE, *[each.layout for each in (readers.NUMPY, readers.CUPY, readers.TORCH)]}
_DTYPES = "f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8"
_NUMBERS = frozenset((int, float, *[np.dtype(each).type for each in _DTYPES.split()]))  # that can vary
# The tokens of arguments whose numbers do.
_NUMBER, _SOME = "values.append({v})", "_without_numbers({v}, values, operators)"
_ITEMS = "_without_items({v}, values)"
_VALUE, _INPUT, _OUTPUT = range(3)  # what an argument is
_SEVERAL = [f"_several({{v}}, {each}, values, operators)" for each in range(3)]  # of tuples and lists


def output_of(function: Any, arguments: int) -> int | None:
    """Return which argument of a function, of so many behind its work, is an array that it writes to.

    That is its parameter `out`; a function of any number of inputs says so by `out_is_last`.
    """
    names = [*signature(function).parameters]
    if getattr(function, "out_is_last", False):
        return arguments - 1
    return names.index("out") - 1 if "out" in names else None


def _token(cls: type, kind: int) -> str:
    """Return the expression for the token of arguments of a class."""
    if cls is tuple or cls is list:
        return _SEVERAL[kind]
    found = None if kind == _VALUE else arrays.syntax_of(cls)
    if found is None:
        return tokens.of_value(cls)
    return _WRITEABLE if kind == _OUTPUT and found is readers.NUMPY else found.layout


def _several(value: Any, kind: int, found: list[Any], operators: list[Any]) -> Hashable:
    """Return the token of a tuple or list: a key of its own."""
    classes = (*map(type, value),)
    if tokens.ATOMS.issuperset(classes):
        return classes, tuple(value)
    reader = _READERS.find((kind, classes))
    if reader is None:
        reader = _READERS[kind, classes] = _Reader([_token(each, kind) for each in classes])
    key, own, functions = reader.read(value)
    found += own
    operators += functions
    return key  # type: ignore[no-any-return]


def _numbers_of(value: Any) -> list[Any]:
    """Return the numbers in an argument that can vary."""
    if type(value) in _NUMBERS:
        return [value]
    if type(value) is np.ndarray:
        return value.ravel().tolist() if value.dtype.type in _NUMBERS and value.size <= _MOST_ITEMS else []
    return [each for each in value if type(each) in _NUMBERS] if type(value) in (tuple, list) else []


def _without_numbers(value: Any, found: list[Any], operators: list[Any]) -> Hashable:
    """Return the token of a tuple or list whose numbers vary; these are appended to `found`."""
    found += [each for each in value if type(each) in _NUMBERS]
    others = [None if type(each) in _NUMBERS else each for each in value]
    return (*map(type, value),), _several(others, _VALUE, found, operators)


def _without_items(value: Any, found: list[Any]) -> Hashable:
    """Return the token of a host array whose items vary; these are appended to `found`."""
    if value.dtype.type not in _NUMBERS or value.size > _MOST_ITEMS:
        raise NoTokenError
    found += value.ravel().tolist()
    return value.dtype, value.shape


def _with_sizes(value: Any, sizes: Iterator[Any]) -> Any:
    """Return an argument in which sizes take the place of its numbers."""
    if type(value) in _NUMBERS:
        return next(sizes)
    if type(value) is np.ndarray:
        return np.array([next(sizes) for _ in range(value.size)], object).reshape(value.shape)
    return type(value)([next(sizes) if type(each) in _NUMBERS else each for each in value])


class _Reader:
    """Reads arguments of some classes: their key, the arrays among the inputs, and the functions.

    Attributes
    ----------
    read : callable
        Takes the arguments; returns these three. The numbers that vary are behind the arrays. A key has
        functions by their code.
    varying : frozenset of int
        The arguments whose numbers vary.
    fixed : frozenset of int
        Those whose numbers are not to vary.
    last : list
        The numbers of the last call with a new key.
    """

    __slots__ = ("_texts", "fixed", "last", "read", "varying")

    def __init__(
        self,
        texts: list[str],
        varying: frozenset[int] = frozenset(),
        fixed: frozenset[int] = frozenset(),
    ) -> None:
        for i in varying:
            texts[i] = _ITEMS if texts[i] == tokens.HOST_ARRAY else _SOME if texts[i] in _SEVERAL else _NUMBER
        self._texts, self.varying, self.fixed, self.last = texts, varying, fixed, list[Any]()
        self.read = tokens.key_maker(texts, _NAMES, **self._lists())

    def numbers_of(self, given: tuple[Any, ...]) -> list[list[Any]]:
        """Return the numbers in each argument that can vary."""
        pairs = zip(self._texts, given, strict=True)
        return [[] if text in _ARRAYS else _numbers_of(each) for text, each in pairs]

    def _lists(self) -> dict[str, list[int]]:
        values = [i for i, text in enumerate(self._texts) if text in _ARRAYS]
        operators = [i for i, text in enumerate(self._texts) if text == tokens.FUNCTION]
        return {"values": values, "operators": operators}

    def match(self, given: tuple[Any, ...]) -> tokens.Match:
        """Return the lines that see whether arguments are like these, and make the lists of them."""
        return tokens.match(self._texts, _NAMES, given, **self._lists())


_NAMES = {"_several": _several, "_without_numbers": _without_numbers, "_without_items": _without_items}


def _reader(
    classes: tuple[Any, ...], varying: frozenset[int] = frozenset(), fixed: frozenset[int] = frozenset()
) -> _Reader:
    """Make the reader of calls of a function, with a number of inputs and arguments of some classes."""
    function, inputs, *of_given = classes
    output = output_of(function, len(of_given))
    kinds = [_OUTPUT if i == output else _INPUT if i < inputs else _VALUE for i in range(len(of_given))]
    found = _READERS[classes] = _Reader([*map(_token, of_given, kinds)], varying, fixed)
    return found


def _compared(classes: tuple[Any, ...], given: tuple[Any, ...]) -> _Reader:
    """Return the reader of a call with a new key: numbers that are not those of the last such call vary."""
    reader: _Reader = _READERS.find(classes) or _reader(classes)
    last, numbers = reader.last, reader.numbers_of(given)
    changed = [i for i, (one, other) in enumerate(zip(numbers, last)) if one != other]  # noqa: B905
    varying = reader.varying.union(changed) - reader.fixed
    if varying != reader.varying:
        reader = _reader(classes, varying, reader.fixed)
    reader.last = numbers
    return reader


def _fix(miss: Miss, numbers: Collection[int]) -> None:
    """Make arguments parts of keys again, by the indices of some of their numbers among those that vary."""
    reader, given = miss.entry.reader, miss.arguments
    owners = [i for i in sorted(reader.varying) for _ in _numbers_of(given[i])]
    fixed = frozenset([owners[each] for each in numbers])
    _reader(miss.entry.classes, reader.varying - fixed, reader.fixed | fixed).last = reader.last
    _new(miss.entry.classes, given)  # so that the next call is traced


# --- The table --------------------------------------------------------------------------------------------


class _Entry:
    """The programs of a key.

    Attributes
    ----------
    classes : tuple
        The function, the number of its inputs, and the classes of arguments.
    reader : _Reader
        It has made the key.
    device : Device or None
        That of the key.
    attempt : callable or None
        Makes a call like an earlier one, given the arguments; returns None if it is another one, or no
        program makes it.
    """

    __slots__ = ("attempt", "classes", "device", "in_vain", "kept", "programs", "reader")

    def __init__(self, classes: tuple[Any, ...], reader: _Reader, device: Any = None) -> None:
        self.classes, self.reader, self.device = classes, reader, device
        self.attempt: Callable[[tuple[Any, ...]], Any] | None = None
        self.programs: tuple[Program, ...] = ()
        self.in_vain = 0
        self.kept: tuple[Any, ...] = ()  # code of operators, whose ids are in the key

    def attempts(self, given: tuple[Any, ...]) -> Callable[[tuple[Any, ...]], Any]:
        """Return the function that makes calls whose arguments are like these."""
        match = self.reader.match(given)
        if self.device is not None:
            match.names.update(_device=self.device, _device_of=_device_of)
            match = match._replace(condition=f"{match.condition} and _device_of(values) == _device")
        return attempts(match, self.programs)


class Miss:
    """A call that no program has made.

    Attributes
    ----------
    entry : _Entry
        The programs of its key.
    arguments : tuple
        Those of the call, inputs first.
    values : list
        Its arrays, and the numbers that vary behind them.
    operators : list
        The functions that it is given.
    is_due : bool
        Whether it is to be traced.
    """

    __slots__ = ("arguments", "entry", "is_due", "operators", "values")

    def __init__(
        self,
        entry: _Entry,
        arguments: tuple[Any, ...],
        values: list[Any],
        operators: list[Any],
        is_due: bool,
    ) -> None:
        self.entry, self.arguments, self.is_due = entry, arguments, is_due
        self.values, self.operators = values, operators


_READERS: Any = factory_cache.new_table()  # by a function, the number of inputs and classes
_KNOWN: Any = factory_cache.new_table()  # by keys
_RECENT: Any = factory_cache.new_table()  # what makes calls like the last ones, by a function


def call(function: Any, inputs: tuple[Any, ...], arguments: tuple[Any, ...]) -> Any:
    """Make a call by a program and return its result; else return a `Miss`, or None if it has no key."""
    given = inputs + arguments
    try:
        # Most calls of a function are like one of the last, which takes less time to see than to make a key.
        for attempt in _RECENT.get(function, ()):
            if (result := attempt(given)) is not None:
                return result
        classes = (function, len(inputs), *map(type, given))
        reader = _READERS[classes]
        key, values, operators = reader.read(given)
        if driver.has_several_devices and (device := _device_of(values)) is not None:
            key += (device,)
        entry: _Entry = _KNOWN[key]
    except (KeyError, TypeError, RuntimeError, AttributeError, NoTokenError):
        return _new((function, len(inputs), *map(type, given)), given)
    for program in entry.programs:
        result = program.run(values, operators)
        if result is None:  # something is wrong, or the arrays have no memory
            return None
        if result is not GUARD_FAILED:
            entry.in_vain = 0
            if entry.attempt is None:
                entry.attempt = entry.attempts(given)
            others = [each for each in _RECENT.get(function, ()) if each is not entry.attempt]
            _RECENT[function] = (entry.attempt, *others[: _MOST_RECENT - 1])
            return result
    return Miss(entry, given, values, operators, entry.in_vain < _MOST_IN_VAIN)


def _new(classes: tuple[Any, ...], given: tuple[Any, ...]) -> Any:
    """Return a `Miss` of a key that was not asked for before; None if the call has no key."""
    try:
        before = _READERS.find(classes)
        reader = _compared(classes, given)
        key, values, operators = reader.read(given)
        if not values:
            return None
        device = _device_of(values)
        if device is not None:
            key += (device,)
        entry = _KNOWN.find(key)
        if entry is None:
            entry = _KNOWN[key] = _Entry(classes, reader, device)
    # The key of a number of symbols has no hash; nested and sparse tensors raise RuntimeErrors, as do tuples
    # nested deeply.
    except (NoTokenError, TypeError, RuntimeError, AttributeError, NoDeviceError):
        return None
    # A call with another number is like the one before.
    return Miss(entry, given, values, operators, before is not None and before is not reader)


def _device_of(values: list[Any]) -> Any:
    """Return the current device, if there are several and the first array is on one."""
    if not driver.has_several_devices or not values:
        return None
    if getattr(values[0], "is_cpu", type(values[0]) is np.ndarray):
        return None
    return driver.current_device()


def traced(miss: Miss, library: Any, make: Callable[[Trace | None], Any]) -> Any:
    """Make a call, which `make` does given a trace to fill, and keep its program; return its result."""
    entry = miss.entry  # which the tables may have dropped
    inputs = [each for each in miss.values if type(each) not in _NUMBERS]
    numbers = miss.values[len(inputs) :]
    if True in [isinstance(each, int) and not -(2**63) <= each < 2**63 for each in numbers]:
        return make(None)  # NumPy has other dtypes for these
    if not _NUMBERS.issuperset(map(type, numbers)):  # a number, and then a tuple of arrays
        return make(None)
    entry.in_vain += 1
    with walk.fingerprint_scope():  # so that the guards are of what the call has built
        try:
            constants = walk.constants_of_trace(begin=True)
            checks = [walk.fingerprint(each).guard.checker() for each in miss.operators]
            trace = Trace(library, inputs, numbers)
            trace.read_numbers_of(miss.operators)
            sizes, varying = iter(trace.numbers), entry.reader.varying
            given = enumerate(miss.arguments)
            trace.arguments = [_with_sizes(each, sizes) if i in varying else each for i, each in given]
            result = make(trace)
        except Exception:  # the general path raises the error; nothing of the user's is written
            result = make(None)
            if numbers:  # perhaps it was one of these
                _fix(miss, range(len(numbers)))
            return result
    try:
        fixed = range(len(numbers)) if entry.in_vain > _MOST_PROGRAMS else trace.fixed_numbers()
        if fixed:
            _fix(miss, fixed)
            return trace.value_of(result)
        for i, read in trace.readers(constants or ()):
            checks[i] = read
        program = rendered(trace, result, checks)
    except CannotTraceError:
        return trace.value_of(result)
    else:
        entry.kept = tuple([getattr(each, "__code__", each) for each in miss.operators])
        # The newest comes first, as what operators read may have changed for good.
        entry.programs = (program, *entry.programs[: _MOST_PROGRAMS - 1])
        entry.attempt = None
        _RECENT.pop(entry.classes[0], None)
        return trace.value_of(result)
    finally:
        trace.end()
