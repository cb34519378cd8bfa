"""Device functions in C++: iterators that convert, and calls of operators in LTO-IR of the user's own.

CCCL's C interface knows no complex numbers, which are opaque storage to it, and its reduction writes the
accumulator's type through whatever output pointer it is given (seen with CCCL 3.6.0: a float32 accumulator
and a float16 output overwrite the output's neighbour). Where array and accumulator differ and CCCL would not
convert, cupar puts one of these between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _cccl

if TYPE_CHECKING:
    from ._key import Argument

_CPP_TYPES = {
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
template <class T> struct Complex { T re, im; };

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

_FUNCTIONS = {
    "advance": """
extern "C" __device__ void {symbol}_advance(void* state, const void* offset) {{
  *static_cast<{array}**>(state) += *static_cast<const long long*>(offset);
}}
""",
    "dereference": """
extern "C" __device__ void {symbol}_dereference(const void* state, {const} void* value) {{
  {array}* array = *static_cast<{array}* const*>(state);
  {move}
}}
""",
}
_READ = "*static_cast<{value}*>(value) = convert<{value}>::from(*array);"
_WRITE = "*array = convert<{array}>::from(*static_cast<const {value}*>(value));"


def forwarder_source(parameter: str, name: str, arity: int) -> str:
    """Return the C++ of a parameter's device function that calls the one of the user's own LTO-IR.

    The user's name stays behind cupar's: one that CUB's headers know, such as ``half``, would not compile.
    """
    arguments = [f"a{i}" for i in range(arity + 1)]
    types = ", ".join("void*" for _ in arguments)
    parameters = ", ".join(f"void* {argument}" for argument in arguments)
    return (
        f'extern "C" __device__ void {name}({types});\n'
        f'extern "C" __device__ void {_cccl.symbol(parameter)}({parameters}) {{\n'
        f"  {name}({', '.join(arguments)});\n}}\n"
    )


def _cpp(dtype: np.dtype[Any]) -> str:
    return _CPP_TYPES[dtype.str[1:]]


def source(arguments: Sequence[Argument], functions: Sequence[str] = tuple(_FUNCTIONS)) -> str:
    """Return the C++ of these arguments' device functions, or of some: ``"advance"``, ``"dereference"``."""
    code = _PREAMBLE
    for argument in arguments:
        types = {"array": _cpp(argument.dtype), "value": _cpp(argument.value)}
        move = (_WRITE if argument.output else _READ).format(**types)
        const = "const" if argument.output else ""
        for function in functions:
            symbol = _cccl.symbol(argument.name)
            code += _FUNCTIONS[function].format(symbol=symbol, const=const, move=move, **types)
    return "#include <cuda_fp16.h>\n" + code if "__half" in code else code
