"""What Python has and a kernel has not, found in an operator's bytecode before numba.cuda sees it.

numba.cuda compiles some of it to nothing (`raise` and `assert` in a device function, `async`) and stumbles
over the rest, mostly with words about its own insides. So `refusal` looks at a code object first, and says
what it does, on which line, and what to write instead. What numba.cuda can compile sometimes, such as lists,
is not refused here: `_compile.numba_errors` explains what numba says of that.

Knows bytecode alone: no numba, nothing of cupar.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, MethodType
from typing import Any, Final

OF_TENSORS: Final = (
    "PyTorch's functions take tensors, and an operator takes items; write it with operators and functions of "
    "math, as in `lambda a, b: a + b`, or give a NumPy ufunc"
)


def is_pytorchs(value: object) -> bool:
    """Whether a function is one of PyTorch's that are not written in Python."""
    owner = getattr(value, "__self__", None)
    homes = [getattr(each, "__module__", None) for each in (value, owner, type(owner))]
    return isinstance(value, BuiltinFunctionType) and any(
        (home or "").partition(".")[0] == "torch" for home in homes
    )


_RAISES = (
    "a kernel has no exceptions and would go on as if nothing had happened: return a value that tells, or "
    "check the data before"
)
_TRIES = "a kernel has no exceptions to catch: test for the case with `if`"
_YIELDS = "a kernel runs an operator to its end in one go: return one value, a tuple or a struct"
_KEYWORDS = "algorithms call it by position: make them ordinary parameters"
NO_STRINGS = "a kernel makes no strings: return numbers, and format them on the host"
_TABLES = "a kernel has no {0}: write a tuple, or a chain of `if`"

# What an operator does, how to do without, and by which instructions it is known. The first match
# is reported: an assertion formats a string too. Not all Pythons have all instructions.
_KINDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("asserts something", _RAISES, ("LOAD_ASSERTION_ERROR",)),
    ("raises an exception", _RAISES, ("RAISE_VARARGS",)),
    ("uses `with`", "a kernel has no context managers: leave it out", ("WITH_EXCEPT_START",)),
    ("uses `try`", _TRIES, ("SETUP_FINALLY", "PUSH_EXC_INFO")),
    ("yields values", _YIELDS, ("YIELD_VALUE", "RETURN_GENERATOR")),
    ("imports a module", "import it where the function is defined", ("IMPORT_NAME",)),
    ("defines a class", "use a tuple, or a struct of cupar.gpu_struct", ("LOAD_BUILD_CLASS",)),
    (
        "assigns a global variable",
        "kernels get globals as constants: return the value, or write to a device array that it captures",
        ("STORE_GLOBAL", "DELETE_GLOBAL"),
    ),
    ("passes keyword arguments by **", "write them out", ("DICT_MERGE",)),
    (
        "makes a dict",
        _TABLES.format("dicts"),
        ("BUILD_MAP", "BUILD_CONST_KEY_MAP", "MAP_ADD", "DICT_UPDATE"),
    ),
    ("makes a set", _TABLES.format("sets"), ("BUILD_SET", "SET_ADD", "SET_UPDATE")),
    (
        "formats a string",
        NO_STRINGS,
        ("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "BUILD_STRING", "BUILD_TEMPLATE"),
    ),
    ("unpacks with *", "take the items by index, as in `t[1]`", ("UNPACK_EX",)),
    ("deletes a variable", "leave the `del` out", ("DELETE_FAST", "DELETE_DEREF", "DELETE_NAME")),
)

_OPCODES = [
    (does, instead, frozenset(dis.opmap[name] for name in names if name in dis.opmap))
    for does, instead, names in _KINDS
]
_RELEVANT = frozenset().union(*(opcodes for *_, opcodes in _OPCODES))
_COMMON_CONSTANT = dis.opmap.get("LOAD_COMMON_CONSTANT")  # from Python 3.14 on; 0 is AssertionError

_GENERATORS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def refusal(code: CodeType) -> str | None:
    """Say what a function, or one defined in it, does that a kernel cannot; None if there is nothing.

    This is a sentence without its full stop: what it does, on which line, and what to write instead, as in
    ``it imports a module (line 12); import it where the function is defined``.
    """
    codes = list(_all(code))
    # A default of a parameter by keyword is a dict where its function is made, so signatures come first.
    for look in (_of_signature, _of_instructions, _of_constants):
        for each in codes:
            found = look(each)
            if found is not None:
                does, line, instead = found
                return f"it {does} (line {line}); {instead}"
    return None


def _all(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those of the functions and classes that it defines."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all(constant)


def _of_signature(code: CodeType) -> tuple[str, int, str] | None:
    line = code.co_firstlineno
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return "is declared with `async def`", line, "a kernel has nothing to await: use `def`"
    if code.co_flags & _GENERATORS:
        if code.co_name == "<genexpr>":
            return "has a generator expression", line, "write a loop"
        return "yields values", line, _YIELDS
    if code.co_kwonlyargcount:
        return "has keyword-only parameters", line, _KEYWORDS
    if code.co_flags & inspect.CO_VARKEYWORDS:
        last = code.co_argcount + bool(code.co_flags & inspect.CO_VARARGS)
        return f"has a parameter **{code.co_varnames[last]}", line, _KEYWORDS
    return None


def _of_instructions(code: CodeType) -> tuple[str, int, str] | None:
    # Opcodes alone clear nearly all functions, in a microsecond.
    if _RELEVANT.isdisjoint(code.co_code[::2]):
        return None
    if "@pytest_ar" in code.co_names:  # pytest writes assertions anew, in its own way
        return "asserts something", _line_of(code, lambda each: each.argval == "@pytest_ar"), _RAISES
    present = {each.opcode for each in dis.get_instructions(code)}
    if _COMMON_CONSTANT in present:
        line = _line_of(code, lambda each: each.opcode == _COMMON_CONSTANT and not each.arg)
        if line:
            return "asserts something", line, _RAISES
    for does, instead, opcodes in _OPCODES:
        if opcodes & present:
            return does, _line_of(code, lambda each, opcodes=opcodes: each.opcode in opcodes), instead
    return None


def _of_constants(code: CodeType) -> tuple[str, int, str] | None:
    for constant in code.co_consts:
        if type(constant) is frozenset:
            line = _line_of(code, lambda each: type(each.argval) is frozenset)
            return "looks something up in a set", line, "write a tuple, as in `a in (1, 2)`"
        if _is_too_large(constant):
            line = _line_of(code, lambda each: _is_too_large(each.argval))
            if line:  # it is loaded, and not a part of something that was folded
                return f"has the number {_short(constant)}", line, "integers here have 64 bits: use a float"
    return None


def _is_too_large(constant: object) -> bool:
    return type(constant) is int and not -(2**63) <= constant < 2**64


def _short(number: int) -> str:
    text = str(number) if number.bit_length() < 200 else ""
    return text if text and len(text) <= 24 else f"of {number.bit_length()} bits"


def line_of(code: CodeType, name: str) -> int:
    """Return the line on which a function first reads a name, 0 if it does not."""
    within = (each for inner in _all(code) if (each := _line_of(inner, lambda it: it.argval == name)))
    return next(within, 0)


def _line_of(code: CodeType, matches: Any) -> int:
    """Return the line of the first instruction that matches, or 0."""
    starts = dict(dis.findlinestarts(code))
    line = code.co_firstlineno
    for each in dis.get_instructions(code):
        line = starts.get(each.offset) or line
        if matches(each):
            return line
    return 0


def not_an_operator(op: Any) -> str | None:
    """Describe a callable that numba.cuda does not compile, and the alternative.

    None for a Python function. The compilers' own (`abs`, `math.sqrt`, `float`) must not be asked for.
    """
    if not callable(op):
        return (
            "expected a function, an OpKind, a RawOp, a ufunc or a function of the module operator, "
            f"got {op!r}"
        )
    if isinstance(op, type):
        return f"expected a function, got the class {op.__name__}; write a function of its arguments"
    if isinstance(op, MethodType):
        owner = op.__self__ if isinstance(op.__self__, type) else type(op.__self__)
        return (
            f"expected a function, got the method {op.__name__} bound to "
            f"{'the class' if owner is op.__self__ else 'an instance of'} {owner.__name__}; a kernel has no "
            "`self`: write a function, and put what it reads of that into variables outside of it"
        )
    if isinstance(op, functools.partial):
        inner = getattr(op.func, "__name__", "f")
        return (
            f"expected a function, got a functools.partial of {inner}; write a lambda, as in "
            f"`lambda a, b: {inner}(1, a, b)`"
        )
    if hasattr(op, "cache_info") and hasattr(op, "__wrapped__"):
        return "expected a function, got one under functools.cache; give the function itself, its __wrapped__"
    if not hasattr(op, "__code__") and not hasattr(op, "py_func"):
        kind = type(op)
        if hasattr(op, "pyfunc"):
            return f"expected a function, got one under {kind.__name__}; give the function itself, its pyfunc"
        if hasattr(op, "nin"):
            return f"expected a Python function, got the ufunc {op.__name__}, which is not one of NumPy's own"
        if kind.__module__ == "builtins":  # a method of a str or dict, which has no code to compile
            name = getattr(op, "__qualname__", repr(op))
            if is_pytorchs(op):
                return f"expected a Python function, got torch.{op.__name__}: {OF_TENSORS}"
            return f"expected a Python function, got the built-in {name}, which numba does not know"
        return (
            f"expected a function, got an object of {kind.__name__}, which is callable; a kernel has no "
            "objects: write a function, and put what it reads of the object into variables outside of it"
        )
    return None
