"""Sums of floats on the CPU: their errors are at most four times NumPy's, which adds pairs of pairs."""

import functools

import numpy as np
import pytest

import cupar
from cupar import OpKind, arrays

pytestmark = pytest.mark.usefixtures("optimised")  # of a million items

LENGTHS = [7, 31, 33, 1000, 2047, 24_000, 65_537, 1_000_003]


def kinds(n):
    rng, k = np.random.default_rng(n), np.arange(n)
    yield "tenths", np.full(n, 0.1)
    yield "thirds", np.full(n, 1 / 3)
    yield "uniform", rng.random(n)
    yield "normal", rng.normal(size=n)
    yield "alternating", np.where(k % 2, -1, 1) * (1 + rng.random(n))
    yield "growing", (k + 1) / n
    yield "falling", (n - k + 0.1) / n
    yield "of many magnitudes", np.exp(3 * rng.normal(size=n)) / 1e3
    yield "periodic", (k % 1000) ** 2 / 1e6
    yield "a large one first", np.where(k == 0, 1e3, 1e-4)


@pytest.fixture(autouse=True)
def on_the_cpu():
    with cupar.device("cpu"):
        yield


def check(found, numpys, given, axis=None):
    """Compare errors with NumPy's, or with the last bit of the magnitudes' sum if that is more."""
    wide = given.astype("G" if given.dtype.kind == "c" else "g")
    right, magnitude = wide.sum(axis), np.abs(wide).sum(axis)
    error, its = (np.abs(np.asarray(each).astype(wide.dtype) - right) for each in (found, numpys))
    assert np.all(error <= 4 * np.maximum(its, np.finfo(given.dtype).eps * magnitude))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8"])
@pytest.mark.parametrize("n", LENGTHS)
def test_of_all(n, dtype):
    for _, given in kinds(n if dtype != "f2" else min(n, 60_000)):
        x = given.astype(dtype) if dtype != "c8" else (given + 1j * given[::-1]).astype(dtype)
        check(arrays.sum(x), x.sum(), x)


def test_of_rows_and_columns():
    for _, given in kinds(30_000):
        x = given.astype("f4").reshape(10, 3000)
        check(arrays.sum(x, axis=1), x.sum(1), x, axis=1)
        x = given.astype("f4").reshape(3000, 10)
        check(arrays.sum(x, axis=0), x.sum(0), x, axis=0)


def test_of_segments():
    starts = np.array([0, 3, 40, 5000, 20_000])
    ends = np.append(starts[1:], 150_000)
    out, zero = np.zeros(5, "f4"), np.zeros(1, "f4")
    sums = cupar.segmented_reduce(np.zeros(1, "f4"), out, starts, ends, OpKind.PLUS, zero)
    for _, given in kinds(150_000):
        x = given.astype("f4")
        sums.run(x, out, 5, starts, ends, zero)
        for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
            check(out[i], x[start:end].sum(), x[start:end])


def test_of_structs():
    both = np.dtype([("total", "f4"), ("count", "i8")], align=True)
    x, out = np.zeros(1_000_003, both), np.zeros(1, both)
    x["count"] = 1
    given = cupar.reduce_into(x, out, lambda a, b: (a[0] + b[0], a[1] + b[1]), np.zeros(1, both))
    for _, totals in kinds(len(x)):
        x["total"] = totals
        given.run(x, out, len(x), np.zeros(1, both))
        assert out["count"] == len(x)
        check(out["total"][0], x["total"].copy().sum(), x["total"])


@pytest.mark.parametrize("n", [1, 31, 32, 39, 40, 127, 128, 135, 136, 2048, 2049, 32_768, 32_900, 140_001])
def test_order_is_kept(n):
    """Maps x -> a x + b, applied one after another: a is in the high half of an integer, b in the low one."""

    def then(f, g):
        a, b = f >> 32, f & 0xFFFFFFFF
        c, d = g >> 32, g & 0xFFFFFFFF
        return (a * c & 0xFFFFFFFF) << 32 | (b * c + d) & 0xFFFFFFFF

    x, out, init = (
        np.arange(1, n + 1, dtype="u8") * 0x1234_5678_9ABC_DEF1,
        np.zeros(1, "u8"),
        np.uint64(1 << 32),
    )
    maps = cupar.segmented_reduce(x, out, np.array([0]), np.array([n]), then, init[None], commutative=False)
    maps.run(x, out, 1, np.array([0]), np.array([n]), init[None])
    assert int(out[0]) == functools.reduce(then, x.tolist(), 1 << 32)
