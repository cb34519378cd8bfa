"""The C++ that cupar writes: names of types and symbols, and what a source begins with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_NUMBERS = {
    "b1": "bool",
    "i1": "signed char",
    "i2": "short",
    "i4": "int",
    "i8": "long long",
    "u1": "unsigned char",
    "u2": "unsigned short",
    "u4": "unsigned int",
    "u8": "unsigned long long",
    "f2": "__half",
    "f4": "float",
    "f8": "double",
    "c8": "Complex<float>",
    "c16": "Complex<double>",
}

_PREAMBLE = """
typedef long long i64;

template <class T> struct Complex { T re, im; };

template <int size> struct Word { typedef unsigned char type; };
template <> struct Word<2> { typedef unsigned short type; };
template <> struct Word<4> { typedef unsigned int type; };
template <> struct Word<8> { typedef unsigned long long type; };

// A struct, as the words that it is moved in: each byte of an array of bytes takes a register of its own.
template <int size, int alignment> struct alignas(alignment) Bytes {
  typedef typename Word<alignment>::type word;
  word words[size / sizeof(word)];
};

template <class To> struct convert {
  template <class From> static __device__ To from(From x) { return static_cast<To>(x); }
};
template <class To> struct convert<Complex<To>> {
  template <class From> static __device__ Complex<To> from(From x) { return {static_cast<To>(x), To(0)}; }
  template <class From> static __device__ Complex<To> from(Complex<From> x) {
    return {static_cast<To>(x.re), static_cast<To>(x.im)};
  }
};
"""


def type_name(dtype: np.dtype[Any]) -> str:
    """Return the C++ type of a value."""
    if dtype.names is not None:
        return f"Bytes<{dtype.itemsize}, {dtype.alignment}>"
    return _NUMBERS[dtype.str[1:]]


def symbol(parameter: str) -> str:
    """Return the name of a parameter's device function, whatever name the user's function has.

    Users' names could be ones that CUB's headers know, such as ``half``.
    """
    return f"cupar_{parameter}"


def unit(code: str, headers: Sequence[str] = ()) -> str:
    """Return C++ that may be compiled: with the headers that it needs and the types of `type_name`."""
    half = ["cuda_fp16.h"] if "__half" in code else []
    return "".join(f"#include <{header}>\n" for header in dict.fromkeys([*headers, *half])) + _PREAMBLE + code


def forwarder(name: str, arity: int, has_state: bool) -> str:
    """Return the C++ of an operator's function, ``SYMBOL``, that calls the one of the user's own LTO-IR.

    The user's name stays behind cupar's: one that CUB's headers know, such as ``half``, would not compile.
    """
    arguments = [f"a{i}" for i in range(has_state + arity + 1)]
    types = ", ".join("void*" for _ in arguments)
    parameters = ", ".join(f"void* {argument}" for argument in arguments)
    return (
        f'extern "C" __device__ void {name}({types});\n'
        f'extern "C" __device__ void SYMBOL({parameters}) {{\n'
        f"  {name}({', '.join(arguments)});\n}}\n"
    )
