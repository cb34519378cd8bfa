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
        reads = [_Read(each.in_closure, (each.name,)) for each in captures]
        own, defaults = dict[int, _Read](), dict[str, int]()
        for i, each in enumerate(self._numbers):
            if each.function is function:
                if each.kind == "default":
                    defaults[each.read[0]] = i
                else:
                    own[i] = _Read(each.kind == "closure variable", each.read)
        helpers = dict[_Read, tuple[_Function, list[int]]]()
        for read, callee in _functions_read(function) if self._numbers else ():
            found = self._whole(callee, self._helper)
            if found[1]:
                helpers[read] = found
        needed = sorted({*own, *defaults.values()}.union(*[each for _, each in helpers.values()]))
        if not needed and not captures:
            return function, needed
        code = _in_closure(function.code, [*reads, *own.values()], [*helpers])
        # A closure's variables are in the order of their names where it is made: here that of the code's.
        variables = {name: f"variable_{i:04}" for i, name in enumerate(code.co_freevars)}
        names = {i: variables[own[i].name] if i in own else f"number_{i}" for i in needed}
        constants = dict[str, Any]()  # what the outer function reads, by name
        arguments = [f"argument_{i}" for i in range(code.co_argcount)]
        given, passed = [*arguments], [*arguments]
        if defaults:
            parameters = code.co_varnames[: code.co_argcount]
            first = code.co_argcount - len(function.defaults)
            if (
                arity is None
                or code.co_flags & inspect.CO_VARARGS
                or min(map(parameters.index, defaults)) < arity
            ):
                raise TypeError("a default is not used")
            del given[arity:]
            for i in range(arity, code.co_argcount):
                if parameters[i] in defaults:
                    passed[i] = names[defaults[parameters[i]]]
                else:
                    constants[name := f"constant_{i}"] = function.defaults[i - first]
                    passed[i] = name
        if code.co_flags & inspect.CO_VARARGS:  # the closure gets them as the tuple that they are to its code
            code = code.replace(
                co_flags=code.co_flags & ~inspect.CO_VARARGS, co_argcount=code.co_argcount + 1
            )
            arguments.append("rest")
            given.append("*rest")
            passed.append("rest")
        lines = []
        for i, (read, (callee, its)) in enumerate(helpers.items()):
            constants[name := f"helper_{i}"] = callee
            lines += _caller(variables[read.name], name, callee, [names[each] for each in its])
        arrays = [variables[each.name] for each in reads]
        without = [*reads, *own.values(), *helpers]
        cells = dict(zip(function.code.co_freevars, function.cells, strict=True))
        constants.update((variables[name], cell) for name, cell in _without(cells, without, True).items())
        around = define(
            f"parameters of {function.name}",
            "around",
            _AROUND,
            {},
            others=", ".join(constants),
            given=", ".join([*arrays, *names.values(), *given]),
            helpers=lines,
            arguments=", ".join(arguments),
            closure="".join([f"{each}, " for each in variables.values()]),
            passed=", ".join(passed),
        )
        outer = around(*constants).__code__
        inner = code.replace(co_freevars=(*variables.values(),))
        made = outer.replace(
            co_consts=tuple(
                [inner if getattr(each, "co_name", "") == "inner" else each for each in outer.co_consts]
            )
        )
        return (
            replace(
                function,
                code=made,
                cells=[constants[name] for name in made.co_freevars],
                globals=_without(function.globals, without, False),
                defaults=None if defaults else function.defaults,
                numbers=len(names),
            ),
            needed,
        )


def _caller(name: str, callee: str, function: _Function, numbers: Sequence[str]) -> list[str]:
    """Return the lines of a function that calls another one, and gives it numbers first."""
    body = function.function if isinstance(function, FrozenJitted) else function
    parameters = body.code.co_varnames[body.numbers : body.code.co_argcount]
    if body.code.co_flags & inspect.CO_VARARGS:
        raise TypeError("a function that reads numbers takes any number of arguments")
    return [
        f"def {name}({', '.join(parameters)}):",
        f"    return {callee}({', '.join([*numbers, *parameters])})",
    ]


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


def _in_closure(code: CodeType, values: Sequence[_Read], functions: Sequence[_Read]) -> CodeType:
    """Return code that reads some globals, and attributes of modules, as variables of its closure."""
    moved = [each for each in (*values, *functions) if len(each.chain) > 1 or not each.in_closure]
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
