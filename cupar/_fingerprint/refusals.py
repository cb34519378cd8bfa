"""Errors for values without an exact encoding: the value, its place, and what to write instead.

There is no fallback, because a digest that misses a dependency would fetch another operator's code.
"""

from __future__ import annotations

import sys
from types import BuiltinFunctionType, MethodType, ModuleType
from typing import Final, NoReturn

from .._base.errors import ArgumentTypeError
from .._device import arrays
from . import unsupported
from .names import package, type_name

_READABLE: Final = (
    "numbers, strings, tuples, NumPy arrays and dtypes, enums, named tuples, functions, "
    "and attributes of modules"
)


TOO_MANY_CALLS: Final = "too many functions call each other in a row: write fewer, which do more each"


class Unfingerprintable(ArgumentTypeError):  # noqa: N818 - reads as what it says: the operator cannot be fingerprinted
    """Raised for an operator or value that depends on something without an exact encoding.

    The message names the operator, what it read (``closure variable 'x'``, ``global 'cfg'``,
    ``config.table``), the type that was found there, and what to do.
    """

    __module__ = "cupar"


def refusal(where: str, value: object, advice: str) -> Unfingerprintable:
    """Return the error for a value that cannot be encoded."""
    return Unfingerprintable(f"{where} is of type {type_name(type(value))}. {advice}")


def refuse(value: object, where: str) -> NoReturn:
    """Refuse a value that is not plain data."""
    if arrays.is_device_array(value):
        advice = (
            "A device array must be a global or a closure variable of the operator itself, "
            "so that its pointer can be handed over in each call."
        )
    elif isinstance(value, type):
        raise Unfingerprintable(
            f"{where} is the class {type_name(value)}, and a kernel has no objects: use a tuple, a struct "
            "of cupar.gpu_struct, or variables"
        )
    elif isinstance(value, ModuleType):
        advice = f"Write `{value.__name__}.name` wherever the operator reads a name of that module."
    elif (instead := _before_the_call(value)) is not None:
        raise Unfingerprintable(f"{where} is not for kernels: {instead}")
    else:
        advice = f"It has no exact encoding; {_READABLE} have one."
    raise refusal(where, value, advice)


def _before_the_call(value: object) -> str | None:
    """Say what to do before the call instead of calling a function of Python's or NumPy's in a kernel."""
    if not isinstance(value, (BuiltinFunctionType, MethodType)):
        return None
    if unsupported.is_pytorchs(value):
        return unsupported.OF_TENSORS
    owner = type(getattr(value, "__self__", None)).__module__
    home = getattr(value, "__module__", None) or owner
    if "random" in f"{home}.{owner}".split("."):
        return "draw the numbers before, and give them as an input"
    if home == "time":
        return "read the clock before, and put the time into a variable"
    if package(home) in (*sys.stdlib_module_names, "numpy"):
        return "call it before, and put what it returns into a variable, or give it as an input"
    return None
