"""Signatures of functions in C++."""

import numpy as np
import pytest

import cupar
from cupar.external import _signature


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("float32(float32, float32)", "float32(float32, float32)"),
        (" double ( int , boolean ) ", "float64(int64, bool)"),
        (
            "void(float32[::1], float64[:, ::1], int32*, CPointer(int8))",
            "void(float32[::1], float64[:, ::1], int32*, int8*)",
        ),
        ("complex64()", "complex64()"),
        ("half(byte, char, long_, float_)", "float16(uint8, int8, int64, float32)"),
        (("<f4", ["float64[::1]", "?", "int8*"]), "float32(float64[::1], bool, int8*)"),
        ((np.float32, ["f2", np.dtype("u1"), bool]), "float32(float16, uint8, bool)"),
        ((None, [cupar.gpu_struct({"a": "f4", "b": "i8"})]), "void({a: float32, b: int64})"),
    ],
)
def test_they_are_read(given, text):
    assert str(_signature(given)) == text


def test_those_of_numba():
    from numba.cuda import types

    given = types.float32(types.Array(types.int32, 2, "C"), types.CPointer(types.float64), types.boolean)
    assert str(_signature(given)) == "float32(int32[:, ::1], float64*, bool)"


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("float32", ValueError, "signature: expected text as in"),
        (3, TypeError, "signature: expected text as in"),
        ("float32(float33)", TypeError, "got 'float33'"),
        ("float32(float32[:])", ValueError, "an array must be C-contiguous"),
        ("float32(float32[::1, :])", ValueError, "an array must be C-contiguous"),
        ("float32(Tuple((int8, int8)))", ValueError, "is no type that is known here"),
        ("float32(int8(int8))", ValueError, "is no type that is known here"),
        ("float32(object)", TypeError, "signature: expected bool"),
        ((np.float32, [object]), TypeError, "signature: expected bool"),
        ("float32(a + b)", ValueError, "'a + b' is no type"),
    ],
)
def test_what_is_none(given, error, message):
    with pytest.raises(error, match="signature") as caught:
        _signature(given)
    assert message in str(caught.value)
