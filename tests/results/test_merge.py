"""Merges of two sorted ranges, against a stable sort of both by NumPy."""

from functools import cmp_to_key

import numpy as np
import pytest
from support.results import DTYPES, Structs, cp, every, few, items, needs_gpu

import cupar
from cupar import OpKind

SIZES = [
    (0, 0), (0, 1), (1, 0), (1, 1), (0, 5000), (33, 7), (1000, 1), (1, 1000), (7680, 0), (3840, 3840),
    (3840, 3841), (7000, 20_000), (100_003, 99), (50_000, 150_001),
]  # fmt: skip
REAL = DTYPES[:-2]


@needs_gpu
@pytest.mark.parametrize("op", [lambda a, b: a < b, lambda a, b: a <= b])
def test_what_is_not_sorted_stays_in_the_outputs(op, rng):
    """Tiles may be cut anywhere then, of sorts by NaN; addresses beyond shared memory would be faults."""
    n, m, behind = 150_000, 50_001, 999
    keys = rng.integers(0, 1000, n + m).astype("f4")
    keys[rng.integers(0, n + m, 5000)] = np.nan
    d_keys, d_items = cp.asarray(keys), cp.arange(n + m)
    starts, ends = cp.asarray([0, n]), cp.asarray([n, n + m])
    for has_items in (False, True):
        items = d_items if has_items else None
        out, items_out = cp.full(n + m + behind, -1, "f4"), cp.full(n + m + behind, -1, "i8")
        beside = items_out if has_items else None
        one, other = (
            (part, items[at] if has_items else None)
            for part, at in ((d_keys[:n], slice(n)), (d_keys[n:], slice(n, None)))
        )
        merge = cupar.merge(*one, *other, out, beside, op)
        merge.run(*one, n, *other, m, out, beside)
        sort = cupar.merge_sort(d_keys, items, out, beside, op)
        sort.run(d_keys, items, out, beside, n + m)
        sort = cupar.segmented_sort(d_keys, out, items, beside, starts, ends, op=op)
        sort.run(d_keys, out, items, beside, n + m, 2, starts, ends)
        assert (out.get()[n + m :] == -1).all() and (items_out.get()[n + m :] == -1).all()


def ordered(host):
    """Return keys in the order of NumPy's, of complex numbers by their real part."""
    key = host.real if host.dtype.kind == "c" else host
    return host[np.argsort(key, kind="stable")]


def expected(first, second, key=lambda keys: keys):
    """Return the merged keys, and which they are of both ranges."""
    both = np.concatenate([first, second])
    order = np.argsort(key(both), kind="stable")
    return both[order], order


def check(merge, first, second, key=lambda keys: keys):
    """Run a merge of keys with their places, and compare."""
    n, m = len(first), len(second)
    keys, places = expected(first, second, key)
    d_keys1, d_keys2, d_items1, d_items2 = map(
        cp.asarray, (first, second, np.arange(n, dtype="i4"), np.arange(n, n + m, dtype="i4"))
    )
    d_keys, d_items = cp.zeros(n + m, first.dtype), cp.full(n + m, -1, "i4")
    merge.run(d_keys1, d_items1, n, d_keys2, d_items2, m, d_keys, d_items)
    np.testing.assert_array_equal(d_items.get(), places)
    np.testing.assert_array_equal(d_keys.get(), keys)
    np.testing.assert_array_equal(d_keys1.get(), first)
    np.testing.assert_array_equal(d_keys2.get(), second)


@every(5)
@pytest.mark.parametrize("dtype", DTYPES)
def test_pairs(dtype, rng):
    is_real = np.dtype(dtype).kind != "c"
    op = OpKind.LESS if is_real else (lambda a, b: a.real < b.real)
    merge = cupar.merge(dtype, "i4", dtype, "i4", dtype, "i4", op)
    for n, m in SIZES:
        first, second = ordered(items(rng, n, dtype)), ordered(items(rng, m, dtype))
        check(merge, first, second, (lambda keys: keys) if is_real else (lambda keys: keys.real))


@every(5)
@pytest.mark.parametrize("dtype", REAL)
def test_keys(dtype, rng):
    merge = cupar.merge(dtype, None, dtype, None, dtype)
    for n, m in SIZES:
        first, second = ordered(items(rng, n, dtype)), ordered(items(rng, m, dtype))
        out = cp.zeros(n + m, dtype)
        merge.run(cp.asarray(first), None, n, cp.asarray(second), None, m, out)
        np.testing.assert_array_equal(out.get(), expected(first, second)[0])


@pytest.mark.parametrize("key_size", [1, 2, 4, 8])
@pytest.mark.parametrize("item_size", [1, 2, 4, 8, 16])
@every(7)
def test_each_size_of_keys_with_each_size_of_items(key_size, item_size, rng):
    keys, values = f"u{key_size}", "c16" if item_size == 16 else f"i{item_size}"
    merge = cupar.merge(keys, values, keys, values, keys, values)
    for n, m in few(SIZES, 4):
        first, second = (np.sort(rng.integers(0, 100, k, keys)) for k in (n, m))
        one, other = (items(rng, k, values) for k in (n, m))
        wanted, places = expected(first, second)
        d_keys, d_items = cp.zeros(n + m, keys), cp.zeros(n + m, values)
        given = [cp.asarray(each) for each in (first, one, second, other)]
        merge.run(*given[:2], n, *given[2:], m, d_keys, d_items)
        np.testing.assert_array_equal(d_keys.get(), wanted)
        np.testing.assert_array_equal(d_items.get(), np.concatenate([one, other])[places])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.zeros(20_000), np.zeros(30_000)),
        (np.arange(20_000), np.arange(20_000, 50_000)),
        (np.arange(20_000, 50_000), np.arange(20_000)),
        (np.arange(0, 60_000, 2), np.arange(1, 60_000, 2)),
        (np.repeat(np.arange(6), 5000), np.repeat(np.arange(7), 5003)),
    ],
    ids=["equal", "before", "behind", "in turns", "runs"],
)
def test_awkward_keys(first, second):
    check(cupar.merge("i4", "i4", "i4", "i4", "i4", "i4"), first.astype("i4"), second.astype("i4"))


def test_a_comparison_that_looks_at_a_part_of_keys_is_stable(rng):
    merge = cupar.merge("i4", "i4", "i4", "i4", "i4", "i4", lambda a, b: a % 100 < b % 100)
    for n, m in SIZES:
        first, second = (rng.integers(0, 10_000, k, "i4") for k in (n, m))
        first, second = (each[np.argsort(each % 100, kind="stable")] for each in (first, second))
        check(merge, first, second, lambda keys: keys % 100)


def test_descending(rng):
    merge = cupar.merge("i2", "i4", "i2", "i4", "i2", "i4", OpKind.GREATER)
    first, second = (np.sort(rng.integers(-50, 50, k, "i2"))[::-1].copy() for k in (9000, 777))
    check(merge, first, second, lambda keys: -keys)


def test_two_phases_and_bound_calls(rng):
    merge = cupar.merge("f4", None, "f4", None, "f4")
    first, second = (np.sort(rng.random(k, "f4")) for k in (40_000, 7))
    d_first, d_second, out = cp.asarray(first), cp.asarray(second), cp.zeros(40_007, "f4")
    arguments = d_first, None, 40_000, d_second, None, 7, out, None
    nbytes = merge(None, *arguments)
    assert merge(cp.empty(nbytes, "u1"), *arguments) >= nbytes
    wanted, _ = expected(first, second)
    np.testing.assert_array_equal(out.get(), wanted)
    out[:] = 0
    with merge.bind(*arguments) as bound:
        bound()
        np.testing.assert_array_equal(out.get(), wanted)


def test_parts_of_arrays(rng):
    """At addresses of any alignment, of which copies in bulk take only some."""
    merge = cupar.merge("i1", "i1", "i1", "i1", "i1", "i1")
    first, second = (np.sort(rng.integers(-99, 99, 20_000, "i1")) for _ in range(2))
    d_first, d_second = cp.asarray(first), cp.asarray(second)
    for skip in (1, 3, 7, 13):
        keys, values = cp.zeros(50_000, "i1"), cp.zeros(50_000, "i1")
        n, m = 10_000 + skip, 9000 - skip
        one, other = d_first[skip : skip + n], d_second[2 * skip : 2 * skip + m]
        merge.run(one, one, n, other, other, m, keys[skip:], values[5:])
        wanted, _ = expected(first[skip : skip + n], second[2 * skip : 2 * skip + m])
        np.testing.assert_array_equal(keys.get()[skip : skip + n + m], wanted)
        np.testing.assert_array_equal(values.get()[5 : 5 + n + m], wanted)
        assert not keys.get()[:skip].any() and not keys.get()[skip + n + m :].any()


def test_iterators():
    """Even and odd numbers, made as they are read; places, which are converted; and results from behind."""
    evens = cupar.TransformIterator(cupar.CountingIterator(np.int32(0)), lambda i: np.int32(2 * i))
    odds = cupar.TransformIterator(cupar.CountingIterator(np.int32(0)), lambda i: np.int32(2 * i + 1))
    places1, places2 = cupar.CountingIterator(np.int32(0)), cupar.CountingIterator(np.int32(10**6))
    for n, m in [(3, 2), (10_000, 9999), (70_000, 70_000)]:
        keys, values = cp.zeros(n + m, "i8"), cp.zeros(n + m, "i4")
        backwards = cupar.ReverseIterator(keys)
        arguments = evens, places1, odds, places2, backwards, values
        cupar.merge(*arguments).run(evens, places1, n, odds, places2, m, backwards, values)
        first, second = np.arange(n) * 2, np.arange(m) * 2 + 1
        wanted, order = expected(first, second)
        np.testing.assert_array_equal(keys.get()[::-1], wanted)
        np.testing.assert_array_equal(
            values.get(), np.concatenate([np.arange(n), 10**6 + np.arange(m)])[order]
        )


def test_keys_without_room_are_discarded(rng):
    first, second = (np.sort(rng.integers(0, 99, k, "i4")) for k in (5000, 6000))
    places = [cp.arange(5000), cp.arange(5000, 11_000)]
    nowhere, out = cupar.DiscardIterator(), cp.zeros(11_000, "i8")
    merge = cupar.merge("i4", "i8", "i4", "i8", nowhere, "i8")
    merge.run(cp.asarray(first), places[0], 5000, cp.asarray(second), places[1], 6000, nowhere, out)
    np.testing.assert_array_equal(out.get(), expected(first, second)[1])


PEAK = np.dtype([("mass", "f8"), ("charge", "i4"), ("flag", "i2")], align=True)
LARGE = np.dtype([(f"x{i}", "f8") for i in range(70)])


@pytest.mark.parametrize("dtype", [PEAK, LARGE], ids=["small", "large"])
def test_structs(dtype, rng):
    """Keys that are structs, compared by one field, then another; of some the tile is smaller than CUB's."""
    one, other = dtype.names[:2]

    def before(a, b):
        return a[0] < b[0] or (a[0] == b[0] and a[1] > b[1])

    def compared(a, b):
        return -1 if before(a, b) else 1 if before(b, a) else 0

    def made(n):
        found = np.zeros(n, dtype)
        found[one], found[other] = rng.integers(0, 20, n), rng.integers(0, 5, n)
        found[dtype.names[2]] = np.arange(n) % 1000
        return np.array(sorted(found, key=cmp_to_key(compared)), dtype)

    first, second = made(3000), made(1234)
    wanted = np.array(sorted([*first, *second], key=cmp_to_key(compared)), dtype)
    out = Structs(np.zeros(4234, dtype))
    merge = cupar.merge(dtype, None, dtype, None, dtype, None, before)
    merge.run(Structs(first), None, 3000, Structs(second), None, 1234, out)
    assert out.get().tolist() == wanted.tolist()


@needs_gpu
@pytest.mark.parametrize(("n", "m"), [(2**32 + 5, 3), (3, 2**32 + 5), (2**31 + 1, 2**31 + 1)])
def test_more_than_32_bits_count(n, m):
    cp.get_default_memory_pool().free_all_blocks()
    first, second, out = cp.zeros(n, "u1"), cp.ones(m, "u1"), cp.full(n + m, 9, "u1")
    first[-2:], second[:1] = 2, 0
    cupar.merge("u1", None, "u1", None, "u1").run(first, None, n, second, None, m, out)
    zeros = n - 2 + 1
    assert not out[:zeros].any() and (out[zeros:-2] == 1).all() and (out[-2:] == 2).all()
    del first, second, out
    cp.get_default_memory_pool().free_all_blocks()
