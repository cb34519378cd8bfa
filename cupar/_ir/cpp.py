"""C++ that cupar writes: names of types and symbols, and the head of a source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import structs

_HEADERS = {"__half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}  # that types are defined in

_PREAMBLE = """
typedef long long i64;

// Complex numbers as NumPy and numba have them: aligned as their parts are, made silently of real numbers
// and of each other, and divided as in R. L. Smith, "Algorithm 116: Complex division", CACM 5, 1962.
template <class T> struct Complex {
  T re, im;

  Complex() = default;
  __device__ constexpr Complex(T re, T im) : re(re), im(im) {}
  template <class Real, class = decltype(static_cast<T>(*static_cast<Real*>(nullptr)))>
  __device__ constexpr Complex(Real x) : re(static_cast<T>(x)), im(0) {}
  template <class Other>
  __device__ constexpr Complex(Complex<Other> x) : re(static_cast<T>(x.re)), im(static_cast<T>(x.im)) {}

  __device__ constexpr explicit operator bool() const { return re != 0 || im != 0; }
  __device__ friend constexpr Complex operator-(Complex a) { return {-a.re, -a.im}; }
  __device__ friend constexpr Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
  __device__ friend constexpr Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
  __device__ friend constexpr Complex operator*(Complex a, Complex b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
  __device__ friend Complex operator/(Complex a, Complex b) {
    const T re = fabs(b.re), im = fabs(b.im);
    const bool is_zero = re == 0 && im == 0, is_wide = re >= im;
    const T high = is_wide ? b.re : b.im, low = is_wide ? b.im : b.re;
    const T first = is_wide ? a.re : a.im, second = is_wide ? a.im : a.re;
    const T ratio = low / high, divisor = is_zero ? re : high + low * ratio, scaled = first * ratio;
    const T over = first + second * ratio, beside = is_wide ? second - scaled : scaled - second;
    return {(is_zero ? a.re : over) / divisor, (is_zero ? a.im : beside) / divisor};
  }
  __device__ friend constexpr bool operator==(Complex a, Complex b) { return a.re == b.re && a.im == b.im; }
  __device__ friend constexpr bool operator!=(Complex a, Complex b) { return a.re != b.re || a.im != b.im; }
};

template <int size> struct Word { typedef unsigned char type; };
template <> struct Word<2> { typedef unsigned short type; };
template <> struct Word<4> { typedef unsigned int type; };
template <> struct Word<8> { typedef unsigned long long type; };

// A struct, as the words that it is moved in: each byte of an array of bytes takes a register of its own.
template <int size, int alignment> struct alignas(alignment) Bytes {
  typedef typename Word<alignment>::type word;
  word words[size / sizeof(word)];
};
"""


# A pragma of NVIDIA's compilers: headers are precompiled up to here, if they are.
END_OF_HEADERS = "#pragma nv_hdrstop\n"


def type_name(dtype: np.dtype[Any]) -> str:
    """Return the C++ type of a value."""
    if dtype.names is not None:
        return f"Bytes<{dtype.itemsize}, {dtype.alignment}>"
    return structs.CPP_NAMES[structs.code_of(dtype)]


def symbol(parameter: str) -> str:
    """Return the name of a parameter's device function, which does not depend on the user's name for it.

    Users' names could be ones that CUB's headers know, such as ``half``.
    """
    return f"cupar_{parameter}"


def kernel_symbol(name: str) -> str:
    """Return the symbol of a kernel: a C++ name, which tools show as ``cupar::add()``."""
    plain = re.sub(r"\W", "_", name.strip("<>"), flags=re.ASCII) or "kernel"
    plain = f"_{plain}" if plain[0].isdigit() else plain
    return f"_ZN5cupar{len(plain)}{plain}Ev"


def unit(code: str, headers: Sequence[str] = ()) -> str:
    """Return C++ that may be compiled: with the headers that it needs and the types of `type_name`."""
    own = [header for name, header in _HEADERS.items() if name in code]
    return "".join(f"#include <{header}>\n" for header in dict.fromkeys([*headers, *own])) + _PREAMBLE + code
