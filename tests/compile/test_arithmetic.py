"""Arithmetic at its edges: what numba would raise or leave undefined is the same on both devices."""

import math
import re

import numpy as np
import pytest
from support.executed import for_gpus

import cupar
from cupar import OpKind
from cupar._compile import nvrtc, python_to_ltoir
from cupar._ir.resolve import resolve

INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
DEVICES = ["cpu", "gpu"]


def on(device, function, inputs, output):
    """Return a function of columns that does what an operator does on a device."""
    if device == "gpu":
        return for_gpus(function, inputs, output)
    made = cupar.unary_transform if len(inputs) == 1 else cupar.binary_transform
    built = made(*inputs, output, function, cc="cpu")

    def run(*columns):
        columns = [np.array(each, dtype) for each, dtype in zip(columns, inputs, strict=True)]
        out = np.zeros(len(columns[0]), output)
        built.run(*columns, out, len(out))
        return out

    return run


def pairs(dtype):
    """Return columns of all pairs of numbers at the edges of a dtype, as Python's integers."""
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    numbers = sorted({least, least + 1, most - 1, most, 0, 1, 2, 7, 64, 100, max(-1, least), max(-7, least)})
    return [a for a in numbers for _ in numbers], [b for _ in numbers for b in numbers]


def wrapped(numbers, dtype):
    """Return integers as those of a dtype, which wrap around."""
    dtype = np.dtype(dtype)
    return np.array([each % 2 ** (8 * dtype.itemsize) for each in numbers], "u8").astype(dtype)


def floored(a, b):
    return divmod(a, b) if b else (0, 0)


def cut(a, b):
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0
    return quotient, a - b * quotient if b else 0


def shifted(a, b):
    if not 0 <= b < 64:
        return 0, -1 if a < 0 else 0
    return a << b, a >> b


def power(a, b):
    if b >= 0:
        return pow(a, b, 2**64)
    return -(2**63) if a == 0 else a**-b if a in (1, -1) else 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_in_python(dtype, device):
    names = ["quotient", "rest", "first", "second", "left", "right", "power"]
    every = np.dtype([(name, dtype) for name in names])
    a, b = pairs(dtype)
    found = on(device, lambda a, b: (a // b, a % b, *divmod(a, b), a << b, a >> b, a**b), [dtype] * 2, every)
    expected = [
        (*floored(x, y), *floored(x, y), *shifted(x, y), power(x, y)) for x, y in zip(a, b, strict=True)
    ]
    results = found(a, b)
    for name, column in zip(names, zip(*expected, strict=True), strict=True):
        np.testing.assert_array_equal(results[name], wrapped(column, dtype), name)


def overflowing(a, b):
    """Return comparisons that are otherwise decided without computing what is compared."""
    c = a
    c += b
    return (
        a + a > -1,
        a + 1 > a,
        b - 1 < b,
        a * 2 // 2 == a,
        -a - 1 < -a,
        c - b == a,
        a + b > b,
        -(a - 1) + 1 == 1 - a,
    )


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("device", DEVICES)
def test_signed_integers_wrap_around(device):
    every = np.dtype([(f"of_{i}", "?") for i in range(8)])
    with np.errstate(over="ignore"):
        columns = [np.array(each, "i8") for each in pairs("i8")]
        columns = [np.append(each, [2**62, -(2**62)]) for each in columns]
        expected = [tuple(map(bool, overflowing(*each))) for each in zip(*columns, strict=True)]
    assert on(device, overflowing, ["i8"] * 2, every)(*columns).tolist() == expected


def test_llvm_is_not_promised_that_signed_integers_stay_in_range():
    op = resolve(overflowing, [np.dtype("i8")] * 2, np.dtype([(f"of_{i}", "?") for i in range(8)]))
    assert "nsw" not in python_to_ltoir.operator_llvm(op, "f", 90)


def test_indices_do_not_wrap_around():
    """An index above another one is not negative: no kernel looks whether it counts from the end."""

    def kernel(out, a, n):
        i, j = cupar.cuda.grid(2)
        if 0 < i < n - 1 and 0 < j < n - 1:
            total = i + 1
            out[i, j] = a[i - 1, j] + a[i, j + 1] + (total > i)

    built = cupar.jit(kernel).compile("void(f4[:, ::1], f4[:, ::1], i8)", cc=90)
    assert len(re.findall("= (?:add|sub) nsw i64", built.build.llvm()["kernel"])) == 2


UNSIGNED = {  # with what each gives in Python
    "quotient": lambda a: a // 2,
    "rest": lambda a: a % 7,
    "sum": lambda a: 1 + a,
    "difference": lambda a: a - 1,
    "product": lambda a: a * 3,
    "bits": lambda a: (a & 5 | 1) ^ 2,
    "shifted": lambda a: 1 << (a & 63),
    "power": lambda a: a**3,
    "first": lambda a: divmod(a, 3)[0],
    "least": lambda a: min(a, 2**62),
    "most": lambda a: max(4, a),
    "variable": lambda a: a // HALF,
}
HALF = 2


@pytest.mark.parametrize("device", DEVICES)
def test_uint64_beside_written_integers(device):
    dtype = np.dtype([(name, "u8") for name in UNSIGNED])
    q, r, s, d, p, b, h, w, f, x, y, v = UNSIGNED.values()
    given = [0, 1, 2, 3, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]

    def op(a):
        return q(a), r(a), s(a), d(a), p(a), b(a), h(a), w(a), f(a), x(a), y(a), v(a)

    found = on(device, op, ["u8"], dtype)(given)
    for name, function in UNSIGNED.items():
        np.testing.assert_array_equal(found[name], wrapped(map(function, given), "u8"), name)


@pytest.mark.parametrize("device", DEVICES)
def test_uint64_beside_others_is_signed_as_in_numba(device):
    def counted(a):
        number = 0
        for _ in range(3):
            number += a  # which is a written 0 the first time alone
        return number

    def all_of(a):
        return counted(a), a + -1, a + np.int64(1)

    found = on(device, all_of, ["u8"], np.dtype([(name, "f8") for name in "abc"]))([2**63 + 2])
    assert found[0].tolist() == (-(2.0**63),) * 3


@pytest.mark.parametrize("dtype", ["?", *INTEGERS])
def test_integers_of_kinds_on_the_cpu(dtype):
    a, b = pairs(dtype) if dtype != "?" else ([0, 0, 1, 1], [0, 1, 0, 1])
    for i, kind in enumerate((OpKind.DIVIDES, OpKind.MODULUS)):
        expected = [cut(x, y)[i] for x, y in zip(a, b, strict=True)]
        np.testing.assert_array_equal(on("cpu", kind, [dtype] * 2, dtype)(a, b), wrapped(expected, dtype))


def test_integers_of_kinds_on_gpus():
    lines = ['#include "common/types.cuh"']
    names = {"1": "signed char", "2": "short", "4": "int", "8": "long long"}
    for dtype in INTEGERS:
        name = names[dtype[1]] if dtype[0] == "i" else f"unsigned {names[dtype[1]].removeprefix('signed ')}"

        def number(x, name=name):
            return (
                f"{name.replace(' ', '_')}({x + 1}LL - 1)" if x < 0 else f"{name.replace(' ', '_')}({x}ULL)"
            )

        lines.append(f"using {name.replace(' ', '_')} = {name};" if " " in name else "")
        for x, y in zip(*pairs(dtype), strict=True):
            for functor, result in zip(("divides", "modulus"), cut(x, y), strict=True):
                wanted = int(wrapped([result], dtype)[0])
                lines.append(
                    f"static_assert(cupar::{functor}{{}}({number(x)}, {number(y)}) == {number(wanted)});"
                )
    lines.append("static_assert(!cupar::divides{}(true, false) && cupar::divides{}(true, true));")
    nvrtc.compile_kernels("\n".join(lines), 90)
    for kind in ("divides", "modulus"):
        spec = cupar._obtain.obtain.specification(
            cupar.reduce_into, "i8", "i8", OpKind[kind.upper()], 1, cc=90
        )
        assert f"cupar::{kind}" in cupar._kernels.source.source(spec.family, spec)


@pytest.mark.parametrize("dtype", ["i1", "i8", "u4", "u8"])
def test_ufuncs_of_integers(dtype):
    """On the CPU: numba.cuda has the shifts alone."""
    functions = ["floor_divide", "remainder", "fmod", "left_shift", "right_shift"]
    every = np.dtype([(name, dtype) for name in (*functions, "first", "second", "power")])
    a, b = pairs(dtype)
    found = on(
        "cpu",
        lambda a, b: (
            np.floor_divide(a, b),
            np.remainder(a, b),
            np.fmod(a, b),
            np.left_shift(a, b),
            np.right_shift(a, b),
            *np.divmod(a, b),
            np.power(a, b),
        ),
        [dtype] * 2,
        every,
    )(a, b)
    with np.errstate(all="ignore"):
        columns = np.array(a, dtype), np.array(b, dtype)
        for name in functions:
            np.testing.assert_array_equal(found[name], getattr(np, name)(*columns), name)
        for name, expected in zip(("first", "second"), np.divmod(*columns), strict=True):
            np.testing.assert_array_equal(found[name], expected, name)
    powers = [power(x, y) % 2**64 for x, y in zip(a, b, strict=True)]
    least = np.iinfo(dtype).min
    powers = [least if x == 0 and y < 0 else each for x, y, each in zip(a, b, powers, strict=True)]
    np.testing.assert_array_equal(found["power"], wrapped(powers, dtype), "power")


@pytest.mark.parametrize("dtype", ["u1", "u4", "u8"])
def test_common_multiples_of_integers(dtype):
    """numba computes those of uint64 in float64."""
    a, b = pairs(dtype)
    found = on("cpu", np.lcm, [dtype] * 2, dtype)(a, b)
    np.testing.assert_array_equal(found, np.lcm(np.array(a, dtype), np.array(b, dtype)))


@pytest.mark.parametrize("device", DEVICES)
def test_powers_of_floats(device):
    bases = [0.0, -0.0, 1e-200, 2.0, np.inf]
    found = on(device, lambda a, b: a**b, ["f8", "i8"], "f8")
    np.testing.assert_array_equal(found(bases, [-1, -1, -2, -3, -1]), [np.inf, -np.inf, np.inf, 0.125, 0])
    found = on(device, lambda a: a**-1 + a**-2, ["f4"], "f4")
    np.testing.assert_array_equal(found([0, 2, np.inf]), [np.inf, 0.75, 0])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_numbers_by_zero(dtype, device):
    a = np.array([1 + 1j, 0, -1j, complex(np.inf, 1), complex(np.nan, 0), 2 + 3j, 3 - 1j], dtype)
    b = np.array([0, 0, complex(0.0, -0.0), complex(-0.0, 0), 1j, 2, 0.5j], dtype)
    with np.errstate(all="ignore"):
        expected = a / b
    names = ["operator", "ufunc"]
    every = np.dtype([(name, dtype) for name in names])
    found = on(device, lambda a, b: (a / b, np.true_divide(a, b)), [dtype] * 2, every)(a, b)
    for name in names:
        np.testing.assert_array_equal(found[name], expected, name)
    if device == "cpu":
        np.testing.assert_array_equal(on(device, OpKind.DIVIDES, [dtype] * 2, dtype)(a, b), expected)


# Of PTX's `cvt.rzi`: what is out of range gives the nearest number; there is none to 8 bits.
FLOATS = [np.nan, np.inf, -np.inf, 1e20, -1e20, 3e9, -3e9, 300.7, -129.5, -1.0]
CONVERTED = {
    "i1": [0, -1, 0, -1, 0, -1, 0, 44, 127, -1],
    "u1": [0, 255, 0, 255, 0, 255, 0, 44, 0, 0],
    "i2": [-(2**15), *(2**15 - 1, -(2**15)) * 3, 300, -129, -1],
    "i4": [-(2**31), *(2**31 - 1, -(2**31)) * 3, 300, -129, -1],
    "u4": [2**31, 2**32 - 1, 0, 2**32 - 1, 0, 3 * 10**9, 0, 300, 0, 0],
    "i8": [-(2**63), *(2**63 - 1, -(2**63)) * 2, 3 * 10**9, -3 * 10**9, 300, -129, -1],
    "u8": [2**63, 2**64 - 1, 0, 2**64 - 1, 0, 3 * 10**9, 0, 300, 0, 0],
}


def test_floats_that_no_integer_holds_on_the_cpu():
    every = np.dtype([(name, name) for name in CONVERTED], align=True)

    def convert(a):
        small = np.int8(a), np.uint8(a), np.int16(a)
        return (*small, np.int32(a), np.uint32(a), np.int64(a), np.uint64(a))

    found, small = (on("cpu", convert, [dtype], every)(FLOATS) for dtype in ("f8", "f4"))
    for name, expected in CONVERTED.items():
        np.testing.assert_array_equal(found[name], np.array(expected, name), name)
        # Of 32 bits a NaN is 0, but in 64.
        of_nan = expected[0] if name in ("i8", "u8") else 0
        np.testing.assert_array_equal(small[name], np.array([of_nan, *expected[1:]], name), name)
    rounded = on("cpu", round, ["f8"], "i8")(FLOATS)
    np.testing.assert_array_equal(rounded[:8], [*CONVERTED["i8"][:7], 301])


def test_conversions_are_an_instruction_of_gpus():
    op = resolve(lambda a: np.int32(a) + 0, [np.dtype("f4")], np.dtype("i4"))
    assert "fptosi float" in python_to_ltoir.operator_llvm(op, "f", 90)  # and not numbers that are compared


# --- Functions of math --------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [math.fmod, math.remainder])
def test_remainders(function):
    a, b = [7, -7, 7, -7, 5.5, 1, 0], [2, 2, -2, 4, -np.inf, np.inf, 3]
    for f in (function, lambda a, b: function(a, b) + 0):
        for dtype in ("f4", "f8", "i1"):
            cupar.binary_transform(dtype, dtype, "f4", f, cc=90)
        found = on("cpu", f, ["f8", "f4"], "f8")(a, b)
        np.testing.assert_array_equal(found, [function(x, y) for x, y in zip(a, b, strict=True)])
        assert np.isnan(on("cpu", f, ["f4", "f4"], "f4")([1, np.inf], [0, 1])).all()


def test_whole_numbers_are_floats_as_on_gpus():
    names = ["floor", "ceil", "trunc", "fraction", "whole"]
    every = np.dtype([(name, "f4") for name in names])

    def op(a):
        return (math.floor(a), math.ceil(a), math.trunc(a), *math.modf(a))

    cupar.unary_transform("f4", every, op, cc=90)
    given = np.array([-2.5, -0.5, 0.25, 2, 1e30, np.inf, -np.inf], "f4")
    found = on("cpu", op, ["f4"], every)(given)
    expected = np.floor(given), np.ceil(given), np.trunc(given), *np.modf(given)
    for name, column in zip(names, expected, strict=True):
        np.testing.assert_array_equal(found[name], column, name)
        np.testing.assert_array_equal(np.signbit(found[name]), np.signbit(column), name)
    for cc in ("cpu", 90):
        for function in (math.floor, lambda a: math.trunc(a) + 0):
            with pytest.raises(TypeError, match="is not converted to int32 silently"):
                cupar.unary_transform("f4", "i4", function, cc=cc)


def test_what_others_have_numba_compile_is_as_it_was():
    import numba
    from numba import cuda

    def both(a, b):
        return a / b

    def ptx():
        return cuda.compile_ptx(both, "c16(c16, c16)", device=True, abi="c", cc=(9, 0))[0]

    before = ptx()
    for device in DEVICES:
        on(device, both, ["c16", "c16"], "c16")
    assert ptx() == before
    with pytest.raises(ZeroDivisionError):
        numba.njit(both)(1j, 0j)
    with pytest.raises(ZeroDivisionError):
        numba.njit(lambda a, b: a // b)(1, 0)
