"""Operators made into functions that have arguments in place of captured device arrays, and of numbers.

numba turns values that a function captures into constants, and a device array cannot be one. So the
operator's code becomes a closure in a function that has the arrays as its first parameters: numba inlines
closures, whose captured arrays are arguments. Where the operator reads an array as a global, the
instruction is made to read a variable of the closure first. So are numbers, and those that are attributes of
modules, which must not be constants; see `_compile.numbers`.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from .._base.data import replace
from .._base.generated import define
from .._fingerprint.bytecode import Chain
from .._fingerprint.frozen import FrozenFunction, FrozenJitted, FrozenModule

if TYPE_CHECKING:
    from .._fingerprint.numbers import Number
    from .._fingerprint.walk import Capture, Fingerprint

_AROUND = """
def around({others}):
    def outer({given}):
        {helpers}
        def inner({arguments}):
            return ({closure})
        return inner({passed})
    return outer
"""


def parametrised(found: Fingerprint, arity: int, numbers: Sequence[Number] = ()) -> Any:
    """Return an operator's frozen copy with the captured arrays and numbers as its first arguments.

    Functions that it calls are made so, too, if they read some of the numbers, and are given these. The copy
    does not have the numbers any more.

    Parameters
    ----------
    found : Fingerprint
    arity : int
        How many arguments calls give to it.
    numbers : sequence of Number
        Some of those that it reads.

    Raises
    ------
    TypeError
        If a function within it reads one of them as a global, or there are too many variables, or numbers
        are not read where they can be arguments.
    """
    making = _Making(numbers)
    whole, needed = making.operator(found.frozen, found.captures, arity)
    if needed != [*range(len(numbers))]:
        raise TypeError("a number is read by a function that is not called by name")
    return whole


_Function = FrozenFunction | FrozenJitted


class _Read(NamedTuple):
    """What a function reads as a variable of the closure that it becomes."""

    in_closure: bool
    chain: Chain  # its name, or a module's and the attributes read from that

    @property
    def name(self) -> str:
        """The name of the variable in the function's code."""
        return ".".join(self.chain)

    @property
    def stays(self) -> bool:
        """Whether it is a variable of the function's own closure."""
        return self.in_closure and len(self.chain) == 1


class _Making:
    """Makes functions that have numbers as arguments."""

    def __init__(self, numbers: Sequence[Number]) -> None:
        self._numbers = numbers
        self._made: dict[int, tuple[FrozenFunction, list[int]]] = {}  # by id of a function

    def operator(
        self, frozen: _Function, captures: Sequence[Capture], arity: int
    ) -> tuple[_Function, list[int]]:
        """Return the operator, and the indices of the numbers that it needs."""
        return self._whole(frozen, lambda each: self._function(each, captures, arity))

    def _whole(self, frozen: _Function, make: Any) -> tuple[_Function, list[int]]:
        if isinstance(frozen, FrozenJitted):
            made, needed = make(frozen.function)
            return replace(frozen, function=made), needed
        return make(frozen)  # type: ignore[no-any-return]

    def _helper(self, function: FrozenFunction) -> tuple[FrozenFunction, list[int]]:
        known = self._made.get(id(function))
        if known is None:
            known = self._made[id(function)] = self._function(function, (), None)
        return known

    def _function(
        self, function: FrozenFunction, captures: Sequence[Capture], arity: int | None
    ) -> tuple[FrozenFunction, list[int]]:
        own = [(i, each) for i, each in enumerate(self._numbers) if each.function is function]
        defaults = {each.read[0]: i for i, each in own if each.kind == "default"}
        values = {
            i: _Read(each.kind == "closure variable", each.read) for i, each in own if each.kind != "default"
        }
        helpers = dict[_Read, tuple[_Function, list[int]]]()
        for read, callee in _functions_read(function) if self._numbers else ():
            made = self._whole(callee, self._helper)
            if made[1]:
                helpers[read] = made
        needed = sorted({*values, *defaults.values()}.union(*[each for _, each in helpers.values()]))
        if not needed and not captures:
            return function, needed
        around = _Around(function, captures, needed, values, helpers)
        if defaults:
            around.give_defaults(defaults, arity)
        return around.made(), needed


class _Around:
    """The function around one whose first arguments are arrays and numbers, which it reads.

    Parameters
    ----------
    function : FrozenFunction
    captures : sequence of Capture
    needed : sequence of int
        The numbers that it is given, some of them for functions that it calls.
    values : dict
        Those that it reads itself.
    helpers : dict
        The functions that it calls, with the numbers that these are given.
    """

    def __init__(
        self,
        function: FrozenFunction,
        captures: Sequence[Capture],
        needed: Sequence[int],
        values: dict[int, _Read],
        helpers: dict[_Read, tuple[_Function, list[int]]],
    ) -> None:
        self._function, self._helpers = function, helpers
        arrays = [_Read(each.in_closure, (each.name,)) for each in captures]
        self._moved = [*arrays, *values.values(), *helpers]
        self._code = code = _in_closure(function.code, [each for each in self._moved if not each.stays])
        # A closure's variables are in the order of their names where it is made: here that of the code's.
        self._variables = {name: f"variable_{i:04}" for i, name in enumerate(code.co_freevars)}
        self._arrays = [self._variables[each.name] for each in arrays]
        self._numbers = {i: self._variables[values[i].name] if i in values else f"number_{i}" for i in needed}
        cells = _without(dict(zip(function.code.co_freevars, function.cells, strict=True)), self._moved, True)
        # What it reads, by name; its parameters behind the first; and what it passes on for each of these.
        self._constants: dict[str, Any] = {self._variables[name]: cell for name, cell in cells.items()}
        self._arguments = [f"argument_{i}" for i in range(code.co_argcount)]
        self._given, self._passed = [*self._arguments], [*self._arguments]
        self._defaults = function.defaults
        if code.co_flags & inspect.CO_VARARGS:  # the closure gets them as the tuple that they are to its code
            flags = code.co_flags & ~inspect.CO_VARARGS
            self._code = code.replace(co_flags=flags, co_argcount=code.co_argcount + 1)
            self._arguments.append("rest")
            self._given.append("*rest")
            self._passed.append("rest")

    def give_defaults(self, numbers: dict[str, int], arity: int | None) -> None:
        """Have numbers passed in place of some parameters' defaults, where calls give `arity` arguments."""
        code = self._function.code
        names = code.co_varnames[: code.co_argcount]
        if arity is None or "*rest" in self._given or min(map(names.index, numbers)) < arity:
            raise TypeError("a default is not used")
        for i in range(arity, len(names)):
            if names[i] in numbers:
                self._passed[i] = self._numbers[numbers[names[i]]]
            else:
                self._passed[i] = f"constant_{i}"
                self._constants[self._passed[i]] = self._defaults[i - len(names)]
        del self._given[arity:]
        self._defaults = None

    def made(self) -> FrozenFunction:
        """Return the function."""
        callers = []
        for i, (read, (callee, its)) in enumerate(self._helpers.items()):
            name, numbers = self._variables[read.name], [self._numbers[each] for each in its]
            lines, names = _caller(name, f"helper_{i}", callee, numbers)
            callers += lines
            self._constants.update(names)
        around = define(
            f"parameters of {self._function.name}",
            "around",
            _AROUND,
            {},
            others=", ".join(self._constants),
            given=", ".join([*self._arrays, *self._numbers.values(), *self._given]),
            helpers=callers,
            arguments=", ".join(self._arguments),
            closure="".join([f"{each}, " for each in self._variables.values()]),
            passed=", ".join(self._passed),
        )
        outer = around(*self._constants).__code__
        inner = self._code.replace(co_freevars=tuple(self._variables.values()))
        constants = [inner if getattr(each, "co_name", "") == "inner" else each for each in outer.co_consts]
        return replace(
            self._function,
            code=outer.replace(co_consts=tuple(constants)),
            cells=[self._constants[name] for name in outer.co_freevars],
            globals=_without(self._function.globals, self._moved, False),
            defaults=self._defaults,
            numbers=len(self._numbers),
        )


def _caller(
    name: str, callee: str, function: _Function, numbers: Sequence[str]
) -> tuple[list[str], dict[str, Any]]:
    """Return the lines of a function that calls another one, and gives it numbers first; and its names."""
    body = function.function if isinstance(function, FrozenJitted) else function
    if body.code.co_flags & inspect.CO_VARARGS:
        raise TypeError("a function that reads numbers takes any number of arguments")
    parameters = body.code.co_varnames[body.numbers : body.code.co_argcount]
    first = len(parameters) - len(body.defaults or ())
    defaults = {each: f"{callee}_{each}" for each in parameters[first:]}
    given = [f"{each}={defaults[each]}" if each in defaults else each for each in parameters]
    lines = [
        f"def {name}({', '.join(given)}):",
        f"    return {callee}({', '.join([*numbers, *parameters])})",
    ]
    return lines, {callee: function, **dict(zip(defaults.values(), body.defaults or (), strict=True))}


def _functions_read(function: FrozenFunction) -> Iterator[tuple[_Read, _Function]]:
    """Yield the functions that one reads, in its closure, in globals and in modules."""
    cells = zip(function.code.co_freevars, function.cells, strict=True)
    for in_closure, names in (True, cells), (False, function.globals.items()):
        for name, value in names:
            yield from [(_Read(in_closure, chain), each) for chain, each in _functions_of((name,), value)]


def _functions_of(chain: Chain, value: Any) -> Iterator[tuple[Chain, _Function]]:
    if isinstance(value, (FrozenFunction, FrozenJitted)):
        yield chain, value
    elif isinstance(value, FrozenModule):
        for name, each in value.attributes.items():
            yield from _functions_of((*chain, name), each)


def _without(names: dict[str, Any], reads: Sequence[_Read], in_closure: bool) -> dict[str, Any]:
    """Return a namespace without what is read as an argument: code that reads it there does not compile."""
    found = names.copy()
    for read in reads:
        name, *rest = read.chain
        if read.in_closure is in_closure:
            if rest:
                found[name] = _without_attribute(found[name], rest)
            else:
                found.pop(name, None)
    return found


def _without_attribute(module: FrozenModule, path: Sequence[str]) -> FrozenModule:
    attributes = module.attributes.copy()
    if len(path) == 1:
        del attributes[path[0]]
    else:
        attributes[path[0]] = _without_attribute(attributes[path[0]], path[1:])
    return replace(module, attributes=attributes)


def _in_closure(code: CodeType, moved: Sequence[_Read]) -> CodeType:
    """Return code that reads some globals, and attributes of modules, as variables of its closure."""
    if not moved:
        return code
    roots = {each.chain[0] for each in moved}
    for nested in code.co_consts:
        if isinstance(nested, CodeType) and (inner := sorted(_read_by(nested) & roots)):
            raise TypeError(
                f"the device array {inner[0]!r} is a global that a function within the operator reads; read "
                "it in the operator itself, or capture it as a closure variable"
            )
    first = len(code.co_cellvars)
    if sys.version_info >= (3, 11):  # where closures share one numbering with locals
        first = code.co_nlocals + len([name for name in code.co_cellvars if name not in code.co_varnames])
    first += len(code.co_freevars)
    if first + len(moved) > 256:
        raise TypeError("an operator that captures device arrays as globals may have 255 variables, not more")
    words = bytearray(code.co_code)
    every = [*dis.get_instructions(code)]
    instructions = [each for each in every if each.opname != "EXTENDED_ARG"]
    # With prefixes and caches, each ends where the next one's prefixes begin.
    behind = zip(every, [*[each.offset for each in every[1:]], len(words)], strict=True)
    ends = [0, *[end for each, end in behind if each.opname != "EXTENDED_ARG"]]
    for i, each in enumerate(instructions):
        for number, read in enumerate(moved):
            loads = instructions[i : i + len(read.chain)]
            if each.opname in _LOADS and [one.argval for one in loads] == [*read.chain] and _is_plain(loads):
                load = _load(first + number, loads[-1])
                # There is room, which is filled up.
                start, end = ends[i], ends[i + len(loads)]
                words[start:end] = load + _NOP * ((end - start - len(load)) // 2)
    return code.replace(co_code=bytes(words), co_freevars=(*code.co_freevars, *[each.name for each in moved]))


_LOADS = ("LOAD_GLOBAL", "LOAD_DEREF")
_NOP = bytes([dis.opmap["NOP"], 0])


def _is_plain(loads: Sequence[dis.Instruction]) -> bool:
    """Whether instructions that read a name and attributes are not jumped to in between."""
    attributes = ("LOAD_ATTR", "LOAD_METHOD")
    return not any(each.is_jump_target or each.opname not in attributes for each in loads[1:])


def _load(variable: int, last: dis.Instruction) -> bytes:
    """Return the instructions that load a variable, in place of others that end with one."""
    load = bytes([dis.opmap["LOAD_DEREF"], variable])
    if last.opname == "LOAD_METHOD" and sys.version_info < (3, 11):
        raise TypeError("a function is called as a module's attribute")
    with_flag = ("LOAD_GLOBAL", "LOAD_ATTR") if sys.version_info >= (3, 12) else ("LOAD_GLOBAL",)
    has_flag = sys.version_info >= (3, 11) and last.opname in with_flag and (last.arg or 0) & 1
    if not has_flag and last.opname != "LOAD_METHOD":
        return load
    null = bytes([dis.opmap["PUSH_NULL"], 0])  # what a call takes beside a function
    return load + null if sys.version_info >= (3, 13) else null + load


def _read_by(code: CodeType) -> set[str]:
    nested = (_read_by(each) for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names, *code.co_freevars}.union(*nested)
