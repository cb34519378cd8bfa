"""Operators that capture device arrays, made into functions that have the arrays as arguments.

numba turns values that a function captures into constants, and a device array cannot be one. So the
operator's code becomes a closure in a function that has the arrays as its first parameters: numba inlines
closures, whose captured arrays are arguments. Where the operator reads an array as a global, the
instruction is made to read a variable of the closure first.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Sequence
from types import CodeType
from typing import TYPE_CHECKING

from .._base.data import replace
from .._base.generated import define
from .._fingerprint.frozen import FrozenFunction, FrozenJitted

if TYPE_CHECKING:
    from .._fingerprint.walk import Fingerprint

_AROUND = """
def around({others}):
    def outer({given}):
        def inner({arguments}):
            return ({closure},)
        return inner({arguments})
    return outer
"""


def parametrised(found: Fingerprint) -> Fingerprint:
    """Return a fingerprint whose frozen copy has the captured arrays as its first arguments.

    Raises
    ------
    TypeError
        If a function within it reads an array as a global, or there are too many variables.
    """
    frozen, captures = found.frozen, found.captures
    jitted = frozen if isinstance(frozen, FrozenJitted) else None
    function: FrozenFunction = frozen if jitted is None else jitted.function
    code = _in_closure(function.code, [each.name for each in captures if not each.in_closure])
    arguments = [f"argument_{i}" for i in range(code.co_argcount)]
    given = [*arguments]
    if code.co_flags & inspect.CO_VARARGS:  # the closure gets them as the tuple that they are to its code
        code = code.replace(co_flags=code.co_flags & ~inspect.CO_VARARGS, co_argcount=code.co_argcount + 1)
        arguments.append("rest")
        given.append("*rest")
    # A closure's variables are in the order of their names where it is made: here that of the code's.
    own = {name: f"variable_{i:04}" for i, name in enumerate(code.co_freevars)}
    closure = list(own.values())
    arrays = [own[capture.name] for capture in captures]
    others = [variable for variable in closure if variable not in arrays]
    around = define(
        f"parameters of {function.name}",
        "around",
        _AROUND,
        {},
        others=", ".join(others),
        given=", ".join([*arrays, *given]),
        arguments=", ".join(arguments),
        closure=", ".join(closure),
    )
    outer = around(*others).__code__
    inner = code.replace(co_freevars=tuple(closure))
    constants = tuple(inner if isinstance(each, CodeType) else each for each in outer.co_consts)
    cells = dict(zip(function.code.co_freevars, function.cells, strict=True))
    by_name = {variable: cells[name] for name, variable in own.items() if name in cells}
    whole = outer.replace(co_consts=constants)
    made = replace(function, code=whole, cells=[by_name[variable] for variable in outer.co_freevars])
    return replace(found, frozen=made if jitted is None else replace(jitted, function=made))


def _in_closure(code: CodeType, names: Sequence[str]) -> CodeType:
    """Return code that reads some of its globals as variables of its closure."""
    if not names:
        return code
    for nested in code.co_consts:
        if isinstance(nested, CodeType) and (inner := sorted(_read_by(nested) & set(names))):
            raise TypeError(
                f"the device array {inner[0]!r} is a global that a function within the operator reads; read "
                "it in the operator itself, or capture it as a closure variable"
            )
    first = len(code.co_cellvars)
    if sys.version_info >= (3, 11):  # where closures share one numbering with locals
        first = code.co_nlocals + len([name for name in code.co_cellvars if name not in code.co_varnames])
    first += len(code.co_freevars)
    if first + len(names) > 256:
        raise TypeError("an operator that captures device arrays as globals may have 255 variables, not more")
    words = bytearray(code.co_code)
    instructions = list(dis.get_instructions(code))
    ends = [each.offset for each in instructions[1:]] + [len(words)]
    start = 0
    for each, end in zip(instructions, ends, strict=True):
        if each.opname == "EXTENDED_ARG":
            continue
        if each.opname == "LOAD_GLOBAL" and each.argval in names:
            # With prefixes and caches there is room, which is filled up; an array is not called.
            load = bytes([dis.opmap["LOAD_DEREF"], first + names.index(each.argval)])
            words[start:end] = load + bytes([dis.opmap["NOP"], 0]) * ((end - start) // 2 - 1)
        start = end
    return code.replace(co_code=bytes(words), co_freevars=(*code.co_freevars, *names))


def _read_by(code: CodeType) -> set[str]:
    nested = (_read_by(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*nested)
