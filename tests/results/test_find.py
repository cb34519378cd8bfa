"""Searches for the first item, against NumPy's."""

import numpy as np
import pytest
from support.results import DTYPES, Structs, cp, every, few, items, needs_gpu

import cupar
from cupar import CountingIterator, TransformIterator, TransformOutputIterator, ZipIterator

SIZES = [0, 1, 5, 31, 1000, 4096, 16_384, 16_385, 70_001, 1_000_003]
I8 = np.dtype("i8")


def is_set(a):
    return a == 1


def first_of(fits, none):
    places = np.flatnonzero(fits)
    return places[0] if len(places) else none


@every(3)
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_dtype_at_each_place(dtype, rng):
    find = cupar.find_if(dtype, "i8", is_set)
    or_none = cupar.find_if(dtype, "i8", is_set, none=-1)
    out = cp.zeros(1, "i8")
    for n in SIZES:
        for place in {-1, 0, n // 3, n - 1}:
            host = np.zeros(n + 3, dtype)
            if 0 <= place < n:
                host[place:n] = rng.random(n - place) < 0.1
                host[place] = 1
            host[n:] = 1  # which are beyond
            x, has_one = cp.asarray(host), 0 <= place < n
            find.run(x, out, n)
            assert out.get()[0] == (place if has_one else n), (n, place)
            or_none.run(x, out, n)
            assert out.get()[0] == (place if has_one else -1), (n, place)


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_arrays_that_begin_anywhere(offset, rng):
    find, pairs_of = cupar.find_if("f4", "i4", is_set), None
    out = cp.zeros(1, "i4")
    for n in few(SIZES, 2, offset % 2):
        host = np.zeros(n + 4, "f4")
        host[:offset] = 1
        place = int(rng.integers(0, n + 1))
        host[offset + place :] = 1
        whole = cp.asarray(host)
        find.run(whole[offset:], out, n)
        assert out.get()[0] == place
        # Two arrays, of which one begins with a vector.
        pairs = ZipIterator(whole[offset:], cp.zeros(n + 4, "f4"))
        pairs_of = pairs_of or cupar.find_if(pairs, out, lambda s: s[0] != s[1])
        pairs_of.run(pairs, out, n)
        assert out.get()[0] == place


@pytest.mark.parametrize("dtype", ["?", "u1"])
def test_the_first_zero_byte(dtype):
    x, out = cp.ones(70_000, dtype), cp.zeros(1, "i8")
    x[50_000:] = 0
    cupar.find_if(x, out, lambda a: a == 0).run(x, out, 70_000)
    assert out.get()[0] == 50_000


def test_structs_and_iterators(rng):
    Item = cupar.gpu_struct({"a": np.int32, "b": np.float64, "c": np.int8})
    host = np.zeros(50_001, Item.dtype)
    host["c"][33_333:] = 2
    x, out = Structs(host), cp.zeros(1, "i8")
    cupar.find_if(x, out, lambda s: s.c == 2).run(x, out, len(host))
    assert out.get()[0] == 33_333
    squares = TransformIterator(CountingIterator(np.int64(0)), lambda i: i * i)
    exists = cp.zeros(1, "?")
    written = TransformOutputIterator(exists, lambda place: place >= 0, I8)
    find = cupar.find_if(squares, written, lambda a: a > 10**9, none=-1)
    for n, expected in ((31_623, False), (31_624, True)):
        find.run(squares, written, n)
        assert exists.get()[0] == expected


def test_a_predicate_with_an_array_and_storage_of_ones_own(rng):
    wanted = cp.asarray(np.array([7], "i4"))
    x, out = cp.asarray(np.arange(100_000, dtype="i4") % 50_000), cp.zeros(1, "i8")
    find = cupar.find_if(x, out, lambda a: a == wanted[0])
    storage = cp.zeros(max(find(None, x, out, len(x)), 1), "u1")
    for value in (7, 49_999, -1):
        wanted[0] = value
        storage[:] = 255  # what it begins with does not matter
        find(storage, x, out, len(x))
        assert out.get()[0] == (value if value >= 0 else 100_000)


@needs_gpu
def test_beyond_32_bits():
    n = 2**32 + 12_345
    x, out = cp.zeros(n, "u1"), cp.zeros(1, "i8")
    find = cupar.find_if(x, out, is_set)
    for place in (n, n - 1, 2**32, 2**31 + 7):
        x[place:] = 1
        find.run(x, out, n)
        assert out.get()[0] == place


def test_random_places(rng):
    find, out = cupar.find_if("i2", "i8", is_set, none=-1), cp.zeros(1, "i8")
    for _ in range(20):
        n = int(rng.integers(0, 300_000))
        host = items(rng, n, "i2")
        host[rng.random(n) > 10.0 ** -rng.integers(0, 6)] = 0
        find.run(cp.asarray(host), out, n)
        assert out.get()[0] == first_of(host == 1, -1)
