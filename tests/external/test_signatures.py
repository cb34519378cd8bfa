"""Signatures of functions in C++."""

import numpy as np
import pytest

import cupar
from cupar._external import signatures


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
        ((np.float32, ["f2", np.dtype("u1"), bool]), "float32(float16, uint8, bool)"),
        ((None, [cupar.gpu_struct({"a": "f4", "b": "i8"})]), "void({a: float32, b: int64})"),
    ],
)
def test_they_are_read(given, text):
    assert str(signatures.parse(given)) == text


def test_those_of_numba():
    from numba.cuda import types

    given = types.float32(types.Array(types.int32, 2, "C"), types.CPointer(types.float64), types.boolean)
    assert str(signatures.parse(given)) == "float32(int32[:, ::1], float64*, bool)"


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("float32", ValueError, "signature: expected text as in"),
        (3, TypeError, "signature: expected text as in"),
        ("float32(float33)", TypeError, "got 'float33'"),
        ("float32(float32[:])", ValueError, "an array must be C-contiguous"),
        ("float32(object)", TypeError, "signature: expected bool"),
        ((np.float32, [object]), TypeError, "signature: expected bool"),
        ("float32(a + b)", ValueError, "'a + b' is no type"),
    ],
)
def test_what_is_none(given, error, message):
    with pytest.raises(error, match="signature") as caught:
        signatures.parse(given)
    assert message in str(caught.value)
