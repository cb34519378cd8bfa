"""Ufuncs and functions of math in operators: GPUs and the CPU take the same ones, with NumPy's results."""

import math
from functools import cache

import numpy as np
import pytest
from support.executed import for_gpus

import cupar
from cupar._compile import python_to_ltoir
from cupar._ir.resolve import resolve

UFUNCS = {
    name: each
    for name, each in vars(np).items()
    if isinstance(each, np.ufunc) and each.__name__ == name and each.nin < 3 and not each.signature
}
REFUSED = {"bitwise_count", "frexp", "heaviside", "isnat", "modf"}
# Which numba has for some dtypes alone, or with other results: those of NumPy for the dtypes are left out.
LEFT_OUT = {
    "?": {"ldexp"},
}
DTYPES = ["f4", "f8", "i4", "i8", "u8", "?", "c8", "c16"]


@cache
def given(dtype):
    """Return columns of numbers, most of which are in the domain of most functions."""
    a = np.array([0.5, 0.25, 1, 2, -0.75, 3, 7, -1.5, 20])
    b = np.array([2, 0.5, 3, 1, 1.25, -2, 4, 2, 0.125])
    if np.dtype(dtype).kind == "c":
        return (a + 0.5j * b).astype(dtype), (b - 0.25j * a).astype(dtype)
    if np.dtype(dtype).kind in "iu":
        a, b = abs(np.round(a * 4)), abs(np.round(b * 4)) + 1
    return a.astype(dtype), b.astype(dtype)


def results(dtype):
    """Return NumPy's results by the names of ufuncs; those of a ufunc with two, by ``divmod_0`` and so on."""
    found = {}
    with np.errstate(all="ignore"):
        for name, each in UFUNCS.items():
            if name in REFUSED | LEFT_OUT.get(dtype, set()):
                continue
            try:
                result = each(*given(dtype)[: each.nin])
            except TypeError:
                continue
            found.update(
                {name: result} if each.nout == 1 else {f"{name}_{i}": r for i, r in enumerate(result)}
            )
    return found


def all_of(names):
    calls = []
    for name in dict.fromkeys(
        each.rpartition("_")[0] if each[-2:] in ("_0", "_1") else each for each in names
    ):
        call = f"np.{name}({', '.join('ab'[: UFUNCS[name].nin])})"
        calls.append(call if UFUNCS[name].nout == 1 else f"*{call}")
    return eval(f"lambda a, b: ({', '.join(calls)},)", {"np": np})


def run(device, op, dtype, every):
    """Return what an operator gives on a device, as a column of structs."""
    columns = given(dtype)
    if device == "gpu":
        assert python_to_ltoir.compile_operator(resolve(op, [np.dtype(dtype)] * 2, every), "f", 90)
        return for_gpus(op, [dtype] * 2, every)(*columns)
    found = np.zeros(len(columns[0]), every)
    with cupar.device("cpu"):
        cupar.binary_transform(*columns, found, op).run(*columns, found, len(found))
    return found


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_results(dtype, device):
    right = results(dtype)
    wide = {each: "c16" if right[each].dtype.kind == "c" else "f8" for each in right}
    found = run(device, all_of(right), dtype, np.dtype([*wide.items()]))
    precision = 3e-3 if dtype == "?" else 1e-5 if dtype in ("f4", "c8") else 1e-12
    for name, result in right.items():
        np.testing.assert_allclose(found[name], result.astype(wide[name]), precision, precision, err_msg=name)


MATH = {  # functions of one number, and of two
    1: """
        acos acosh asin asinh atan atanh ceil cos cosh degrees erf erfc exp expm1 fabs floor gamma isfinite
        isinf isnan lgamma log log10 log1p log2 radians sin sinh sqrt tan tanh trunc
    """,
    2: "atan2 copysign fmod hypot nextafter pow remainder",
}


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_functions_of_math(dtype, device):
    names = [(name, arity) for arity in MATH for name in MATH[arity].split()]
    calls = [f"math.{name}({', '.join('ab'[:arity])})" for name, arity in names]
    op = eval(f"lambda a, b: ({', '.join(calls)})", {"math": math})
    found = run(device, op, dtype, np.dtype([(name, "f8") for name, _ in names]))
    for name, arity in names:
        for i, arguments in enumerate(zip(*given(dtype)[:arity], strict=True)):
            try:
                right = float(getattr(math, name)(*map(float, arguments)))
            except (ValueError, OverflowError):
                continue  # outside of its domain
            precision = 1e-12 if dtype == "f8" else 1e-5
            assert found[name][i] == pytest.approx(right, rel=precision, abs=precision), (name, arguments)


def test_whole_divisors():
    def op(a, b):
        return math.gcd(a, b), np.gcd(a, b)

    every = np.dtype([("first", "i8"), ("second", "i8")])
    for device in ("cpu", "gpu"):
        found = run(device, op, "i8", every)
        for name in every.names:
            np.testing.assert_array_equal(found[name], np.gcd(*given("i8")))


ROUNDED = {
    "round": lambda a, b: np.round(a, 1),
    "around": lambda a, b: np.around(b),
    "isclose": lambda a, b: np.isclose(a, b / 2),
    "sinc": lambda a, b: np.sinc(a),
}


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", ROUNDED)
def test_functions_of_numpy(name, device):
    op = ROUNDED[name]
    found = run(device, lambda a, b: (op(a, b),), "f8", np.dtype([(name, "f8")]))[name]
    np.testing.assert_allclose(found, np.array([*map(op, *given("f8"))], "f8"), 1e-12, 1e-15)


def calling(function, arity):
    return (lambda a: +function(a)) if arity == 1 else lambda a, b: +function(a, b)


@pytest.mark.parametrize("name", sorted(REFUSED))
@pytest.mark.parametrize("cc", ["cpu", 90])
def test_others_are_refused_in_a_sentence(name, cc):
    ufunc = UFUNCS[name]
    for op in (ufunc, calling(ufunc, ufunc.nin)):
        with pytest.raises(TypeError, match=r"numba.* (does not know|has no) ") as caught:
            made = cupar.unary_transform if ufunc.nin == 1 else cupar.binary_transform
            made(*["f8"] * ufunc.nin, "f8", op, cc=cc)
        assert len(str(caught.value).splitlines()) <= 4


@pytest.mark.parametrize("name", ["comb", "dist", "factorial", "fsum", "isqrt", "perm", "prod", "ulp"])
@pytest.mark.parametrize("cc", ["cpu", 90])
def test_others_of_math_are_refused(name, cc):
    with pytest.raises(TypeError, match=r"numba.* (does not know|has no) "):
        cupar.unary_transform("i8", "f8", calling(getattr(math, name), 1), cc=cc)


def test_functions_of_arrays_take_the_same():
    x = np.array([0.5, 2, -1])
    found = cupar.arrays.transform(np.logaddexp, x, x)
    np.testing.assert_allclose(found, np.logaddexp(x, x), 1e-14)
