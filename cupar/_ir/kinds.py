"""What a kind of operator is in C++, for whatever types it is defined for.

CCCL's own operators take values of one type and give that type, or a bool. For all others a kind does what
numba makes of the function that it is: it computes in the type that numba would, and converts the result to
the output's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import structs
from . import cpp

DType = np.dtype[Any]

_RELATIONS = {
    "EQUAL_TO": "==",
    "NOT_EQUAL_TO": "!=",
    "GREATER": ">",
    "LESS": "<",
    "GREATER_EQUAL": ">=",
    "LESS_EQUAL": "<=",
}
_LOGICAL = {"LOGICAL_AND": "{a} && {b}", "LOGICAL_OR": "{a} || {b}", "LOGICAL_NOT": "!{a}"}
_ARITHMETIC = {"PLUS": "+", "MINUS": "-", "MULTIPLIES": "*", "DIVIDES": "/"}
_BITWISE = {"BIT_AND": "&", "BIT_OR": "|", "BIT_XOR": "^"}
_CHOICES = {"MINIMUM": "{b} < {a} ? {b} : {a}", "MAXIMUM": "{a} < {b} ? {b} : {a}"}

_BOOL, _INT, _UNSIGNED = np.dtype(bool), np.dtype(np.int64), np.dtype(np.uint64)
_FLOAT, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
# What numba takes for float16, and what for float32, beside other floats. Beside integers of 8 bits bfloat16
# stays itself, beside all else it is a float32.
_HALVES, _FLOATS = "?be", "?beEBhfF"


def gives_bool(kind: str) -> bool:
    """Whether a kind gives a bool, whatever it takes."""
    return kind in _RELATIONS or kind in _LOGICAL


def is_uniform(kind: str, inputs: Sequence[DType], output: DType) -> bool:
    """Whether a kind takes values of one type here and gives that type, or a bool if it is one that does."""
    given = _BOOL if gives_bool(kind) else inputs[0]
    return set(inputs) == {inputs[0]} and structs.layout(output) == structs.layout(given)


def expression(kind: str, inputs: Sequence[DType], output: DType) -> str | None:
    """Return the C++ of what a kind gives for `a` and `b`, as a value of the output's type.

    The kind, by its name, must be defined for the inputs. None if it is not written in C++ for the types, or
    its result is not converted to the output's silently.
    """
    computed = _computed(kind, inputs)
    if computed is None or not structs.convertible(computed[0], output):
        return None
    result, code = computed
    return f"({code})" if result == output else _as(output, f"({code})")


def source(kind: str, inputs: Sequence[DType], output: DType) -> str | None:
    """Return the C++ of a function ``SYMBOL`` that stores what `expression` says; None if that is None."""
    result = expression(kind, inputs, output)
    if result is None:
        return None
    names = "ab"[: len(inputs)]
    parameters = ", ".join(f"void* p_{name}" for name in names)
    loads = "".join(
        f"  const auto {name} = {_loaded(f'p_{name}', each)};\n"
        for name, each in zip(names, inputs, strict=True)
    )
    return cpp.unit(
        f'extern "C" __device__ void SYMBOL({parameters}, void* out) {{\n'
        f"{loads}  *static_cast<{cpp.type_name(output)}*>(out) = {result};\n}}\n"
    )


def _loaded(pointer: str, dtype: DType) -> str:
    if dtype.kind == "b":  # of which memory may hold any byte
        return f"*static_cast<const unsigned char*>({pointer}) != 0"
    return f"*static_cast<const {cpp.type_name(dtype)}*>({pointer})"


def _as(dtype: DType, value: str) -> str:
    return f"static_cast<{cpp.type_name(dtype)}>({value})"


def _computed(kind: str, inputs: Sequence[DType]) -> tuple[DType, str] | None:
    """Return the type in which a kind is computed and what gives its result, None if C++ is not asked."""
    named = dict(zip("ab", inputs, strict=False))
    if kind == "IDENTITY":
        return inputs[0], "a"
    if kind in _LOGICAL:
        return _BOOL, _LOGICAL[kind].format(**{name: _truth(name, each) for name, each in named.items()})
    common = _common(inputs)
    if kind == "BIT_NOT":
        return inputs[0], "!a" if inputs[0] == _BOOL else _as(inputs[0], "~a")
    if kind in _BITWISE:
        common = _BOOL if set(inputs) == {_BOOL} else common
        return common, _BITWISE[kind].join(_as(common, name) for name in named)
    if kind in _RELATIONS or kind in _CHOICES:
        return _compared(kind, inputs, common)
    if kind == "NEGATE":
        own = _INT if inputs[0] == _BOOL else inputs[0]
        return own, _as(own, "-" + _as(_exact(own), "a"))
    if kind in _ARITHMETIC and not _is_half(common):  # whose rounding is a matter of instructions
        common = _DOUBLE if kind == "DIVIDES" and common.kind in "iu" else common
        sides = (_as(_exact(common), name) for name in named)
        return common, _as(common, _ARITHMETIC[kind].join(sides))
    return None


def _compared(kind: str, inputs: Sequence[DType], common: DType) -> tuple[DType, str] | None:
    if _UNSIGNED in inputs and common == _INT:  # no type has all values of both
        return None
    wide = _FLOAT if _is_half(common) else common  # which has all its values
    sides = {name: _as(wide, name) for name in "ab"}
    if kind in _CHOICES:
        return wide, _CHOICES[kind].format(**sides)
    return _BOOL, f"{sides['a']} {_RELATIONS[kind]} {sides['b']}"


def _exact(common: DType) -> DType:
    """Return the type to compute in: integers wrap around, and float32 has all values of 16 bits."""
    if common == _INT:
        return _UNSIGNED
    return _FLOAT if _is_half(common) else common


def _is_half(dtype: DType) -> bool:
    """Whether a dtype is a float of 16 bits."""
    return dtype.itemsize == 2 and structs.kind_of(dtype) == "f"


def _truth(name: str, dtype: DType) -> str:
    if dtype.kind == "c":
        return f"({name}.re != 0 || {name}.im != 0)"
    return f"({_as(_FLOAT, name) if _is_half(dtype) else name} != 0)"


def _common(inputs: Sequence[DType]) -> DType:
    """Return the type that numba computes in."""
    kinds = {each.kind for each in inputs}
    if kinds <= set("biu"):
        return _UNSIGNED if kinds == {"u"} else _INT
    brains = [each for each in inputs if structs.is_bfloat16(each)]
    if brains and all(each.char in "EbB" for each in inputs):
        return brains[0]
    halves = "" if brains else _HALVES
    size = max(2 if each.char in halves else 4 if each.char in _FLOATS else 8 for each in inputs)
    return np.dtype(f"c{2 * max(size, 4)}" if "c" in kinds else f"f{size}")
