"""Arrays of bfloat16 for tests: on a GPU, or on the CPU; and their comparison bit by bit."""

import numpy as np
import pytest

from .results import cp

ml_dtypes = pytest.importorskip("ml_dtypes")

BF16 = np.dtype(ml_dtypes.bfloat16)
THREE = ml_dtypes.bfloat16(3)


def device(host):
    """Return a `cp` array of bfloat16, whatever CuPy itself makes of it."""
    return cp.asarray(host.view(np.uint16)).view(BF16)


def empty(n):
    return cp.full(n, 0x7FFF, np.uint16).view(BF16)


def host_of(array):
    return array.view(np.uint16).get().view(BF16)


def bits(array):
    """The bits of each item, those of every NaN the same."""
    return np.where(np.isnan(array.astype(np.float32)), 0x7FFF, array.view(np.uint16))


def same(found, expected):
    np.testing.assert_array_equal(bits(found), bits(np.asarray(expected, BF16)))


def walk(rng, n):
    return np.diff(rng.integers(-60, 61, n + 1)).astype(BF16)


def few(rng, n):
    return (rng.integers(-1, 2, n) * (rng.random(n) < 100 / n)).astype(BF16)


def sortable(rng, n):
    """Keys with infinities, NaNs, both zeros and many that are equal."""
    found = rng.integers(0, 2**16, n).astype(np.uint16).view(BF16)
    found[np.isnan(found.astype(np.float32))] = np.nan
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1], BF16)
    return np.where(rng.random(n) < 0.3, special[rng.integers(0, len(special), n)], found)
