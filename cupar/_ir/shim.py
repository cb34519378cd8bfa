"""The C++ by which compiled Python calls a function in C++.

The user's source is put into a namespace of its own, so that two sources may define functions of one name;
what it includes at its head stays outside. Beside it stands a function of C, which takes and returns values
as numba passes them: numbers as they are, the parts of complex numbers and structs one by one, arrays with
all that numba has of them. Results with several parts go by a pointer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from .. import structs
from .._external.lexer import included_head
from .._external.sources import FLAT, NOWHERE, SHOWN, SOURCE
from .signature import Signature
from .types import Type, VaryingSlot, slots

# As they are passed: bools as bytes, floats of 16 bits as their bits.
_PASSED: Final = {**structs.CPP_NAMES, "b1": "unsigned char", "f2": "unsigned short", "bf2": "unsigned short"}
# For floats of 16 bits: header, declaration of their sort, conversion to bits, and from bits.
_HALVES: Final = {
    "f2": ("cuda_fp16.h", "cupar_sort(__half, 4)", "__half_as_ushort", "__ushort_as_half"),
    "bf2": (
        "cuda_bf16.h",
        "cupar_sort(__nv_bfloat16, 5)",
        "__bfloat16_as_ushort",
        "__ushort_as_bfloat16",
    ),
}


# A function takes what the signature says and no other type, to which C++ would convert silently: `Number`,
# `Pointer` and `Parts` are converted to the very types. Of a function whose exact type can be guessed,
# `is_exact` tells the same; a template may be one for these types alone.
_HELPERS = """
struct No { char bytes[2]; };
template <class T> __device__ T& make();
template <bool> struct When {};
template <> struct When<true> { typedef int type; };
template <class T> struct Sort { enum { value = 0 }; };
template <class T> struct Sort<const T> { enum { value = Sort<T>::value }; };
#define cupar_sort(T, kind) template <> struct Sort<T> { enum { value = kind * 16 + sizeof(T) }; };
cupar_sort(bool, 1) cupar_sort(char, 2) cupar_sort(signed char, 2) cupar_sort(short, 2) cupar_sort(int, 2)
cupar_sort(long, 2) cupar_sort(long long, 2) cupar_sort(unsigned char, 3) cupar_sort(unsigned short, 3)
cupar_sort(unsigned, 3) cupar_sort(unsigned long, 3) cupar_sort(unsigned long long, 3) cupar_sort(float, 4)
cupar_sort(double, 4)
template <class T, class Like> using Same = typename When<Sort<T>::value == Sort<Like>::value>::type;

struct Any { template <class T> __device__ operator T() const; };
template <class Like> struct Number {
  template <class T, class = Same<T, Like>> __device__ operator T() const;
};
template <int size, class Like> struct Pointer {
  void* address;
  __device__ operator void*() const { return address; }
  __device__ operator const void*() const { return address; }
  template <class T, class = typename When<sizeof(T) == size && (Sort<T>::value == 0 ||
                                                                 Sort<T>::value == Sort<Like>::value)>::type>
  __device__ operator T*() const { return static_cast<T*>(address); }
};
template <int size, int alignment> struct Parts {
  alignas(alignment) unsigned char bytes[size];
  template <class T> __device__ void set(int at, T part) { memcpy(bytes + at, &part, sizeof(T)); }
  template <class T, class = typename When<sizeof(T) == size && (__is_class(T) || __is_union(T))>::type>
  __device__ operator T() const {
    T value;
    memcpy(&value, bytes, size);
    return value;
  }
};
template <class... A> __device__ auto call(int) -> decltype(cupar_called(make<A>()...), char());
template <class... A> __device__ No call(...);
template <class... A> constexpr bool is_called = sizeof(call<A...>(0)) == 1;
template <class F> __device__ auto cast(int) -> decltype(static_cast<F>(&cupar_called), char());
template <class F> __device__ No cast(...);
template <class F> constexpr bool is_exact = sizeof(cast<F>(0)) == 1;
#ifdef cupar_tell
template <class F> struct Told { static_assert(sizeof(F) == 0, "cupar: told"); };
Told<decltype(&cupar_called)> told;
#endif
"""


def unit(
    source: str, name: str, signature: Signature, symbol: str, is_probed: bool, standard: int = 17
) -> str:
    """Return all the C++ that is compiled: the source, and the function `symbol` that calls `name` in it.

    If `is_probed`, what `name` takes may be found by calls with other types, which are not made.
    """
    data = source.encode("utf-8", "surrogateescape")
    end = included_head(data, standard)
    head, rest = (each.decode("utf-8", "surrogateescape") for each in (data[:end], data[end:]))
    pieces = [
        f'#line 1 "{SOURCE}"',
        head.removesuffix("\n"),
        f"#ifndef {FLAT}",
        f"namespace {symbol}_source {{",
        "#endif",
        f'#line {head.count(chr(10)) + 1} "{SOURCE}"',
        rest,
        f'#line 1 "{NOWHERE}cupar"',
        f"#ifndef {FLAT}",
        "}",
        f"#define cupar_called {symbol}_source::{name}",
        "#else",
        f"#define cupar_called {name}",
        "#endif",
        _shim(name, signature, symbol, is_probed),
    ]
    return "\n".join(pieces) + "\n"


def _shim(name: str, signature: Signature, symbol: str, is_probed: bool) -> str:
    """Return the C function by which compiled Python calls the function, and the declarations it needs."""
    heads: list[str] = []
    steps: list[str] = []
    passed: list[str] = []
    types: list[str] = []  # arguments that convert to each parameter's type, and to no other
    result = signature.returns
    if signature.returned is not None:
        heads += _pointer("out", signature.returned)
    for i, (parameter, (dtype, ndim)) in enumerate(zip(signature.parameters, signature.takes, strict=True)):
        if ndim is not None:
            heads += _pointer(f"a{i}", parameter)
            types.append(f"Pointer<{dtype.itemsize}, {_like(dtype)}>")
            passed.append(f"{types[-1]}{{a{i}}}")
        else:
            passed.append(_value(f"a{i}", dtype, heads, steps))
            types.append(_wrapper(dtype))
    call = f"cupar_called({', '.join(passed)})"
    leaves = (part for dtype in signature.dtypes() for _, part in _parts(dtype))
    halves = sorted({structs.code_of(each) for each in leaves} & {*_HALVES})
    steps = [*_checks(signature, types, is_probed), *steps]
    returned = "void*"
    if result is None:
        steps += [f"{call};", "return nullptr;"]
    else:
        steps.append(f"auto result = {call};")
        if signature.returned is not None:
            is_right = f"sizeof(result) == {result.itemsize} && __is_class(decltype(result))"
            ending = ["memcpy(out, &result, sizeof(result));", "return nullptr;"]
        else:
            is_right = f"Sort<decltype(result)>::value == Sort<{_like(result)}>::value"
            returned = _PASSED[structs.code_of(result)]
            ending = [f"return {_passed(result)};"]
        steps += [f'static_assert({is_right}, "cupar: result");', *ending]
    body = "\n  ".join(steps)
    sorts = " ".join(["cupar_sort(double, 4)", *(_HALVES[each][1] for each in halves)])
    helpers = _HELPERS.replace("cupar_sort(double, 4)", sorts)
    return (
        "".join(f"#include <{_HALVES[each][0]}>\n" for each in halves)
        + f"namespace {symbol}_shim {{{helpers}}}\n"
        + f"// {SHOWN}{name}\n// {SHOWN}{signature}\n"
        + f'extern "C" __device__ {returned} {symbol}({", ".join(heads)}) {{\n'
        + f"  using namespace {symbol}_shim;\n  {body}\n}}"
    )


def _wrapper(dtype: np.dtype[Any]) -> str:
    return (
        f"Parts<{dtype.itemsize}, {dtype.alignment}>"
        if structs.has_parts(dtype)
        else f"Number<{_like(dtype)}>"
    )


def _like(dtype: np.dtype[Any]) -> str:
    """Return the type of a number in C++; for others, `No`."""
    return "No" if structs.has_parts(dtype) else structs.CPP_NAMES[structs.code_of(dtype)]


def _checks(signature: Signature, types: list[str], is_probed: bool) -> list[str]:
    """Return what asserts that the function takes the signature's types; the messages are for cupar alone."""
    values = [dtype for dtype, ndim in signature.takes if ndim is None]
    numbers = [_like(dtype) for dtype in values if not structs.has_parts(dtype)]
    real = [each.replace("Number<", "").removesuffix(">") if "Number<" in each else each for each in types]
    is_called = f"is_called<{', '.join(real)}>"
    checks = [f'static_assert({is_called}, "cupar: call");']
    if not is_probed:
        return checks
    fits = [f"is_called<{', '.join(types)}>"]
    if len(numbers) == len(types):
        result = f"decltype(cupar_called({', '.join(f'make<{each}>()' for each in numbers)}))"
        either = (False, True) if len(numbers) <= _MOST_WAYS else (False,)
        for by_reference in itertools.product(either, repeat=len(numbers)):
            given = (f"const {n}&" if ref else n for n, ref in zip(numbers, by_reference, strict=True))
            fits.append(f"is_exact<{result} (*)({', '.join(given)})>")
    checks.append(f"constexpr bool fits = {' || '.join(fits)};")
    for i, strict in enumerate(types):
        others = [*["Any"] * i, strict, *["Any"] * (len(types) - i - 1)]
        checks.append(
            f"static_assert(!{is_called} || fits || is_called<{', '.join(others)}>, "
            f'"cupar: parameter {i + 1}");'
        )
    checks.append(f'static_assert(!{is_called} || fits, "cupar: parameters");')
    return checks


_MOST_WAYS = 4  # parameters of which each may be a value or a reference


def _passed(result: np.dtype[Any]) -> str:
    """Return the expression of a number as it is returned."""
    if result.kind == "b":
        return "result ? 1 : 0"
    half = _HALVES.get(structs.code_of(result))
    return "result" if half is None else f"{half[2]}(result)"


def _pointer(name: str, kind: Type) -> list[str]:
    """Return the parameters in C of a pointer, or of an array as numba passes it; the address has a name."""
    return [
        f"{_SLOTS[slot.code]} {name}" if slot == VaryingSlot("Q", "p") else _SLOTS[slot.code]
        for slot in slots(kind)
    ]


_SLOTS: Final = {"Q": "void*", "q": "long long"}


def _value(name: str, dtype: np.dtype[Any], heads: list[str], steps: list[str]) -> str:
    """Add the C parameters of a value, and the code that makes the value from them; return its expression."""
    if not structs.has_parts(dtype):
        heads.append(f"{_PASSED[structs.code_of(dtype)]} {name}")
        return _number(name, dtype)
    steps.append(f"Parts<{dtype.itemsize}, {dtype.alignment}> {name} = {{}};")
    for number, (offset, part) in enumerate(_parts(dtype)):
        heads.append(f"{_PASSED[structs.code_of(part)]} {name}_{number}")
        steps.append(f"{name}.set({offset}, {_number(f'{name}_{number}', part)});")
    return name


def _number(name: str, dtype: np.dtype[Any]) -> str:
    if dtype.kind == "b":
        return f"({name} != 0)"
    half = _HALVES.get(structs.code_of(dtype))
    return name if half is None else f"{half[3]}({name})"


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
