"""Calls made again: what a call allocates and launches, recorded once, without all that found it.

A function made of several algorithms looks into its arrays, makes iterators and asks factories. What comes
of that follows from the classes, dtypes, shapes and devices of its arrays, from its other arguments, and from
the values that operators read. So the second call for which these are the same is recorded: the arrays that
it allocates, and the values of each launch, in which an address is a place in one of these arrays or in an
argument. Later calls are a generated function of that, which checks what the key does not have.

A call that reads items back, writes to its arguments, or copies without an algorithm is not recorded.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Sequence
from types import BuiltinFunctionType, FunctionType, NoneType
from typing import Any, NamedTuple

import numpy as np

from .. import structs
from .._base import device
from .._base.generated import define
from .._device import arrays, driver, peers
from .._fingerprint import walk
from .._ir.iterator import over
from .._launch.arguments import signature
from .._obtain import factory_cache
from . import libraries
from .libraries import ArrayLibrary

# Bytes of temporaries of a call, all of which one that is made again has at the same time.
_MOST_BYTES = 1 << 22
_ALIGNMENT = 256
_MOST_ITEMS = 64  # of a host array among the arguments that are told by value


class _CannotError(Exception):
    """A call is not of a kind that can be made again."""


class Addresses:
    """State of an iterator: addresses of arrays, each with a number of bytes behind it, as integers.

    They are multiples of `unit`, a power of two. Zeros fill the `room` for others.
    """

    def __init__(
        self, places: Sequence[tuple[Any, int]], pack: Callable[..., bytes], room: int, unit: int
    ) -> None:
        self.places, self.pack, self.room, self.unit = places, pack, room, unit

    def __call__(self) -> bytes:
        """Return the state for a call."""
        found = [array.address + nbytes for array, nbytes in self.places]
        return self.pack(*found, *[0] * (self.room - len(found)))


# --- Requests ---------------------------------------------------------------------------------------------

# What a call is of: a key, and what that does not have, its arrays and the functions that it is given.
Request = tuple[Hashable, list[Any], list[Any]]
_Token = Callable[[Any, "list[Any] | None", list[Any]], Hashable]


def _of_atom(value: Any, found: list[Any] | None, operators: list[Any]) -> Hashable:
    return type(value), value


def _of_float(value: float, found: list[Any] | None, operators: list[Any]) -> Hashable:
    return value.hex()  # which tells -0.0 from 0.0


def _of_number(value: Any, found: list[Any] | None, operators: list[Any]) -> Hashable:
    return value.dtype, value.tobytes()


def _of_several(value: Any, found: list[Any] | None, operators: list[Any]) -> Hashable:
    return type(value), *[_TOKENS[type(each)](each, found, operators) for each in value]


def _of_function(function: Any, found: list[Any] | None, operators: list[Any]) -> Hashable:
    operators.append(function)
    return id(function.__code__)  # which what was learned keeps


def _of_array(x: Any, found: list[Any] | None, operators: list[Any]) -> Hashable:
    if found is not None:
        found.append(x)
        return type(x), x.dtype, x.shape
    if type(x) is not np.ndarray or x.dtype.hasobject or x.size > _MOST_ITEMS:
        raise _CannotError
    return x.dtype, x.shape, x.tobytes()


def _of_tensor(x: Any, found: list[Any] | None, operators: list[Any]) -> Hashable:
    if found is None:
        raise _CannotError
    found.append(x)
    return type(x), x.dtype, x.shape, x.device


def _none(value: Any, found: list[Any] | None, operators: list[Any]) -> Hashable:
    raise _CannotError


class _Tokens(dict[type, _Token]):
    """Maps the class of an argument to what makes its part of a key."""

    def __missing__(self, cls: type) -> _Token:
        found: _Token
        if issubclass(cls, enum.Enum) or cls in (BuiltinFunctionType, np.ufunc) or issubclass(cls, np.dtype):
            found = _of_atom
        elif issubclass(cls, np.generic) and not issubclass(cls, (np.void, np.object_)):
            found = _of_number
        elif cls in arrays.CUPY:
            found = _of_array
        elif cls.__module__.partition(".")[0] == "torch" and hasattr(cls, "data_ptr"):
            found = _of_tensor
        else:
            return _none  # perhaps the class of arrays of which none was read yet
        self[cls] = found
        return found


_ATOMS: frozenset[type] = frozenset((int, bool, str, NoneType, type))
_ATOMS_AND_FLOATS = _ATOMS | {float}
_TOKENS = _Tokens()
_TOKENS.update(dict.fromkeys(_ATOMS, _of_atom))
_TOKENS.update(dict.fromkeys((tuple, list), _of_several))
_TOKENS.update({float: _of_float, FunctionType: _of_function, np.ndarray: _of_array})
# By the classes of arguments that are told by class and value, the places of floats: 0.0 is as -0.0 there.
_PLAIN: dict[tuple[type, ...], tuple[int, ...]] = {}

# What makes a call again; True: one was seen, and the next is recorded; False: it cannot be made again.
# A number is as True, where operators read other values at once after that many recordings.
_KNOWN: Any = factory_cache.new_table()
_MOST_IN_VAIN = 4


class _Fresh:
    """A recording of which no call was made yet, as where operators read other values in each."""

    def __init__(self, key: Hashable, call: Callable[[list[Any], Any], Any], in_vain: int) -> None:
        self._key, self._call, self.in_vain = key, call, in_vain

    def __call__(self, given: list[Any], operators: Any) -> Any:
        found = self._call(given, operators)
        if found is not None:
            _KNOWN[self._key] = self._call
        return found


def request(function: Any, inputs: Iterable[Any], arguments: tuple[Any, ...]) -> Request | None:
    """Return what a call is of; None if it cannot be told by a key."""
    found: list[Any] = []
    operators: list[Any] = []
    try:
        tokens = [_TOKENS[type(each)](each, found, operators) for each in inputs]
        if driver.has_several_devices and found and _is_on_device(found[0]):
            tokens.append(driver.current_device())
        classes = (*map(type, arguments),)
        floats = _PLAIN.get(classes)
        if floats is None and {*classes} <= _ATOMS_AND_FLOATS:
            floats = _PLAIN[classes] = tuple([i for i, each in enumerate(classes) if each is float])
        if floats is not None and (not floats or 0.0 not in [arguments[i] for i in floats]):
            return ((function, classes, arguments, *tokens), found, operators) if found else None
        tokens += [_TOKENS[type(each)](each, None, operators) for each in arguments]
    except (_CannotError, RuntimeError):  # the latter of nested tensors, and of tuples nested deeply
        return None
    return ((function, *tokens), found, operators) if found else None


def _is_on_device(x: Any) -> bool:
    return not getattr(x, "is_cpu", type(x) is np.ndarray)


def again(asked: Request) -> Any:
    """Return the result of a call that was recorded, or None; True: this one is to be recorded."""
    try:
        known = _KNOWN[asked[0]]
    except KeyError:
        _KNOWN[asked[0]] = True
        return None
    except TypeError:  # of a shape of symbols, which has no hash
        return None
    if type(known) is int or known is True:
        return all(map(_is_in_c_order, asked[1])) or None
    if not known:
        return None
    found = known(asked[1], asked[2])
    if found is None and asked[2]:  # perhaps operators read other values now
        in_vain = known.in_vain + 1 if type(known) is _Fresh else 1
        _KNOWN[asked[0]] = in_vain <= _MOST_IN_VAIN and in_vain
    return found


def _is_in_c_order(x: Any) -> bool:
    try:
        if not hasattr(x, "flags"):
            return bool(x.is_contiguous())
        found: bool = x.flags.c_contiguous and getattr(x.flags, "aligned", True)
    except RuntimeError:  # of a sparse tensor, to which the general path objects
        return False
    return found


# --- Recording --------------------------------------------------------------------------------------------


class Recording:
    """What a call has allocated and run.

    Attributes
    ----------
    allocated : list of tuple
        Arrays of the library's, each with its shape and dtype.
    calls : list of tuple
        Algorithms, each with the arguments of its call.
    is_whole : bool
        Whether the call has done nothing else.
    is_early : bool
        Whether a later call with the same key is to be recorded in its place.
    """

    def __init__(self) -> None:
        self.allocated: list[tuple[Any, tuple[int, ...], np.dtype[Any]]] = []
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []
        self.is_whole, self.is_early = True, False


def recorded(asked: Request, library: ArrayLibrary, call: Callable[[Recording], Any]) -> Any:
    """Make a call that fills a recording, and keep how to make it again; return its result."""
    with walk.fingerprint_scope():  # so that the guards are of what the call has built
        try:
            checks = [walk.fingerprint(each).guard.checker() for each in asked[2]]
        except walk.Unfingerprintable:
            checks = None
        recording = Recording()
        result = call(recording)
    known: Any = False
    if checks is not None and recording.is_whole:
        try:
            known = _Writer(asked, library, recording).written(result, checks)
        except (_CannotError, TypeError, ValueError, RuntimeError):
            known = False
    if not recording.is_early:
        in_vain = _KNOWN.find(asked[0])
        is_counted = known is not False and type(in_vain) is int
        _KNOWN[asked[0]] = _Fresh(asked[0], known, in_vain) if is_counted else known
    return result


# --- Generated calls --------------------------------------------------------------------------------------


class _Syntax(NamedTuple):
    """Expressions for an array of a library, ``{x}``: its address, and whether its items lie otherwise."""

    address: str
    refused: str


_CUPY = _Syntax("{x}.data.ptr", "not {x}._c_contiguous")
_NUMPY = _Syntax('{x}.__array_interface__["data"][0]', "not {x}.flags.c_contiguous")
_TORCH = _Syntax("{x}.data_ptr()", "{x}.requires_grad or not {x}.is_contiguous() or {x}.is_neg()")

_SOURCE = """
def call(given, operators):
    {checks}
    try:
        {inputs}
        {made}
        stream = _stream()
        {runs}
    except (TypeError, ValueError, RuntimeError):  # the general path raises the error, if there is one
        return None
    return {result}
"""


class _Writer:
    """Writes the function that makes a recorded call again."""

    def __init__(self, asked: Request, library: ArrayLibrary, recording: Recording) -> None:
        self._asked, self._library, self._recording = asked, library, recording
        self._names: dict[str, Any] = {}
        # Memory: its begin and end, the variable of its address, and the bytes behind that.
        self._regions: list[tuple[int, int, str, int]] = []
        self._units: dict[str, int] = {}  # of which addresses of arguments must be multiples

    def written(self, result: Any, checks: list[Callable[[Any], bool]]) -> Callable[[list[Any], Any], Any]:
        library, names = self._library, self._names
        guards = self._guards(checks)
        inputs = self._inputs()
        found: list[Any] = []
        shown = self._shown(result, found)
        made = self._made(found)
        runs = self._runs([self._values(k, *each) for k, each in enumerate(self._recording.calls)])
        units = [f"{variable} & {unit - 1}" for variable, unit in self._units.items() if unit > 1]
        inputs += [f"if {' or '.join(units)}: return None"] * bool(units)
        names["_stream"] = library.stream
        names["_kept"] = [getattr(each, "__code__", each) for each in self._asked[2]]
        texts: dict[str, Any] = {"checks": guards, "inputs": inputs, "made": made, "runs": runs}
        call: Callable[[list[Any], Any], Any] = define(
            "recorded call", "call", _SOURCE, names, **texts, result=shown
        )
        return call

    def _guards(self, checks: list[Callable[[Any], bool]]) -> list[str]:
        """Return the lines that check what the key does not have and arrays do not."""
        on_cpu, names = self._library.on_cpu, self._names
        names["_refused"] = device.refuses_host if on_cpu else device.is_cpu
        wrong = ["_refused()"]
        for i, check in enumerate(checks):
            names[f"_check_{i}"] = check
            wrong.append(f"not _check_{i}(operators[{i}])")
        return [f"if {' or '.join(wrong)}: return None"]

    def _inputs(self) -> list[str]:
        """Return the lines that read the arrays."""
        given = self._asked[1]
        lines = [f"({''.join([f'x_{i}, ' for i in range(len(given))])}) = given"]
        for i, x in enumerate(given):
            syntax = self._syntax(x)
            memory = self._library.memory(x)
            begin, end = libraries.address(memory, self._library.on_cpu)
            self._add(begin, end, f"a_{i}")
            lines.append(f"if {syntax.refused}: return None".replace("{x}", f"x_{i}"))
            lines += self._addressed(f"a_{i}", x, f"x_{i}")
            self._units[f"a_{i}"] = 1
            if not self._library.on_cpu and driver.has_several_devices:
                self._names["_check_memory"] = peers.check_memory
                lines.append(f'_check_memory("x", a_{i})')
        return lines

    def _syntax(self, x: Any) -> _Syntax:
        if type(x) is np.ndarray:
            return _NUMPY
        if type(x) in arrays.CUPY:
            return _CUPY
        if x.is_complex():  # which may be conjugated when it is read
            raise _CannotError
        return _TORCH

    def _add(self, begin: int, end: int, address: str, offset: int = 0) -> None:
        """Add memory, which is apart from all other: else an address could not tell in which it is."""
        if begin >= end or True in [begin < last and first < end for first, last, *_ in self._regions]:
            raise _CannotError
        self._regions.append((begin, end, address, offset))

    def _shown(self, result: Any, found: list[Any]) -> str:
        """Return the expression for a result, whose arrays are appended to `found`."""
        if isinstance(result, tuple):
            items = "".join([f"{self._shown(each, found)}, " for each in result])
            if type(result) is tuple:
                return f"({items})"
            self._names[name := f"_class_{len(self._names)}"] = type(result)
            return f"{name}({items})"
        found.append(result)
        return f"r_{len(found) - 1}"

    def _made(self, results: list[Any]) -> list[str]:
        """Return the lines that allocate: results one by one, and temporaries at once."""
        library, lines, nbytes = self._library, [], 0
        own = {id(each): k for k, each in enumerate(results)}
        if (
            not own
            or len(own) != len(results)
            or not own.keys() <= {id(each) for each, *_ in self._recording.allocated}
        ):
            raise _CannotError  # it is an argument, or a part of an array
        for array, shape, dtype in self._recording.allocated:
            begin, end = libraries.address(library.memory(array), library.on_cpu)
            k = own.get(id(array))
            if k is None:
                self._add(begin, end, "temporary", nbytes)
                nbytes += -(-(end - begin) // _ALIGNMENT) * _ALIGNMENT
                continue
            self._add(begin, end, f"b_{k}")
            self._names.update({f"_empty_{k}": library.maker(dtype), f"_shape_{k}": shape})
            lines += [f"r_{k} = _empty_{k}(_shape_{k})", *self._addressed(f"b_{k}", array, f"r_{k}")]
        if nbytes > _MOST_BYTES:
            raise _CannotError
        if nbytes:
            self._names["_empty"] = library.maker(np.dtype(np.uint8))
            lines += [f"memory = _empty({nbytes})", *self._addressed("temporary", results[0], "memory")]
        return lines

    def _addressed(self, variable: str, like: Any, x: str) -> list[str]:
        """Return the lines that find where an array of a kind is, which is named `x`."""
        syntax = self._syntax(like)
        lines = [f"{variable} = {syntax.address}".replace("{x}", x)]
        if syntax is _TORCH:  # which has tensors without memory, and makes them within FakeTensorMode
            lines.append(f"if not {variable}: return None")
        return lines

    def _runs(self, calls: list[tuple[Any, Any, list[str]]]) -> list[str]:
        """Return the lines that run algorithms with problems and values: on a GPU as one, if it can be."""
        names = self._names
        is_final = False not in [algorithm._built.faster is None for algorithm, *_ in calls]
        if len(calls) > 1 and is_final and not self._library.on_cpu:
            from .._call.joined import Joined

            made = Joined([(algorithm, problem) for algorithm, problem, _ in calls])
            if made.is_graph:
                names["_run"], every = made._run, [value for *_, values in calls for value in values]
                return [f"_run(stream, None, (0, {', '.join(every)},))"]
        lines = []
        for k, (algorithm, problem, values) in enumerate(calls):
            names[f"_run_{k}"], names[f"_problem_{k}"] = algorithm._run, problem
            lines.append(f"_run_{k}(stream, None, (_problem_{k}, {', '.join(values)},))")
        return lines

    def _values(self, k: int, algorithm: Any, arguments: tuple[Any, ...]) -> tuple[Any, Any, list[str]]:
        """Return an algorithm, its problem, and the expressions for the values of its call."""
        read = algorithm._values_of(arguments)
        if read is None or algorithm.has_state or not algorithm.is_built:
            raise _CannotError
        spec = algorithm._spec
        parameters = signature(spec.algorithm_class.run).parameters
        given = dict(zip(parameters, arguments, strict=True))
        declared = {argument.name: argument for argument in spec.arguments}
        values: list[str] = []
        for i, name in enumerate(spec.value_names(spec.algorithm_class._uses)):
            argument, value = declared.get(name), read[1 + i]
            if argument is not None and argument.is_pointer:
                values.append(self._place(given[name], value, argument.output))
            elif argument is not None:
                values.append(self._state(f"{k}_{i}", given[name], value, argument.output))
            elif isinstance(value, bytes):
                values.append(repr(value))
            else:
                raise _CannotError
        return algorithm, read[0], values

    def _place(self, array: Any, address: int, is_output: bool) -> str:
        """Return the expression for an address that is that of an array's items, or of some of them."""
        if not address:  # an array of no items, or of what has its addresses elsewhere
            return "0"
        found = arrays.read("", array, self._library.on_cpu)
        begin, end = found.address, found.address + found.size * found.dtype.itemsize
        unit = structs.normal("", found.dtype).alignment  # that NumPy's packed structs do not tell
        for first, last, variable, offset in self._regions:
            if first <= begin < end <= last:
                offset += address - first
                if variable in self._units:  # an argument's
                    if is_output or offset % unit:
                        raise _CannotError
                    self._units[variable] = max(self._units[variable], unit)
                return f"{variable} + {offset}" if offset else variable
        raise _CannotError

    def _state(self, suffix: str, iterator: Any, state: bytes, is_output: bool) -> str:
        """Return the expression for an iterator's state."""
        found = over("x", iterator)
        packer, values, varies = found.node.packer, [], False
        for leaf, value in zip(found.leaves, packer.unpack(state), strict=True):
            if leaf.is_array:
                values.append(self._place(leaf.given, value, is_output and not leaf.slot.read_only))
            elif isinstance(leaf.given, Addresses):
                own: Addresses = leaf.given
                self._units.update({variable: max(unit, own.unit) for variable, unit in self._units.items()})
                each = [self._place(array, array.address + n, is_output) for array, n in own.places]
                self._names[name := f"_places_{suffix}_{len(values)}"] = own.pack
                values.append(f"{name}({', '.join([*each, *['0'] * (own.room - len(each))])})")
            elif isinstance(leaf.given, (bytes, int)):
                values.append(repr(value))
                continue
            else:
                raise _CannotError
            varies = True
        if not varies:
            return repr(state)
        self._names[name := f"_pack_{suffix}"] = packer.pack
        return f"{name}({', '.join(values)})"
