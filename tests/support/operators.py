"""Operators that many tests use, and the reduction that those of calls run."""

import numpy as np

import cupar

N = 10_000
EXPECTED = N * (N - 1) // 2 + 3  # of `summed`


def add(a, b):
    return a + b


def less(a, b):
    return a < b


def equal(a, b):
    return a == b


def either(a, b):
    return a or b


def small(a):
    return a < 30


def large(a):
    return a > 60


def summed():
    """Return a reduction of the numbers below `N`, and what it is called with."""
    from .results import cp

    d_in, d_out = cp.arange(N, dtype="i4"), cp.zeros(1, "i4")
    h_init = np.array([3], "i4")
    return cupar.reduce_into(d_in, d_out, add, h_init), d_in, d_out, h_init
