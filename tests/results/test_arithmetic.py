"""Arithmetic of operators at its edges, where compilers may assume or promote, against NumPy's."""

import numpy as np
from support.results import cp

import cupar

ONES = np.dtype([(name, "?") for name in "abc"])


def transformed(op, x, dtype):
    out = cp.zeros(len(x), dtype)
    cupar.unary_transform(x, out, op).run(x, out, len(x))
    return out.get()


def test_signed_integers_wrap_around():
    b = np.array([2**62, 1, -(2**63), 2**63 - 1, 0], "i8")
    found = transformed(lambda b: (b + b > -1, b - 1 < b, b * 2 // 2 == b), cp.asarray(b), ONES)
    with np.errstate(over="ignore"):
        expected = b + b > -1, b - 1 < b, b * 2 // 2 == b
    for name, column in zip(ONES.names, expected, strict=True):
        np.testing.assert_array_equal(found[name], column)


def test_uint64_beside_written_integers():
    a = np.array([2**64 - 1, 2**63, 2**53 + 1, 3, 1], "u8")
    pairs = np.dtype([("half", "u8"), ("most", "u8")])
    found = transformed(lambda a: (a // 2, max(a, 2)), cp.asarray(a), pairs)
    np.testing.assert_array_equal(found["half"], a // np.uint64(2))
    np.testing.assert_array_equal(found["most"], np.maximum(a, np.uint64(2)))


def test_ufuncs():
    x = np.array([0.25, 2.5, -1.75, 100])
    found = transformed(
        lambda a: np.floor(a) + np.log1p(abs(a)) + np.round(a, 1) + np.rint(a), cp.asarray(x), "f8"
    )
    np.testing.assert_allclose(found, np.floor(x) + np.log1p(abs(x)) + np.round(x, 1) + np.rint(x), 1e-14)
