"""Results of what `cupar.arrays` has of Thrust's names, in each library; the fuzzer tries more on the CPU."""

import numpy as np
import pytest
from support.libraries import each_library, same
from support.results import IS_CPU, cp

from cupar import arrays

pytestmark = pytest.mark.slow

X = np.array([[3, -1, 4, 1], [-5, 9, -2, 6]], np.float32)
PLACES = np.array([[7, 0, 5, 2], [1, 6, 3, 4]])
FLAGS = np.array([[1, 0, 1, 1], [0, 0, 1, 0]], bool)


def target(lib, host):
    """Return an array that results are written to, which the caller compares."""
    if lib.name == "dlpack":
        return host.copy() if IS_CPU else cp.asarray(host)
    return lib.array(host.copy())


def is_negative(a):
    return a < 0


@each_library
def test_items_are_moved(lib):
    x, places, flags = lib.array(X), lib.array(PLACES), lib.array(FLAGS)
    same(lib.host(arrays.reverse(x, axis=1)), X[:, ::-1])
    same(lib.host(arrays.roll(x, 3)), np.roll(X, 3))
    same(lib.host(arrays.shift(x, 1, 7, axis=0)), np.array([[7] * 4, X[0]], np.float32))
    same(lib.host(arrays.gather(x, places)), X.reshape(-1)[PLACES])
    out = target(lib, np.zeros(8, np.float32))
    expected = np.zeros(8, np.float32)
    expected[PLACES[FLAGS]] = X[FLAGS]
    same(lib.host(arrays.scatter_if(x, places, flags, out)), expected)
    expected[PLACES] = X
    same(lib.host(arrays.scatter(x, places, out)), expected)
    expected = np.where(FLAGS, X.reshape(-1)[PLACES], 7)
    kept = target(lib, np.full((2, 4), 7, np.float32))
    same(lib.host(arrays.gather_if(x, places, flags, kept)), expected)
    assert sorted(lib.host(arrays.shuffle(x, seed=3)).reshape(-1)) == sorted(X.reshape(-1))
    same(lib.host(arrays.compress(x, flags)), X[FLAGS])
    same(lib.host(arrays.partition_copy(x, is_negative)[1]), X[X >= 0])


@each_library
def test_items_are_computed(lib):
    x = lib.array(X)
    same(lib.host(arrays.tabulate(4, lambda i: i * i, like=x)), np.arange(4) ** 2)
    same(lib.host(arrays.sequence(3, 1.5, 2, dtype="f4", like=x)), np.array([1.5, 3.5, 5.5], np.float32))
    same(lib.host(arrays.replace_if(x, is_negative, 0)), np.where(X < 0, np.float32(0), X))
    expected = np.concatenate([X[:, :1], np.diff(X, axis=1)], axis=1)
    own = target(lib, X)
    assert arrays.adjacent_difference(own, axis=1, out=own) is own
    same(lib.host(own), expected)
    same(lib.host(arrays.fill(own, 2)), np.full_like(X, 2))
    whole, expected = target(lib, np.zeros((4, 6), np.float32)), np.zeros((4, 6), np.float32)
    arrays.fill(whole[1:, ::2], 5)
    expected[1:, ::2] = 5
    same(lib.host(whole), expected)
    both = arrays.fill((own, whole), (1, 3))
    same(lib.host(both[1]), np.full_like(expected, 3))
    written = target(lib, np.zeros(8, np.int64))

    def act(i):
        written[i] = i + 7
        return 0

    arrays.for_each(lib.array(np.arange(8)), act)
    same(lib.host(written), np.arange(8) + 7)


@each_library
def test_items_are_counted_and_compared(lib):
    x = lib.array(X)
    same(lib.host(arrays.count_if(x, is_negative, axis=1)), np.array([1, 2]))
    same(lib.host(arrays.none_of(x, is_negative)), np.bool_(False))
    same(lib.host(arrays.find_first(x, is_negative)), np.int64(1))
    same(lib.host(arrays.mismatch(x, lib.array(np.abs(X)))), np.int64(1))
    same(lib.host(arrays.equal(x, lib.array(X))), np.bool_(True))
    same(lib.host(arrays.is_sorted(lib.array(np.sort(X, None)))), np.bool_(True))
    same(lib.host(arrays.inner_product(x, x)), (X * X).sum())
    same(lib.host(arrays.transform_scan(x, abs)), np.cumsum(np.abs(X), dtype=np.float32))
