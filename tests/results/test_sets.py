"""Sets of two sorted ranges, against what C++ says of items that occur several times."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fuzz.sorts import kept
from support.results import DTYPES, Structs, cp, every, few, items, needs_gpu

import cupar
from cupar import OpKind

KINDS = ("union", "intersection", "difference", "symmetric_difference")
SIZES = [
    (0, 0), (0, 1), (1, 0), (1, 1), (0, 9000), (33, 7), (1000, 1), (1, 1000), (5887, 0), (2943, 2945),
    (5000, 20_000), (100_003, 99), (50_000, 150_001),
]  # fmt: skip


def made(kind, keys, values=None, op=OpKind.LESS):
    second = values if kind in ("union", "symmetric_difference") else None
    return getattr(cupar, f"set_{kind}")(keys, values, keys, second, keys, values, "i8", op)


def check(kind, algorithm, first, second, ranks=None):
    """Find a set of keys with their places, and compare; of keys that are equal, these tell which it has."""
    n, m = len(first), len(second)
    both = np.concatenate([first, second])
    wanted = kept(kind, np.unique(both if ranks is None else ranks, return_inverse=True)[1], n)
    d_keys1, d_keys2, d_items1, d_items2 = map(
        cp.asarray, (first, second, np.arange(n, dtype="i4"), np.arange(n, n + m, dtype="i4"))
    )
    if kind not in ("union", "symmetric_difference"):
        d_items2 = None
    d_keys, d_items = cp.zeros(n + m, first.dtype), cp.full(n + m, -1, "i4")
    d_count = cp.full(1, -1, "i8")
    algorithm.run(d_keys1, d_items1, n, d_keys2, d_items2, m, d_keys, d_items, d_count)
    count = int(d_count.get()[0])
    assert count == len(wanted)
    np.testing.assert_array_equal(d_items.get()[:count], wanted)
    np.testing.assert_array_equal(d_keys.get()[:count], both[wanted])
    assert not d_keys.get()[count:].any() and (d_items.get()[count:] == -1).all()
    np.testing.assert_array_equal(d_keys1.get(), first)


@every(9)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_pairs(kind, dtype, rng):
    is_real = np.dtype(dtype).kind != "c"
    algorithm = made(kind, dtype, "i4", OpKind.LESS if is_real else (lambda a, b: a.real < b.real))
    for n, m in SIZES:
        first, second = (items(rng, k, dtype) for k in (n, m))
        first, second = (each[np.argsort(each.real, kind="stable")] for each in (first, second))
        check(kind, algorithm, first, second, np.concatenate([first, second]).real)


@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_occur_several_times(kind, rng):
    algorithm = made(kind, "i4", "i4")
    for n, m in SIZES:
        for top in (1, 3, 100, (n + m) // 3 + 1, 2**31 - 1):
            check(kind, algorithm, *(np.sort(rng.integers(0, top, k, "i4")) for k in (n, m)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.zeros(20_000), np.zeros(30_000)),
        (np.arange(20_000), np.arange(20_000, 50_000)),
        (np.arange(20_000, 50_000), np.arange(20_000)),
        (np.arange(30_000), np.arange(30_000)),
        (np.arange(0, 60_000, 2), np.arange(1, 60_000, 2)),
        (np.repeat(np.arange(6), 5000), np.repeat(np.arange(7), 5003)),
        (np.repeat(np.arange(15_000), 2), np.repeat(np.arange(10_000), 3)),
    ],
    ids=["equal", "before", "behind", "the same", "in turns", "long runs", "short runs"],
)
def test_awkward_keys(kind, first, second):
    check(kind, made(kind, "i4", "i4"), first.astype("i4"), second.astype("i4"))


@pytest.mark.parametrize("kind", KINDS)
def test_any_ranges(kind):
    algorithm = made(kind, "i4", "i4")
    keys = st.lists(st.integers(-4, 4), max_size=40).map(lambda found: np.sort(np.array(found, "i4")))

    @settings(max_examples=60, deadline=None, database=None)
    @given(keys, keys, st.integers(1, 400))
    def hold(first, second, times):
        check(kind, algorithm, np.repeat(first, times), np.repeat(second, times + 1))

    hold()


@pytest.mark.parametrize("key_size", [1, 2, 4, 8])
@pytest.mark.parametrize("item_size", [1, 2, 4, 8, 16])
@every(7)
def test_each_size_of_keys_with_each_size_of_items(key_size, item_size, rng):
    keys, values = f"u{key_size}", "c16" if item_size == 16 else f"i{item_size}"
    kind = KINDS[(key_size + item_size) % 4]
    algorithm = made(kind, keys, values)
    for n, m in few(SIZES, 4):
        first, second = (np.sort(rng.integers(0, 100, k, keys)) for k in (n, m))
        one, other = (items(rng, k, values) for k in (n, m))
        wanted = kept(kind, np.concatenate([first, second]).astype("i8"), n)
        d_keys, d_items, d_count = cp.zeros(n + m, keys), cp.zeros(n + m, values), cp.zeros(1, "i8")
        d_other = cp.asarray(other) if kind in ("union", "symmetric_difference") else None
        d_first, d_one, d_second = map(cp.asarray, (first, one, second))
        algorithm.run(d_first, d_one, n, d_second, d_other, m, d_keys, d_items, d_count)
        count = int(d_count.get()[0])
        assert count == len(wanted)
        np.testing.assert_array_equal(d_keys.get()[:count], np.concatenate([first, second])[wanted])
        np.testing.assert_array_equal(d_items.get()[:count], np.concatenate([one, other])[wanted])


def test_a_comparison_that_looks_at_a_part_of_keys(rng):
    """Of keys that are equal by it, the first range's are taken."""
    for kind in ("union", "difference"):
        algorithm = made(kind, "i4", "i4", lambda a, b: a % 100 < b % 100)
        for n, m in few(SIZES, 6):
            first, second = (rng.integers(0, 10_000, k, "i4") for k in (n, m))
            first, second = (each[np.argsort(each % 100, kind="stable")] for each in (first, second))
            check(kind, algorithm, first, second, np.concatenate([first, second]) % 100)


def test_parts_of_arrays_and_two_phases(rng):
    """At addresses of any alignment, of which copies in bulk take only some."""
    union = cupar.set_union("i1", "i1", "i1", "i1", "i1", "i1", "i4")
    first, second = (np.sort(rng.integers(-99, 99, 20_000, "i1")) for _ in range(2))
    d_first, d_second, d_count = cp.asarray(first), cp.asarray(second), cp.zeros(1, "i4")
    for skip in (1, 3, 7, 13):
        keys, values = cp.zeros(50_000, "i1"), cp.zeros(50_000, "i1")
        n, m = 10_000 + skip, 9000 - skip
        one, other = d_first[skip : skip + n], d_second[2 * skip : 2 * skip + m]
        arguments = one, one, n, other, other, m, keys[skip:], values[5:], d_count
        nbytes = union(None, *arguments)
        assert union(cp.empty(nbytes, "u1"), *arguments) >= nbytes
        both = np.concatenate([first[skip : skip + n], second[2 * skip : 2 * skip + m]])
        wanted = both[kept("union", both.astype("i8") + 99, n)]
        count = int(d_count.get()[0])
        np.testing.assert_array_equal(keys.get()[skip : skip + count], wanted)
        np.testing.assert_array_equal(values.get()[5 : 5 + count], wanted)
        assert not keys.get()[:skip].any() and not keys.get()[skip + count :].any()
        d_count[:] = 0
        with union.bind(*arguments) as bound:
            bound()
            assert int(d_count.get()[0]) == count


def test_iterators():
    """Multiples of 2 and of 3, made as they are read; places, which are converted; results from behind."""
    twos = cupar.TransformIterator(cupar.CountingIterator(np.int32(0)), lambda i: np.int32(2 * i))
    threes = cupar.TransformIterator(cupar.CountingIterator(np.int32(0)), lambda i: np.int32(3 * i))
    places1, places2 = cupar.CountingIterator(np.int32(0)), cupar.CountingIterator(np.int32(10**6))
    for n, m in [(3, 2), (10_000, 9999), (70_000, 70_000)]:
        keys, values, count = cp.zeros(n + m, "i8"), cp.zeros(n + m, "i4"), cp.zeros(1, "u4")
        backwards = cupar.ReverseIterator(keys)
        factory = (twos, places1, threes, places2, backwards, values, count)
        either = cupar.set_symmetric_difference(*factory)
        either.run(twos, places1, n, threes, places2, m, backwards, values, count)
        both = np.concatenate([np.arange(n) * 2, np.arange(m) * 3])
        wanted = kept("symmetric_difference", both, n)
        size = int(count.get()[0])
        np.testing.assert_array_equal(keys.get()[::-1][:size], both[wanted])
        places = np.concatenate([np.arange(n), 10**6 + np.arange(m)])
        np.testing.assert_array_equal(values.get()[:size], places[wanted])


def test_keys_without_room_are_discarded(rng):
    first, second = (np.sort(rng.integers(0, 99, k, "i4")) for k in (5000, 6000))
    nowhere, out, count = cupar.DiscardIterator(), cp.zeros(5000, "i8"), cp.zeros(1, "i8")
    both = cupar.set_intersection("i4", "i8", "i4", None, nowhere, "i8", "i8")
    both.run(cp.asarray(first), cp.arange(5000), 5000, cp.asarray(second), None, 6000, nowhere, out, count)
    wanted = kept("intersection", np.concatenate([first, second]), 5000)
    np.testing.assert_array_equal(out.get()[: int(count.get()[0])], wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_sorted_stays_in_the_room_of_what_is(kind, rng):
    """Cuts of tiles go back and forth, or neither key is first."""
    for keys, values in (("f4", None), ("u1", "f8")):
        for op in (lambda a, b: a < b, lambda a, b: a <= b):
            algorithm = made(kind, keys, values, op)
            for n, m in ((30_000, 20_001), (20_001, 37), (37, 20_001)):
                room = {"intersection": min(n, m), "difference": n}.get(kind, n + m)
                for is_sorted in (False, True):
                    first, second = (rng.integers(0, 200, k).astype(keys) for k in (n, m))
                    if is_sorted:
                        first.sort(), second.sort()
                    if keys == "f4":
                        first[:: n // 7 + 1], second[:: m // 9 + 1] = np.nan, np.nan
                    d_items = [cp.zeros(k, values) if values else None for k in (n, m)]
                    if kind not in ("union", "symmetric_difference"):
                        d_items[1] = None
                    out, count = cp.full(n + m + 999, 201, keys), cp.zeros(1, "i8")
                    items_out = cp.full(n + m + 999, -1, values) if values else None
                    ranges = cp.asarray(first), d_items[0], n, cp.asarray(second), d_items[1], m
                    algorithm.run(*ranges, out, items_out, count)
                    assert 0 <= int(count.get()[0]) <= room
                    assert (out.get()[room:] == 201).all()
                    assert not values or (items_out.get()[room:] == -1).all()


PEAK = np.dtype([("mass", "f8"), ("charge", "i4"), ("flag", "i2")], align=True)
LARGE = np.dtype([(f"x{i}", "f8") for i in range(60)])


@pytest.mark.parametrize("dtype", [PEAK, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("kind", ["union", "difference"])
def test_structs(kind, dtype, rng):
    """Keys that are structs, compared by two fields: which of equal ones it is, shows a third."""
    one, other, tag = dtype.names[:3]

    def before(a, b):
        return a[0] < b[0] or (a[0] == b[0] and a[1] > b[1])

    def ranked(n):
        found = np.zeros(n, dtype)
        found[one], found[other] = rng.integers(0, 20, n), rng.integers(0, 5, n)
        found = found[np.lexsort((-found[other], found[one]))]
        found[tag] = np.arange(n) % 1000
        return found

    first, second = ranked(3000), ranked(1234)
    both = np.concatenate([first, second])
    wanted = kept(kind, (both[one] * 5 + 4 - both[other]).astype("i8"), 3000)
    out, count = Structs(np.zeros(4234, dtype)), cp.zeros(1, "i8")
    algorithm = made(kind, dtype, None, before)
    algorithm.run(Structs(first), None, 3000, Structs(second), None, 1234, out, None, count)
    assert out.get()[: int(count.get()[0])].tolist() == both[wanted].tolist()


@needs_gpu
@pytest.mark.parametrize(("n", "m"), [(2**32 + 5, 3), (3, 2**32 + 5), (2**31 + 1, 2**31 + 1)])
def test_more_than_32_bits_count(n, m):
    cp.get_default_memory_pool().free_all_blocks()
    first, second, out, count = (
        cp.zeros(n, "u1"),
        cp.ones(m, "u1"),
        cp.full(n + m, 9, "u1"),
        cp.zeros(1, "i8"),
    )
    first[-2:], second[:1] = 2, 0
    cupar.set_union("u1", None, "u1", None, "u1", None, "i8").run(
        first, None, n, second, None, m, out, None, count
    )
    zeros, size = n - 2, int(count.get()[0])
    assert size == n + m - 1
    assert not out[:zeros].any() and (out[zeros : size - 2] == 1).all() and (out[size - 2 : size] == 2).all()
    del first, second, out
    cp.get_default_memory_pool().free_all_blocks()
