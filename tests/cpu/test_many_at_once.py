"""Ways of the CPU that take many items at once, or fewer, have the results of the general ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cupar
from cupar import OpKind, arrays

SIZES = [1, 7, 16, 130, 5000, 200_000]


def numbers(dtype: str, size: int, rng: np.random.Generator) -> Any:
    """Return numbers of which many are equal, some 0 of either sign."""
    found = rng.integers(0, 200, size).astype(dtype)
    if found.dtype.kind == "f":
        found[rng.random(size) < 0.1] *= -1
        found[rng.random(size) < 0.1] = -0.0
    return found


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "f2"])
def test_extremes(dtype: str) -> None:
    rng = np.random.default_rng(3)
    for size in SIZES:
        for nans in (0, 1, 3) if dtype[0] == "f" else (0,):
            x = numbers(dtype, size, rng)
            if nans:
                x[rng.integers(0, size, nans)] = np.nan
            for name in ("max", "min", "argmax", "argmin"):
                np.testing.assert_array_equal(
                    getattr(arrays, name)(x), getattr(np, name)(x), f"{name}, {size}"
                )
            least, greatest = arrays.minmax(x)
            np.testing.assert_array_equal((least, greatest), (x.min(), x.max()))
            rows = x[: size // 5 * 5].reshape(-1, 5)
            if rows.size:
                np.testing.assert_array_equal(arrays.minmax(rows, axis=1), (rows.min(1), rows.max(1)))


@pytest.mark.parametrize("dtype", ["u1", "i8"])
def test_integers_in_any_order(dtype: str) -> None:
    rng = np.random.default_rng(4)
    ops = {
        OpKind.PLUS: np.add,
        OpKind.MULTIPLIES: np.multiply,
        OpKind.BIT_XOR: np.bitwise_xor,
        OpKind.BIT_AND: np.bitwise_and,
        OpKind.BIT_OR: np.bitwise_or,
        OpKind.MAXIMUM: np.maximum,
    }
    for size in SIZES:
        x = rng.integers(1, 256, size).astype(dtype) | np.dtype(dtype).type(1)
        for op, ufunc in ops.items():
            assert arrays.reduce(x, op) == ufunc.reduce(x, dtype=dtype), (op, size)
        # No kind: in order.
        assert arrays.reduce(x, lambda a, b: a, axis=None) == x[0] or size > 15


@pytest.mark.parametrize("dtype", ["bool", "f4"])
def test_whether_an_item_holds(dtype: str) -> None:
    for size in (0, *SIZES):
        for holds in ([], [0], [size - 1], [size // 2, size - 1]):
            flags = np.zeros(size, bool)
            flags[[each for each in holds if 0 <= each < size]] = True
            x, out = flags.astype(dtype), np.array(True)
            for given, name in ((x, "any"), (1 - x if dtype != "bool" else ~x, "all")):
                wanted = getattr(np, name)(given)
                found = getattr(arrays, name)(given)
                assert found == wanted and found.dtype == bool and found.shape == ()
                assert getattr(arrays, name)(given, keepdims=True).shape == (1,)
                assert getattr(arrays, name)(given, out=out) is out and out == wanted
    assert arrays.any(np.array([0.0, np.nan])) and arrays.all(np.array([[np.nan, -1.0]]))
    assert not arrays.any(np.array([[0.0, -0.0]]))


def test_bins_are_those_of_edges() -> None:
    rng = np.random.default_rng(5)
    edges = [
        np.linspace(0, 1, 101),
        np.sort(rng.random(40)),
        np.array([0.0, 1e-30, 1e-3, 0.5, 0.5, 1e30]),
        np.array([-np.inf, 0.0, 0.5, np.inf]),
        np.array([-1e308, 0.25, 1e308]),
        np.nextafter(np.linspace(0, 1, 11), 1),
    ]
    for known in edges:
        for dtype in ("f4", "f8"):
            with np.errstate(over="ignore"):
                near = known.astype(dtype)
            x = np.concatenate((near, np.nextafter(near, -1), np.nextafter(near, 2), rng.random(500)))
            x = np.concatenate((x.astype(dtype), np.array([np.nan, -5, 7], dtype)))
            with np.errstate(all="ignore"):
                wanted = np.histogram(x[x == x], known)[0]
            np.testing.assert_array_equal(arrays.histogram(x, bins=known).hist, wanted)
    known = np.array([0, 3, 4, 9, 2**62, 2**63 - 1])
    x = np.concatenate((known, known - 1, known + 1, np.array([2**63 - 2])))
    x = x[x >= 0]
    wanted = np.histogram(x, known)[0]
    np.testing.assert_array_equal(arrays.histogram(x, bins=known).hist, wanted)


def test_division_by_few_and_by_one() -> None:
    each = np.array([-(2**63), -(2**63) + 1, -7, -2, -1, 0, 1, 2, 5, 7, 8, 2**62, 2**63 - 1])
    a, b = (each.ravel() for each in np.meshgrid(each, each))
    by = [
        (np.int64, a, b),
        (np.uint64, a.view("u8"), b.view("u8")),
        (np.int32, *(x.astype("i4") for x in (a, b))),
    ]
    for kind, x, y in by:
        divided, left = (
            arrays.transform(lambda a, b: a // b, x, y),
            arrays.transform(lambda a, b: a % b, x, y),
        )
        for i, (m, n) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
            if n == 0:
                assert divided[i] == left[i] == 0
            else:
                assert (divided[i], left[i]) == tuple(
                    np.array([m // n % 2**64, m % n % 2**64], "u8").astype(kind)
                )


def test_an_error_in_one_of_many_parts() -> None:
    x, out = np.arange(1 << 20), np.zeros(1 << 20, "i8")

    def checked(a: int) -> int:
        return (1, 2)[a // (1 << 18)]

    with cupar.device("cpu"):
        algorithm = cupar.unary_transform(x, out, checked)
    with pytest.raises(RuntimeError, match="checked"):
        algorithm.run(x, out, len(x))
    algorithm.run(x, out, 1 << 18)
    assert (out[: 1 << 18] == 1).all()
    with pytest.raises(RuntimeError, match="checked"):
        algorithm.run(x, out, 1 << 19 | 1)
