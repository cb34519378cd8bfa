"""The encoding of a code object without names and positions, and the names that it reads."""

from __future__ import annotations

import dis
import inspect
import itertools
import sys
from types import CodeType
from typing import Final

from .._base.data import dataclass
from .values import encode, frame

Chain = tuple[str, ...]
"""A name and the attributes read from it: ``("config", "table", "shape")``."""

# The other flags are about docstrings, __future__ imports and name lookup, which the code implies.
_FLAGS: Final = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ITERABLE_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)

# By exclusion: an instruction that a later Python adds counts as a read.
_LOADS_GLOBAL: Final = frozenset(
    opcode
    for opcode in dis.hasname
    if not dis.opname[opcode].startswith(
        ("STORE_", "DELETE_", "IMPORT_", "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER")
    )
)
_LOADS_CLOSURE: Final = frozenset(
    opcode
    for opcode in dis.hasfree
    if not dis.opname[opcode].startswith(("STORE_", "DELETE_", "MAKE_CELL", "LOAD_CLOSURE"))
)
_LOADS_CONSTANT: Final = frozenset(dis.hasconst)


@dataclass(frozen=True)
class CodeSummary:
    """The encoding and the names read of a code object, shared by all of its functions."""

    code: CodeType  # kept so that no other code gets its id
    encoding: bytes
    globals: tuple[Chain, ...]
    closure: tuple[Chain, ...]


def scan(code: CodeType) -> CodeSummary:
    """Read a code object and the ones nested in it.

    Raises
    ------
    Unfingerprintable
        If it has a constant without an exact encoding.
    """
    in_globals: dict[Chain, None] = {}
    in_closure: dict[Chain, None] = {}
    encoding = _encode(code, frozenset(code.co_freevars), in_globals, in_closure)
    loaded = {chain[0] for chain in in_closure}
    passed_on = [(name,) for name in code.co_freevars if name not in loaded]
    return CodeSummary(code, encoding, (*in_globals,), (*in_closure, *passed_on))


def _encode(
    code: CodeType, free: frozenset[str], in_globals: dict[Chain, None], in_closure: dict[Chain, None]
) -> bytes:
    """Encode a code object and collect the names that it reads; `free` are those of the operator's closure.

    Instructions refer to local variables by index, so their names do not matter, with two
    exceptions: parameters can be given by name, and cells may belong to a parameter.
    """
    instructions = list(dis.get_instructions(code))
    without_prefixes = [each for each in instructions if each.opname != "EXTENDED_ARG"]
    for index, each in enumerate(without_prefixes):
        if each.opcode in _LOADS_GLOBAL:
            in_globals.setdefault(_chain(without_prefixes, index))
        elif each.opcode in _LOADS_CLOSURE and each.argval in free:
            in_closure.setdefault(_chain(without_prefixes, index))
    stream, constants = _canonical(instructions)
    values = []
    for value in (code.co_consts[i] for i in constants):
        if isinstance(value, CodeType):
            nested = _encode(value, free.intersection(value.co_freevars), in_globals, in_closure)
            values.append(frame("nested", encode(parameters(value)), nested))
        else:
            values.append(encode(value))
    return frame("code", encode((stream, *_layout(code))), *values)


def _layout(code: CodeType) -> tuple[object, ...]:
    """Encode the names and constants of a code object, and its parameters."""
    return (
        code.co_names,
        [
            (name, code.co_varnames.index(name) if name in code.co_varnames else None)
            for name in code.co_cellvars
        ],
        code.co_freevars,
        code.co_nlocals,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags & _FLAGS,
        getattr(code, "co_exceptiontable", b""),  # from Python 3.11 on
    )


def parameters(code: CodeType) -> tuple[str, ...]:
    extra = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + extra]


def _chain(instructions: list[dis.Instruction], index: int) -> Chain:
    """Return the name loaded at an index and the attributes loaded directly after it."""
    following = instructions[index + 1 :]
    loads = itertools.takewhile(lambda each: each.opname in ("LOAD_ATTR", "LOAD_METHOD"), following)
    return (instructions[index].argval, *(each.argval for each in loads))


def _canonical(instructions: list[dis.Instruction]) -> tuple[bytes, list[int]]:
    """
    Return the instructions with constants numbered in order of use, and the indices of these constants.

    Constants that nothing loads are left out. The docstring is one: it stands first, where it shifts the
    others in some versions of Python and not in others.
    """
    order: dict[int, int] = {}
    lines = []
    for index, each in enumerate(instructions):
        argument = each.arg
        if argument is not None and each.opcode in _LOADS_CONSTANT:
            named = _loads_function_name(instructions, index)
            argument = None if named else order.setdefault(argument, len(order))
        lines.append(f"{each.opcode} {argument}")
    return "\n".join(lines).encode(), list(order)


def encode_without_constants(code: CodeType) -> tuple[bytes, list[object]]:
    """Return the encoding of a code object without its constants, and these in the order they are loaded in.

    Code nested in it is part of both.
    """
    instructions = list(dis.get_instructions(code))
    lines: list[str] = []
    constants: list[object] = []
    nested: list[CodeType] = []
    for index, each in enumerate(instructions):
        # Python 3.14 has small integers in the instruction.
        if each.opcode not in _LOADS_CONSTANT and each.opname != "LOAD_SMALL_INT":
            lines.append(f"{each.opcode} {each.arg}")
            continue
        lines.append("constant")
        # Not `argval`, which Python 3.11 does not know of each instruction that loads one.
        value = each.argval if each.opcode not in _LOADS_CONSTANT else code.co_consts[each.arg or 0]
        if isinstance(value, CodeType):
            nested.append(value)
        elif not _loads_function_name(instructions, index):
            constants.append(value)
    encodings = [encode(("\n".join(lines).encode(), *_layout(code)))]
    for encoding, inner in map(encode_without_constants, nested):
        encodings.append(encoding)
        constants += inner
    return b"".join(encodings), constants


def _loads_function_name(instructions: list[dis.Instruction], index: int) -> bool:
    """Whether a constant is the qualified name of a nested function, which Python 3.10 loads."""
    return sys.version_info < (3, 11) and instructions[index + 1].opname == "MAKE_FUNCTION"
