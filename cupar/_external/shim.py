"""The C++ by which compiled Python calls a function in C++.

The user's source is put into a namespace of its own, so that two sources may define functions of one name;
what it includes at its head stays outside. Beside it stands a function of C, which takes and returns values
as numba passes them: numbers as they are, the parts of complex numbers and structs one by one, arrays with
all that numba has of them. Results with several parts go by a pointer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from .. import structs
from .signatures import Signature
from .sources import NOWHERE

_NUMBERS: Final = {
    "b1": "unsigned char",
    "i1": "signed char",
    "i2": "short",
    "i4": "int",
    "i8": "long long",
    "u1": "unsigned char",
    "u2": "unsigned short",
    "u4": "unsigned int",
    "u8": "unsigned long long",
    "f2": "unsigned short",  # its bits
    "f4": "float",
    "f8": "double",
}
FLAT: Final = "cupar_flat"  # macro: the source is in no namespace, for one that cannot be in one
SOURCE: Final = f"{NOWHERE}source"  # what a source is called in messages of the compiler


def _head(source: str) -> int:
    """Return how many lines at the head of a source stay outside of its namespace: up to its last include."""
    depth, end = 0, 0
    includes = False
    for number, line in enumerate(source.split("\n"), start=1):
        directive = re.match(r"\s*(?:#|%:)\s*(\w+)", line)
        word = directive[1] if directive else ""
        depth += word.startswith("if")
        depth -= word == "endif"
        includes |= word == "include"
        if includes and depth <= 0:
            end, includes = number, False
    return end


_HELPERS = """
template <int size> struct Pointer {
  void* address;
  __device__ operator void*() const { return address; }
  template <class T> __device__ operator T*() const {
    static_assert(sizeof(T) == size, "an argument points to items of another size than the signature says");
    return static_cast<T*>(address);
  }
};
template <int size, int alignment> struct Parts {
  alignas(alignment) unsigned char bytes[size];
  template <class T> __device__ void set(int at, T part) { memcpy(bytes + at, &part, sizeof(T)); }
  template <class T> __device__ operator T() const {
    static_assert(sizeof(T) == size, "an argument has another size than the signature says");
    T value;
    memcpy(&value, bytes, size);
    return value;
  }
};
"""


def unit(source: str, name: str, signature: Signature, symbol: str) -> str:
    """Return all the C++ that is compiled: the source, and the function `symbol` that calls `name` in it."""
    lines = source.split("\n")
    head = _head(source)
    pieces = [
        f'#line 1 "{SOURCE}"',
        *lines[:head],
        f"#ifndef {FLAT}",
        f"namespace {symbol}_source {{",
        "#endif",
        f'#line {head + 1} "{SOURCE}"',
        *lines[head:],
        f'#line 1 "{NOWHERE}cupar"',
        f"#ifndef {FLAT}",
        "}",
        f"#define cupar_called {symbol}_source::{name}",
        "#else",
        f"#define cupar_called {name}",
        "#endif",
        _shim(signature, symbol),
    ]
    return "\n".join(pieces) + "\n"


def _shim(signature: Signature, symbol: str) -> str:
    """Return the function of C by which compiled Python calls the function, and what that needs."""
    heads: list[str] = []
    steps: list[str] = []
    passed: list[str] = []
    result = signature.result
    if signature.returns_in_parts:
        heads += _array("out", 1)
    for i, parameter in enumerate(signature.parameters):
        if parameter.ndim is None:
            passed.append(_value(f"a{i}", parameter.dtype, heads, steps))
        else:
            heads += _array(f"a{i}", parameter.ndim)
            passed.append(f"Pointer<{parameter.dtype.itemsize}>{{a{i}}}")
    call = f"cupar_called({', '.join(passed)})"
    leaves = (part for dtype in signature.dtypes() for _, part in _parts(dtype))
    needs_half = any(each.str[1:] == "f2" for each in leaves)
    returned = "void*"
    if result is None:
        steps += [f"{call};", "return nullptr;"]
    else:
        steps.append(f"auto result = {call};")
        steps.append(
            f"static_assert(sizeof(result) == {result.itemsize}, "
            f'"it returns another type than {structs.text(result)}");'
        )
        if signature.returns_in_parts:
            steps += ["memcpy(out, &result, sizeof(result));", "return nullptr;"]
        else:
            returned = _NUMBERS[result.str[1:]]
            steps += _returned(result)
    body = "\n  ".join(steps)
    return (
        ("#include <cuda_fp16.h>\n" if needs_half else "")
        + f"namespace {symbol}_shim {{{_HELPERS}}}\n"
        + f'extern "C" __device__ {returned} {symbol}({", ".join(heads)}) {{\n'
        + f"  using namespace {symbol}_shim;\n  {body}\n}}"
    )


def _returned(result: np.dtype[Any]) -> list[str]:
    if result.kind == "b":
        return ["return result ? 1 : 0;"]
    if result.str[1:] == "f2":
        return ["__half half = result;", "return __half_as_ushort(half);"]
    is_float = "true" if result.kind == "f" else "false"
    check = (
        f"static_assert((static_cast<decltype(result)>(0.5f) != 0) == {is_float}, "
        f'"it returns another type than {structs.text(result)}");'
    )
    return [check, "return result;"]


def _array(name: str, ndim: int) -> list[str]:
    """Return the parameters that a pointer, or an array as numba passes it, has in C."""
    if ndim == 0:
        return [f"void* {name}"]
    extents = ["long long"] * 2 * ndim
    return ["void*", "void*", "long long", "long long", f"void* {name}", *extents]


def _value(name: str, dtype: np.dtype[Any], heads: list[str], steps: list[str]) -> str:
    """Add the parameters in C that a value has, and what makes it of them; return its expression."""
    if dtype.kind not in "cV":
        heads.append(f"{_NUMBERS[dtype.str[1:]]} {name}")
        return _number(name, dtype)
    steps.append(f"Parts<{dtype.itemsize}, {dtype.alignment}> {name} = {{}};")
    for number, (offset, part) in enumerate(_parts(dtype)):
        heads.append(f"{_NUMBERS[part.str[1:]]} {name}_{number}")
        steps.append(f"{name}.set({offset}, {_number(f'{name}_{number}', part)});")
    return name


def _number(name: str, dtype: np.dtype[Any]) -> str:
    if dtype.kind == "b":
        return f"({name} != 0)"
    return f"__ushort_as_half({name})" if dtype.str[1:] == "f2" else name


def _parts(dtype: np.dtype[Any], start: int = 0) -> Iterator[tuple[int, np.dtype[Any]]]:
    """Return the numbers that a complex number or a struct is made of, with their offsets."""
    if dtype.kind == "c":
        real = np.dtype(f"f{dtype.itemsize // 2}")
        yield from ((start, real), (start + real.itemsize, real))
    elif dtype.names is None:
        yield start, dtype
    else:
        for _, kind, offset in structs.members(dtype):
            yield from _parts(kind, start + offset)
