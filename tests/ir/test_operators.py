"""What an operator means for given types: a kind of CCCL's, or a function that numba compiles."""

import math
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cupar
from cupar._ir import resolve as _resolve
from cupar._ir.kinds import SAME
from cupar._ir.resolve import resolve
from cupar.operators import OpKind
from cupar.structs import convertible

NUMBERS = [np.dtype(code) for code in "?bBhHiIqQefdFD"]
dtypes = st.sampled_from(NUMBERS)


def kind_of(op, dtype, output=None):
    dtype = np.dtype(dtype)
    return resolve(op, (dtype, dtype), dtype if output is None else np.dtype(output)).kind


@given(dtypes, dtypes)
def test_conversions_are_numpys_same_kind_but_for_bool(source, target):
    if target.kind == "b":
        assert convertible(source, target) == (source.kind != "c")
    elif {source.kind, target.kind} == {"i", "u"}:
        assert convertible(source, target)  # NumPy refuses int to uint; C does not
    else:
        assert convertible(source, target) == np.can_cast(source, target, "same_kind")


@pytest.mark.parametrize("dtype", ["i4", "u8", "f4"])
def test_functions_that_are_kinds(dtype):
    assert kind_of(operator.add, dtype) == kind_of(np.add, dtype) == OpKind.PLUS
    assert kind_of(operator.mul, dtype) == kind_of(np.multiply, dtype) == OpKind.MULTIPLIES


def test_functions_that_are_kinds_for_some_types_only():
    assert kind_of(np.maximum, "i4") == OpKind.MAXIMUM
    assert kind_of(np.maximum, "f4") is None  # NaN
    assert kind_of(operator.truediv, "f4") == OpKind.DIVIDES
    assert kind_of(operator.truediv, "i4") is None  # a float in Python
    assert kind_of(operator.floordiv, "i4") is None  # DIVIDES truncates
    assert kind_of(operator.mod, "i4") is None
    assert kind_of(np.bitwise_and, "u1") == OpKind.BIT_AND


def test_kinds_are_kinds_for_all_types():
    assert kind_of(OpKind.PLUS, "c8") == OpKind.PLUS
    assert kind_of(OpKind.LESS, "f4") == OpKind.LESS
    assert kind_of(np.logical_and, "i4") == OpKind.LOGICAL_AND


def test_fingerprint_says_what_it_does_and_not_what_it_is_called():
    first = resolve(lambda a, b: a + b, NUMBERS[5:6] * 2, NUMBERS[5])

    def another_name(x, y):
        return x + y

    def other(a, b):
        return a - b

    assert resolve(lambda a, b: a + b, NUMBERS[5:6] * 2, NUMBERS[5]) == first
    assert resolve(other, NUMBERS[5:6] * 2, NUMBERS[5]) != first


def test_builtins_without_bytecode():
    for function in (math.hypot, operator.floordiv, np.hypot, np.maximum):
        found = resolve(function, NUMBERS[10:11] * 2, NUMBERS[10])
        assert found.kind is None
        assert found.fingerprint == resolve(function, NUMBERS[10:11] * 2, NUMBERS[10]).fingerprint
    assert (
        len({resolve(f, NUMBERS[10:11] * 2, NUMBERS[10]).fingerprint for f in (math.hypot, np.hypot, max)})
        == 3
    )


def test_minima_and_maxima_do_with_nan_what_numpy_does():
    values = [np.nan, -np.inf, -1.0, 0.0, 2.0, np.inf]
    minima = [(ufunc, function) for ufunc, function in _resolve._OF_FLOATS.items() if ufunc.nin == 2]
    assert len(minima) == 4
    for ufunc, function in minima:
        for a in values:
            for b in values:
                np.testing.assert_equal(function(a, b), ufunc(a, b), err_msg=f"{ufunc} {a} {b}")


@pytest.mark.parametrize("op", [np.fmax, math.hypot, operator.floordiv, max, np.minimum])
def test_builtins_build(op):
    dtype = {operator.floordiv: "i4", np.minimum: "f2"}.get(op, "f4")
    built = cupar.reduce_into(dtype, dtype, op, np.zeros(1, dtype), cc=90)
    assert built.build.cubin_size > 1000


def helper(a):
    return a * 2


def nested(a, b):
    return helper(a) + helper(b)


@pytest.mark.usefixtures("optimised")
def test_plain_python_functions_may_be_called(empty_cache):
    """numba compiles calls of jitted functions only; cupar wraps the others."""
    inner = lambda a: a + 1

    def with_closure(a, b):
        return nested(inner(a), b)

    one = cupar.reduce_into("i4", "i4", with_closure, 0, cc=90)
    inner = lambda a: a + 2
    two = cupar.reduce_into("i4", "i4", with_closure, 0, cc=90)
    assert one.build.key != two.build.key
    assert one.cubin() != two.cubin()


def shared(a):
    return a + 1


def first(a):
    return shared(a) * 2


def by_two_paths(a, b):
    return first(a) + shared(b)


def by_default(a, b, f=shared):
    return f(a) + b


def test_helpers_by_several_paths():
    for op in (by_two_paths, by_default, lambda a, b: shared(first(a)) + first(shared(b))):
        assert cupar.reduce_into("i4", "i4", op, 0, cc=90).build.cubin_size


def test_stubs_of_numba_are_not_taken_for_helpers():
    from numba.cuda.libdevice import fast_sinf

    assert cupar.reduce_into("f4", "f4", lambda a, b: fast_sinf(a) + b, 0.0, cc=90).build.cubin_size


def test_an_empty_closure_cell_is_said_by_numba():
    if False:
        absent = 1
    with pytest.raises(TypeError, match=r"^op: numba.cuda cannot compile"):
        cupar.reduce_into("i4", "i4", lambda a, b: a + b + absent, 0, cc=90)


@pytest.mark.parametrize(
    "op",
    [np.heaviside, int.__add__, lambda a, b: (yield a), lambda a, b: shared(x=a), operator.setitem],
)
def test_whatever_numba_raises_is_a_type_error(op):
    with pytest.raises(TypeError, match=r"^op: "):
        cupar.reduce_into("i4", "i4", op, 0, cc=90)


def test_compiling_on_many_threads_with_a_shared_helper(empty_cache):
    from concurrent.futures import ThreadPoolExecutor

    from numba import cuda

    jitted = cuda.jit(device=True)(shared)
    op = lambda a, b: jitted(a) + b
    work = [(dtype, cc) for dtype in ("i4", "i8", "f4", "f8") for cc in (80, 90)]

    def compile_one(arguments):
        from cupar import _build

        dtype, cc = arguments
        resolved = resolve(op, (np.dtype(dtype),) * 2, np.dtype(dtype))
        return _build._operator_code("op", resolved, cc)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(compile_one, work))


def test_jitted_functions_may_be_called_and_passed():
    from numba import cuda, njit

    jitted = cuda.jit(device=True)(helper)

    def calls_jitted(a, b):
        return jitted(a) + b

    assert cupar.reduce_into("i4", "i4", lambda a, b: jitted(a) + b, 0, cc=90).build.cubin_size
    plain = cupar.reduce_into("i4", "i4", nested, 0, cc=90)
    assert plain.build.cubin_size
    for op in (cuda.jit(device=True)(calls_jitted), njit(calls_jitted), njit(nested)):
        assert cupar.reduce_into("i4", "i4", op, 0, cc=90).build.cubin_size


@pytest.mark.usefixtures("optimised", "constants")
def test_a_changed_global_of_a_jitted_function_is_in_the_code(empty_cache):
    """numba compiles a jitted function once in a process, with the globals of that moment."""
    from numba import cuda, njit

    global FACTOR
    FACTOR = 2

    for decorate in (cuda.jit(device=True), njit):
        FACTOR = 2

        @decorate
        def scaled(a):
            return a * FACTOR

        def op(a, b):
            return scaled(a) + b

        two = cupar.reduce_into("i4", "i4", op, 0, cc=90)
        FACTOR = 5
        five = cupar.reduce_into("i4", "i4", op, 0, cc=90)
        assert two.build.key != five.build.key
        assert two.cubin() != five.cubin()


FACTOR = 2


def test_default_arguments():
    def op(a, b, scale=3):
        return a + b * scale

    one = cupar.reduce_into("i4", "i4", op, 0, cc=90)
    op.__defaults__ = (4,)
    assert cupar.reduce_into("i4", "i4", op, 0, cc=90).build.key != one.build.key


def test_names_that_cub_knows():
    def half(a, b):
        return a + b

    assert cupar.reduce_into("f2", "f2", half, 0.0, cc=90).build.cubin_size


def test_every_entry_of_the_table_is_a_binary_or_unary_kind():
    for function, (kind, kinds) in SAME.items():
        assert isinstance(kind, OpKind)
        assert set(kinds) <= set("biufc")
        assert callable(function)


SAMPLES = {"b": [False, True], "i": [-7, -2, -1, 1, 2, 3], "u": [1, 2, 3, 250], "f": [-2.5, -1.0, 0.5, 3.0]}
C_MEANING = {
    OpKind.PLUS: lambda a, b: a + b,
    OpKind.MINUS: lambda a, b: a - b,
    OpKind.MULTIPLIES: lambda a, b: a * b,
    OpKind.DIVIDES: lambda a, b: a / b,
    OpKind.BIT_AND: lambda a, b: a & b,
    OpKind.BIT_OR: lambda a, b: a | b,
    OpKind.BIT_XOR: lambda a, b: a ^ b,
    OpKind.MINIMUM: lambda a, b: b if b < a else a,
    OpKind.MAXIMUM: lambda a, b: b if a < b else a,
    OpKind.EQUAL_TO: lambda a, b: a == b,
    OpKind.NOT_EQUAL_TO: lambda a, b: a != b,
    OpKind.LESS: lambda a, b: a < b,
    OpKind.LESS_EQUAL: lambda a, b: a <= b,
    OpKind.GREATER: lambda a, b: a > b,
    OpKind.GREATER_EQUAL: lambda a, b: a >= b,
    OpKind.LOGICAL_AND: lambda a, b: bool(a) and bool(b),
    OpKind.LOGICAL_OR: lambda a, b: bool(a) or bool(b),
}


def test_functions_do_what_their_kind_does():
    """The table claims that a function is exactly a kind; compare both on samples of each type."""
    codes = {"b": "?", "i": "i2", "u": "u1", "f": "f4"}
    for function, (kind, kinds) in SAME.items():
        meaning = C_MEANING.get(kind)
        if meaning is None:
            continue
        for letter in set(kinds) - {"c"}:
            dtype = np.dtype(codes[letter])
            for a in SAMPLES[letter]:
                for b in SAMPLES[letter]:
                    with np.errstate(all="ignore"):
                        expected = np.array(meaning(*map(dtype.type, (a, b)))).astype(dtype)
                        assert np.array(function(*map(dtype.type, (a, b)))).astype(dtype) == expected
